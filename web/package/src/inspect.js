// Look inside a translation: search tree, attention and predictions, in the format of transduce/inspect/serialize.py.

import { BOS, EOS } from "./engine.js";
import { EngineError } from "./wasm.js";

const MOST_TOKENS = 256; // the attention weights grow with the square of the number of tokens
const LEAST_POSITIONS = 64; // positional encodings that are shown of a short text
const [TOP_TOKENS, LENS_TOKENS] = [10, 4];
const TEMPERATURES = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.4, 2, 3, 5];
const OUTPUTS = { encoder: ["encoder", "out"], decoder: ["decoder", "out"], cross: ["decoder", "cross_out"] }; // the layers after attention
const rounded = (numbers) => Array.from(numbers, (x) => Math.round(x * 1e4) / 1e4);

/** One forward pass over a source and an output, in float32; it has to be released. */
class Observation {
  constructor({ library, weights, settings }, source, output) {
    if (Math.max(source.length, output.length) > 2 * MOST_TOKENS) throw new EngineError(`the text has more than ${2 * MOST_TOKENS} tokens, which cannot be inspected: shorten it`);
    const { num_heads: heads, d_k, d_v, d_model, d_ff, encoder_layers, decoder_layers } = settings;
    const [S, T] = [source.length, output.length];
    const rows = Math.max(S, T);
    weights.requirePositions(rows);
    const wide = Math.max(d_ff, heads * d_v);
    this.shapes = {
      source: [S], target: [T], encoder_qkv: [encoder_layers, S, heads * (2 * d_k + d_v)], decoder_qkv: [decoder_layers, T, heads * (2 * d_k + d_v)],
      cross_q: [decoder_layers, T, heads * d_k], cross_kv: [decoder_layers, S, heads * (d_k + d_v)],
      encoder: [encoder_layers, heads, S, S], decoder: [decoder_layers, heads, T, T], cross: [decoder_layers, heads, T, S], hidden: [decoder_layers, T, d_model],
      x: [rows, d_model], y: [rows, d_model], normed: [rows, d_model], wide: [rows, wide], row: [Math.max(wide, d_model)],
    };
    Object.assign(this, { library, weights, settings, target: T, address: library.allocate(library.of("Observation") + 4 * Object.values(this.shapes).reduce((sum, shape) => sum + size(shape), 0)) });
    this.arrays = {};
    let at = this.address + library.of("Observation");
    for (const [name, shape] of Object.entries(this.shapes)) {
      this.arrays[name] = at;
      at += 4 * size(shape);
    }
    library.ints(this.arrays.source, S).set(source);
    library.ints(this.arrays.target, T).set(output);
    library.write("Observation", this.address, { source_length: S, target_length: T, ...this.arrays });
    library.call.observe(weights.address, this.address);
  }

  /** The numbers of an array, or of one layer of it. */
  numbers(name, layer) {
    const [layers, ...shape] = this.shapes[name];
    const count = size(shape);
    return layer === undefined ? this.library.floats(this.arrays[name], layers * count) : this.library.floats(this.arrays[name] + 4 * layer * count, count);
  }

  /** The log-probabilities of the next token at each position, as if this decoder layer were the last; calls `use` with each. */
  predictions(layer, use) {
    const { library, weights, target, settings: { vocab_size } } = this;
    const logits = library.allocate(4 * target * vocab_size);
    library.call.apply_floats(weights.address + library.of("Model.projection"), this.numbers("hidden", layer).byteOffset, target, this.arrays.row, logits);
    const results = Array.from({ length: target }, (_, t) => use(logSoftmax(library.floats(logits + 4 * t * vocab_size, vocab_size)), t));
    library.free(logits);
    return results;
  }

  release() {
    this.library.free(this.address);
  }
}

const size = (shape) => shape.reduce((product, n) => product * n, 1);

function logSum(numbers, scale) {
  const highest = numbers.reduce((a, b) => Math.max(a, b)) * scale;
  let sum = 0;
  for (const x of numbers) sum += Math.exp(x * scale - highest);
  return highest + Math.log(sum);
}

function logSoftmax(logits) {
  const total = logSum(logits, 1);
  return logits.map((x) => x - total);
}

/** The indices of the largest numbers, the largest first. */
function largest(numbers, count) {
  const best = [];
  for (let i = 0; i < numbers.length; i++) {
    if (best.length === count && numbers[i] <= numbers[best[count - 1]]) continue;
    let at = Math.min(best.length, count - 1);
    for (; at > 0 && numbers[best[at - 1]] < numbers[i]; at--) best[at] = best[at - 1];
    best[at] = i;
  }
  return best;
}

