// The state of the page as signals, stored in the URL so that a view can be shared.

import { batch, computed, effect, signal } from "@preact/signals";
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
export const layer = signal(null); // counted from 1; null: near the top, where heads align best
export const view = signal("max"); // a head, counted from 1, or a key of COMBINED
export const specialTokens = signal(true);
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
export const note = signal(""); // what to see in the example that is shown
export const pinWord = signal(""); // a source word whose first token is pinned when a sentence is inspected
export const highlight = computed(() => hovered.value ?? pinned.value ?? NOTHING);
export const tooltip = signal(null);

/** A signal that tells whether a media query matches. */
function media(query) {
  const list = matchMedia(query);
  const matches = signal(list.matches);
  list.addEventListener("change", () => (matches.value = list.matches));
  return matches;
}
export const narrow = media("(max-width: 560px)");
const systemDark = media("(prefers-color-scheme: dark)");
export const dark = computed(() => (theme.value === "auto" ? systemDark.value : theme.value === "dark"));

export const shownAlpha = computed(() => alpha.value ?? inspection.value?.alpha ?? 0.6);
export const shownStep = computed(() => Math.min(step.value, (inspection.value?.target.length ?? 1) - 1));
export const shownLayer = computed(() => {
  const layers = inspection.value ? countLayers(inspection.value, stack.value) : 1;
  return Math.max(1, Math.min(layer.value ?? Math.ceil(0.8 * layers), layers));
});
export const shownView = computed(() => {
  const heads = inspection.value?.model.num_heads ?? 1;
  const known = inspection.value ? combinedViews(inspection.value) : Object.keys(COMBINED);
  return known.includes(view.value) || view.value <= heads ? view.value : "max";
});
effect(() => {
  const shown = inspection.value;
  if (shown && !countLayers(shown, stack.value)) stack.value = countLayers(shown, "cross") ? "cross" : "encoder";
});

/** Change the text, which begins another translation. */
export function setText(value) {
  batch(() => ([text.value, prefix.value, treeSteps.value, pinWord.value, note.value] = [value, [], null, "", ""]));
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
/** URL parameters: the signal and the parser of each. */
const PARAMETERS = {
  text: [text, (word) => word],
  from: [from, (word) => word],
  to: [to, (word) => word],
  model: [model, (word) => word],
  shading: [shading, (word) => word !== "false"],
  sentence: [sentence, (word) => (/^\d{1,5}$/.test(word) ? Number(word) : null)],
  pin: [pinWord, (word) => word],
  beam: [beam, parseCount],
  searched: [searchAlpha, parseNumber],
  alpha: [alpha, parseNumber],
  prefix: [prefix, (word) => (word.match(/\d+/g) ?? []).map(Number)],
  off: [off, (word) => word.split(",").filter((name) => /^(encoder|decoder|cross)\.\d+\.\d+$/.test(name))],
  stack: [stack, (word) => (Object.hasOwn(STACKS, word) ? word : null)],
  layer: [layer, parseCount],
  view: [view, (word) => (Object.hasOwn(COMBINED, word) ? word : parseCount(word))],
  markers: [specialTokens, (word) => word !== "false"],
  step: [step, parseCount],
  temperature: [temperature, parseNumber],
  grown: [treeSteps, parseCount],
  lecture: [lecture, (word) => word === "true"],
  theme: [theme, (word) => (["auto", "light", "dark"].includes(word) ? word : null)],
};
const defaults = Object.fromEntries(Object.entries(PARAMETERS).map(([name, [field]]) => [name, field.peek()]));

function readUrl() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [name, [field, parse]] of Object.entries(PARAMETERS)) {
    const value = given.has(name) ? parse(given.get(name)) : defaults[name];
    if (String(value) !== String(field.peek())) field.value = value ?? defaults[name];
  }
}

/** Read the state from the URL, and write it back whenever it changes. */
export function syncUrl() {
  readUrl();
  addEventListener("hashchange", () => batch(readUrl));
  let timer; // browsers limit how often the URL may change, and sliders change it often
  effect(() => {
    const parameters = new URLSearchParams();
    for (const [name, [field]] of Object.entries(PARAMETERS))
      if (String(field.value ?? "") !== String(defaults[name] ?? "")) parameters.set(name, String(field.value));
    clearTimeout(timer);
    timer = setTimeout(() => history.replaceState(null, "", `#${parameters}`), 150);
  });
  effect(() => document.documentElement.classList.toggle("lecture", lecture.value));
  effect(() => {
    document.documentElement.style.colorScheme = theme.value === "auto" ? "light dark" : theme.value;
  });
}
