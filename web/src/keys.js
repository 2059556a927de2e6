// Single keys for what one does often; not while typing.

import { forget, layer, look, markers, shownLayer, shownStep, shownView, stack, step, tip, view } from "./state.js";
import { JOINED, sizes } from "./weights.js";

const turnLayer = (by) => (layer.value = Math.max(1, shownLayer.value + by));
const turnHead = (by) => {
  const heads = look.value.model.num_heads;
  view.value = shownView.value in JOINED ? (by > 0 ? 1 : heads) : ((shownView.value - 1 + by + heads) % heads) + 1;
};
const turnStep = (by) => (step.value = Math.max(0, Math.min(look.value.target.length - 1, shownStep.value + by)));

const KEYS = {
  e: () => (stack.value = "encoder"),
  d: () => (stack.value = "decoder"),
  c: () => (stack.value = "cross"),
  "[": () => turnLayer(-1),
  "]": () => shownLayer.value < sizes(look.value, stack.value).layers && turnLayer(1),
  ",": () => turnHead(-1),
  ".": () => turnHead(1),
  m: () => (view.value = "mean"),
  x: () => (view.value = "max"),
  r: () => (view.value = "rollout"),
  s: () => (markers.value = !markers.value),
  j: () => turnStep(-1),
  k: () => turnStep(1),
};

export function listenToKeys() {
  addEventListener("scroll", () => (tip.value = null), { capture: true, passive: true });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") return forget();
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("textarea, select")) return;
    if (event.key === "/") document.getElementById("text").focus();
    else if (look.value && event.key in KEYS) KEYS[event.key]();
    else return;
    event.preventDefault();
  });
}
