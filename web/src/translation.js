// The text, its translation, and the tokens of both.

import { html } from "htm/preact";
import { useEffect, useRef } from "preact/hooks";
import { format, highlightOnHover, percent, samePosition } from "./components.js";
import { live } from "./data.js";
import { PositionStrip } from "./positions.js";
import { beam, busy, error, highlight, latest, off, prefix, shownStep, shownTarget, step, targets, text, to, treeSteps } from "./state.js";
import { decode, hex, isSpecial, label } from "./tokens.js";

export function Translation() {
  const shown = latest.value;
  return html`<section class="translation-panel" aria-label="Text and translation">
    <div class="side source">
      <label for="text">Text</label>
      <${TextInput} />
      ${shown && html`<${Tokens} side="source" />`}
    </div>
    <div class="side target">
      <div class="panel-header">
        <span>Translation</span>
        ${shownTarget.value && html`<${TargetChoice} />`}
        ${live && shown && html`<${BeamChoice} />`}
      </div>
      <output id="translation" for="text" aria-live="polite" class=${busy.value ? "stale" : ""}>
        ${error.value ? html`<span class="error">${error.value}</span>` : (shown?.translation ?? "")}
      </output>
      ${shown && html`<${Tokens} side="target" />`}
      ${shown && html`<${Facts} />`}
    </div>
  </section>`;
}

function TextInput() {
  const element = useRef();
  useEffect(() => {
    if (live) element.current.focus();
  }, []);
  const onInput = (event) => {
    [text.value, prefix.value, treeSteps.value] = [event.target.value, [], null];
  };
  return html`<textarea id="text" ref=${element} rows="2" spellcheck="false" maxlength="2000" readonly=${!live}
    placeholder="Type a sentence …" value=${text.value} onInput=${onInput}></textarea>`;
}

function TargetChoice() {
  const choose = (event) => {
    [to.value, prefix.value, treeSteps.value] = [event.target.value, [], null];
  };
  return html`<label class="choice">to
    <select value=${shownTarget.value} onChange=${choose}>
      ${targets.value.map((code) => html`<option value=${code}>${code}</option>`)}
    </select>
  </label>`;
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

function Facts() {
  const { score, log_prob, seconds } = latest.value;
  return html`<p class="facts">
    <span>score <b>${format(score)}</b></span>
    <span>log-probability <b>${format(log_prob)}</b></span>
    <span>search took <b>${Math.round(1000 * seconds.search)} ms</b></span>
    ${prefix.value.length > 0 &&
    html`<span class="constraint">prefix “${decode(latest.value, latest.value.prefix)}”
      ${live && html`<button type="button" onClick=${() => (prefix.value = [])}>remove prefix</button>`}</span>`}
    ${off.value.length > 0 &&
    html`<span class="constraint">${off.value.length} ${off.value.length === 1 ? "head" : "heads"} off
      ${live && html`<button type="button" onClick=${() => (off.value = [])}>switch all on</button>`}</span>`}
  </p>`;
}

function Tokens({ side }) {
  const shown = latest.value;
  return html`<div class="tokens ${side}" role="group" aria-label="Tokens of the ${side}">
    ${shown[side].map((id, position) => {
      const here = { side, position };
      const highlighted = samePosition(highlight.value.query, here) || samePosition(highlight.value.key, here);
      const chosen = side === "target" && position === shownStep.value;
      const forced = side === "target" && position < shown.prefix.length;
      const choose = () => side === "target" && (step.value = position);
      const classes = [highlighted && "highlighted", chosen && "chosen", forced && "forced", isSpecial(id) && "special"];
      return html`<button type="button" key=${position} class=${classes.filter(Boolean).join(" ")} onClick=${choose}
        aria-label="${label(shown, id)}, token ${id}, position ${position}, bytes ${hex(shown, id)}"
        aria-pressed=${side === "target" ? chosen : undefined}
        ...${highlightOnHover({ query: here, key: here }, html`<${TokenTooltip} id=${id} ...${here} />`)}>
        ${label(shown, id)}
      </button>`;
    })}
  </div>`;
}

function TokenTooltip({ id, side, position }) {
  const shown = latest.value;
  const probability = side === "target" && percent(Math.exp(shown.next.written[position]));
  // The decoder reads a target token one position after the step that wrote it, because its input begins with ⟨start⟩.
  const input = side === "target" ? position + 1 : position;
  return html`<b class=${side}>${label(shown, id)}</b>
    <dl>
      <dt>id</dt><dd>${id}</dd>
      <dt>bytes</dt><dd>${hex(shown, id)}</dd>
      ${probability && html`<dt>probability</dt><dd>${probability}</dd>`}
      <dt>${side === "target" ? "input position" : "position"}</dt><dd>${input}</dd>
    </dl>
    <${PositionStrip} positions=${shown.positions} position=${input} />`;
}
