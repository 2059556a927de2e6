// Other words for a word of the translation. Choosing one translates the rest of the sentence from there.

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { askJson } from "./api.js";
import { percent } from "./components.js";
import { direction, shownModel, shownTo } from "./languages.js";
import { item, roving } from "./roving.js";
import { lookAt } from "./data.js";
import { choose } from "./translate.js";

const COUNT = 8;
/** The open list: {element, sentence, word, list, error}; list is null until it is loaded. */
const open = signal(null);
let controller = new AbortController();

export async function openAlternatives(element, sentence, position, word) {
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  const shown = { element, sentence, word, list: null, error: "" };
  open.value = shown;
  try {
    const body = { text: sentence.source, output: sentence.text, position, count: COUNT, ...direction.value };
    const { alternatives } = await askJson("v1/alternatives", { body, signal });
    if (!signal.aborted) open.value = { ...shown, list: alternatives };
  } catch (failure) {
    if (!signal.aborted) open.value = { ...shown, error: failure.message };
  }
}

const withoutPunctuation = (word) => word.replace(/(?<=.)[.,;:!?…]+$/u, "");

function close({ focus = true } = {}) {
  controller.abort();
  if (focus) open.value?.element.focus();
  open.value = null;
}

export function Alternatives() {
  const element = useRef();
  const shown = open.value;
  useLayoutEffect(() => {
    if (!shown) return;
    const target = shown.element.getBoundingClientRect();
    const { width, height } = element.current.getBoundingClientRect();
    const left = Math.max(8, Math.min(target.left, document.documentElement.clientWidth - width - 8));
    const above = target.top - height - 6;
    const top = target.bottom + 6 + height > innerHeight && above > 0 ? above : target.bottom + 6;
    element.current.style.transform = `translate(${left + scrollX}px, ${top + scrollY}px)`;
    element.current.scrollIntoView({ block: "nearest" });
  });
  useEffect(() => {
    if (!shown) return;
    (element.current.querySelector("li button") ?? element.current.querySelector("button")).focus({ preventScroll: true });
    const outside = (event) => !element.current?.contains(event.target) && close({ focus: false });
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, [shown?.element, Boolean(shown?.list)]);
  if (!shown) return null;
  const pick = (alternative) => {
    choose(shown.sentence, alternative);
    close();
  };
  const onKey = (event) => {
    if (event.key === "Escape") close();
    else roving.onKeyDown(event);
  };
  return html`<div class="alternatives" role="dialog" aria-label="Alternatives for “${shown.word}”" ref=${element} onKeyDown=${onKey} onFocusIn=${roving.onFocusIn}>
    <div class="alternatives-head"><b lang=${shownTo.value || undefined}>${withoutPunctuation(shown.word)}</b><button type="button" aria-label="Close" onClick=${close}>×</button></div>
    ${shown.error && html`<p class="error">${shown.error}</p>`}
    ${!shown.list && !shown.error && html`<p class="note" role="status">looking for alternatives …</p>`}
    ${shown.list && html`<ul lang=${shownTo.value || undefined}>
      ${shown.list.map((one, i) => html`<li><button type="button" class=${one.text === shown.sentence.text ? "current" : ""} aria-current=${one.text === shown.sentence.text} title=${one.text}
        ...${item("alternative", i === 0)} onClick=${() => pick(one)}>
        <span class="alternative">${withoutPunctuation(one.word)}</span>
        <span class="probability-bar"><span style="width:${100 * one.probability}%"></span></span>
        <span class="number">${one.probability < 0.001 ? "< 0.1 %" : percent(one.probability)}</span>
      </button></li>`)}
    </ul>`}
    ${shownModel.value?.inspect && html`<button type="button" class="look" onClick=${() => {
      close({ focus: false });
      lookAt(shown.sentence.index);
    }}>Look inside this sentence</button>`}
  </div>`;
}
