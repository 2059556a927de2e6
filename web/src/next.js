// What could have come next, under a temperature; and what each decoder layer would have said.

import { html } from "htm/preact";
import { plainColour, strength } from "./colours.js";
import { Figure, percent, pointing, same, shorten, Slider } from "./parts.js";
import { look, mark, shownStep, step, temperature } from "./state.js";
import { label, spell } from "./tokens.js";

export function Next() {
  const found = look.value;
  const t = shownStep.value;
  const temperatures = found.next.temperatures;
  const nearest = temperatures.reduce((best, x, i) =>
    Math.abs(x - temperature.value) < Math.abs(temperatures[best] - temperature.value) ? i : best, 0);
  return html`<section aria-labelledby="next">
    <h2 id="next">What comes next</h2>
    <p class="lead">After “${spell(found, found.target.slice(0, t)) || "…"}” the model wrote <b class="target">${label(found, found.target[t])}</b>.
      Choose another step below, or a token of the translation above.</p>
    <div class="controls">
      <${Slider} label="Step" min="1" max=${found.target.length} step="1" value=${t + 1} shown="${t + 1} of ${found.target.length}"
        onSlide=${(n) => (step.value = n - 1)} />
      <${Slider} label="Temperature" min="0" max=${temperatures.length - 1} step="1" value=${nearest} shown=${temperatures[nearest]}
        onSlide=${(i) => (temperature.value = temperatures[i])} />
    </div>
    <div class="pair next">
      <${Figure} name="next-token-${t + 1}" title="Next token" hint="likeliest first, at temperature ${temperatures[nearest]}">
        <${Bars} t=${t} heat=${nearest} />
      <//>
      <${Figure} name="logit-lens" title="Layer by layer" hint="what each decoder layer would have said, had it been the last (logit lens)" wide>
        <${Lens} t=${t} />
      <//>
    </div>
  </section>`;
}

function Bars({ t, heat }) {
  const { token, log_prob, temperatures, log_sum } = look.value.next;
  const chances = log_prob[t].map((x) => Math.exp(x / temperatures[heat] - log_sum[t][heat]));
  const rest = Math.max(0, 1 - chances.reduce((sum, p) => sum + p, 0));
  const entries = [...token[t].map((id, i) => [label(look.value, id), chances[i], id === look.value.target[t]]), ["all others", rest, false]];
  const [left, pitch] = [124, 27];
  const x = (p) => 230 * p;
  return html`<svg class="figure bars" viewBox="0 0 430 ${entries.length * pitch + 6}" role="img"
    aria-label=${entries.map(([word, p]) => `${word} ${percent(p)}`).join(", ")}>
    ${entries.map(([word, p, written], i) => html`<g transform="translate(0 ${i * pitch + 3})" class=${written ? "written" : i === entries.length - 1 ? "rest" : ""}>
      <text x=${left - 10} y="12" class="word end">${shorten(word, 14)}</text>
      <rect class="track" x=${left} y="3" width=${x(1)} height="18" rx="4" />
      <rect class="bar" x=${left} y="3" width=${Math.max(1, x(p))} height="18" rx=${Math.min(4, x(p) / 2)} />
      <text x=${left + x(1) + 10} y="12" class="amount">${percent(p)}</text>
    </g>`)}
  </svg>`;
}

function Lens({ t }) {
  const found = look.value;
  const [left, cell, pitch, top] = [58, 84, 30, 30];
  const layers = found.lens.length;
  return html`<svg class="figure lens" style="width:${left + found.target.length * cell + 8}px"
    viewBox="0 0 ${left + found.target.length * cell + 8} ${top + layers * pitch + 10}" role="img"
    aria-label="The likeliest next token of each of ${layers} decoder layers at each of ${found.target.length} steps">
    ${found.lens.map((_, l) => html`<text x=${left - 10} y=${top + (layers - 1 - l + 0.5) * pitch} class="tick end">layer ${l + 1}</text>`)}
    ${found.target.map((id, n) => html`<g key=${n} class="column ${same(mark.value.looks, { side: "target", place: n }) ? "marked" : ""}" onClick=${() => (step.value = n)}>
      <text x=${left + (n + 0.5) * cell} y="16" class="word small target middle">${shorten(label(found, id), 10)}</text>
      ${found.lens.map((guesses, l) => {
        const [best, chance] = [guesses.token[n][0], Math.exp(guesses.log_prob[n][0])];
        const spot = { side: "target", place: n };
        return html`<g key=${l} class=${best === id ? "guess right" : "guess"} ...${pointing({ looks: spot, seen: spot }, html`<${LensTip} l=${l} n=${n} />`)}>
          <rect x=${left + n * cell + 2} y=${top + (layers - 1 - l) * pitch + 2} width=${cell - 4} height=${pitch - 4} rx="5"
            fill=${plainColour()} fill-opacity=${0.5 * strength(chance)} />
          <text x=${left + (n + 0.5) * cell} y=${top + (layers - 1 - l + 0.5) * pitch} class="middle">${shorten(label(found, best), 10)}</text>
        </g>`;
      })}
    </g>`)}
    <rect class="marker-box" x=${left + t * cell} y="4" width=${cell} height=${top + layers * pitch} rx="6" />
  </svg>`;
}

function LensTip({ l, n }) {
  const found = look.value;
  const { token, log_prob, written } = found.lens[l];
  return html`<span>layer ${l + 1}</span>
    <dl>
      ${token[n].map((id, i) => html`<dt class=${id === found.target[n] ? "target" : ""}>${label(found, id)}</dt><dd>${percent(Math.exp(log_prob[n][i]))}</dd>`)}
      ${!token[n].includes(found.target[n]) && html`<dt class="target">${label(found, found.target[n])}</dt><dd>${percent(Math.exp(written[n]))}</dd>`}
    </dl>`;
}
