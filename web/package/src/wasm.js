// The compiled engine: its memory, and the structures of its C code by the names of their fields.

export class EngineError extends Error {
  name = "EngineError";
}

/** Bytes of a module with one function: the relaxed dot product of two vectors of equal bytes. */
export const PROBE = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 100, 0, 0, 10, 36, 1, 34, 0, 32, 0, 253, 17, 32, 1, 253, 17,
  253, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 253, 147, 2, 253, 27, 0, 11,
];

/** Which of the compiled engines fits this processor: all compute the same, those with dot products faster. */
export async function fittingEngine() {
  const bytes = new Uint8Array(PROBE);
  if (!WebAssembly.validate(bytes)) return "simd";
  const { instance } = await WebAssembly.instantiate(bytes);
  const product = instance.exports.d(0x7f7f7f7f, -1); // four times 127 by -1, or by 255 if activations are unsigned
  return product === -508 ? "signed" : product === 129540 ? "unsigned" : "simd";
}

const FLOATS = ["epsilon", "alpha", "embedding_scale"]; // fields of structures; all others are 32-bit integers

export class Library {
  constructor(instance) {
    this.call = instance.exports;
    this.call._initialize();
    this.layout = this.#readLayout();
  }

  static async load(bytes) {
    try {
      return new Library((await WebAssembly.instantiate(bytes)).instance);
    } catch (failure) {
      throw new EngineError(`the engine cannot be started: this program needs WebAssembly with SIMD (${failure.message})`);
    }
  }

  get instructions() {
    return this.#text(this.call.instructions());
  }

  /** New memory, all zeros; returns its address. */
  allocate(size) {
    const address = size < 2 ** 31 ? this.call.malloc(Math.max(size, 1)) : 0;
    if (!address) throw new EngineError(`${Math.ceil(size / 2 ** 20)} MiB of memory are refused; close other pages, or use a smaller model or shorter texts`);
    this.bytes(address, size).fill(0);
    return address;
  }

  free(address) {
    this.call.free(address);
  }

  // Views are made anew for each use: those of a memory that has grown are empty.
  bytes = (address, length) => new Uint8Array(this.call.memory.buffer, address, length);
  ints = (address, length) => new Int32Array(this.call.memory.buffer, address, length);
  floats = (address, length) => new Float32Array(this.call.memory.buffer, address, length);

  /** The size of a structure, the offset of a field, or the value of a constant. */
  of(name) {
    return this.layout.get(name)[name.includes(".") ? "offset" : "size"];
  }

  constant(name) {
    return this.layout.get(name).offset;
  }

  /** Write fields of a structure. */
  write(type, address, fields) {
    const view = new DataView(this.call.memory.buffer);
    for (const [name, value] of Object.entries(fields)) {
      const at = address + this.of(`${type}.${name}`);
      if (FLOATS.includes(name)) view.setFloat32(at, value, true);
      else view.setInt32(at, value, true);
    }
    return address;
  }

  read(type, address, field) {
    return new DataView(this.call.memory.buffer).getInt32(address + this.of(`${type}.${field}`), true);
  }

  #text(address) {
    const bytes = new Uint8Array(this.call.memory.buffer);
    return new TextDecoder().decode(bytes.subarray(address, bytes.indexOf(0, address)));
  }

  #readLayout() {
    const layout = new Map();
    for (let at = this.call.layout(); ; at += 12) {
      const [name, offset, size] = this.ints(at, 3);
      if (!name) return layout;
      layout.set(this.#text(name), { offset, size });
    }
  }
}
