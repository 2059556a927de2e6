// A language model on the thread that calls it: continues a prompt token by token. `Generator` runs it in a worker.

import { BOS, EOS } from "./engine.js";
import { unescape } from "./text.js";
import { EngineError } from "./wasm.js";

const PREFILL = 128; // tokens of a prompt that are processed at once
const PAUSE = 30; // milliseconds of work after which other events are handled

export class LocalGenerator {
  constructor(manifest, facts, tokenizer, library, weights) {
    Object.assign(this, { manifest, tokenizer, library, weights, settings: weights.settings });
    this.context = Math.min(Number.isInteger(facts.max_length) && facts.max_length >= 1 ? facts.max_length : 1024, weights.settings.longest ?? Infinity);
    this.ends = new Set([EOS].concat(facts.ends ?? []));
    this.search = facts.search ?? {};
  }

  get facts() {
    return { name: this.manifest.name, task: "language_model", context: this.context, instructions: this.library.instructions };
  }

  /** The continuation of a prompt; `onText` gets it as it is generated, in complete characters. Temperature 0 is greedy. */
  async generate(prompt, { maxTokens = 256, temperature = this.search.temperature ?? 1, topK = this.search.top_k ?? 0, topP = this.search.top_p ?? 1, seed = 1, signal } = {}, onText) {
    if (!(Number.isInteger(maxTokens) && maxTokens >= 1 && temperature >= 0 && topK >= 0 && topP > 0)) throw new EngineError("maxTokens must be at least 1, and temperature, topK and topP not be negative");
    const choose = sampler(temperature, topK, topP, seed);
    const ids = [BOS, ...this.tokenizer.encodeDocument(prompt)];
    const stream = new TextStream(this.tokenizer, !prompt && this.tokenizer.addsSpace);
    let began = performance.now();
    let text = "";
    const emit = (more) => {
      text += more;
      if (more) onText?.(more);
    };
    for (let left = maxTokens; left > 0; ) {
      const sequence = new Sequence(this, visible(ids, left, this.context), left);
      try {
        for (let logits = sequence.start(); left > 0; ) {
          const token = choose(logits);
          if (this.ends.has(token)) left = 0;
          else {
            ids.push(token);
            left -= 1;
            emit(stream.add(token));
          }
          if (performance.now() - began > PAUSE) {
            await new Promise((resolve) => setTimeout(resolve));
            signal?.throwIfAborted();
            began = performance.now();
          }
          if (left > 0 && sequence.length === this.context) break; // it resumes with the end of the text
          if (left > 0) logits = sequence.append(token);
        }
      } finally {
        sequence.release();
      }
    }
    emit(stream.finish());
    return text;
  }
}

/** The end of the ids that the model reads; it leaves room for up to half a context of new tokens. */
function visible(ids, left, context) {
  return ids.length + left - 1 <= context ? ids : ids.slice(-Math.max(1, context - Math.min(left, Math.floor(context / 2))));
}

/** A text in progress: its KV cache and the buffers of the engine, in one block of memory. */
class Sequence {
  constructor({ library, weights, settings, context }, ids, left) {
    const { d_model, d_ff, num_heads: heads, kv_heads, d_k, d_v, layers, vocab_size } = settings;
    Object.assign(this, { library, weights, ids, length: 0, vocabulary: vocab_size });
    const capacity = Math.min(context, ids.length + left);
    weights.requirePositions(capacity);
    const widest = Math.max(d_model, heads * d_v, d_ff) + library.constant("PADDING");
    const scratch = Math.max(capacity, widest);
    const floats = {
      keys: layers * kv_heads * capacity * d_k, values: layers * kv_heads * capacity * d_v, tokens: 3 * PREFILL, logits: vocab_size, best: 2 * PREFILL,
      x: PREFILL * d_model, y: PREFILL * d_model, wide: PREFILL * Math.max(2 * d_ff, heads * (d_k + d_v) + kv_heads * (d_k + d_v)), quantised: Math.ceil(((PREFILL + library.constant("TILE_ROWS")) * scratch) / 4),
      chunks: (PREFILL * Math.ceil(scratch / library.constant("CHUNK")) * library.of("Chunk")) / 4, scratch, max_logit: PREFILL, exp_sum: PREFILL, candidates: 2 * PREFILL,
    };
    const [sequence, batch] = [library.of("Sequence"), library.of("Batch")];
    this.address = library.allocate(sequence + batch + 4 * Object.values(floats).reduce((sum, size) => sum + size, 0));
    this.batch = this.address + sequence;
    this.arrays = {};
    let at = this.batch + batch;
    for (const [name, size] of Object.entries(floats)) {
      this.arrays[name] = at;
      at += 4 * size;
    }
    const { keys, values, tokens, logits, best, ...buffers } = this.arrays;
    library.write("Sequence", this.address, { keys, values, capacity });
    library.write("Batch", this.batch, { scratch_size: scratch, ...buffers });
  }

