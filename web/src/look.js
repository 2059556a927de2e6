// Look inside: the inspection of one sentence, with a bar that stays in view.

import { useComputed } from "@preact/signals";
import { html } from "htm/preact";
import { useRef } from "preact/hooks";
import { Ablation, Diff, changes } from "./ablation.js";
import { Attention } from "./attention.js";
import { Compare } from "./compare.js";
import { format, highlightOnHover, percent, samePosition, useVisible } from "./components.js";
import { goTo, inspected, inspectSentence, live } from "./data.js";
import { shownTo } from "./languages.js";
import { Path } from "./path.js";
import { PositionStrip, Positions } from "./positions.js";
import { Predictions } from "./predictions.js";
import { Reference } from "./reference.js";
import { item, roving } from "./roving.js";
import { Search } from "./search.js";
import { Share } from "./share.js";
import { beam, busy, error, highlight, inspection, latest, off, prefix, shownStep, stack, step } from "./state.js";
import { decode, hex, isMarker, label } from "./tokens.js";
import { retry, sentences } from "./translate.js";
import { countLayers, isText } from "./weights.js";

/** The sections below the picture, and the names of their links. */
const sectionsOf = (shown) => [
  ["translator", "Text", live], ["attention-section", "Attention", true], ["path", "Path", countLayers(shown, "cross") > 0], ["tokens-section", "Tokens", true], ["search-section", "Search", !isText(shown)],
  ["predictions-section", "Predictions", shown.lens.length > 0], ["positions-section", "Positions", shown.positions.count > 0],
  ["reference-section", "Reference", live], ["compare-section", "Compare", live],
].filter(([, , exists]) => exists);

export function LookInside() {
  const shown = latest.value;
  const ready = inspection.value;
  return html`<section class="look-inside" id="look" aria-labelledby="look-title">
    <h2 id="look-title">${live ? "Look inside" : shown && isText(shown) ? "The text" : "The translation"}</h2>
    ${error.value && html`<p class="error" role="alert">${error.value} ${live && html`<button type="button" onClick=${retry}>Try again</button>`}</p>`}
    ${!shown && !error.value && html`<p class="note" role="status">inspecting the sentence …</p>`}
    ${shown && html`<${Bar} />`}
    ${ready && html`<${Ablation} /><${Attention} /><${Share} />
      ${countLayers(ready, "decoder") > 0 && html`<${Path} />`}`}
    ${shown && html`<${TokenPanels} />`}
    ${ready && html`${!isText(ready) && html`<${Search} />`}
      ${ready.lens.length > 0 && html`<${Predictions} />`}
      ${ready.positions.count > 0 && html`<${Positions} />`}
      ${live && html`<${Reference} /><${Compare} />`}`}
  </section>`;
}

function SectionLinks() {
  return html`<nav class="section-links" aria-label="Sections">${sectionsOf(inspection.value).map(([id, name]) => html`<button type="button" onClick=${() => goTo(id)}>${name}</button>`)}</nav>`;
}

/** The sentence and its translation, in which what changed is marked; or the text. */
function Bar() {
  const shown = latest.value;
  const last = sentences.value.length - 1;
  const move = (by) => inspectSentence(Math.max(0, Math.min(last, inspected.value.index + by)));
  const { before, after } = changes(shown);
  return html`<div class="sentence-bar" role="group" aria-label="The inspected sentence">
    ${live && last > 0 && html`<span class="bar-steps">
      <button type="button" aria-label="Previous sentence" disabled=${inspected.value?.index === 0} onClick=${() => move(-1)}>‹</button>
      <button type="button" aria-label="Next sentence" disabled=${inspected.value?.index === last} onClick=${() => move(1)}>›</button>
    </span>`}
    <p class="bar-text" dir="auto">${shown.text}</p>
    ${!isText(shown) && html`<output id="inspected" dir="auto" lang=${shownTo.value || undefined} class=${busy.value ? "stale" : ""}>${shown.translation}</output>`}
    ${before && html`<p class="bar-change" aria-live="polite"><${Diff} ids=${shown.target} common=${after} kind="added" /></p>`}
    <div class="bar-foot">
      ${inspection.value && html`<${SectionLinks} />`}
      ${isText(shown) ? html`<${TextFacts} />` : html`<${Facts} />`}
    </div>
  </div>`;
}

function Facts() {
  const { score, log_prob } = latest.value;
  const differs = live && inspected.value && !prefix.value.length && !off.value.length && latest.value.translation !== inspected.value.text;
  return html`<p class="facts">
    <span>score <b>${format(score)}</b></span>
    <span>log-probability <b>${format(log_prob)}</b></span>
    ${prefix.value.length > 0 &&
    html`<span class="constraint">prefix “${decode(latest.value, latest.value.prefix)}”
      ${live && html`<button type="button" onClick=${() => (prefix.value = [])}>remove prefix</button>`}</span>`}
    ${off.value.length > 0 &&
    html`<span class="constraint">${off.value.length} ${off.value.length === 1 ? "head" : "heads"} off
      ${live && html`<button type="button" onClick=${() => (off.value = [])}>switch all on</button>`}</span>`}
    ${differs && html`<span>This search runs the model in full precision; the translation above differs.</span>`}
  </p>`;
}

