// The text box: what is typed, and behind it the same text with the words that are lit or that the translation lacks.

import { html } from "htm/preact";
import { useEffect, useRef } from "preact/hooks";
import { lit, pointed, sourceWords } from "./alignment.js";
import { FileInput } from "./files.js";
import { detected, server, shownFrom } from "./languages.js";
import { coarse, sentence, setText, text } from "./state.js";
import { tooLong, translating } from "./translate.js";

const MARKED = 5000; // characters of a text whose words are marked

export function TextBox() {
  const element = useRef();
  useEffect(() => element.current.focus({ preventScroll: true }), []);
  const limit = server.value?.characters;
  const count = [...text.value].length;
  const clear = () => {
    setText("");
    sentence.value = null;
    element.current.focus();
  };
  const atCaret = () => {
    const place = element.current.selectionStart;
    pointed.value = text.value && sourceWords.value.length ? wordAt(place) : null;
  };
  const atPointer = (event) => {
    const mark = document.elementsFromPoint(event.clientX, event.clientY).find((one) => one.dataset.start);
    const found = mark ? wordAt(Number(mark.dataset.start)) : null;
    if (JSON.stringify(found) !== JSON.stringify(pointed.peek())) pointed.value = found;
  };
  return html`<div class="box source">
    <div class="typed">
      <${Marks} />
      <textarea id="text" ref=${element} aria-label="Text to translate" lang=${shownFrom.value || detected.value?.language || undefined} dir="auto" spellcheck="false"
        aria-describedby="count" placeholder=${coarse.value ? "Type or paste text …" : "Type or paste text, or drop files …"} value=${text.value}
        onInput=${(event) => setText(event.target.value)} onPointerMove=${atPointer} onPointerLeave=${() => (pointed.value = null)}
        onKeyUp=${atCaret} onClick=${atCaret} onBlur=${() => (pointed.value = null)}></textarea>
    </div>
    <div class="box-end">
    ${tooLong.value && html`<p class="error" role="alert">${count.toLocaleString("en")} characters are too many: at most ${limit.toLocaleString("en")} are translated at once. Shorten the text, or open it as a file.</p>`}
    <div class="box-foot">
      <span class="count" id="count">${count.toLocaleString("en")}${limit ? ` / ${limit.toLocaleString("en")}` : ""}<span class="unseen"> characters</span></span>
      <span class="space"></span>
      <${FileInput} />
      <button type="button" onClick=${clear} disabled=${!text.value}>Clear</button>
    </div></div>
  </div>`;
}

function wordAt(place) {
  const found = sourceWords.value.find(({ start, end }) => start <= place && place < end);
  return found ? { index: found.index, side: "source", word: found.word } : null;
}

/** The text again, invisible but for the marks. */
function Marks() {
  if (text.value.length > MARKED || translating.value) return null;
  const parts = [];
  let at = 0;
  for (const one of sourceWords.value) {
    parts.push(text.value.slice(at, one.start));
    const isLit = lit.value.index === one.index && lit.value.source.has(one.word);
    parts.push(html`<span key=${one.start} data-start=${one.start} class="${isLit ? "lit" : ""} ${one.missing ? "missing" : ""}">${text.value.slice(one.start, one.end)}</span>`);
    at = one.end;
  }
  return html`<div class="text-marks" aria-hidden="true" dir="auto">${parts}${text.value.slice(at)}</div>`;
}
