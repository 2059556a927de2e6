/** A file, an engine or a request that cannot be used; the message says what is wrong and how to mend it. */
export class EngineError extends Error {}

export interface LoadOptions {
  /** Bytes that are loaded so far, and in all. */
  onProgress?: (progress: { loaded: number; total: number }) => void;
  signal?: AbortSignal;
  /** A worker that runs `src/worker.js`, for bundlers that place it elsewhere. */
  worker?: Worker;
}

export interface TranslateOptions {
  /** Target language, such as "de"; by default the first of the model. */
  to?: string;
  /** Source language; by default it follows from the target, if the model has one for it. */
  from?: string;
  /** Number of hypotheses kept at each step, 1 to 16; 1 is greedy search. */
  beam?: number;
  lengthPenalty?: number;
  /** Terms and the translations to use for them, if the model was trained with slots; by default those of the site. */
  glossary?: Record<string, string>;
  signal?: AbortSignal;
}

export interface DetailOptions extends TranslateOptions {
  /** Number of outputs of each sentence, 1 to 16. */
  nbest?: number;
  /** Whether to compute the probability of each word. */
  words?: boolean;
  /** Whether to align characters of source and translation. */
  align?: boolean;
  /** Called with each line that is finished. */
  onLine?: (line: { text: number; line: number; sentences: Sentence[] }) => void;
}

export interface Output {
  text: string;
  /** Log-probability divided by the length penalty. */
  score: number;
  logProb: number;
}

/** Start and end, counted in characters (code points). */
export type Range = [start: number, end: number];

export interface Sentence {
  /** Index of its line in the text. */
  line?: number;
  source: string;
  /** The best translation. */
  text: string;
  /** White space before the next translation of the line. */
  after: string;
  outputs: Output[];
  words?: number[];
  aligned?: [source: Range, target: Range][];
}

export interface Translation {
  text: string;
  score: number;
  sentences: Sentence[];
}

export interface Alternative {
  word: string;
  probability: number;
  /** The whole translation if this word is chosen. */
  text: string;
  words: number[];
  /** The ids of the tokens up to the first one of the word. */
  prefix: number[];
}

export interface Facts {
  name: string;
  /** Pairs of source and target language. */
  directions: [source: string, target: string][];
  /** The English names of languages. */
  languages: Record<string, string>;
  tagged: boolean;
  defaultTo: string | null;
  /** Whether `inspect`, `reference` and `head` work. */
  canInspect: boolean;
  /** The instructions that the engine uses. */
  instructions: string;
}

export interface InspectOptions extends TranslateOptions {
  /** Token ids that the translation starts with. */
  prefix?: number[];
  /** Heads that are switched off, such as "cross.1.2". */
  off?: string[];
}

export interface ReferenceToken {
  token: number;
  piece: string;
  log_prob: number;
  rank: number;
  best: string;
  best_log_prob: number;
}

export interface HeadNumbers {
  query: number[];
  keys: number[][];
  products: number[];
  weights: number[];
  values: number[][];
  output: number[];
}

export interface GenerateOptions {
  /** Maximum number of tokens. */
  maxTokens?: number;
  /** 0 is greedy. */
  temperature?: number;
  /** Choose among this many tokens; 0: all. */
  topK?: number;
  /** Choose among the most probable tokens with this probability together. */
  topP?: number;
  /** Random seed. */
  seed?: number;
  signal?: AbortSignal;
  /** Called with each part of the text as it is generated. */
  onText?: (more: string) => void;
}

/** A language model. */
export class Generator {
  static load(url: string | URL, options?: LoadOptions): Promise<Generator>;
  readonly facts: { name: string; task: "language_model"; context: number; instructions: string };
  /** The continuation of a prompt. */
  generate(prompt: string, options?: GenerateOptions): Promise<string>;
  /** Stop the worker. */
  close(): void;
}

export class Translator {
  /** Load a model from the address of a folder that `transduce export --to web` wrote. */
  static load(url: string | URL, options?: LoadOptions): Promise<Translator>;
  readonly facts: Facts;
  translate(text: string, options?: TranslateOptions): Promise<string>;
  translate(texts: readonly string[], options?: TranslateOptions): Promise<string[]>;
  translateInDetail(texts: readonly string[], options?: DetailOptions): Promise<Translation[]>;
  /** Other words at a place of the translation of a sentence; `position` counts characters. */
  alternatives(text: string, output: string, position: number, options?: { to?: string; count?: number; signal?: AbortSignal }): Promise<Alternative[]>;
  detect(text: string): Promise<{ language: string; probability: number } | null>;
  /** Attention weights, search tree and predictions of a sentence, in the binary format of transduce/inspect/serialize.py. */
  inspect(text: string, options?: InspectOptions): Promise<ArrayBuffer>;
  /** How probable each token of a translation is, and its rank. */
  reference(text: string, reference: string, options?: { to?: string }): Promise<ReferenceToken[]>;
  /** The computation of one head, such as "cross.1.2", for the query at a position; `output` has the token ids of the translation. */
  head(text: string, name: string, query: number, output: number[], options?: { to?: string }): Promise<HeadNumbers>;
  /** Stop the worker. */
  close(): void;
}