function TextFacts() {
  const { log_prob, source, target } = latest.value;
  return html`<p class="facts">
    <span><b>${source.length}</b> tokens with special tokens</span>
    ${log_prob !== null && html`<span>log-probability <b>${format(log_prob)}</b></span>
      <span>perplexity <b>${format(Math.exp(-log_prob / Math.max(1, target.length - 1)), 2)}</b></span>`}
  </p>`;
}

function TokenPanels() {
  if (isText(latest.value))
    return html`<div class="translation-panel single" id="tokens-section">
      <div class="side source"><div class="panel-header"><span>Tokens</span></div><${Tokens} side="source" /></div>
    </div>`;
  return html`<div class="translation-panel" id="tokens-section">
    <div class="side source"><div class="panel-header"><span>Source tokens</span></div><${Tokens} side="source" /></div>
    <div class="side target">
      <div class="panel-header"><span>Target tokens</span>${live && html`<${BeamChoice} />`}</div>
      <${Tokens} side="target" />
    </div>
  </div>`;
}

function BeamChoice() {
  const choose = (event) => (beam.value = Number(event.target.value));
  const widths = [...new Set([1, 2, 4, 8, 16, latest.value.beam])].sort((a, b) => a - b);
  return html`<label class="choice">beam
    <select value=${latest.value.beam} onChange=${choose}>
      ${widths.map((width) => html`<option value=${width}>${width}</option>`)}
    </select>
  </label>`;
}

function Tokens({ side }) {
  const element = useRef();
  const visible = useVisible(element);
  return html`<div ref=${element} class="tokens ${side}" role="group" aria-label="Tokens of the ${isText(latest.value) ? "text" : side}" ...${roving}>
    ${latest.value[side].map((id, position) => html`<${Token} key=${position} ...${{ side, id, position, visible }} />`)}
  </div>`;
}

/** The part of an attention weight that a token has in the chosen attention: only one, so that one direction lights up. */
const roleOf = (here) => (here.side === "target" || stack.value === "encoder" ? { query: here } : { key: here });

/** The step whose predictions belong to a token; -1 if there is none. */
function stepOf({ places }, { side, position }) {
  if (places) return places.indexOf(position);
  return side === "target" ? position : -1;
}

/** The log-probability of a token that a model wrote, or that a language model read; undefined if there is none. */
function logProbability(shown, { side, position }) {
  if (shown.kind === "language_model") return shown.next.written[position - 1];
  return side === "target" ? shown.next.written[position] : undefined;
}

function Token({ side, id, position, visible }) {
  const shown = latest.value;
  const here = { side, position };
  const highlighted = useComputed(() => visible.value && (samePosition(highlight.value.query, here) || samePosition(highlight.value.key, here))).value;
  const ownStep = stepOf(shown, here);
  const chosen = ownStep >= 0 && ownStep === shownStep.value;
  const forced = side === "target" && position < shown.prefix.length;
  const classes = [highlighted && "highlighted", chosen && "chosen", forced && "forced", isMarker(shown, id) && "special"];
  const choose = () => ownStep >= 0 && (step.value = ownStep);
  return html`<button type="button" class=${classes.filter(Boolean).join(" ")} ...${item("token", position === 0)}
    aria-label="${label(shown, id)}, token ${id}, position ${position}, bytes ${hex(shown, id)}"
    aria-pressed=${ownStep >= 0 ? chosen : undefined}
    ...${highlightOnHover(roleOf(here), html`<${TokenTooltip} id=${id} ...${here} />`, choose)}>${label(shown, id)}</button>`;
}

function TokenTooltip({ id, side, position }) {
  const shown = latest.value;
  const logProb = logProbability(shown, { side, position });
  // The decoder reads a target token one position after the step that wrote it, because its input begins with ⟨start⟩.
  const input = side === "target" ? position + 1 : position;
  return html`<b class=${side}>${label(shown, id)}</b>
    <dl>
      <dt>id</dt><dd>${id}</dd>
      <dt>bytes</dt><dd>${hex(shown, id)}</dd>
      ${logProb !== undefined && html`<dt>probability</dt><dd>${percent(Math.exp(logProb))}</dd>`}
      <dt>${side === "target" ? "input position" : "position"}</dt><dd>${input}</dd>
    </dl>
    <${PositionStrip} positions=${shown.positions} position=${input} />`;
}
