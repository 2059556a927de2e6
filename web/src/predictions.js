// Probabilities of the next token, or of a masked one, at a temperature, and the predictions of each layer (logit lens).

import { useComputed } from "@preact/signals";
import { html } from "htm/preact";
import { plainColour, strength } from "./colours.js";
import { Figure, highlightOnHover, Labels, percent, samePosition, shorten, Slider } from "./components.js";
import { item, roving } from "./roving.js";
import { highlight, inspection, lecture, shownStep, step, temperature } from "./state.js";
import { decode, label } from "./tokens.js";

const WORDS = {
  translation: { heading: "Next-token predictions", step: "Step", title: "Next token", layer: "decoder layer", column: "written" },
  language_model: { heading: "Next-token predictions", step: "Position", title: "Next token", layer: "layer", column: "next token" },
  encoder: { heading: "Predictions at masks", step: "Mask", title: "Masked token", layer: "layer", column: "token" },
};
const words = () => WORDS[inspection.value.kind];

/** The token that a column of predictions is about: that of the output or of the text, or a mask. */
function columnLabel(n) {
  const { kind, source, target, places } = inspection.value;
  return label(inspection.value, kind === "encoder" ? source[places[n]] : target[n]);
}

function Lead({ t }) {
  const { kind, source, target, places } = inspection.value;
  const token = html`<b class="target">${label(inspection.value, target[t])}</b>`;
  if (kind === "encoder") return html`<p class="lead">The model predicts the token at mask ${t + 1} of ${target.length} from the tokens on both sides.</p>`;
  if (kind === "language_model")
    return html`<p class="lead">After “${decode(inspection.value, source.slice(0, places[t] + 1)) || "…"}”${" "}
      ${target[t] === null ? "the text ends; the model predicts how it continues." : html`the text has ${token}.`}${" "}
      Choose another position below, or a token above.</p>`;
  return html`<p class="lead">After “${decode(inspection.value, target.slice(0, t)) || "…"}” the model wrote ${token}.
      Choose another step below, or a token of the translation above.</p>`;
}

export function Predictions() {
  const { next, target } = inspection.value;
  const t = shownStep.value;
  const { temperatures } = next;
  const nearest = temperatures.reduce((best, x, i) =>
    Math.abs(x - temperature.value) < Math.abs(temperatures[best] - temperature.value) ? i : best, 0);
  return html`<section id="predictions-section" aria-labelledby="predictions">
    <h2 id="predictions">${words().heading}</h2>
    <${Lead} t=${t} />
    <div class="controls">
      ${(target.length > 1 || inspection.value.kind !== "encoder") && html`<${Slider} label=${words().step} min="1" max=${target.length} step="1" value=${t + 1} shown="${t + 1} of ${target.length}"
        onSlide=${(n) => (step.value = n - 1)} />`}
      <${Slider} label="Temperature" min="0" max=${temperatures.length - 1} step="1" value=${nearest} shown=${temperatures[nearest]}
        onSlide=${(i) => (temperature.value = temperatures[i])} />
    </div>
    <div class="pair next">
      <${Figure} name="next-token-${t + 1}" title=${words().title} hint="most probable tokens at temperature ${temperatures[nearest]}"
        table=${() => ({ columns: ["token", "probability"], rows: nextTokens(t, nearest).map(([token, p]) => [token, percent(p)]) })}>
        <${Bars} t=${t} temperatureIndex=${nearest} />
      <//>
      <${Figure} name="logit-lens" title="Logit lens" hint="the most probable token if each ${words().layer} were the last one" table=${lensTable} wide>
        <${Lens} t=${t} />
      <//>
    </div>
  </section>`;
}

function lensTable() {
  const { lens, target } = inspection.value;
  const name = (id) => label(inspection.value, id);
  return { columns: [words().column, ...lens.map((_, l) => `layer ${l + 1}`)],
    rows: target.map((_, n) => [columnLabel(n), ...lens.map(({ token, log_prob }) => `${name(token[n][0])} ${percent(Math.exp(log_prob[n][0]))}`)]) };
}

/** The most probable tokens at a step, each with its probability and whether it was written, and all others. */
function nextTokens(t, temperatureIndex) {
  const { next: { token, log_prob, temperatures, log_sum }, target } = inspection.value;
  const probabilities = log_prob[t].map((x) => Math.exp(x / temperatures[temperatureIndex] - log_sum[t][temperatureIndex]));
  const rest = Math.max(0, 1 - probabilities.reduce((sum, p) => sum + p, 0));
  return [...token[t].map((id, i) => [label(inspection.value, id), probabilities[i], id === target[t]]), ["all others", rest, false]];
}

