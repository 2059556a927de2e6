// Which model translates between which languages, and what is said about a direction that no model has.

import { computed, signal } from "@preact/signals";
import { isSite } from "./site.js";
import { from, model, to } from "./state.js";

/** The models of the server and their languages, as GET /v1/translators returns them; null until it is loaded. */
export const server = signal(null);
/** What POST /v1/detect says about the text: {language, name, available}; null if that is not known. */
export const detected = signal(null);

const models = computed(() => {
  const all = server.value?.models ?? [];
  const named = all.filter(({ name }) => name === model.value);
  return named.length ? named : all;
});
const directions = computed(() => models.value.flatMap((one) => one.directions.map(([source, target]) => ({ source, target, model: one }))));
const different = (codes) => [...new Set(codes.filter(Boolean))];

export const sources = computed(() => different(directions.value.map(({ source }) => source)));
/** The source language that was chosen, or the only one; empty: it is detected, or not known. */
export const shownFrom = computed(() => (sources.value.length === 1 ? sources.value[0] : sources.value.includes(from.value) ? from.value : ""));
/** The detected language, if a model translates from it. */
export const detectedSource = computed(() => (sources.value.includes(detected.value?.language) ? detected.value.language : ""));
const knownSource = computed(() => shownFrom.value || detectedSource.value);
const fitting = computed(() => directions.value.filter(({ source }) => !knownSource.value || !source || source === knownSource.value));
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
const list = (names) => new Intl.ListFormat("en").format(names);

/** Why the text is not translated; empty if it is. */
export const unavailable = computed(() => {
  const found = detected.value;
  if (!found || shownFrom.value || !sources.value.length || (found.available && (!found.language || detectedSource.value))) return "";
  return `${found.name ?? "This language"} is not available: ${isSite ? "this page" : "this server"} translates from ${list(sources.value.map(nameOf))}.`;
});
/** What the user should know about the direction; empty if it is the one that was asked for. */
export const remark = computed(() => {
  if (detectedSource.value && to.value && !targets.value.includes(to.value) && to.value !== detectedSource.value)
    return `${nameOf(knownSource.value)} to ${nameOf(to.value)} is not available.`;
  return "";
});
/** A source language that fits the text better than the one that was chosen; empty if there is none. */
export const betterSource = computed(() => (from.value && shownFrom.value && detectedSource.value !== shownFrom.value ? detectedSource.value : ""));

/** The languages after a swap, or null if no model translates in that direction. */
export const swapped = computed(() => {
  const source = shownTo.value;
  const target = knownSource.value || directions.value.find((one) => one.source === source && one.target)?.target;
  return source && directions.value.some((one) => one.source === source && one.target === target) ? { source, target } : null;
});
