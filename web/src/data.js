// Loads inspections: of the chosen sentence from the server, or from this file if it is self-contained.

import { batch, computed, effect } from "@preact/signals";
import { ask, key } from "./api.js";
import { deserialize } from "./deserialize.js";
import { direction } from "./languages.js";
import {
  beam, busy, clearHighlight, error, inspection, latest, off, pinned, pinWord, prefix, searchAlpha, sentence, step, text, treeSteps,
} from "./state.js";
import { sentences, translating } from "./translate.js";
import { label } from "./tokens.js";

const DEBOUNCE = 60; // milliseconds, so that several changes are one request

const embedded = document.getElementById("inspection");
export const live = embedded === null;

/** The sentence that is inspected; null if there is none. */
export const inspected = computed(() =>
  sentence.value === null ? null : (sentences.value[Math.min(sentence.value, sentences.value.length - 1)] ?? null),
);

let scrollWanted = false; // whether the page scrolls to the next inspection, because the user asked for it

/** Scroll to the inspection of a sentence, once it is shown. */
export function scrollToInspection() {
  scrollWanted = true;
}

/** Inspect a sentence of the translation, by its index. */
export function inspectSentence(index) {
  batch(() => {
    [sentence.value, prefix.value, treeSteps.value, step.value] = [index, sentences.value[index]?.prefix ?? [], null, 0];
    pinned.value = null;
  });
}

/** Inspect a sentence, and scroll to its inspection. */
export function lookAt(index) {
  const before = wanted.value;
  inspectSentence(index);
  if (wanted.value === before && inspection.value) scrollToLook();
  else scrollToInspection();
}

const scrollToLook = () => document.getElementById("look")?.scrollIntoView();

/** The request for an inspection by the chosen model, as JSON; empty if no sentence is inspected. */
const wanted = computed(() =>
  inspected.value
    ? JSON.stringify({ text: inspected.value.source, ...direction.value, beam: beam.value, length_penalty: searchAlpha.value, prefix: prefix.value, off: off.value })
    : "",
);

export function startLoading() {
  if (!live) {
    const bytes = Uint8Array.from(atob(embedded.textContent), (character) => character.charCodeAt(0));
    latest.value = inspection.value = deserialize(bytes.buffer);
    [text.value, prefix.value, off.value] = [inspection.value.text, inspection.value.prefix, inspection.value.off];
    return;
  }
  let controller = new AbortController();
  effect(() => {
    void key.value;
    if (translating.value) return; // the sentences are not complete yet
    const request = wanted.value;
    controller.abort(); // the response to an outdated request must not be shown
    controller = new AbortController();
    const { signal } = controller;
    if (!request) return void show(null, "");
    busy.value = true;
    const timer = setTimeout(() => load(JSON.parse(request), signal), DEBOUNCE);
    signal.addEventListener("abort", () => clearTimeout(timer));
  });
}

/** Show a result, or nothing but the reason why there is none; highlighted elements are removed with the old result. */
function show(result, reason) {
  batch(() => {
    clearHighlight();
    if (!result || result.text !== inspection.peek()?.text) pinned.value = null;
    [latest.value, error.value, busy.value] = [result, reason, false];
    if (!result) inspection.value = null;
  });
}

async function load(request, signal) {
  try {
    const result = await inspect(request, signal);
    show(result, "");
    await nextFrame(); // the translation is painted before the figures
    if (signal.aborted) return;
    clearHighlight();
    inspection.value = result;
    pinChosenWord(result);
    await nextFrame(); // the page is not long enough before the figures are shown
    if (scrollWanted && document.activeElement?.id !== "text") scrollToLook(); // who types stays at the text
    scrollWanted = false;
  } catch (failure) {
    if (!signal.aborted) show(null, failure.message);
  }
}

/** The inspection that a request asks for. */
export async function inspect(request, signal) {
  const response = await ask("inspect/look", { body: request, signal });
  const result = deserialize(await response.arrayBuffer());
  signal?.throwIfAborted();
  return result;
}

function pinChosenWord(result) {
  if (!pinWord.value) return;
  const position = result.source.findIndex((id) => label(result, id).replace(/^·/, "") === pinWord.value);
  if (position >= 0) pinned.value = { query: { side: "source", position }, key: null };
}

const nextFrame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
