// The weights of a model: read from safetensors, checked, and arranged in the structures of the engine.

import { EngineError } from "./wasm.js";

const BYTES = { F64: 8, F32: 4, F16: 2, BF16: 2, I8: 1 };
const MOST = 2 ** 24; // inputs or outputs of a layer, and tokens of a text
/** Settings that the engine computes with, and their values; as in fast/native/engine.py. */
const KNOWN = { norm_type: ["layer"], activation: ["relu", "gelu", "gelu_tanh", "swish"], bias: [true], embedding: ["scaled", "plain", "normalized"], attention: ["scaled"],
  positions: ["sinusoidal", "learned", "marian", "fairseq"], norm: ["pre", "post"], decoder_cell: ["attention", "ssru"], decoder_tag: [false], source: ["text"] };
/** Those of language models, as in fast/native/language_model.py. */
const KNOWN_LANGUAGE_MODEL = { ...KNOWN, norm_type: ["layer", "rms"], activation: [...KNOWN.activation, "geglu", "swiglu"], bias: [true, false], positions: [...KNOWN.positions, "rotary"],
  rotary_scaling: ["none"], qk_norm: [false], window: [null], score_cap: [null], logit_cap: [null] };
const SINUSOIDS = { sinusoidal: [0, 0], marian: [1, 0], fairseq: [1, 2] }; // whether sines are before cosines, and the first position
const COUNTS = ["d_model", "d_ff", "num_heads", "max_positions"];
const LAYERS = { encoder_decoder: ["encoder_layers", "decoder_layers"], decoder_only: ["layers"] };

/** The settings of a model card that the engine computes with; an error if it does not compute such a model. */
export function readSettings(card) {
  const settings = card?.model;
  if (card?.format !== 1 || !Object.hasOwn(LAYERS, card.architecture) || typeof settings !== "object" || settings === null)
    throw new EngineError("model.json is no card of a translation model or language model that this engine runs");
  const generates = card.architecture === "decoder_only";
  for (const [name, known] of Object.entries(generates ? KNOWN_LANGUAGE_MODEL : KNOWN))
    if (settings[name] !== undefined && !known.includes(settings[name])) throw new EngineError(`model.json: the engine has no models with model.${name} = ${String(settings[name]).slice(0, 40)}`);
  for (const name of [...COUNTS, ...LAYERS[card.architecture]])
    if (!Number.isInteger(settings[name]) || settings[name] < 1 || settings[name] > MOST) throw new EngineError(`model.json: model.${name} must be a number from 1 to ${MOST}`);
  const { d_model, num_heads } = settings;
  const d_k = settings.d_k ?? Math.floor(d_model / num_heads);
  const d_v = settings.d_v ?? Math.floor(d_model / num_heads);
  const kv_heads = settings.kv_heads ?? num_heads;
  if ((generates ? !(kv_heads >= 1 && num_heads % kv_heads === 0) : kv_heads !== num_heads) || ![d_k, d_v].every((width) => Number.isInteger(width) && width > 0 && width <= MOST))
    throw new EngineError("model.json: the engine has no heads of such sizes");
  if (!Number.isInteger(card.vocab_size) || card.vocab_size < 5 || card.vocab_size > MOST) throw new EngineError("model.json: vocab_size is no size of a vocabulary");
  const learned = settings.positions === "learned";
  if (settings.positions === "rotary" && (d_k % 2 || !(settings.rotary_base > 0))) throw new EngineError("model.json: there are no rotary positions of such sizes");
  return { ...settings, generates, d_k, d_v, kv_heads, vocab_size: card.vocab_size, int8: card.precision === "int8", longest: learned ? settings.max_positions - (generates ? 0 : 1) : null };
}

/** The tensors of a file by name, as {dtype, shape, bytes}; the file is untrusted. */
export function readTensors(file) {
  const damaged = (why) => new EngineError(`model.safetensors is damaged: ${why}`);
  const size = file.length >= 8 ? Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true)) : Infinity;
  if (size > Math.min(2 ** 23, file.length - 8)) throw damaged("it has no header");
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + size)));
  } catch {
    throw damaged("its header cannot be read");
  }
  const tensors = new Map();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const { dtype, shape, data_offsets: [begin, end] = [] } = entry ?? {};
    const isSize = (n) => Number.isInteger(n) && n >= 0;
    const count = Array.isArray(shape) && shape.length <= 8 && shape.every(isSize) ? shape.reduce((product, n) => product * n, 1) : -1;
    if (!Object.hasOwn(BYTES, dtype) || !isSize(begin) || end - begin !== count * BYTES[dtype] || 8 + size + end > file.length)
      throw damaged(`the place of ${name.slice(0, 80)} does not fit its shape`);
    tensors.set(name, { name, dtype, shape, bytes: file.subarray(8 + size + begin, 8 + size + end) });
  }
  return tensors;
}

