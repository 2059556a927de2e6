// A page without a server: what the server answers elsewhere comes from a model in a worker of this page.

import { Translator } from "../package/src/client.js";

const address = document.querySelector('meta[name="transduce-model"]')?.content;
export const isSite = address !== undefined;
const CHARACTERS = 20_000; // maximum length of a text
const CONTROL = 3000; // milliseconds to wait for the service worker, which keeps what is loaded

/** The model; `onProgress` gets a sentence while it is loaded. */
let loading = null;
function load(onProgress) {
  loading ??= (async () => {
    await startServiceWorker();
    const worker = new Worker("static/worker.js");
    const megabytes = (bytes) => (bytes / 1e6).toFixed(0);
    const translator = await Translator.load(new URL(address, location.href), { worker, onProgress: ({ loaded, total }) => onProgress(`loading the model: ${megabytes(loaded)} of ${megabytes(total)} MB`) });
    onProgress("");
    return translator;
  })().catch((failure) => {
    loading = null; // "Try again" loads it again
    onProgress("");
    throw failure;
  });
  return loading;
}

async function startServiceWorker() {
  const { serviceWorker } = navigator;
  if (!serviceWorker || serviceWorker.controller) return;
  const controlled = new Promise((resolve) => serviceWorker.addEventListener("controllerchange", resolve, { once: true }));
  await serviceWorker.register("service-worker.js").then(() => Promise.race([controlled, new Promise((resolve) => setTimeout(resolve, CONTROL))])).catch(() => {});
}

const json = (value) => new Response(JSON.stringify(value));

const ANSWERS = {
  "v1/translators": async (translator) => {
    const { name, directions, tagged, languages } = translator.facts;
    return json({ models: [{ name, directions, tagged, inspect: false, aligns: true }], languages, key_required: false, characters: CHARACTERS, formats: [] });
  },
  "v1/detect": async (translator, { text }) => {
    const found = await translator.detect(text);
    return json({ language: found?.language ?? null, name: translator.facts.languages[found?.language] ?? null, probability: found?.probability ?? 0, available: true });
  },
  "v1/alternatives": async (translator, { text, output, position, count, to }, signal) => {
    const found = await translator.alternatives(text, output, position, { to, count, signal });
    return json({ alternatives: found.map(({ words, ...alternative }) => ({ ...alternative, word_confidences: words })) });
  },
  "v1/translate": async (translator, { text, to, stream, align }, signal) => {
    if (!stream) return json({ translations: [{ outputs: [{ text: await translator.translate(text, { to, signal }) }] }] });
    const encoder = new TextEncoder();
    const body = new ReadableStream({
      async start(controller) {
        const emit = (event, data) => controller.enqueue(encoder.encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`));
        const onLine = ({ line, sentences }) => emit("sentence", { line, sentences: sentences.length
          ? sentences.map(({ source, text, after, words, aligned }) => ({ line, source, text, after, word_confidences: words, aligned }))
          : [{ line, source: "", text: "", after: "" }] });
        try {
          await translator.translateInDetail([text], { to, words: true, align, signal, onLine });
          emit("done", {});
        } catch (failure) {
          if (!signal?.aborted) emit("error", { error: failure.message });
        }
        controller.close();
      },
    });
    return new Response(body);
  },
};

/** The response to a request of the page. */
export async function answer(path, body, signal, onProgress) {
  if (!ANSWERS[path]) throw new Error("this page only translates; transduce serve shows what is inside the model");
  return ANSWERS[path](await load(onProgress), body, signal);
}
