// A page without a server: what the server answers elsewhere comes from a model in a worker of this page.

import { Generator, Translator } from "../package/src/client.js";
import { readManifest } from "../package/src/files.js";

const places = [...document.querySelectorAll('meta[name="transduce-model"]')];
export const isSite = places.length > 0;
export const generates = places.some(({ dataset }) => dataset.task === "language_model");
export const translates = !isSite || places.some(({ dataset }) => dataset.task === "translate");
const CHARACTERS = 20_000; // maximum length of a text
const CONTROL = 3000; // milliseconds to wait for the service worker, which keeps what is loaded

/** The models by their names, each {address, manifest, loading}; they are loaded when they are used. */
let reading = null;
function readModels() {
  reading ??= startServiceWorker().then(() => Promise.all(places.map(async ({ content }) => {
    const address = new URL(content, location.href);
    return { address, manifest: await readManifest(new URL("model/", address)), loading: null };
  })))
    .then((models) => new Map(models.map((model) => [model.manifest.name, model])));
  return reading.catch((failure) => {
    reading = null; // "Try again" reads them again
    throw failure;
  });
}

/** A model, by default the first for a task; `onProgress` gets a sentence while it is loaded. */
async function load(name, onProgress, task = "translate") {
  const models = await readModels();
  const model = models.get(name) ?? [...models.values()].find(({ manifest }) => manifest.task === task);
  const megabytes = (bytes) => (bytes / 1e6).toFixed(0);
  model.loading ??= (task === "translate" ? Translator : Generator).load(model.address, {
    worker: new Worker("static/worker.js"), onProgress: ({ loaded, total }) => onProgress(`loading the model: ${megabytes(loaded)} of ${megabytes(total)} MB`),
  }).finally(() => onProgress("")).catch((failure) => {
    model.loading = null;
    throw failure;
  });
  return model.loading;
}

async function startServiceWorker() {
  const { serviceWorker } = navigator;
  if (!serviceWorker || serviceWorker.controller) return;
  const controlled = new Promise((resolve) => serviceWorker.addEventListener("controllerchange", resolve, { once: true }));
  await serviceWorker.register("service-worker.js").then(() => Promise.race([controlled, new Promise((resolve) => setTimeout(resolve, CONTROL))])).catch(() => {});
}

const json = (value) => new Response(JSON.stringify(value));

const languageNames = async () => Object.assign({}, ...[...(await readModels()).values()].map(({ manifest }) => manifest.languages));

const ANSWERS = {
  "v1/detect": async (translator, { text }) => {
    const found = await translator.detect(text);
    return json({ language: found?.language ?? null, name: (await languageNames())[found?.language] ?? null, probability: found?.probability ?? 0, available: true });
  },
  "v1/alternatives": async (translator, { text, output, position, count, to }, signal) => {
    const found = await translator.alternatives(text, output, position, { to, count, signal });
    return json({ alternatives: found.map(({ words, ...alternative }) => ({ ...alternative, word_confidences: words })) });
  },
  "inspect/look": async (translator, { text, to, beam, length_penalty: lengthPenalty, prefix, off }, signal) => new Response(await translator.inspect(text, { to, beam, lengthPenalty, prefix, off, signal })),
  "inspect/reference": async (translator, { text, reference, to }, signal) => json({ tokens: await translator.reference(text, reference, { to, signal }) }),
  "inspect/head": async (translator, { text, head, query, output, to }, signal) => json(await translator.head(text, head, query, output, { to, signal })),
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

/** The models of the site; the first is loaded meanwhile. */
async function listModels(onProgress) {
  const all = [...(await readModels()).values()].map(({ manifest }) => manifest).filter(({ task }) => task === "translate");
  load(null, onProgress).catch(() => {}); // a request that needs it reports what is wrong
  const models = all.map(({ name, directions, tagged, inspect }) => ({ name, directions, tagged, inspect, aligns: true }));
  return json({ models, languages: await languageNames(), key_required: false, characters: CHARACTERS, formats: [] });
}

/** Continue a text with the language model of the site. */
export async function continueText(prompt, options, onProgress) {
  return (await load(null, onProgress, "language_model")).generate(prompt, options);
}

/** The response to a request of the page. */
export async function answer(path, body, signal, onProgress) {
  if (path === "v1/translators") return listModels(onProgress);
  if (!ANSWERS[path]) throw new Error("this page reads plain text only; transduce serve translates other documents");
  return ANSWERS[path](await load(body.model, onProgress), body, signal);
}
