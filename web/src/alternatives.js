// Other words for a word of the translation. Choosing one translates the rest of the sentence from there.

import { computed, signal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { askJson } from "./api.js";
import { percent } from "./components.js";
import { direction, shownModel, shownTo } from "./languages.js";
import { item, roving } from "./roving.js";
import { lookAt } from "./data.js";
import { choose } from "./translate.js";

const COUNT = 8;
const LEAST = 0.01; // probability of a word that is listed
/** The open list: {box, word, sentence, piece, list, error}; list is null until it is loaded. */
const open = signal(null);
/** The word whose list is open, as {index, word}. */
export const openedWord = computed(() => open.value && { index: open.value.sentence.index, word: open.value.piece.word });
let controller = new AbortController();

/** Open the list for a piece of a sentence; `box` gets the focus back, `word` is the element of the piece. */
export async function openAlternatives(box, sentence, piece, word) {
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  const shown = { box, word, sentence, piece, list: null, error: "" };
  open.value = shown;
  try {
    const body = { text: sentence.source, output: sentence.text, position: piece.start, count: COUNT, ...direction.value };
    const { alternatives } = await askJson("v1/alternatives", { body, signal });
    const list = alternatives.filter(({ probability, text }, n) => n === 0 || probability >= LEAST || text === sentence.text);
    if (!signal.aborted) open.value = { ...shown, list };
  } catch (failure) {
    if (!signal.aborted) open.value = { ...shown, error: failure.message };
  }
}

const withoutPunctuation = (word) => word.replace(/(?<=.)[.,;:!?…]+$/u, "");

function close({ focus = true } = {}) {
  controller.abort();
  if (focus) open.value?.box.focus({ preventScroll: true });
  open.value = null;
}

/** Below the word; or beside or below the button "Copy", which it would cover; or above the word, at the end of the window. */
function place(element, word, copy) {
  const target = word.getBoundingClientRect();
  const { width, height } = element.getBoundingClientRect();
  const button = copy?.getBoundingClientRect();
  let top = target.bottom + 6;
  let left = Math.max(8, Math.min(target.left, document.documentElement.clientWidth - width - 8));
  const covers = button && top < button.bottom && button.top < top + height && left < button.right && button.left < left + width;
  if (covers && button.left - width - 8 >= 8) left = button.left - width - 8;
  else if (covers) top = button.bottom + 8;
  const above = target.top - height - 6;
  if (top + height > innerHeight && above > 0) [top, left] = [above, Math.max(8, Math.min(target.left, document.documentElement.clientWidth - width - 8))];
  element.style.transform = `translate(${left + scrollX}px, ${top + scrollY}px)`;
}

export function Alternatives() {
  const element = useRef();
  const shown = open.value;
  const [preview, setPreview] = useState(null);
  useLayoutEffect(() => {
    if (!shown?.word.isConnected) return;
    place(element.current, shown.word, document.querySelector(".copy"));
    element.current.scrollIntoView({ block: "nearest" });
  }, [shown]);
  useEffect(() => {
    setPreview(null);
    if (!shown) return;
    (element.current.querySelector("li button") ?? element.current.querySelector("button")).focus({ preventScroll: true });
    const outside = (event) => !element.current?.contains(event.target) && close({ focus: false });
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, [shown?.word, Boolean(shown?.list)]);
  if (!shown) return null;
  const pick = (alternative) => {
    choose(shown.sentence, alternative);
    close();
  };
  const onKey = (event) => {
    if (event.key === "Escape") close();
    else roving.onKeyDown(event);
  };
  return html`<div class="alternatives" role="dialog" aria-label="Alternatives for “${shown.piece.text}”" ref=${element} onKeyDown=${onKey} onFocusIn=${roving.onFocusIn}>
    <div class="alternatives-head"><b lang=${shownTo.value || undefined}>${withoutPunctuation(shown.piece.text)}</b><button type="button" aria-label="Close" onClick=${close}>×</button></div>
    ${shown.error && html`<p class="error">${shown.error}</p>`}
    ${!shown.list && !shown.error && html`<p class="note" role="status">looking for alternatives …</p>`}
    ${shown.list && html`<ul lang=${shownTo.value || undefined}>
      ${shown.list.map((one, i) => html`<li><button type="button" class=${one.text === shown.sentence.text ? "current" : ""} aria-current=${one.text === shown.sentence.text}
        aria-describedby="preview" onFocus=${() => setPreview(one)} onPointerEnter=${() => setPreview(one)} ...${item("alternative", i === 0)} onClick=${() => pick(one)}>
        <span class="alternative">${withoutPunctuation(one.word)}</span>
        <span class="probability-bar"><span style="width:${100 * one.probability}%"></span></span>
        <span class="number">${percent(one.probability)}</span>
      </button></li>`)}
    </ul>
    ${shown.list.length < 2 && html`<p class="note">No other word has 1 % or more.</p>`}
    <p class="preview" id="preview" lang=${shownTo.value || undefined}>${(preview ?? shown.list[0])?.text}</p>`}
    ${shownModel.value?.inspect && html`<button type="button" class="look" onClick=${() => {
      close({ focus: false });
      lookAt(shown.sentence.index);
    }}>Look inside this sentence</button>`}
  </div>`;
}
