// The translator: languages, the text, and its translation, whose words can be replaced.

import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { keyWanted, useKey, waiting } from "./api.js";
import { Alternatives, openAlternatives } from "./alternatives.js";
import { FileInput, FileJob, takeFiles } from "./files.js";
import { detected, nameOf, server, shownFrom, shownModel, shownTo, sources, swapped, targets } from "./languages.js";
import { item, roving } from "./roving.js";
import { lookAt } from "./data.js";
import { from, model, sentence, setText, shading, text, to } from "./state.js";
import { problem, sentences, shownLines, translating, translation, undo } from "./translate.js";

export function Translator() {
  const [over, setOver] = useState(false);
  useEffect(() => { // on the whole page: elsewhere, a browser would leave it and open the file
    const onDrag = (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      setOver(event.type === "dragover" || (event.type === "dragleave" && event.relatedTarget !== null));
      if (event.type === "drop") takeFiles(event.dataTransfer.files);
    };
    const types = ["dragover", "dragleave", "drop"];
    for (const type of types) addEventListener(type, onDrag);
    return () => types.forEach((type) => removeEventListener(type, onDrag));
  }, []);
  return html`<section class="translator" aria-label="Translator">
    <${Languages} />
    ${keyWanted.value && html`<${KeyEntry} />`}
    <div class="boxes ${over ? "over" : ""}">
      <${TextBox} />
      <${TranslationBox} />
    </div>
    <${FileJob} />
    <${Alternatives} />
  </section>`;
}

function Languages() {
  const select = (label, value, options, choose) => html`<select aria-label=${label} value=${value} onChange=${(event) => choose(event.target.value)}>
    ${options.map(([code, name]) => html`<option key=${code} value=${code} selected=${code === value}>${name}</option>`)}
  </select>`;
  const auto = detected.value && sources.value.includes(detected.value) ? `${nameOf(detected.value)} (detected)` : "Detect language";
  const swap = () => {
    const { source, target } = swapped.value;
    [from.value, to.value] = [sources.value.length > 1 ? source : "", target];
    setText(translation.value || text.value);
  };
  return html`<div class="languages">
    ${sources.value.length > 1
      ? select("From", shownFrom.value, [["", auto], ...sources.value.map((code) => [code, nameOf(code)])], (code) => (from.value = code))
      : html`<span class="language">${shownFrom.value ? nameOf(shownFrom.value) : "Text"}</span>`}
    <button type="button" class="swap" aria-label="Swap languages" title="Swap languages" disabled=${!swapped.value} onClick=${swap}>⇄</button>
    ${targets.value.length > 1
      ? select("To", shownTo.value, targets.value.map((code) => [code, nameOf(code)]), (code) => (to.value = code))
      : html`<span class="language">${shownTo.value ? nameOf(shownTo.value) : "Translation"}</span>`}
    ${server.value?.models.length > 1 &&
    html`<label class="model">Model ${select("Model", model.value, [["", `automatic: ${shownModel.value?.name}`], ...server.value.models.map(({ name }) => [name, name])],
      (name) => (model.value = name))}</label>`}
  </div>`;
}

function TextBox() {
  const element = useRef();
  useEffect(() => element.current.focus({ preventScroll: true }), []);
  const limit = server.value?.characters;
  const count = [...text.value].length;
  const clear = () => {
    setText("");
    sentence.value = null;
    element.current.focus();
  };
  return html`<div class="box source">
    <textarea id="text" ref=${element} aria-label="Text to translate" lang=${shownFrom.value || detected.value || undefined} dir="auto" spellcheck="false"
      placeholder="Type or paste text, or drop a file …" value=${text.value} onInput=${(event) => setText(event.target.value)}></textarea>
    <div class="box-foot">
      <span class="count ${count > limit ? "error" : ""}">${count.toLocaleString("en")}${limit ? ` / ${limit.toLocaleString("en")}` : ""}${count > limit ? ": too long" : ""}</span>
      <span class="space"></span>
      <${FileInput} />
      <button type="button" onClick=${clear} disabled=${!text.value}>Clear</button>
    </div>
  </div>`;
}

