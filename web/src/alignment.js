// Which words of a sentence and of its translation belong together, by the model's alignment.

import { computed, signal } from "@preact/signals";
import { text } from "./state.js";
import { sentences } from "./translate.js";

/** The word under the pointer or the caret, as {index, side, word}: a sentence, "source" or "target", the number of a word. */
export const pointed = signal(null);

/** The pieces of a run without white space: one, or the words of a script that puts no spaces between them. */
export function clickable(run) {
  if (!/[\u0e00-\u109f\u1780-\u17ff\u2e80-\u9fff]/.test(run) || !Intl.Segmenter) return [run];
  return [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(run)].map(({ segment }) => segment);
}

/** The words of a text, and what is between them: {text, start, end, word}; word counts the words, and is null between them. */
export function pieces(content) {
  let [start, word] = [0, 0];
  return content.split(/(\s+)/).filter(Boolean).flatMap((run) => (run.trim() ? clickable(run) : [run])).map((piece) => {
    const end = start + [...piece].length; // ranges of the server count characters, not units of UTF-16
    const found = { text: piece, start, end, word: piece.trim() ? word++ : null };
    start = end;
    return found;
  });
}

const known = new WeakMap(); // by the list of aligned ranges, which stays the same while a sentence is shown

/** The links of a sentence, as sets: `source[n]` has the words of the translation that belong to word n, `target[n]` the reverse. */
function links({ source, text, aligned }) {
  if (known.has(aligned)) return known.get(aligned);
  const words = { source: pieces(source).filter(({ word }) => word !== null), target: pieces(text).filter(({ word }) => word !== null) };
  const found = { words, source: words.source.map(() => new Set()), target: words.target.map(() => new Set()) };
  const within = (list, [start, end]) => list.filter((one) => one.start < end && start < one.end);
  for (const [from, to] of aligned)
    for (const first of within(words.source, from))
      for (const second of within(words.target, to)) {
        found.source[first.word].add(second.word);
        found.target[second.word].add(first.word);
      }
  known.set(aligned, found);
  return found;
}

const NONE = { index: null, source: new Set(), target: new Set() };

/** The words that belong to the one that is pointed at, and itself: {index, source, target}. */
export const lit = computed(() => {
  const at = pointed.value;
  const sentence = at && sentences.value[at.index];
  if (!sentence?.aligned) return NONE;
  const found = links(sentence);
  const itself = new Set([at.word]);
  const others = found[at.side][at.word] ?? new Set();
  return at.side === "source" ? { index: at.index, source: itself, target: others } : { index: at.index, source: others, target: itself };
});

/** The numbers of the words of a sentence that its translation seems to lack. */
function uncovered({ source, uncovered: lacking }) {
  const places = (lacking ?? []).map((phrase) => [source.toLowerCase().indexOf(phrase.toLowerCase()), phrase]).filter(([at]) => at >= 0);
  const ranges = places.map(([at, phrase]) => [[...source.slice(0, at)].length, [...source.slice(0, at + phrase.length)].length]);
  const missing = pieces(source).filter((piece) => ranges.some(([start, end]) => piece.start < end && start < piece.end));
  return new Set(missing.map(({ word }) => word));
}

/** The words of all sentences with their place in the text box: {index, word, start, end, missing}, in units of UTF-16. */
export const sourceWords = computed(() => {
  const all = [];
  let at = 0;
  for (const sentence of sentences.value) {
    const place = text.value.indexOf(sentence.source, at);
    if (place < 0) continue; // the text has tags, or has changed since
    at = place;
    const missing = uncovered(sentence);
    for (const { text: piece, word } of pieces(sentence.source)) {
      if (word !== null) all.push({ index: sentence.index, word, start: at, end: at + piece.length, missing: missing.has(word) });
      at += piece.length;
    }
  }
  return all;
});

export const missingWords = computed(() => [...new Set(sourceWords.value.filter(({ missing }) => missing).map(({ start, end }) =>
  text.value.slice(start, end).replace(/^[^\p{L}]+|[^\p{L}]+$/gu, "")))]);