  /** Read the text; returns the logits of the next token. */
  start() {
    const last = this.ids.length - 1;
    for (let from = 0; from < last; from += PREFILL) this.#process(this.ids.slice(from, Math.min(from + PREFILL, last)), 0);
    return this.append(this.ids[last]);
  }

  append(token) {
    this.#process([token], this.arrays.logits);
    return this.library.floats(this.arrays.logits, this.vocabulary);
  }

  #process(ids, logits) {
    const { library, arrays } = this;
    if (!ids.every((id) => id >= 0 && id < this.vocabulary)) throw new EngineError("a token is not in the model's vocabulary");
    library.ints(arrays.tokens, 3 * ids.length).set(ids.flatMap((id, n) => [this.address, id, this.length + n]));
    library.call.process_tokens(this.weights.address, arrays.tokens, ids.length, this.batch, logits, arrays.best, 1);
    this.length += ids.length;
  }

  release() {
    this.library.free(this.address);
  }
}

/** Chooses the next token: the most probable one, or a random one among the most probable ones. */
function sampler(temperature, topK, topP, seed) {
  let state = seed >>> 0;
  const random = () => { // a linear congruential generator, of which the upper bits are used
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  for (let i = 0; i < 8; i++) random();
  return (logits) => {
    let best = EOS;
    for (let id = EOS; id < logits.length; id++) if (logits[id] > logits[best]) best = id;
    if (temperature === 0) return best;
    let candidates = Array.from({ length: logits.length - EOS }, (_, n) => [n + EOS, Math.exp((logits[n + EOS] - logits[best]) / temperature)]);
    if (topK || topP < 1) candidates = candidates.sort((a, b) => b[1] - a[1]).slice(0, topK || undefined);
    let total = candidates.reduce((sum, [, weight]) => sum + weight, 0);
    let before = 0;
    if (topP < 1) candidates = candidates.filter(([, weight]) => (before += weight) - weight < topP * total);
    total = candidates.reduce((sum, [, weight]) => sum + weight, 0);
    let left = random() * total;
    return candidates.find(([, weight]) => (left -= weight) < 0)?.[0] ?? best;
  };
}

/** Turns tokens into text; a character whose bytes are several tokens appears when it is complete. */
class TextStream {
  #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #held = "";
  constructor(tokenizer, stripsSpace) {
    Object.assign(this, { tokenizer, stripsSpace });
  }

  add(token) {
    let bytes = Uint8Array.from(this.tokenizer.rawBytes(token));
    if (this.stripsSpace && bytes.length) {
      bytes = bytes[0] === 32 ? bytes.subarray(1) : bytes;
      this.stripsSpace = false;
    }
    return this.#complete(this.#decoder.decode(bytes, { stream: true }));
  }

  finish() {
    return this.#complete(this.#decoder.decode(), true);
  }

  #complete(text, isLast = false) {
    const all = this.#held + text;
    const isHeld = !isLast && all.endsWith("\ue011"); // an escape has two characters
    this.#held = isHeld ? "\ue011" : "";
    return unescape(isHeld ? all.slice(0, -1) : all);
  }
}
