// A translator on the thread that calls it. `Translator` runs it in a worker.

import { BYTE_LEVEL, ByteLevelTokenizer } from "./byte_level.js";
import { Engine } from "./engine.js";
import { LocalGenerator } from "./generator.js";
import { readManifest, readSiteFile } from "./files.js";
import { headNumbers, inspect, scoreReference } from "./inspect.js";
import { between, detect, escape, languageTag, protectedSpans, readGlossary, readRules, requiredSpans, reservedTokens, restored, sentences, splitLong, withSlots } from "./text.js";
import { Tokenizer } from "./tokenizer.js";
import { EngineError, fittingEngine, Library } from "./wasm.js";
import { readSettings, readTensors, Weights } from "./weights.js";

const PAUSE = 30; // milliseconds of work after which other events are handled
const [MOST_BEAM, MOST_EXTRA] = [16, 1000];
const countCharacters = (text) => [...text].length;

/** Load a translator or a generator from the folder of a site; `onProgress` gets {loaded, total} in bytes. */
export async function loadModel(folder, { onProgress, signal } = {}) {
  const manifest = await readManifest(folder, signal);
  const engine = `engine-${await fittingEngine()}.wasm`;
  const vocabulary = Object.hasOwn(manifest.files, BYTE_LEVEL) ? BYTE_LEVEL : "tokenizer.model";
  const names = [engine, "model.json", "rules.json", vocabulary, "model.safetensors"];
  const total = names.reduce((sum, name) => sum + (manifest.files[name]?.size ?? 0), 0);
  let loaded = 0;
  const onBytes = (count) => onProgress?.({ loaded: (loaded += count), total });
  const read = (name) => readSiteFile(folder, manifest, name, { signal, onBytes });
  const library = await Library.load(await read(engine));
  const files = {};
  for (const name of names.slice(1)) files[name] = await read(name);
  return buildModel(manifest, library, files);
}

/** A translator or a generator from the contents of its files, which are untrusted. */
export function buildModel(manifest, library, files) {
  const [card, rules] = ["model.json", "rules.json"].map((name) => {
    try {
      return JSON.parse(new TextDecoder().decode(files[name]));
    } catch {
      throw new EngineError(`${name} is damaged: it is no JSON`);
    }
  });
  const settings = readSettings(card);
  const facts = card.facts ?? {};
  const vocabulary = files[BYTE_LEVEL] && settings.generates ? BYTE_LEVEL : "tokenizer.model";
  if (!files[vocabulary]) throw new EngineError(`${BYTE_LEVEL} is the vocabulary of a language model, but model.json is not`);
  const tokenizer = vocabulary === BYTE_LEVEL ? new ByteLevelTokenizer(files[BYTE_LEVEL]) : new Tokenizer(files[vocabulary]);
  if (tokenizer.size !== settings.vocab_size || settings.source_vocab_size != null) throw new EngineError(`${vocabulary} does not fit model.json: it has another number of tokens`);
  const weights = new Weights(library, settings, readTensors(files["model.safetensors"]));
  if (settings.generates) return new LocalGenerator(manifest, facts, tokenizer, library, weights);
  return new LocalTranslator(manifest, facts, readRules(rules), tokenizer, new Engine(library, weights));
}

export class LocalTranslator {
  constructor(manifest, facts, rules, tokenizer, engine) {
    Object.assign(this, { manifest, rules, tokenizer, engine });
    this.tagged = Boolean(facts.tagged);
    this.directions = Array.isArray(facts.directions) ? facts.directions : [];
    this.bySentence = Boolean(facts.by_sentence);
    this.longest = Math.min(facts.max_length >= 1 ? facts.max_length : 256, engine.settings.longest ?? Infinity);
    const count = (value, most, otherwise) => (Number.isInteger(value) && value >= 0 ? Math.min(value, most) : otherwise);
    const { beam, length_penalty, max_extra, min_length } = facts.search ?? {};
    this.search = {
      beam: Math.max(1, count(beam, MOST_BEAM, 4)), nbest: 1, length_penalty: Number.isFinite(length_penalty) ? length_penalty : 0.6,
      max_extra: count(max_extra, MOST_EXTRA, 50), min_length: count(min_length, MOST_EXTRA, 1),
    };
    this.defaultTo = facts.default_to ?? this.directions[0]?.[1] ?? null;
    this.reserved = reservedTokens(tokenizer);
    this.canInspect = engine.settings.decoder_cell !== "ssru";
    this.usesSlots = facts.augment?.spans > 0 && this.reserved !== null;
  }

