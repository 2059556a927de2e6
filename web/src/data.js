// Loads inspections: from the server while the user types, or from this file if it is self-contained.

import { effect } from "@preact/signals";
import { deserialize } from "./deserialize.js";
import { beam, busy, clearHighlight, error, inspection, latest, off, prefix, searchAlpha, shownTarget, targets, text } from "./state.js";

const DEBOUNCE = 90; // milliseconds without a keystroke before a request is sent

const embedded = document.getElementById("inspection");
export const live = embedded === null;

export function startLoading() {
  if (!live) {
    const bytes = Uint8Array.from(atob(embedded.textContent), (character) => character.charCodeAt(0));
    latest.value = inspection.value = deserialize(bytes.buffer);
    [text.value, prefix.value, off.value] = [inspection.value.text, inspection.value.prefix, inspection.value.off];
    return;
  }
  loadTargets();
  let controller = new AbortController();
  effect(() => {
    if (!targets.value) return;
    const request = {
      text: text.value,
      to: shownTarget.value,
      beam: beam.value,
      length_penalty: searchAlpha.value,
      prefix: prefix.value,
      off: off.value,
    };
    controller.abort(); // the response to an outdated request must not be shown
    controller = new AbortController();
    const { signal } = controller;
    if (!request.text.trim()) {
      clearHighlight(); // the highlighted elements are removed
      [latest.value, inspection.value, error.value, busy.value] = [null, null, "", false];
      return;
    }
    busy.value = true;
    const timer = setTimeout(() => load(request, signal), DEBOUNCE);
    signal.addEventListener("abort", () => clearTimeout(timer));
  });
}

async function loadTargets() {
  try {
    const response = await fetch("inspect/targets");
    if (!response.ok) throw new Error(await errorMessage(response));
    targets.value = await response.json();
  } catch (failure) {
    error.value = failure instanceof TypeError ? "the server does not respond" : failure.message;
  }
}

async function load(request, signal) {
  try {
    const response = await fetch("inspect/look", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(request),
      signal,
    });
    if (!response.ok) throw new Error(await errorMessage(response));
    const result = deserialize(await response.arrayBuffer());
    if (signal.aborted) return;
    clearHighlight();
    [latest.value, error.value, busy.value] = [result, "", false];
    await nextFrame(); // the translation is painted before the figures
    if (signal.aborted) return;
    clearHighlight();
    inspection.value = result;
  } catch (failure) {
    if (signal.aborted) return;
    error.value = failure instanceof TypeError ? "the server does not respond" : failure.message;
    busy.value = false;
  }
}

const nextFrame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));

async function errorMessage(response) {
  const body = await response.json().catch(() => ({}));
  const message = body.error ?? body.detail;
  return typeof message === "string" ? message : `the server returned status ${response.status}`;
}