function TranslationBox() {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    if (navigator.clipboard) await navigator.clipboard.writeText(translation.value);
    else copySelection(translation.value);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  const stale = translating.value && sentences.value.length > 0;
  return html`<div class="box target">
    <output id="translation" for="text" aria-live="polite" aria-busy=${translating.value} class=${stale ? "stale" : ""} lang=${shownTo.value || undefined} ...${roving}>
      ${problem.value
        ? problem.value !== keyWanted.value && html`<span class="error">${problem.value}</span>`
        : sentences.value.length || !translating.value
          ? shownLines.value.map((line, n) => html`<p key=${n} dir="auto">${line.map((one) => html`<${Sentence} one=${one} />`)}</p>`)
          : html`<span class="placeholder">…</span>`}
    </output>
    ${waiting.value && html`<p class="waiting" role="status">${waiting.value}</p>`}
    <div class="box-foot">
      <label class="switch" title="Words of which the model is unsure are shaded; the darker, the less probable."><input type="checkbox" checked=${shading.value}
        onChange=${(event) => (shading.value = event.target.checked)} /> shade unsure words</label>
      <span class="space"></span>
      ${shownModel.value?.inspect && html`<button type="button" class="look" disabled=${!sentences.value.length}
        onClick=${() => lookAt(sentence.value ?? 0)}>Look inside</button>`}
      <button type="button" onClick=${copy} disabled=${!translation.value}>${copied ? "Copied" : "Copy"}</button>
    </div>
  </div>`;
}

/** Copy a text where browsers give no access to the clipboard: pages that another machine serves without TLS. */
function copySelection(text) {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  focused?.focus();
}

function Sentence({ one }) {
  if (one.index === null) return null;
  let word = -1;
  const chosen = sentence.value === one.index;
  return html`<span class="sentence ${chosen ? "chosen" : ""}">
    ${one.text.split(/(\s+)/).map((run) => {
      if (!run.trim()) return run;
      word += 1;
      const first = one.index === 0 && word === 0;
      return clickable(run).map((piece, n) => html`<${Word} one=${one} piece=${piece} probability=${one.words?.[word]} first=${first && n === 0} />`);
    })}
    ${one.edited && html`<button type="button" class="undo" aria-label="Undo the change of this sentence" title="Undo the change" onClick=${() => undo(one)}></button>`}
  </span>${one.after}`;
}

/** The pieces of a run without white space: one, or the words of a script that puts no spaces between them. */
function clickable(run) {
  if (!/[\u0e00-\u109f\u1780-\u17ff\u2e80-\u9fff]/.test(run) || !Intl.Segmenter) return [run];
  return [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(run)].map(({ segment }) => segment);
}

function Word({ one, piece, probability, first }) {
  const open = (event) => openAlternatives(event.currentTarget, one, offsetIn(event.currentTarget), piece);
  const onKey = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open(event);
  };
  return html`<span role="button" class="word ${shading.value ? doubt(probability) : ""}" aria-haspopup="dialog" ...${item("word", first)}
    onClick=${open} onKeyDown=${onKey}>${piece}</span>`;
}

/** The number of characters of the sentence before a word. */
function offsetIn(element) {
  const range = document.createRange();
  range.setStart(element.closest(".sentence"), 0);
  range.setEndBefore(element);
  return [...range.toString()].length;
}

const doubt = (probability) => (probability === undefined || probability >= 0.5 ? "" : probability >= 0.2 ? "unsure" : "doubtful");

function KeyEntry() {
  const [value, setValue] = useState("");
  const submit = (event) => {
    event.preventDefault();
    useKey(value.trim());
  };
  return html`<form class="key" onSubmit=${submit}>
    <label for="key">API key</label>
    <input id="key" type="password" autocomplete="current-password" value=${value} onInput=${(event) => setValue(event.target.value)} />
    <button type="submit" disabled=${!value.trim()}>Use this key</button>
    <span class="error" role="alert">${keyWanted.value}</span>
  </form>`;
}