  get facts() {
    const { name, languages } = this.manifest;
    return { name, languages, directions: this.directions, tagged: this.tagged, defaultTo: this.defaultTo, canInspect: this.canInspect, instructions: this.engine.library.instructions };
  }

  /** The language of a text among the sources of the site; null if it is not certain. */
  detect(text) {
    return detect(text, this.manifest.sources ?? [...new Set(this.directions.map(([source]) => source))], this.rules);
  }

  /** Translate texts: [{text, score, sentences}]. `onLine` gets {text, line, sentences} of each line that is finished. */
  async translate(texts, { to, from, beam, nbest = 1, lengthPenalty, words = false, align = false, glossary, signal } = {}, onLine) {
    const target = this.#target(to, from);
    const search = this.#search({ beam, nbest, lengthPenalty });
    const lines = texts.flatMap((text, number) => String(text).split("\n").map((line, index) => ({ text: number, line: index, content: line })));
    const jobs = [];
    for (const line of lines) {
      const source = from ?? this.#source(target);
      line.segments = this.#segments(line.content, source, target).map((segment) => {
        jobs.push({ ...this.#job(segment), segment, line });
        return segment;
      });
      line.waiting = line.segments.length;
    }
    for (const line of lines) if (!line.waiting) onLine?.({ text: line.text, line: line.line, sentences: [] });
    const finish = async (line) => {
      await this.#useRequired(line.segments, glossary ? readGlossary(glossary) : this.rules.glossary[target], search, signal);
      if (words || align) await this.#read(line.segments, { words, align }, signal);
      onLine?.({ text: line.text, line: line.line, sentences: line.segments.map((segment) => this.#result(segment)) });
    };
    const done = [];
    await paced(this.engine.search(jobs, search), signal, ([index, outputs]) => {
      const { segment, line } = jobs[index];
      if (!segment.isCopied) segment.outputs = outputs.map((output) => ({ ...output, text: this.#text(output.tokens, segment) }));
      if (--line.waiting === 0) done.push(line);
    }, async () => {
      while (done.length) await finish(done.shift());
    });
    return texts.map((_, number) => {
      const own = lines.filter(({ text }) => text === number);
      const results = own.flatMap(({ segments, line }) => segments.map((segment) => ({ line, ...this.#result(segment) })));
      const text = own.map(({ content, segments }) => this.#joined(content, segments)).join("\n");
      return { text, score: results.reduce((sum, { outputs }) => sum + outputs[0].score, 0), sentences: results };
    });
  }

  /** Other words at a place of a translation, each {word, probability, text, words, prefix}; `position` counts characters. */
  async alternatives(text, output, position, { to, count = 8, signal } = {}) {
    const target = this.#target(to);
    const segment = this.#segment({ text, after: "" }, target);
    let marked = escape(output);
    for (const [slot, original] of segment.slots) marked = marked.replace(escape(original), slot);
    const before = this.#tokensBefore(this.tokenizer.encode(marked), position, segment);
    const wide = { ...this.search, beam: Math.min(count + 1, MOST_BEAM), nbest: Math.min(count + 1, MOST_BEAM), min_length: before.length + 1 };
    let next = [];
    await paced(this.engine.search([{ tokens: segment.tokens, prefix: before, max_length: before.length + 1 }], wide), signal, ([, outputs]) => {
      next = [...new Set(outputs.map(({ tokens }) => tokens[before.length]).filter((token) => token !== undefined))].slice(0, count);
    });
    const segments = next.map(() => ({ ...segment }));
    const jobs = next.map((token) => this.#job(segment, [...before, token]));
    await paced(this.engine.search(jobs, this.search), signal, ([index, [best]]) => (segments[index].outputs = [{ ...best, text: this.#text(best.tokens, segment) }]));
    await this.#read(segments, { words: true }, signal);
    const start = before.length ? countCharacters(this.#text(before, segment)) : 0;
    const found = new Map();
    segments.forEach(({ outputs: [{ text }], words }, n) => {
      const all = [...text.matchAll(/\S+/gu)].map(({ 0: word, index }) => ({ word, end: countCharacters(text.slice(0, index + word.length)) }));
      const at = Math.max(0, all.findIndex(({ end }) => end > start) < 0 ? all.length - 1 : all.findIndex(({ end }) => end > start));
      const word = all[at]?.word ?? "";
      if (!found.has(word)) found.set(word, { word, probability: words[at] ?? 0, text, words, prefix: [...before, next[n]] });
    });
    return [...found.values()].sort((a, b) => b.probability - a.probability);
  }

  /** What the page shows of a translation, in the format of transduce/inspect/serialize.py. */
  inspect(text, { to, beam, lengthPenalty, prefix = [], off = [] } = {}) {
    return inspect(this.#part(text, to, { beam, lengthPenalty, prefix }), text, prefix, off);
  }

  /** The probability and the rank of each token of a translation. */
  reference(text, reference, { to } = {}) {
    return scoreReference(this.#part(text, to), this.tokenizer.encode(escape(reference.trim())));
  }

  /** Query, keys, weights, values and output of a head, such as cross.1.2, at a position; `output` are token ids. */
  head(text, name, query, output, { to } = {}) {
    return headNumbers(this.#part(text, to), name, query, output);
  }

  /** A text as one sentence, for an inspection. */
  #part(text, to, { beam, lengthPenalty, prefix } = {}) {
    if (!this.canInspect) throw new EngineError("models with model.decoder_cell = ssru cannot be inspected");
    const segment = this.#segment({ text, after: "" }, this.#target(to));
    const options = this.#search({ beam: beam ?? undefined, nbest: 1, lengthPenalty: lengthPenalty ?? undefined });
    return { ...segment, engine: this.engine, tokenizer: this.tokenizer, job: this.#job(segment, prefix), options, toText: (tokens) => this.#text(tokens, segment) };
  }

  #target(to, from) {
    if (!this.tagged) return to ?? this.defaultTo;
    const targets = [...new Set(this.directions.map(([, target]) => target))];
    const chosen = to ?? this.directions.find(([source]) => source === from)?.[1] ?? this.defaultTo;
    if (!targets.includes(chosen)) throw new EngineError(`this model does not translate to ${chosen}; it translates to ${targets.join(", ")}`);
    return chosen;
  }

  #source(target) {
    const sources = [...new Set(this.directions.filter(([, other]) => other === target).map(([source]) => source))];
    return sources.length === 1 ? sources[0] : undefined;
  }

  #search({ beam = this.search.beam, nbest, lengthPenalty = this.search.length_penalty }) {
    const isCount = (n) => Number.isInteger(n) && n >= 1 && n <= MOST_BEAM;
    if (!isCount(beam) || !isCount(nbest) || typeof lengthPenalty !== "number") throw new EngineError(`beam and nbest must be numbers from 1 to ${MOST_BEAM}, and lengthPenalty a number`);
    return { ...this.search, beam: Math.max(beam, nbest), nbest, length_penalty: lengthPenalty };
  }

  #segments(line, source, target) {
    const spans = this.usesSlots ? protectedSpans(line, this.rules) : [];
    const found = this.bySentence ? sentences(line, source, this.rules, spans) : line.trim() ? [{ text: line.trim(), after: "" }] : [];
    const fits = (text) => this.#encode(text, target).tokens.length <= this.longest;
    return found.flatMap((sentence) => splitLong(sentence, fits)).map((sentence) => this.#segment(sentence, target));
  }

  /** A sentence as the model reads it: its tokens, and what its slots stand for. */
  #encode(text, target, required = []) {
    const { marked, slots } = withSlots(text, this.usesSlots ? [...required, ...protectedSpans(text, this.rules)] : []);
    return { tokens: this.tokenizer.encode((this.tagged ? `${languageTag(target)} ` : "") + marked), slots, isCopied: slots.size > 0 && !/[\p{L}\p{N}]/u.test(restored(marked, new Map())) };
  }

  #segment(sentence, target) {
    const segment = { ...sentence, ...this.#encode(sentence.text, target), target };
    if (segment.tokens.length > this.longest) throw new EngineError(`the text has ${segment.tokens.length} tokens; the model takes ${this.longest}: shorten it`);
    if (segment.isCopied) segment.outputs = [{ tokens: [], score: 0, logProb: 0, text: sentence.text }]; // nothing of it can be translated
    return segment;
  }

  /** Translate segments again whose translation lacks a term of the glossary or a number: a slot stands for it then. */
  async #useRequired(segments, glossary, search, signal) {
    if (!this.usesSlots) return;
    const again = segments.filter(({ isCopied }) => !isCopied).flatMap((segment) => {
      const lacking = requiredSpans(segment.text, glossary).filter(([, , term]) => !(segment.outputs[0]?.text ?? "").includes(term));
      return lacking.length ? [{ segment, changed: { ...segment, ...this.#encode(segment.text, segment.target, lacking) } }] : [];
    });
    const jobs = again.map(({ changed }) => this.#job(changed));
    await paced(this.engine.search(jobs, search), signal, ([index, outputs]) => {
      const { segment, changed } = again[index];
      if (outputs.length) Object.assign(segment, changed, { outputs: outputs.map((output) => ({ ...output, text: this.#text(output.tokens, changed) })) });
    });
  }

  /** A search for the translation of a segment; each of its slots occurs exactly once. */
  #job({ tokens, slots }, prefix = []) {
    const used = new Set(prefix);
    const missing = [...slots.keys()].reduce((bits, _, n) => (used.has(this.reserved.first + n) ? bits : bits | (1 << n)), 0);
    return { tokens, prefix, reserved: this.reserved, missing };
  }

  #text(tokens, { slots }) {
    return restored(this.tokenizer.decode(tokens), slots);
  }

  #result({ text, after, target, outputs, words, aligned }) {
    return { source: text, text: outputs[0]?.text ?? "", after: after ? between(after, target) : "", outputs: outputs.map(({ text, score, logProb }) => ({ text, score, logProb })), words, aligned };
  }

  #joined(content, segments) {
    const text = segments.map(({ outputs, after, target }) => (outputs[0]?.text ?? "") + (after ? between(after, target) : "")).join("");
    return content.match(/^\s*/)[0] + text + (segments.length ? content.match(/\s*$/)[0] : "");
  }

  /** Read the best outputs of segments: the probability of each word, and which characters are aligned. */
  async #read(segments, { words, align }, signal) {
    const known = segments.filter(({ outputs, isCopied }) => outputs.length && !isCopied);
    const pairs = known.map(({ tokens, outputs: [{ tokens: output }] }) => ({ tokens, output }));
    await paced(this.engine.read(pairs), signal, ([index, { logProbs, attention }]) => {
      const segment = known[index];
      const { text, tokens } = segment.outputs[0];
      const ends = this.#ends(tokens, segment);
      if (words) segment.words = wordProbabilities(logProbs, ends, text);
      if (align) segment.aligned = this.#aligned(segment, attention, ends);
    });
  }

  /** The number of characters of a text up to the end of each of its tokens. */
  #ends(tokens, segment) {
    return tokens.map((_, n) => countCharacters(this.#text(tokens.slice(0, n + 1), segment)));
  }

  #aligned(segment, attention, targetEnds) {
    const { tokens } = segment;
    const tags = this.tagged ? 1 : 0; // the tag and the space after it are no text
    const ends = this.#ends(tokens, segment).map((end) => Math.max(0, end - tags));
    const range = (all, n) => [all[n - 1] ?? 0, all[n]];
    const pairs = targetEnds.map((_, t) => {
      let best = tags;
      for (let s = tags; s < tokens.length; s++) if (attention[t][s] > attention[t][best]) best = s;
      return best < tokens.length ? [range(ends, best), range(targetEnds, t)] : null;
    });
    return pairs.filter((pair) => pair && pair.every(([start, end]) => end > start));
  }

  #tokensBefore(tokens, position, segment) {
    const ends = this.#ends(tokens, segment);
    const at = ends.findIndex((end) => end > position);
    return tokens.slice(0, at < 0 ? tokens.length : at);
  }
}

/** The probability of each word between white space: the product over its tokens. */
function wordProbabilities(logProbs, ends, text) {
  const spans = ends.map((end, n) => ({ start: ends[n - 1] ?? 0, end: Math.max(end, (ends[n - 1] ?? 0) + 1), logProb: logProbs[n] }));
  return [...text.matchAll(/\S+/gu)].map(({ 0: word, index }) => {
    const start = countCharacters(text.slice(0, index));
    const end = start + countCharacters(word);
    return Math.exp(spans.filter((span) => span.start < end && span.end > start).reduce((sum, { logProb }) => sum + logProb, 0));
  });
}

/** Run a search to its end, with pauses in which other events are handled; `onPause` may use the engine. */
async function paced(search, signal, onResult, onPause) {
  let began = performance.now();
  try {
    for (const result of search) {
      if (result) onResult(result);
      if (performance.now() - began < PAUSE) continue;
      await onPause?.();
      await pause();
      signal?.throwIfAborted();
      began = performance.now();
    }
  } finally {
    search.return?.();
  }
  await onPause?.();
  signal?.throwIfAborted();
}

const channel = new MessageChannel();
const waiting = [];
channel.port1.onmessage = () => waiting.shift()?.();
channel.port1.unref?.(); // in Node, it does not keep the program running

/** Let other events be handled; unlike a timer, without a delay. */
function pause() {
  return new Promise((resolve) => {
    if (globalThis.setImmediate) return void setImmediate(resolve);
    waiting.push(resolve);
    channel.port2.postMessage(0);
  });
}
