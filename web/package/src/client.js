// `Translator` and `Generator`: a model in a worker, or on the thread that calls it.

import { EngineError } from "./wasm.js";

export { EngineError };

export class Loaded {
  /** Load a model from the address of an exported folder. */
  static async load(url, { onProgress, signal, worker } = {}) {
    const folder = new URL("model/", new URL(url, globalThis.location?.href).href.replace(/[^/]*$/, ""));
    signal?.throwIfAborted();
    if (typeof Worker === "undefined") return new this(new Direct(await (await Loaded.local()).loadModel(folder, { onProgress, signal })));
    const remote = new Remote(worker ?? Loaded.newWorker());
    try {
      remote.facts = await remote.call("load", [folder.href], { signal }, onProgress);
    } catch (failure) {
      remote.close();
      throw failure;
    }
    return new this(remote);
  }

  constructor(engine) {
    const isGenerator = engine.facts.task === "language_model";
    if (isGenerator !== (this instanceof Generator)) throw new EngineError(`${engine.facts.name} is ${isGenerator ? "a language model: use Generator" : "a translation model: use Translator"}`);
    this.engine = engine;
  }

  /** What the model is: its name, its directions as pairs of language codes, and the names of languages. */
  get facts() {
    return this.engine.facts;
  }

  /** Stop the worker. */
  close() {
    this.engine.close();
  }
}

export class Generator extends Loaded {
  /** The continuation of a prompt; `onText` gets it in parts as it is generated. */
  generate(prompt, { onText, ...options } = {}) {
    return this.engine.call("generate", [prompt], options, onText);
  }
}

export class Translator extends Loaded {
  /** Translate a text, or several: a string, or a list of strings. */
  async translate(text, options = {}) {
    const results = await this.translateInDetail(typeof text === "string" ? [text] : text, options);
    return typeof text === "string" ? results[0].text : results.map(({ text }) => text);
  }

  /** Translate texts: scores, sentences, n-best outputs, probabilities of words. */
  async translateInDetail(texts, { signal, onLine, ...options } = {}) {
    if (!Array.isArray(texts) || !texts.every((text) => typeof text === "string")) throw new TypeError("translate takes a string or a list of strings");
    return this.engine.call("translate", [texts], { signal, ...options }, onLine);
  }

  /** Other words at a place of a translation. */
  alternatives(text, output, position, options) {
    return this.engine.call("alternatives", [text, output, position], options);
  }

  /** The language of a text, as {language, probability}; null if it is not certain. */
  detect(text) {
    return this.engine.call("detect", [text]);
  }

  /** Attention weights, search tree and predictions of the translation of a sentence, in the format of transduce/inspect/serialize.py. */
  inspect(text, options) {
    return this.engine.call("inspect", [text], options);
  }

  /** The probability and the rank of each token of a translation of a sentence. */
  reference(text, reference, options) {
    return this.engine.call("reference", [text, reference], options);
  }

  /** The computation of one head, such as cross.1.2, for the query at a position; `output` has the token ids of the translation. */
  head(text, name, query, output, options) {
    return this.engine.call("head", [text, name, query, output], options);
  }
}

/** The model on this thread. */
class Direct {
  constructor(model) {
    Object.assign(this, { model, facts: model.facts });
  }

  async call(method, values, options = {}, onEvent) {
    options.signal?.throwIfAborted();
    return this.model[method](...values, options, onEvent);
  }

  close() {}
}

/** The model in a worker. */
class Remote {
  #waiting = new Map();
  #next = 0;
  constructor(worker) {
    this.worker = worker;
    worker.onmessage = ({ data: { id, result, error, name, event } }) => {
      const call = this.#waiting.get(id);
      if (event !== undefined) return call?.onEvent?.(event);
      this.#waiting.delete(id);
      if (error === undefined) call?.resolve(result);
      else call?.reject(name === "EngineError" ? new EngineError(error) : Object.assign(new Error(error), { name }));
    };
    worker.onerror = (event) => {
      for (const { reject } of this.#waiting.values()) reject(new EngineError(`the worker cannot be started: ${event.message ?? "its file is not there"}`));
      this.#waiting.clear();
    };
  }

  call(method, values, { signal, ...options } = {}, onEvent) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return void reject(signal.reason);
      const id = this.#next++;
      this.#waiting.set(id, { resolve, reject, onEvent });
      this.worker.postMessage({ id, method, values, options });
      signal?.addEventListener("abort", () => {
        this.worker.postMessage({ id, method: "abort" });
        this.#waiting.delete(id);
        reject(signal.reason);
      }, { once: true });
    });
  }

  close() {
    this.worker.terminate();
  }
}
