// The worker of `Translator`: answers messages {id, method, parameters} with {id, result}, {id, error} and {id, event}.

import { LocalTranslator } from "./local.js";

let translator;
const running = new Map(); // by the ids of messages

const METHODS = {
  async load({ folder }, signal, emit) {
    translator = await LocalTranslator.load(new URL(folder), { signal, onProgress: emit });
    return translator.facts;
  },
  translate: ({ texts, options }, signal, emit) => translator.translate(texts, { ...options, signal }, emit),
  alternatives: ({ text, output, position, options }, signal) => translator.alternatives(text, output, position, { ...options, signal }),
  detect: ({ text }) => translator.detect(text),
};

addEventListener("message", async ({ data: { id, method, parameters } }) => {
  if (method === "abort") return running.get(id)?.abort();
  const controller = new AbortController();
  running.set(id, controller);
  try {
    postMessage({ id, result: await METHODS[method](parameters, controller.signal, (event) => postMessage({ id, event })) });
  } catch (failure) {
    postMessage({ id, error: failure.message, name: failure.name });
  }
  running.delete(id);
});
