// What the page shows, as signals; and the address, which holds it, so that a view can be shared.

import { batch, computed, effect, signal } from "@preact/signals";
import { JOINED, STACKS } from "./weights.js";

export const text = signal("");
export const beam = signal(null); // null: the translator's own
export const searched = signal(null); // length penalty that search uses; null: the translator's own
export const alpha = signal(null); // length penalty that ranks what was found; null: as searched
export const prefix = signal([]);
export const off = signal([]);
export const stack = signal("cross");
export const layer = signal(null); // counted from 1; null: near the top, where heads align best
export const view = signal("max"); // a head, counted from 1, or a name of JOINED
export const markers = signal(true);
export const step = signal(0);
export const temperature = signal(1);
export const grown = signal(null); // steps of the tree that show; null: all
export const theme = signal("auto");

export const heard = signal(null); // the newest look, which the words show
export const look = signal(null); // the one that everything below shows, a frame later
export const trouble = signal("");
export const busy = signal(false);
/** What the pointer or the focus is on: the place that looks, the place looked at; each {side, place} or null. */
export const mark = signal({ looks: null, seen: null });
export const tip = signal(null);

/** Whether the window is so, now and later. */
function media(query) {
  const list = matchMedia(query);
  const matches = signal(list.matches);
  list.addEventListener("change", () => (matches.value = list.matches));
  return matches;
}
export const narrow = media("(max-width: 560px)");
const system = media("(prefers-color-scheme: dark)");
export const dark = computed(() => (theme.value === "auto" ? system.value : theme.value === "dark"));

export const shownAlpha = computed(() => alpha.value ?? look.value?.alpha ?? 0.6);
export const shownStep = computed(() => Math.min(step.value, (look.value?.target.length ?? 1) - 1));
export const shownLayer = computed(() => {
  const layers = look.value?.model[STACKS[stack.value].layers] ?? 1;
  return Math.max(1, Math.min(layer.value ?? Math.ceil(0.8 * layers), layers));
});
export const shownView = computed(() => {
  const heads = look.value?.model.num_heads ?? 1;
  return view.value in JOINED || view.value <= heads ? view.value : "max";
});

export function forget() {
  mark.value = { looks: null, seen: null };
  tip.value = null;
}

/** A mouse that leaves takes its marks along; what a finger touched stays marked. */
export const leave = (event) => event.pointerType === "mouse" && forget();

const number = (word) => (word !== "" && Number.isFinite(Number(word)) ? Number(word) : null);
const count = (word) => (/^[1-9]\d{0,3}$/.test(word) ? Number(word) : null);
const FIELDS = {
  text: [text, (word) => word],
  beam: [beam, count],
  searched: [searched, number],
  alpha: [alpha, number],
  prefix: [prefix, (word) => (word.match(/\d+/g) ?? []).map(Number)],
  off: [off, (word) => word.split(",").filter((name) => /^(encoder|decoder|cross)\.\d+\.\d+$/.test(name))],
  stack: [stack, (word) => (Object.hasOwn(STACKS, word) ? word : null)],
  layer: [layer, count],
  view: [view, (word) => (Object.hasOwn(JOINED, word) ? word : count(word))],
  markers: [markers, (word) => word !== "false"],
  step: [step, count],
  temperature: [temperature, number],
  grown: [grown, count],
  theme: [theme, (word) => (["auto", "light", "dark"].includes(word) ? word : null)],
};
const usual = Object.fromEntries(Object.entries(FIELDS).map(([name, [field]]) => [name, field.peek()]));

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [name, [field, parse]] of Object.entries(FIELDS)) {
    const value = given.has(name) ? parse(given.get(name)) : usual[name];
    if (String(value) !== String(field.peek())) field.value = value ?? usual[name];
  }
}

export function keepAddress() {
  readAddress();
  addEventListener("hashchange", () => batch(readAddress));
  let timer; // browsers refuse addresses that change with every movement of a slider
  effect(() => {
    const held = new URLSearchParams();
    for (const [name, [field]] of Object.entries(FIELDS))
      if (String(field.value ?? "") !== String(usual[name] ?? "")) held.set(name, String(field.value));
    clearTimeout(timer);
    timer = setTimeout(() => history.replaceState(null, "", `#${held}`), 150);
  });
  effect(() => {
    document.documentElement.style.colorScheme = theme.value === "auto" ? "light dark" : theme.value;
  });
}
