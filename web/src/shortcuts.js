// Keyboard shortcuts, except while the user types.

import { helpOpen, shortcutsOn } from "./help.js";
import { clearHighlight, inspection, layer, lecture, pinned, shownLayer, shownStep, shownView, markers, stack, step, tooltip, view } from "./state.js";
import { COMBINED, sizes } from "./weights.js";

const moveLayer = (by) => (layer.value = Math.max(1, shownLayer.value + by));
const moveHead = (by) => {
  const heads = inspection.value.model.num_heads;
  view.value = shownView.value in COMBINED ? (by > 0 ? 1 : heads) : ((shownView.value - 1 + by + heads) % heads) + 1;
};
const moveStep = (by) => (step.value = Math.max(0, Math.min(inspection.value.target.length - 1, shownStep.value + by)));

const SHORTCUTS = {
  e: () => (stack.value = "encoder"),
  d: () => (stack.value = "decoder"),
  c: () => (stack.value = "cross"),
  "[": () => moveLayer(-1),
  "]": () => shownLayer.value < sizes(inspection.value, stack.value).layers && moveLayer(1),
  ",": () => moveHead(-1),
  ".": () => moveHead(1),
  m: () => (view.value = "mean"),
  x: () => (view.value = "max"),
  r: () => (view.value = "rollout"),
  s: () => (markers.value = !markers.value),
  j: () => moveStep(-1),
  k: () => moveStep(1),
  l: () => (lecture.value = !lecture.value),
};

export function addShortcuts() {
  addEventListener("scroll", () => (tooltip.value = null), { capture: true, passive: true });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      pinned.value = null;
      return clearHighlight();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("textarea, select, input:not([type=radio], [type=checkbox], [type=range]), dialog")) return;
    if (event.key === "?") helpOpen.value = true;
    else if (!shortcutsOn.value) return;
    else if (event.key === "/") document.getElementById("text")?.focus();
    else if (inspection.value && event.key in SHORTCUTS) SHORTCUTS[event.key]();
    else return;
    event.preventDefault();
  });
}
