// What was typed, what came out, and the tokens of both.

import { html } from "htm/preact";
import { useEffect, useRef } from "preact/hooks";
import { minus, percent, pointing, same } from "./parts.js";
import { PlaceStrip } from "./places.js";
import { live } from "./source.js";
import { beam, busy, grown, heard, mark, off, prefix, shownStep, step, text, trouble } from "./state.js";
import { hex, isMarker, label, spell } from "./tokens.js";

export function Words() {
  const found = heard.value;
  return html`<section class="words" aria-label="Text and translation">
    <div class="side source">
      <label for="text">Text</label>
      <${TextBox} />
      ${found && html`<${Ribbon} side="source" />`}
    </div>
    <div class="side target">
      <div class="over">
        <span>Translation</span>
        ${live && found && html`<${BeamChoice} />`}
      </div>
      <output id="translation" for="text" aria-live="polite" class=${busy.value ? "stale" : ""}>
        ${trouble.value ? html`<span class="trouble">${trouble.value}</span>` : (found?.translation ?? "")}
      </output>
      ${found && html`<${Ribbon} side="target" />`}
      ${found && html`<${Facts} />`}
    </div>
  </section>`;
}

function TextBox() {
  const box = useRef();
  useEffect(() => {
    if (live) box.current.focus();
  }, []);
  const type = (event) => {
    [text.value, prefix.value, grown.value] = [event.target.value, [], null];
  };
  return html`<textarea id="text" ref=${box} rows="2" spellcheck="false" maxlength="2000" readonly=${!live}
    placeholder="Type a sentence …" value=${text.value} onInput=${type}></textarea>`;
}

function BeamChoice() {
  const choose = (event) => (beam.value = Number(event.target.value));
  const widths = [...new Set([1, 2, 4, 8, 16, heard.value.beam])].sort((a, b) => a - b);
  return html`<label class="beam">beam
    <select value=${heard.value.beam} onChange=${choose}>
      ${widths.map((width) => html`<option value=${width}>${width}</option>`)}
    </select>
  </label>`;
}

function Facts() {
  const { score, log_prob, seconds } = heard.value;
  return html`<p class="facts">
    <span>score <b>${minus(score)}</b></span>
    <span>log-probability <b>${minus(log_prob)}</b></span>
    <span>search took <b>${Math.round(1000 * seconds.search)} ms</b></span>
    ${prefix.value.length > 0 &&
    html`<span class="held">begins with “${spell(heard.value, heard.value.prefix)}”
      ${live && html`<button type="button" onClick=${() => (prefix.value = [])}>let go</button>`}</span>`}
    ${off.value.length > 0 &&
    html`<span class="held">${off.value.length} ${off.value.length === 1 ? "head" : "heads"} off
      ${live && html`<button type="button" onClick=${() => (off.value = [])}>all on</button>`}</span>`}
  </p>`;
}

function Ribbon({ side }) {
  const found = heard.value;
  return html`<div class="ribbon ${side}" role="group" aria-label="Tokens of the ${side}">
    ${found[side].map((id, place) => {
      const here = { side, place };
      const marked = same(mark.value.looks, here) || same(mark.value.seen, here);
      const chosen = side === "target" && place === shownStep.value;
      const forced = side === "target" && place < found.prefix.length;
      const choose = () => side === "target" && (step.value = place);
      const words = [marked && "marked", chosen && "chosen", forced && "forced", isMarker(id) && "marker"];
      return html`<button type="button" key=${place} class=${words.filter(Boolean).join(" ")} onClick=${choose}
        aria-label="${label(found, id)}, token ${id}, place ${place}, bytes ${hex(found, id)}"
        aria-pressed=${side === "target" ? chosen : undefined}
        ...${pointing({ looks: here, seen: here }, html`<${TokenTip} id=${id} ...${here} />`)}>
        ${label(found, id)}
      </button>`;
    })}
  </div>`;
}

function TokenTip({ id, side, place }) {
  const found = heard.value;
  const written = side === "target" && percent(Math.exp(found.next.written[place]));
  // What the decoder adds to a written token is the encoding of the place where it reads it, one further on.
  const read = side === "target" ? place + 1 : place;
  return html`<b class=${side}>${label(found, id)}</b>
    <dl>
      <dt>id</dt><dd>${id}</dd>
      <dt>bytes</dt><dd>${hex(found, id)}</dd>
      ${written && html`<dt>probability</dt><dd>${written}</dd>`}
      <dt>place</dt><dd>${read}${side === "target" ? ", where it is read" : ""}</dd>
    </dl>
    <${PlaceStrip} positions=${found.positions} place=${read} />`;
}
