// What became of the translation when heads were switched off.

import { html } from "htm/preact";
import { minus } from "./parts.js";
import { live } from "./source.js";
import { look, off } from "./state.js";
import { END, label } from "./tokens.js";

export function Without() {
  const { unchanged, off: silent, target, score } = look.value;
  if (!unchanged) return null;
  const before = [...unchanged.target, END];
  const stayed = longestCommon(before, target);
  return html`<section class="card without" aria-labelledby="without">
    <h2 id="without">Without ${silent.length === 1 ? "one head" : `${silent.length} heads`}</h2>
    <ul class="off-list">
      ${silent.map((name) => html`<li>${name}${live && html`<button type="button" aria-label="Switch ${name} on again"
        onClick=${() => (off.value = off.value.filter((other) => other !== name))}>×</button>`}</li>`)}
    </ul>
    <dl class="versions">
      <dt>all heads</dt>
      <dd><${Said} ids=${before} stayed=${stayed.a} kind="gone" /></dd>
      <dd class="number">${minus(unchanged.whole.score)}</dd>
      <dt>without</dt>
      <dd><${Said} ids=${target} stayed=${stayed.b} kind="came" /></dd>
      <dd class="number">${minus(score)}</dd>
    </dl>
    <p class="note">Without ${silent.length === 1 ? "it" : "them"}, the first translation scores ${minus(unchanged.silenced.score)}${" "}
      instead of ${minus(unchanged.whole.score)}.</p>
  </section>`;
}

function Said({ ids, stayed, kind }) {
  return ids.map((id, i) => html`<span class="said-token ${stayed.has(i) ? "" : kind}">${label(look.value, id)}</span>`);
}

/** The places, on both sides, of a longest run of tokens that both have in this order. */
function longestCommon(a, b) {
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      length[i][j] = a[i] === b[j] ? 1 + length[i + 1][j + 1] : Math.max(length[i + 1][j], length[i][j + 1]);
  const found = { a: new Set(), b: new Set() };
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) found.a.add(i++) && found.b.add(j++);
    else if (length[i + 1][j] >= length[i][j + 1]) i++;
    else j++;
  }
  return found;
}