/** The bytes of an inspection; `part` is what the model reads: {engine, tokenizer, tokens, slots, job, options, toText}. */
export function inspect(part, text, prefix, off) {
  const { engine, tokenizer, tokens, job, options, toText } = part;
  const { settings, weights } = engine;
  for (const [n, token] of prefix.entries())
    if (!(token >= EOS && token < tokenizer.size) || (token === EOS && n < prefix.length - 1)) throw new EngineError(`prefix: ${token} is no token that an output can contain there`);
  const full = off.length ? engine.trace(job, options) : null;
  const restore = withoutHeads(engine, off);
  try {
    const { best, tree } = engine.trace(job, options);
    const [source, target] = [[...tokens, EOS], [...best.tokens, EOS]];
    const seen = new Observation(engine, source, [BOS, ...best.tokens]);
    try {
      const { next, lens } = predictionsOf(seen, target);
      const ids = [...target, ...tree.map(({ token }) => token), ...(full?.best.tokens ?? [])];
      const predicted = [next, ...lens].flatMap(({ token }) => token.flat());
      const header = {
        kind: "translation", text, prefix, off, beam: options.beam, alpha: options.length_penalty, translation: toText(best.tokens), log_prob: best.logProb, score: best.score,
        source, target, tokens: tokenTable(part, new Set([...source, ...ids]), predicted), next, lens,
        tree: { parent: tree.map(({ parent }) => parent), token: tree.map(({ token }) => token), log_prob: tree.map(({ logProb }) => Math.round(logProb * 1e6) / 1e6), outcome: tree.map(({ outcome }) => outcome) },
        ablation: full && { translation: toText(full.best.tokens), target: full.best.tokens, full: scores(full.best), rescored: rescored(part, full.best.tokens) },
        model: {
          d_model: settings.d_model, num_heads: settings.num_heads, encoder_layers: settings.encoder_layers, decoder_layers: settings.decoder_layers,
          positions: settings.positions ?? "sinusoidal", vocab_size: settings.vocab_size, parameters: weights.parameters,
        },
      };
      return encoded(header, { encoder: attentionTable(seen, "encoder"), cross: attentionTable(seen, "cross"), decoder: attentionTable(seen, "decoder"), positions: positionTable(weights, source.length, target.length) });
    } finally {
      seen.release();
    }
  } finally {
    restore();
  }
}

const scores = ({ logProb, score }) => ({ log_prob: logProb, score });

/** The scores of an output, read by forced decoding. */
function rescored({ engine, tokens, options }, output) {
  const [, { logProbs }] = [...engine.read([{ tokens, output }])].find(Boolean);
  const logProb = logProbs.reduce((sum, x) => sum + x, 0);
  return scores({ logProb, score: logProb / ((5 + output.length + 1) / 6) ** options.length_penalty });
}

function predictionsOf(seen, written) {
  const list = (count) => (logProbs, t) => {
    const tokens = largest(logProbs, count);
    return { tokens, logProbs: rounded(tokens.map((token) => logProbs[token])), written: rounded([logProbs[written[t]]])[0] };
  };
  const columns = (rows) => ({ token: rows.map(({ tokens }) => tokens), log_prob: rows.map(({ logProbs }) => logProbs), written: rows.map(({ written }) => written) });
  const layers = seen.settings.decoder_layers;
  const last = seen.predictions(layers - 1, (logProbs, t) => ({ ...list(TOP_TOKENS)(logProbs, t), sums: rounded(TEMPERATURES.map((temperature) => logSum(logProbs, 1 / temperature))) }));
  const first = (row) => ({ ...row, tokens: row.tokens.slice(0, LENS_TOKENS), logProbs: row.logProbs.slice(0, LENS_TOKENS) });
  const lens = Array.from({ length: layers }, (_, layer) => columns(layer === layers - 1 ? last.map(first) : seen.predictions(layer, list(LENS_TOKENS))));
  return { next: { ...columns(last), temperatures: TEMPERATURES, log_sum: last.map(({ sums }) => sums) }, lens };
}

/** The piece of each token; with its bytes if the page needs them to decode text. */
function tokenTable({ tokenizer, slots }, decoded, predicted) {
  const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const ids = [...new Set([...decoded, ...predicted])].sort((a, b) => a - b);
  const table = Object.fromEntries(ids.map((id) => [id, decoded.has(id) ? [tokenizer.label(id), hex(tokenizer.rawBytes(id))] : [tokenizer.label(id)]]));
  for (const [slot, text] of slots) table[tokenizer.ids.get(slot)] = [text, hex(new TextEncoder().encode(` ${text}`))]; // it stands for the text of the source
  return table;
}

/** Attention weights as bytes; those of the decoder without the upper triangles, which are 0. */
function attentionTable(seen, stack) {
  const [layers, heads, queries, keys] = seen.shapes[stack];
  const bytes = Uint8Array.from(seen.numbers(stack), (x) => Math.round(255 * x));
  if (stack !== "decoder") return { bytes, shape: [layers, heads, queries, keys] };
  const packed = [];
  for (let row = 0; row < layers * heads * queries; row++) packed.push(...bytes.subarray(row * keys, row * keys + (row % queries) + 1));
  return { bytes: Uint8Array.from(packed), shape: [layers, heads, (queries * (queries + 1)) / 2] };
}

