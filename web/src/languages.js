// Which model translates between which languages.

import { computed, signal } from "@preact/signals";
import { from, model, to } from "./state.js";

/** The models of the server and their languages, as GET /v1/translators returns them; null until it is loaded. */
export const server = signal(null);
/** The language of the text, if it is detected. */
export const detected = signal("");

const models = computed(() => {
  const all = server.value?.models ?? [];
  const named = all.filter(({ name }) => name === model.value);
  return named.length ? named : all;
});
const directions = computed(() => models.value.flatMap((one) => one.directions.map(([source, target]) => ({ source, target, model: one }))));
const different = (codes) => [...new Set(codes.filter(Boolean))];

export const sources = computed(() => different(directions.value.map(({ source }) => source)));
/** The source language; empty: it is detected, or not known. */
export const shownFrom = computed(() => (sources.value.length === 1 ? sources.value[0] : sources.value.includes(from.value) ? from.value : ""));
const knownSource = computed(() => shownFrom.value || (sources.value.includes(detected.value) ? detected.value : ""));
const fitting = computed(() => directions.value.filter(({ source }) => !shownFrom.value || !source || source === shownFrom.value));
export const targets = computed(() => different(fitting.value.map(({ target }) => target)));
export const shownTo = computed(() => {
  if (targets.value.includes(to.value)) return to.value;
  const others = targets.value.filter((code) => code !== knownSource.value);
  return others[0] ?? targets.value[0] ?? "";
});
/** The model that translates; null until the models are known. */
export const shownModel = computed(() => {
  const toTarget = fitting.value.filter(({ target }) => !shownTo.value || !target || target === shownTo.value);
  const exact = toTarget.find(({ source }) => source && source === knownSource.value);
  return (exact ?? toTarget[0])?.model ?? null;
});
/** The fields of a request that choose model and target language. */
export const direction = computed(() => ({ model: shownModel.value?.name, ...(shownModel.value?.tagged && { to: shownTo.value }) }));

export const nameOf = (code) => server.value?.languages[code] ?? code;

/** The languages after a swap, or null if no model translates in that direction. */
export const swapped = computed(() => {
  const source = shownTo.value;
  const target = knownSource.value || directions.value.find((one) => one.source === source && one.target)?.target;
  return source && directions.value.some((one) => one.source === source && one.target === target) ? { source, target } : null;
});

/** Note the detected language; if it is the target language, translate to another one. */
export function noteDetected(code) {
  detected.value = code;
  if (code === shownTo.value && sources.value.includes(code)) {
    const other = directions.value.find(({ source, target }) => source === code && target && target !== code);
    if (other) to.value = other.target;
  }
}
