// Translates the text while the user types, line by line as the lines are finished.

import { batch, computed, effect, signal } from "@preact/signals";
import { ask, askJson, events, key } from "./api.js";
import { direction, noteDetected, server, shownFrom, shownModel, sources } from "./languages.js";
import { text } from "./state.js";

const DEBOUNCE = 150; // milliseconds without a keystroke before a request is sent
const MIN_DETECTED = 8; // shorter texts have no language that could be detected

export const translating = signal(false);
export const problem = signal("");
/** The sentences of each line of the translation: {source, text, after, words, index}; words are probabilities. */
const lines = signal([]);
/** Translations that the user chose, by `editKey`: {text, words, prefix}. */
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
  edits.value = new Map(edits.value).set(editKey(sentence), { text, words: word_confidences, prefix });
}
export function undo(sentence) {
  const remaining = new Map(edits.value);
  remaining.delete(editKey(sentence));
  edits.value = remaining;
}

export function startTranslating() {
  effect(() => void (key.value, loadServer()));
  let controller = new AbortController();
  effect(() => {
    if (!server.value) return;
    const request = { text: text.value, ...direction.value, sentences: true, confidence: "words", stream: true };
    void key.value;
    controller.abort(); // the response to an outdated request must not be shown
    controller = new AbortController();
    const { signal } = controller;
    if (!request.text.trim()) {
      batch(() => ([lines.value, problem.value, translating.value] = [[], "", false]));
      return;
    }
    translating.value = true;
    const timer = setTimeout(() => translate(request, signal), DEBOUNCE);
    signal.addEventListener("abort", () => clearTimeout(timer));
  });
}

async function loadServer() {
  try {
    server.value = await askJson("v1/translators");
    problem.value = "";
  } catch (failure) {
    problem.value = failure.message;
  }
}

async function translate(request, signal) {
  detect(request.text, signal);
  const received = new Array(request.text.split("\n").length).fill(null);
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
  } catch (failure) {
    if (signal.aborted) return;
    batch(() => ([lines.value, problem.value, translating.value] = [[], failure.message, false]));
  }
}

async function detect(text, signal) {
  if (sources.value.length < 2 || shownFrom.value || text.trim().length < MIN_DETECTED || !shownModel.value) return;
  try {
    const [best] = await askJson("detect", { body: { q: text }, signal });
    if (!signal.aborted && best?.confidence > 0) noteDetected(best.language);
  } catch {
    // the translation does not need it
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
