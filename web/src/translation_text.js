// The translation: text that can be selected, whose words lead to the words they come from and to alternatives.

import { html } from "htm/preact";
import { useRef, useState } from "preact/hooks";
import { keyWanted, waiting } from "./api.js";
import { lit, missingWords, pieces, pointed } from "./alignment.js";
import { openAlternatives, openedWord } from "./alternatives.js";
import { lookAt } from "./data.js";
import { percent } from "./components.js";
import { shownModel, shownTo, unavailable } from "./languages.js";
import { sentence, shading, text } from "./state.js";
import { problem, retry, sentences, shownLines, translating, translation, undo } from "./translate.js";

export function TranslationBox() {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    if (navigator.clipboard) await navigator.clipboard.writeText(translation.value);
    else copySelection(translation.value);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<div class="box target">
    <${Words} />
    <div class="box-end">
    ${problem.value && problem.value !== keyWanted.value && html`<p class="error" role="alert">${problem.value} <button type="button" onClick=${retry}>Try again</button></p>`}
    ${waiting.value && html`<p class="waiting" role="status">${waiting.value}</p>`}
    <${Remarks} />
    <div class="box-foot">
      <label class="switch"><input type="checkbox" checked=${shading.value} onChange=${(event) => (shading.value = event.target.checked)} /> mark unsure words</label>
      <span class="space"></span>
      ${shownModel.value?.inspect && html`<button type="button" class="look" disabled=${!sentences.value.length}
        onClick=${() => lookAt(sentence.value ?? 0)}>Look inside</button>`}
      <button type="button" class="copy" onClick=${copy} disabled=${!translation.value}>${copied ? "Copied" : "Copy"}</button>
    </div></div>
  </div>`;
}

/** What the marks of this translation mean. */
function Remarks() {
  const doubts = new Set(sentences.value.flatMap(({ words }) => words ?? []).map(doubt));
  const unsure = shading.value && [doubts.has("unsure") && html`<span class="sample unsure">dotted</span> less than 50 % sure`,
    doubts.has("doubtful") && html`<span class="sample doubtful">underlined</span> less than 20 %`].filter(Boolean);
  const missing = missingWords.value.slice(0, 5);
  if (!text.value || translating.value || !(unsure?.length || missing.length)) return null;
  return html`<div class="remarks">
    ${unsure?.length > 0 && html`<p>${unsure.map((one, n) => [n ? ", " : "", one])}</p>`}
    ${missing.length > 0 && html`<p>${missing.map((word, n) => [n ? ", " : "", html`<b>${word}</b>`])} may be missing: the translation is as probable without ${missing.length > 1 ? "them" : "it"}.</p>`}
  </div>`;
}

/** The sentences as text. One tab stop: arrow keys go from word to word, Enter opens the alternatives. */
function Words() {
  const box = useRef();
  const [said, say] = useState("");
  const words = () => [...box.current.querySelectorAll(".word")];
  const point = (element) => (pointed.value = element ? { index: Number(element.dataset.sentence), side: "target", word: Number(element.dataset.word) } : null);
  const open = (element) => {
    const { index, word } = point(element);
    openAlternatives(box.current, sentences.value[index], pieces(sentences.value[index].text).find((piece) => piece.word === word), element);
  };
  const current = () => {
    const at = pointed.value;
    return at?.side === "target" ? words().find((one) => Number(one.dataset.sentence) === at.index && Number(one.dataset.word) === at.word) : null;
  };
  const onKeyDown = (event) => {
    if (event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = words();
    const at = all.indexOf(current());
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined && all.length) {
      const next = all[Math.max(0, Math.min(all.length - 1, to))];
      point(next);
      say(`${next.textContent}${next.dataset.doubt}`);
      next.scrollIntoView({ block: "nearest" });
    } else if ((event.key === "Enter" || event.key === " ") && all.length) open(current() ?? all[0]);
    else return;
    event.preventDefault();
  };
  const onClick = (event) => {
    const element = event.target.closest(".word");
    if (element && getSelection().isCollapsed) open(element); // a selection is for copying
  };
  const onPointerOver = (event) => event.pointerType === "mouse" && point(event.target.closest(".word"));
  const stale = translating.value && sentences.value.length > 0;
  return html`<div class="words" ref=${box} role="group" tabindex=${sentences.value.length ? 0 : undefined} aria-label="Translation: arrow keys choose a word, Enter shows alternatives"
      onKeyDown=${onKeyDown} onClick=${onClick} onPointerOver=${onPointerOver} onPointerLeave=${() => point(null)} onBlur=${() => point(null)}>
    <output id="translation" for="text" aria-live="polite" aria-busy=${translating.value} class=${stale ? "stale" : ""} lang=${shownTo.value || undefined}>
      ${unavailable.value ? html`<span class="placeholder">${unavailable.value}</span>` : sentences.value.length || !translating.value
        ? shownLines.value.map((line, n) => html`<p key=${n} dir="auto">${line.map((one) => html`<${Sentence} one=${one} />`)}</p>`)
        : html`<span class="placeholder">…</span>`}
    </output>
    <span class="unseen" role="status">${said}</span>
  </div>`;
}

function Sentence({ one }) {
  if (one.index === null) return null;
  const runs = probabilitiesOf(one);
  return html`<span class="sentence ${sentence.value === one.index ? "chosen" : ""}">${pieces(one.text).map((piece) => {
    if (piece.word === null) return piece.text;
    const probability = runs[piece.word];
    const isLit = lit.value.index === one.index && lit.value.target.has(piece.word);
    const open = openedWord.value?.index === one.index && openedWord.value.word === piece.word;
    const kind = shading.value ? doubt(probability) : "";
    return html`<span class="word ${kind} ${isLit ? "lit" : ""} ${open ? "open" : ""}" data-sentence=${one.index} data-word=${piece.word}
      data-doubt=${kind ? `, ${percent(probability)} sure` : ""}>${piece.text}</span>`;
  })}${one.edited && html`<button type="button" class="undo" aria-label="Undo the change of this sentence" title="Undo the change" onClick=${() => undo(one)}></button>`}</span>${one.after}`;
}

/** The probability of each word: the server gives one for each run between white space. */
function probabilitiesOf({ text, words }) {
  let run = -1;
  let afterSpace = true;
  const found = [];
  for (const piece of pieces(text)) {
    if (piece.word === null) afterSpace = true;
    else {
      if (afterSpace) run += 1;
      afterSpace = false;
      found.push(words?.[run]);
    }
  }
  return found;
}

const doubt = (probability) => (probability === undefined || probability >= 0.5 ? "" : probability >= 0.2 ? "unsure" : "doubtful");

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
