// The state of the page as signals, stored in the URL so that a view can be shared.

import { batch, computed, effect, signal } from "@preact/signals";
import { strongest } from "./telling.js";
import { COMBINED, combinedViews, countLayers, STACKS } from "./weights.js";

export const text = signal("");
export const from = signal(""); // source language; empty: it is detected
export const to = signal(""); // target language; empty: the first one
export const model = signal(""); // name of a model; empty: the first one that fits the languages
export const shading = signal(true); // whether improbable words are shaded
export const sentence = signal(null); // index of the sentence that is inspected; null: none
export const beam = signal(null); // null: the translator's setting
export const searchAlpha = signal(null); // length penalty of the search; null: the translator's setting
export const alpha = signal(null); // length penalty of the ranking; null: that of the search
export const prefix = signal([]);
export const off = signal([]);
export const stack = signal("cross");
export const layer = signal(null); // counted from 1; null: that of a telling head
export const view = signal(null); // a head, counted from 1, or a key of COMBINED; null: a telling head of the layer
export const markers = signal(false); // whether markers are shown: tokens that are not part of the text
export const experts = signal(false); // whether combined views and all heads are shown
export const step = signal(0);
export const temperature = signal(1);
export const treeSteps = signal(null); // number of search steps shown; null: all
export const theme = signal("auto");
export const lecture = signal(false); // large labels, and the figures of the attention fill the window

export const latest = signal(null); // the newest inspection, shown in the translation panel
export const inspection = signal(null); // shown in all other sections, one frame later
export const error = signal("");
export const busy = signal(false);
const NOTHING = { query: null, key: null };
/** The query and key positions under the pointer or focus, each {side, position} or null; null if there is none. */
export const hovered = signal(null);
/** Positions that stay highlighted, in the same form. */
export const pinned = signal(null);
/** What the picture of the next inspection is to show, as in `telling.js`: "it>animal", ">lent" or "neighbour"; empty: a telling head. */
export const question = signal("");
export const section = signal(""); // the id of the section that a link leads to
export const story = signal(null); // the example that is shown, see examples.js
/** Whether the page has scrolled under a pointer that did not move: it points at nothing. */
export const resting = signal(false);
export const highlight = computed(() => (resting.value ? null : hovered.value) ?? pinned.value ?? NOTHING);
export const tooltip = signal(null);

/** A signal that tells whether a media query matches. */
function media(query) {
  const list = matchMedia(query);
  const matches = signal(list.matches);
  list.addEventListener("change", () => (matches.value = list.matches));
  return matches;
}
export const narrow = media("(max-width: 560px)");
export const coarse = media("(pointer: coarse)"); // a finger, which cannot drop files
export const still = media("(prefers-reduced-motion: reduce)");
const systemDark = media("(prefers-color-scheme: dark)");
export const dark = computed(() => (theme.value === "auto" ? systemDark.value : theme.value === "dark"));

/** The pair of positions with which the chosen attention begins, and its head; null if there is none. */
const telling = computed(() => {
  const shown = inspection.value;
  if (!shown || !countLayers(shown, stack.value)) return null;
  return strongest(shown, stack.value, { layer: layer.value && Math.min(layer.value, countLayers(shown, stack.value)) });
});
export const shownAlpha = computed(() => alpha.value ?? inspection.value?.alpha ?? 0.6);
export const shownStep = computed(() => Math.min(step.value, (inspection.value?.target.length ?? 1) - 1));
export const shownLayer = computed(() => {
  const layers = inspection.value ? countLayers(inspection.value, stack.value) : 1;
  return Math.max(1, Math.min(layer.value ?? telling.value?.layer ?? 1, layers));
});
export const shownView = computed(() => {
  const heads = inspection.value?.model.num_heads ?? 1;
  const known = inspection.value ? combinedViews(inspection.value) : Object.keys(COMBINED);
  return known.includes(view.value) || (view.value !== null && view.value <= heads) ? view.value : (telling.value?.head ?? 1);
});
effect(() => {
  const shown = inspection.value;
  if (shown && !countLayers(shown, stack.value)) stack.value = countLayers(shown, "cross") ? "cross" : "encoder";
});

/** Point at nothing until the pointer is moved or a key is pressed. */
export function letPointerRest() {
  resting.value = true;
  const types = ["pointermove", "pointerdown", "keydown"];
  const moved = (event) => {
    if (event.type === "pointermove" && !event.movementX && !event.movementY) return; // the page has moved, not the pointer
    resting.value = false;
    for (const type of types) removeEventListener(type, moved);
  };
  for (const type of types) addEventListener(type, moved);
}