/** A model in the memory of the engine: `address` is its structure. */
export class Weights {
  #length = 0; // of the table of positions
  parameters = 0; // their number

  constructor(library, settings, tensors) {
    Object.assign(this, { library, settings, tensors });
    if (settings.generates) return void this.#languageModel();
    const { vocab_size: vocabulary, d_model: width, num_heads: heads, d_k, d_v, encoder_layers, decoder_layers } = settings;
    this.ssru = settings.decoder_cell === "ssru";
    this.sourceVocabulary = settings.source_vocab_size ?? vocabulary;
    this.address = library.allocate(library.of("Model"));
    library.write("Model", this.address, {
      vocabulary, width, heads, d_k, d_v, encoder_layers, decoder_layers, norm_first: settings.norm === "pre", ssru: this.ssru,
      activation: library.constant((settings.activation ?? "relu").toUpperCase()), alignment_layer: decoder_layers - (decoder_layers >= 6 ? 2 : 1),
      start: library.constant("BOS"), embedding_scale: (settings.embedding ?? "scaled") === "scaled" ? Math.sqrt(width) : 1,
    });
    const place = (field) => this.address + library.of(`Model.${field}`);
    const copy = (from, to) => library.bytes(to, library.of("Linear")).set(library.bytes(from, library.of("Linear")));
    const [source, target] = ["source", "target"].map((side) => place(side) + library.of("Input.embedding"));
    const tied = settings.tie_output ?? true;
    this.#linear(place("projection"), this.#tensor(tied ? "embedding.weight_VD" : "output.weight_VD", [vocabulary, width]), settings.output_bias ? this.#tensor("output.bias_V", [vocabulary]) : null);
    if (tied) copy(place("projection"), target);
    else this.#linear(target, this.#tensor("embedding.weight_VD", [vocabulary, width]), null);
    if (settings.source_vocab_size == null) copy(target, source);
    else this.#linear(source, this.#tensor("source_weight_VD", [this.sourceVocabulary, width]), null);
    for (const side of ["source", "target"]) {
      const name = side === "source" && settings.share_positions === false ? "source_embedding" : "embedding";
      if (settings.embedding === "normalized") this.#norm(place(side) + library.of("Input.norm"), `${name}.norm`);
      if (settings.positions !== "learned") continue;
      library.write("Input", place(side), { positions: this.#floats(this.#tensor(`${name}.positions.table_TD`, [settings.max_positions, width])) });
      this.#length = settings.max_positions;
    }
    for (const stack of ["encoder", "decoder"]) {
      library.write("Model", this.address, { [stack]: this.#stack(stack, settings[`${stack}_layers`]) });
      if (settings.norm === "pre") this.#norm(place(`${stack}_norm`), `${stack}_norm`);
    }
    this.requirePositions(Math.min(settings.max_positions, 256));
    this.tensors = null; // the file is not needed any more
  }

  #languageModel() {
    const { library, settings } = this;
    const { vocab_size: vocabulary, d_model: width, num_heads: heads, kv_heads, d_k, d_v, layers } = settings;
    const activation = library.constant((settings.activation ?? "relu").toUpperCase());
    this.chunked = true; // weights have scales for chunks of inputs
    this.address = library.allocate(library.of("LanguageModel"));
    library.write("LanguageModel", this.address, {
      vocabulary, width, heads, kv_heads, d_k, d_v, layers, norm_first: settings.norm === "pre", activation, inner_width: settings.d_ff,
      embedding_scale: (settings.embedding ?? "scaled") === "scaled" ? Math.sqrt(width) : 1, layer: this.#stack("decoder", layers),
    });
    const place = (field) => this.address + library.of(`LanguageModel.${field}`);
    const tied = settings.tie_output ?? true;
    this.#linear(place("projection"), this.#tensor(tied ? "embedding.weight_VD" : "output.weight_VD", [vocabulary, width]), settings.output_bias ? this.#tensor("output.bias_V", [vocabulary]) : null);
    if (tied) library.bytes(place("embedding"), library.of("Linear")).set(library.bytes(place("projection"), library.of("Linear")));
    else this.#linear(place("embedding"), this.#tensor("embedding.weight_VD", [vocabulary, width]), null);
    if (settings.embedding === "normalized") this.#norm(place("embedding_norm"), "embedding.norm");
    if (settings.norm === "pre") this.#norm(place("final_norm"), "decoder_norm");
    if (settings.positions === "learned") {
      library.write("LanguageModel", this.address, { positions: this.#floats(this.#tensor("embedding.positions.table_TD", [settings.max_positions, width])) });
      this.#length = settings.max_positions;
    }
    this.tensors = null;
  }

  /** The cosines and sines of rotary positions. */
  #rotations(length) {
    const { library, settings: { d_k, rotary_base } } = this;
    const table = library.allocate(4 * length * d_k);
    const half = d_k / 2;
    const numbers = library.floats(table, length * d_k);
    for (let t = 0; t < length; t++)
      for (let i = 0; i < half; i++) {
        const angle = Math.fround(t * rotary_base ** ((-2 * i) / d_k));
        [numbers[t * d_k + i], numbers[t * d_k + half + i]] = [Math.cos(angle), Math.sin(angle)];
      }
    return table;
  }

  /** Make the table of positions at least this long. */
  requirePositions(length) {
    if (length <= this.#length) return;
    if (this.settings.positions === "learned" || length > MOST) throw new EngineError(`a text of ${length} tokens is longer than this model takes`);
    length = Math.max(length, 2 * this.#length);
    const { library, settings } = this;
    if (settings.generates) {
      const field = settings.positions === "rotary" ? "rotations" : "positions";
      const old = library.read("LanguageModel", this.address, field);
      library.write("LanguageModel", this.address, { [field]: field === "rotations" ? this.#rotations(length) : this.#sinusoids(length) });
      if (old) library.free(old);
      this.#length = length;
      return;
    }
    const sides = ["source", "target"].map((side) => this.address + library.of(`Model.${side}`));
    const old = library.read("Input", sides[0], "positions");
    const table = this.#sinusoids(length);
    for (const side of sides) library.write("Input", side, { positions: table });
    if (old) library.free(old);
    this.#length = length;
  }

  #sinusoids(length) {
    const { library, settings: { d_model, positions } } = this;
    const table = library.allocate(4 * length * d_model);
    library.call.fill_positions(...SINUSOIDS[positions ?? "sinusoidal"], length, d_model, table);
    return table;
  }

  #stack(name, layers) {
    const { library, settings } = this;
    const { d_model, d_ff, num_heads: heads, kv_heads, d_k, d_v } = settings;
    const attendsToSource = name === "decoder" && !settings.generates;
    const hasBias = settings.bias !== false;
    const stack = library.allocate(layers * library.of("Layer"));
    for (let number = 0; number < layers; number++) {
      const layer = stack + number * library.of("Layer");
      const of = `${name}.${number}`;
      const linear = (field, part, width_out, width_in) =>
        this.#linear(layer + library.of(`Layer.${field}`), this.#tensor(`${of}.${part}.weight`, [width_out, width_in]), hasBias ? this.#tensor(`${of}.${part}.bias`, [width_out]) : null);
      if (name === "decoder" && this.ssru) this.#ssru(layer + library.of("Layer.qkv"), `${of}.self_attention`);
      else {
        linear("qkv", "self_attention.qkv", heads * d_k + kv_heads * (d_k + d_v), d_model);
        linear("out", "self_attention.out", d_model, heads * d_v);
      }
      if (attendsToSource) {
        linear("q", "cross_attention.q", heads * d_k, d_model);
        linear("kv", "cross_attention.kv", heads * (d_k + d_v), d_model);
        linear("cross_out", "cross_attention.out", d_model, heads * d_v);
      }
      linear("inner", "feed_forward.inner", /glu$/.test(settings.activation) ? 2 * d_ff : d_ff, d_model);
      linear("outer", "feed_forward.outer", d_model, d_ff);
      const places = attendsToSource ? [0, 1, 2] : [0, 2];
      places.forEach((place, index) => this.#norm(layer + library.of("Layer.norms") + place * library.of("Norm"), `${of}.residuals.${index}.norm`));
    }
    return stack;
  }

  /** An SSRU has its input, which has no bias, and its forget gate as one layer. */
  #ssru(place, name) {
    const width = this.settings.d_model;
    const parts = ["input", "forget"].map((part) => this.#tensor(`${name}.${part}.weight`, [width, width]));
    const joined = (tensors, shape) => ({ ...tensors[0], shape, bytes: concatenated(tensors.map(({ bytes }) => bytes)) });
    const weight = joined(parts, [2 * width, width]);
    if (weight.largest) weight.largest = joined(parts.map(({ largest }) => largest), [2 * width]);
    const bias = this.#tensor(`${name}.forget.bias`, [width]);
    this.#linear(place, weight, { ...bias, shape: [2 * width], bytes: concatenated([new Uint8Array(bias.bytes.length), bias.bytes]) });
  }

  #tensor(name, shape) {
    const found = this.tensors.get(name);
    const isMatrix = this.settings.int8 && shape.length === 2 && /weight(_VD)?$/.test(name);
    if (!found || String(found.shape) !== String(shape) || (found.dtype === "I8") !== isMatrix)
      throw new EngineError(`model.safetensors does not fit model.json: ${name} is ${found ? `[${found.shape}] of ${found.dtype}` : "missing"}, but should be [${shape}]`);
    if (!name.endsWith(".largest")) this.parameters += shape.reduce((product, n) => product * n, 1);
    return isMatrix ? { ...found, largest: this.#tensor(`${name}.largest`, shape.slice(0, 1)) } : found;
  }

  #norm(place, name) {
    const numbers = (part) => this.#floats(this.#tensor(`${name}.${part}`, [this.settings.d_model]));
    const [gain, shift] = [numbers("weight"), this.settings.norm_type === "rms" ? 0 : numbers("bias")];
    this.library.write("Norm", place, { width: this.settings.d_model, epsilon: this.settings.norm_epsilon ?? 1e-5, gain, shift });
  }

  #linear(place, weight, bias) {
    const { library } = this;
    const [width_out, width_in] = weight.shape;
    const [panel, padding] = [library.constant("PANEL"), library.constant("PADDING")];
    const [panels, padded_in] = [Math.ceil(width_out / panel), Math.ceil(width_in / padding) * padding];
    const rows = panels * panel;
    const [chunked, scales] = this.chunked ? [1, Math.ceil(padded_in / library.constant("CHUNK"))] : [0, 1];
    const [packed, scale, start] = [rows * padded_in, 4 * rows * scales, 4 * rows].map((size) => library.allocate(size));
    const padded = bias ? this.#floats(bias, rows) : library.allocate(4 * rows);
    const row = library.allocate(padded_in);
    if (weight.largest) {
      const [stored, largest, floats] = [this.#copy(weight.bytes), this.#floats(weight.largest), library.allocate(4 * width_in)];
      library.call.pack_int8_weights(stored, largest, floats, width_out, width_in, padded_in, chunked, row, packed, scale, start);
      for (const address of [stored, largest, floats]) library.free(address);
    } else {
      const dense = this.#floats(weight);
      library.call.pack_weights(dense, width_out, width_in, padded_in, chunked, row, packed, scale, start);
      library.free(dense);
    }
    library.free(row);
    library.write("Linear", place, { width_in, padded_in, width_out, panels, weight: packed, scale, bias: padded, start });
  }

  /** The numbers of a tensor as floats, with zeros behind them up to `room` numbers; returns their address. */
  #floats({ name, dtype, shape, bytes }, room = 0) {
    const { library } = this;
    const count = shape.reduce((product, n) => product * n, 1);
    const [stored, floats] = [this.#copy(bytes), library.allocate(4 * Math.max(count, room))];
    const finite = library.call.read_floats(stored, library.constant(dtype), count, floats);
    library.free(stored);
    if (!finite) throw new EngineError(`model.safetensors: ${name} contains values that are not finite numbers`);
    return floats;
  }

  #copy(bytes) {
    const address = this.library.allocate(bytes.length);
    this.library.bytes(address, bytes.length).set(bytes);
    return address;
  }
}

function concatenated(arrays) {
  const all = new Uint8Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const bytes of arrays) {
    all.set(bytes, at);
    at += bytes.length;
  }
  return all;
}
