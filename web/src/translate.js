// Translates the text while the user types, line by line as the lines are finished.

import { batch, computed, effect, signal } from "@preact/signals";
import { ask, askJson, events, key } from "./api.js";
import { detected, direction, server, shownModel, sources, unavailable } from "./languages.js";
import { text } from "./state.js";

const DEBOUNCE = 150; // milliseconds without a keystroke before a request is sent
const SETTLED = 1000; // milliseconds after a translation in which the text has not changed
const DETECTED = 1000; // characters that tell the language

export const translating = signal(false);
export const problem = signal("");
/** The sentences of each line of the translation: {source, text, after, words, aligned, uncovered, index}; words are probabilities. */
const lines = signal([]);
/** Translations that the user chose, by `editKey`: {text, words, prefix, aligned, uncovered}; they are not aligned, and their coverage is not known. */
const edits = signal(new Map());

const editKey = ({ source }) => JSON.stringify([direction.value, source]);
/** The lines with the user's choices; index numbers the sentences that are not empty. */
export const shownLines = computed(() => {
  let index = 0;
  return lines.value.map((line) =>
    (line ?? []).map((one) => ({ ...one, ...edits.value.get(editKey(one)), edited: edits.value.has(editKey(one)), index: one.source ? index++ : null })),
  );
});
export const sentences = computed(() => shownLines.value.flat().filter(({ source }) => source));
export const translation = computed(() => shownLines.value.map((line) => line.map(({ text, after }) => text + after).join("")).join("\n"));

export function choose(sentence, { text, word_confidences, prefix }) {
  edits.value = new Map(edits.value).set(editKey(sentence), { text, words: word_confidences, prefix, aligned: null, uncovered: null });
}
export function undo(sentence) {
  const remaining = new Map(edits.value);
  remaining.delete(editKey(sentence));
  edits.value = remaining;
}

const isTooLong = (text) => [...text].length > (server.value?.characters ?? Infinity);
/** Whether the text is longer than the server accepts. */
export const tooLong = computed(() => isTooLong(text.value));

export const retry = () => (attempts.value += 1);
const attempts = signal(0);
/** The text whose language is known, as {text}: only then is its direction known. */
const ready = signal({ text: "" });

export function startTranslating() {
  effect(() => void (key.value, attempts.value, loadServer()));
  let controller = new AbortController();
  effect(() => { // a new text: find its language
    const wanted = text.value;
    if (!server.value) return;
    void [key.value, attempts.value];
    controller.abort(); // the response to an outdated request must not be shown
    controller = new AbortController();
    const { signal } = controller;
    translating.value = Boolean(wanted.trim());
    if (!wanted.trim()) return void batch(() => ([detected.value, ready.value] = [null, { text: "" }]));
    const timer = setTimeout(async () => {
      const found = await detect(wanted, signal);
      if (!signal.aborted) batch(() => ([detected.value, ready.value] = [found, { text: wanted }]));
    }, DEBOUNCE);
    signal.addEventListener("abort", () => clearTimeout(timer));
  });
  let running = new AbortController();
  let lastDirection = "";
  effect(() => {
    const { text } = ready.value;
    const request = { text, ...direction.value, sentences: true, confidence: "words", align: Boolean(shownModel.value?.aligns), stream: true };
    running.abort();
    running = new AbortController();
    if (!text || unavailable.value || isTooLong(text)) return void batch(() => ([lines.value, problem.value, translating.value] = [[], "", false]));
    const shownDirection = JSON.stringify(direction.value);
    if (shownDirection !== lastDirection) lines.value = []; // a translation is never shown under another direction
    lastDirection = shownDirection;
    translating.value = true;
    translate(request, AbortSignal.any([controller.signal, running.signal]));
  });
}

async function loadServer() {
  try {
    const facts = await askJson("v1/translators");
    if (JSON.stringify(facts) !== JSON.stringify(server.peek())) server.value = facts; // otherwise nothing is translated again
    problem.value = "";
  } catch (failure) {
    problem.value = failure.message;
  }
}

async function translate(request, signal) {
  const received = request.coverage ? [...lines.value] : new Array(request.text.split("\n").length).fill(null);
  try {
    const response = await ask("v1/translate", { body: request, signal });
    for await (const { event, data } of events(response)) {
      if (signal.aborted) return;
      if (event === "error") throw new Error(data.error);
      if (event === "sentence") received[data.line] = data.sentences.map(({ word_confidences: words, ...one }) => ({ ...one, words }));
      // The old translation stays until the new one begins, so that the page does not flicker.
      if (event === "sentence") batch(() => ([lines.value, problem.value] = [[...received], ""]));
    }
    translating.value = false;
    // Testing which words are missing takes several times as long as translating, so it waits until the text stays the same.
    if (!request.coverage) setTimeout(() => signal.aborted || translate({ ...request, coverage: true }, signal), SETTLED);
  } catch (failure) {
    if (signal.aborted || request.coverage) return;
    batch(() => ([lines.value, problem.value, translating.value] = [[], failure.message, false]));
  }
}

/** The language of a text; null if there is nothing to choose. */
async function detect(text, signal) {
  if (sources.value.length < 2) return null;
  try {
    return await askJson("v1/detect", { body: { text: text.slice(0, DETECTED) }, signal });
  } catch {
    return null; // the translation does not need it, and reports what is wrong
  }
}

/** The translation of a text of any length, in requests within the server's limit; `onProgress` gets the share done. */
export async function translateAll(content, onProgress, signal) {
  const parts = [];
  const limit = server.value.characters;
  for (const line of content.split("\n"))
    if (parts.length && parts.at(-1).length + line.length < 0.9 * limit && parts.at(-1).split("\n").length < 900) parts[parts.length - 1] += `\n${line}`;
    else parts.push(line);
  const done = [];
  for (const part of parts) {
    onProgress(done.length / parts.length);
    const { translations } = await askJson("v1/translate", { body: { text: part, ...direction.value }, signal });
    done.push(translations[0].outputs[0].text);
  }
  return done.join("\n");
}
