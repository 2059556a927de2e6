// Loads inspections: of the chosen sentence from the server, or from this file if it is self-contained.

import { batch, computed, effect } from "@preact/signals";
import { ask, key } from "./api.js";
import { deserialize } from "./deserialize.js";
import { direction } from "./languages.js";
import {
  beam, busy, clearHighlight, error, inspection, latest, letPointerRest, off, pinned, prefix, question, searchAlpha, section, sentence, step, text, treeSteps,
} from "./state.js";
import { answerQuestion } from "./story.js";
import { sentences, translating } from "./translate.js";

const DEBOUNCE = 60; // milliseconds, so that several changes are one request

const embedded = document.getElementById("inspection");
export const live = embedded === null;

/** The bytes of the inspection that is shown, for a file that contains it. */
export let bytes = null;

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

function scrollToLook() {
  goToElement(section.value || "attention-section");
  letPointerRest();
}

/** Scroll to an element, where the tab key goes on. */
function goToElement(id) {
  const element = document.getElementById(id);
  if (!element) return;
  element.scrollIntoView();
  element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

/** Go to a section, whose name is in the address from then on. */
export function goTo(id) {
  section.value = id;
  goToElement(id);
}

/** The request for an inspection by the chosen model, as JSON; empty if no sentence is inspected. */
const wanted = computed(() =>
  inspected.value
    ? JSON.stringify({ text: inspected.value.source, ...direction.value, beam: beam.value, length_penalty: searchAlpha.value, prefix: prefix.value, off: off.value })
    : "",
);

export function startLoading() {
  if (!live) {
    bytes = Uint8Array.from(atob(embedded.textContent), (character) => character.charCodeAt(0)).buffer;
    const result = deserialize(bytes);
    batch(() => {
      latest.value = inspection.value = result;
      [text.value, prefix.value, off.value] = [result.text, result.prefix, result.off];
      choosePair(result);
    });
    return;
  }
  let controller = new AbortController();
  effect(() => {
    void key.value;
    const request = wanted.value;
    controller.abort(); // the response to an outdated request must not be shown
    if (translating.value) return; // the sentences are not complete yet
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
    const before = inspection.peek();
    if (before && result?.text !== before.text) pinned.value = null; // those of the address are for the first result
    [latest.value, error.value, busy.value] = [result, reason, false];
    if (!result) inspection.value = null;
  });
}

async function load(request, signal) {
  try {
    const isFirst = !inspection.peek();
    const [result, received] = await inspect(request, signal);
    bytes = received;
    show(result, "");
    await nextFrame(); // the translation is painted before the figures
    if (signal.aborted) return;
    clearHighlight();
    batch(() => {
      inspection.value = result;
      choosePair(result);
    });
    await nextFrame(); // the page is not long enough before the figures are shown
    if ((isFirst && section.value) || (scrollWanted && document.activeElement?.id !== "text")) scrollToLook(); // who types stays at the text
    scrollWanted = false;
  } catch (failure) {
    if (!signal.aborted) show(null, failure.message);
  }
}

/** The inspection that a request asks for, and its bytes. */
export async function inspect(request, signal) {
  const response = await ask("inspect/look", { body: request, signal });
  const received = await response.arrayBuffer();
  signal?.throwIfAborted();
  return [deserialize(received), received];
}

/** Show the pair that a question asks for; forget a pair of the address that the text does not have. */
function choosePair(result) {
  if (question.value) answerQuestion();
  const exists = (at) => !at || (at.position < result[at.side].length && at.position >= (at.side === "target" ? -1 : 0));
  if (pinned.value && !(exists(pinned.value.query) && exists(pinned.value.key))) pinned.value = null;
}

const nextFrame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