function positionTable(weights, ...lengths) {
  const { library, address, settings } = weights;
  const count = Math.min(Math.max(...lengths, LEAST_POSITIONS), settings.positions === "learned" ? settings.max_positions : Infinity);
  weights.requirePositions(count);
  const table = library.floats(library.read("Input", address + library.of("Model.target"), "positions"), count * settings.d_model);
  const most = table.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
  return { bytes: Uint8Array.from(table, (x) => Math.round(128 + (127 * x) / most)), shape: [count, settings.d_model] };
}

function encoded(header, tables) {
  const placed = {};
  let offset = 0;
  for (const [name, { bytes, shape }] of Object.entries(tables)) {
    placed[name] = { offset, shape };
    offset += bytes.length;
  }
  const text = new TextEncoder().encode(JSON.stringify({ ...header, tables: placed }));
  const all = new Uint8Array(4 + text.length + offset);
  new DataView(all.buffer).setUint32(0, text.length, true);
  all.set(text, 4);
  for (const [name, { bytes }] of Object.entries(tables)) all.set(bytes, 4 + text.length + placed[name].offset);
  return all.buffer;
}

function parseHead(name, { encoder_layers, decoder_layers, num_heads }) {
  const [, stack, layer, head] = name.match(/^(encoder|decoder|cross)\.(\d{1,9})\.(\d{1,9})$/) ?? [];
  if (!stack || layer < 1 || head < 1 || layer > (stack === "encoder" ? encoder_layers : decoder_layers) || head > num_heads) throw new EngineError(`head ${name.slice(0, 40)} does not exist`);
  return { stack, layer: layer - 1, head: head - 1 };
}

/** Let these heads contribute nothing, until the function that this returns is called. */
function withoutHeads({ library, weights, settings }, names) {
  const saved = [];
  for (const { stack, layer, head } of names.map((name) => parseHead(name, settings))) {
    const [layers, field] = OUTPUTS[stack];
    const linear = library.read("Model", weights.address, layers) + layer * library.of("Layer") + library.of(`Layer.${field}`);
    const [panels, padded, weight, start] = ["panels", "padded_in", "weight", "start"].map((name) => library.read("Linear", linear, name));
    const rows = panels * library.constant("PANEL");
    for (const [address, length] of [[weight, rows * padded], [start, 4 * rows]]) saved.push([address, library.bytes(address, length).slice()]);
    library.call.zero_inputs(linear, head * settings.d_v, (head + 1) * settings.d_v);
  }
  return () => saved.reverse().forEach(([address, bytes]) => library.bytes(address, bytes.length).set(bytes));
}

/** The probability and the rank of each token of a translation, and of its end marker. */
export function scoreReference({ engine, tokenizer, tokens }, output) {
  if (!output.length) throw new EngineError("the reference is empty");
  const seen = new Observation(engine, [...tokens, EOS], [BOS, ...output]);
  const written = [...output, EOS];
  try {
    return seen.predictions(engine.settings.decoder_layers - 1, (logProbs, t) => {
      const token = written[t];
      const [best] = largest(logProbs, 1);
      const rank = 1 + logProbs.reduce((count, x) => count + (x > logProbs[token]), 0);
      return { token, piece: tokenizer.label(token), log_prob: logProbs[token], rank, best: tokenizer.label(best), best_log_prob: logProbs[best] };
    });
  } finally {
    seen.release();
  }
}

/** The computation of one head for one query. */
export function headNumbers({ engine, tokens }, name, query, output) {
  const { num_heads: heads, d_k, d_v } = engine.settings;
  const { stack, layer, head } = parseHead(name, engine.settings);
  const seen = new Observation(engine, [...tokens, EOS], [BOS, ...output]);
  try {
    const [, , queries, columns] = seen.shapes[stack];
    if (!(query >= 0 && query < queries)) throw new EngineError(`query ${query} is not a position: there are 0 to ${queries - 1}`);
    const isCross = stack === "cross";
    const [q, kv] = isCross ? [seen.numbers("cross_q", layer), seen.numbers("cross_kv", layer)] : [seen.numbers(`${stack}_qkv`, layer), seen.numbers(`${stack}_qkv`, layer)];
    const [before, width, queryWidth] = isCross ? [0, heads * (d_k + d_v), heads * d_k] : [heads * d_k, heads * (2 * d_k + d_v), heads * (2 * d_k + d_v)];
    const vectors = (start, length) => Array.from({ length: stack === "decoder" ? query + 1 : columns }, (_, s) => kv.subarray(s * width + start, s * width + start + length));
    const vector = q.subarray(query * queryWidth + head * d_k, query * queryWidth + (head + 1) * d_k);
    const [keys, values] = [vectors(before + head * d_k, d_k), vectors(before + heads * d_k + head * d_v, d_v)];
    const products = keys.map((key) => key.reduce((sum, x, i) => sum + x * vector[i], 0));
    const weights = seen.numbers(stack, layer).subarray((head * queries + query) * columns, (head * queries + query) * columns + keys.length);
    const sum = Array.from({ length: d_v }, (_, i) => values.reduce((all, value, s) => all + weights[s] * value[i], 0));
    return { query: rounded(vector), keys: keys.map(rounded), products: rounded(products), weights: rounded(weights), values: values.map(rounded), output: rounded(sum) };
  } finally {
    seen.release();
  }
}