function Bars({ t, temperatureIndex }) {
  const entries = nextTokens(t, temperatureIndex);
  const [left, pitch] = [124, 27];
  const x = (p) => 230 * p;
  return html`<svg class="figure bars" viewBox="0 0 430 ${entries.length * pitch + 6}" role="img"
    aria-label=${entries.map(([token, p]) => `${token} ${percent(p)}`).join(", ")}>
    ${entries.map(([token, p, written], i) => html`<g transform="translate(0 ${i * pitch + 3})" class=${written ? "written" : i === entries.length - 1 ? "rest" : ""}>
      <text x=${left - 10} y="12" class="token end">${shorten(token, 14)}</text>
      <rect class="track" x=${left} y="3" width=${x(1)} height="18" rx="4" />
      <rect class="bar" x=${left} y="3" width=${Math.max(1, x(p))} height="18" rx=${Math.min(4, x(p) / 2)} />
      <text x=${left + x(1) + 10} y="12" class="amount">${percent(p)}</text>
    </g>`)}
  </svg>`;
}

const LENS = { left: 58, cell: 84, pitch: 30, top: 30 };

function Lens({ t }) {
  const { lens, target } = inspection.value;
  const { left, cell, pitch, top } = lecture.value ? { left: 110, cell: 150, pitch: 46, top: 44 } : LENS;
  const total = { width: left + target.length * cell + 8, height: top + lens.length * pitch + 10 };
  return html`<div class="layers labelled" style="width:${total.width}px">
    <svg class="figure lens" viewBox="0 0 ${total.width} ${total.height}" role="group" tabindex="-1" ...${roving}
      aria-label="The most probable token of each of ${lens.length} ${words().layer}s, ${words().step.toLowerCase()}s 1 to ${target.length}; arrow keys move">
      ${target.map((_, n) => html`<${LensColumn} key=${n} n=${n} places=${{ left, cell, pitch, top }} />`)}
      <rect class="highlight-box" x=${left + t * cell} y="4" width=${cell} height=${top + lens.length * pitch} rx="6" />
    </svg>
    <${Labels} kind="rows" box=${{ left: 0, top: 0, width: left, height: total.height }} total=${total}>
      ${lens.map((_, l) => html`<text x=${left - 10} y=${top + (lens.length - 0.5 - l) * pitch} class="tick end">layer ${l + 1}</text>`)}
    <//>
  </div>`;
}

function LensColumn({ n, places: { left, cell, pitch, top } }) {
  const { lens, target, places } = inspection.value;
  const here = places ? { side: "source", position: places[n] } : { side: "target", position: n };
  const highlighted = useComputed(() => samePosition(highlight.value.query, here)).value;
  const name = (id) => shorten(label(inspection.value, id), 10);
  return html`<g class="column ${highlighted ? "highlighted" : ""}">
    <text x=${left + (n + 0.5) * cell} y="16" class="token small target middle">${shorten(columnLabel(n), 10)}</text>
    ${lens.map(({ token, log_prob }, l) => html`<g key=${l} role="button" class=${token[n][0] === target[n] ? "prediction correct" : "prediction"}
        aria-label="Layer ${l + 1}, ${words().step.toLowerCase()} ${n + 1}: ${name(token[n][0])}, ${percent(Math.exp(log_prob[n][0]))}" ...${item("lens", n === 0 && l === 0)}
        ...${highlightOnHover({ query: here }, html`<${LensTooltip} l=${l} n=${n} />`, () => (step.value = n))}>
        <rect x=${left + n * cell + 2} y=${top + (lens.length - 1 - l) * pitch + 2} width=${cell - 4} height=${pitch - 4} rx="5"
          fill=${plainColour()} fill-opacity=${0.5 * strength(Math.exp(log_prob[n][0]))} />
        <text x=${left + (n + 0.5) * cell} y=${top + (lens.length - 0.5 - l) * pitch} class="middle">${name(token[n][0])}</text>
      </g>`)}
  </g>`;
}

function LensTooltip({ l, n }) {
  const { lens, target } = inspection.value;
  const { token, log_prob, written } = lens[l];
  return html`<span>layer ${l + 1}</span>
    <dl>
      ${token[n].map((id, i) => html`<dt class=${id === target[n] ? "target" : ""}>${label(inspection.value, id)}</dt><dd>${percent(Math.exp(log_prob[n][i]))}</dd>`)}
      ${target[n] !== null && !token[n].includes(target[n]) && html`<dt class="target">${label(inspection.value, target[n])}</dt><dd>${percent(Math.exp(written[n]))}</dd>`}
    </dl>`;
}
