// `Translator`: a model in a worker, or on the thread that calls it.

import { EngineError } from "./wasm.js";

export { EngineError };

export class Translator {
  /** Load a model from the address of an exported folder. */
  static async load(url, { onProgress, signal, worker } = {}) {
    const folder = new URL("model/", new URL(url, globalThis.location?.href).href.replace(/[^/]*$/, ""));
    signal?.throwIfAborted();
    if (typeof Worker === "undefined") return new Translator(new Direct(await (await Translator.local()).LocalTranslator.load(folder, { onProgress, signal })));
    const remote = new Remote(worker ?? Translator.newWorker());
    try {
      remote.facts = await remote.call("load", { folder: folder.href }, { signal, onEvent: onProgress });
    } catch (failure) {
      remote.close();
      throw failure;
    }
    return new Translator(remote);
  }

  #engine;
  constructor(engine) {
    this.#engine = engine;
  }

  /** What the model is: its name, its directions as pairs of language codes, and the names of languages. */
  get facts() {
    return this.#engine.facts;
  }

  /** Translate a text, or several: a string, or a list of strings. */
  async translate(text, options = {}) {
    const results = await this.translateInDetail(typeof text === "string" ? [text] : text, options);
    return typeof text === "string" ? results[0].text : results.map(({ text }) => text);
  }

  /** Translate texts: scores, sentences, n-best outputs, probabilities of words. */
  async translateInDetail(texts, { signal, onLine, ...options } = {}) {
    if (!Array.isArray(texts) || !texts.every((text) => typeof text === "string")) throw new TypeError("translate takes a string or a list of strings");
    return this.#engine.call("translate", { texts, options }, { signal, onEvent: onLine });
  }

  /** Other words at a place of a translation. */
  alternatives(text, output, position, { signal, ...options } = {}) {
    return this.#engine.call("alternatives", { text, output, position, options }, { signal });
  }

  /** The language of a text, as {language, probability}; null if it is not certain. */
  detect(text) {
    return this.#engine.call("detect", { text });
  }

  /** Stop the worker. */
  close() {
    this.#engine.close();
  }
}

/** The translator on this thread. */
class Direct {
  constructor(translator) {
    this.translator = translator;
    this.facts = translator.facts;
  }

  async call(method, { texts, text, output, position, options }, { signal, onEvent } = {}) {
    signal?.throwIfAborted();
    const { translator } = this;
    if (method === "translate") return translator.translate(texts, { ...options, signal }, onEvent);
    return method === "detect" ? translator.detect(text) : translator.alternatives(text, output, position, { ...options, signal });
  }

  close() {}
}

/** The translator in a worker. */
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

  call(method, parameters, { signal, onEvent } = {}) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return void reject(signal.reason);
      const id = this.#next++;
      this.#waiting.set(id, { resolve, reject, onEvent });
      this.worker.postMessage({ id, method, parameters });
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