/** Change the text, which begins another translation. */
export function setText(value) {
  batch(() => ([text.value, prefix.value, treeSteps.value, question.value, story.value] = [value, [], null, "", null]));
}

export function clearHighlight() {
  hovered.value = null;
  tooltip.value = null;
}

/** Keep positions highlighted, or stop if they are already. */
export function togglePin(positions) {
  const wanted = { ...NOTHING, ...positions };
  pinned.value = JSON.stringify(pinned.value) === JSON.stringify(wanted) ? null : wanted;
}

/** Clear the highlight when a mouse leaves; on touch screens it stays. */
export const onLeave = (event) => event.pointerType === "mouse" && clearHighlight();

const parseNumber = (word) => (word !== "" && Number.isFinite(Number(word)) ? Number(word) : null);
const parseCount = (word) => (/^[1-9]\d{0,3}$/.test(word) ? Number(word) : null);
const parsePosition = (word) => (/^[st](-1|\d{1,4})$/.test(word) ? { side: word[0] === "s" ? "source" : "target", position: Number(word.slice(1)) } : null);
const writePosition = (at) => (at ? `${at.side[0]}${at.position}` : "");
/** A pair of positions in the URL: "s11.s1" are two tokens of the source, "t3." is a token of the target. */
function parsePair(word) {
  const [query, key] = word.split(".").map(parsePosition);
  return query || key ? { query, key: key ?? null, ...(query && key && { cell: true }) } : null;
}
const writePair = (pair) => (pair ? `${writePosition(pair.query)}.${writePosition(pair.key)}` : "");
/** URL parameters: the signal and the parser of each, and how it is written. */
const PARAMETERS = {
  text: [text, (word) => word],
  from: [from, (word) => word],
  to: [to, (word) => word],
  model: [model, (word) => word],
  shading: [shading, (word) => word !== "false"],
  sentence: [sentence, (word) => (/^\d{1,5}$/.test(word) ? Number(word) : null)],
  question: [question, (word) => word],
  pair: [pinned, parsePair, writePair],
  section: [section, (word) => word],
  beam: [beam, parseCount],
  searched: [searchAlpha, parseNumber],
  alpha: [alpha, parseNumber],
  prefix: [prefix, (word) => (word.match(/\d+/g) ?? []).map(Number)],
  off: [off, (word) => word.split(",").filter((name) => /^(encoder|decoder|cross)\.\d+\.\d+$/.test(name))],
  stack: [stack, (word) => (Object.hasOwn(STACKS, word) ? word : null)],
  layer: [layer, parseCount],
  view: [view, (word) => (Object.hasOwn(COMBINED, word) ? word : parseCount(word))],
  markers: [markers, (word) => word === "true"],
  experts: [experts, (word) => word === "true"],
  step: [step, parseCount],
  temperature: [temperature, parseNumber],
  grown: [treeSteps, parseCount],
  lecture: [lecture, (word) => word === "true"],
  theme: [theme, (word) => (["auto", "light", "dark"].includes(word) ? word : null)],
};
const written = (name, value) => (PARAMETERS[name][2] ?? ((one) => String(one ?? "")))(value);
const defaults = Object.fromEntries(Object.entries(PARAMETERS).map(([name, [field]]) => [name, field.peek()]));
/** The view with which a saved file begins. */
const saved = document.getElementById("view")?.textContent ?? "";

function readUrl() {
  const given = new URLSearchParams(location.hash.slice(1) || saved);
  for (const [name, [field, parse]] of Object.entries(PARAMETERS)) {
    const value = (given.has(name) ? parse(given.get(name)) : null) ?? defaults[name];
    if (written(name, value) !== written(name, field.peek())) field.value = value;
  }
}

/** The part of the URL after #. */
export function currentView() {
  const parameters = new URLSearchParams();
  for (const [name, [field]] of Object.entries(PARAMETERS)) {
    const value = written(name, field.value);
    if (value !== written(name, defaults[name])) parameters.set(name, value);
  }
  return String(parameters);
}

/** Read the state from the URL, and write it back whenever it changes. */
export function syncUrl() {
  readUrl();
  addEventListener("hashchange", () => batch(readUrl));
  let timer; // browsers limit how often the URL may change, and sliders change it often
  effect(() => {
    const view = currentView();
    clearTimeout(timer);
    timer = setTimeout(() => history.replaceState(null, "", `#${view}`), 150);
  });
  effect(() => document.documentElement.classList.toggle("lecture", lecture.value));
  effect(() => {
    document.documentElement.style.colorScheme = theme.value === "auto" ? "light dark" : theme.value;
  });
}
