// The worker of `Translator`: answers messages {id, method, values, options} with {id, result}, {id, error} and {id, event}.

import { loadModel } from "./local.js";

let model; // a translator or a generator
const running = new Map(); // by the ids of messages
const METHODS = ["translate", "alternatives", "detect", "inspect", "reference", "head", "generate"];

async function answer(method, values, options, emit) {
  if (METHODS.includes(method)) return model[method](...values, options, emit);
  model = await loadModel(new URL(values[0]), { ...options, onProgress: emit });
  return model.facts;
}

addEventListener("message", async ({ data: { id, method, values, options } }) => {
  if (method === "abort") return running.get(id)?.abort();
  const controller = new AbortController();
  running.set(id, controller);
  try {
    postMessage({ id, result: await answer(method, values, { ...options, signal: controller.signal }, (event) => postMessage({ id, event })) });
  } catch (failure) {
    postMessage({ id, error: failure.message, name: failure.name });
  }
  running.delete(id);
});
