// The effect of the heads that are switched off on the translation.

import { html } from "htm/preact";
import { format } from "./components.js";
import { live } from "./data.js";
import { inspection, latest, off } from "./state.js";
import { END, label } from "./tokens.js";

export function Ablation() {
  const { ablation, off: heads, target, score } = inspection.value;
  if (!ablation) return null;
  const { before, common, after } = changes(inspection.value);
  return html`<section class="card ablation" aria-labelledby="ablation">
    <h2 id="ablation">Ablation of ${heads.length} ${heads.length === 1 ? "head" : "heads"}</h2>
    <ul class="off-list">
      ${heads.map((name) => html`<li>${name}${live && html`<button type="button" aria-label="Switch ${name} on"
        onClick=${() => (off.value = off.value.filter((other) => other !== name))}>×</button>`}</li>`)}
    </ul>
    <dl class="versions">
      <dt>all heads</dt>
      <dd><${Diff} ids=${before} common=${common} kind="removed" /></dd>
      <dd class="number">${format(ablation.full.score)}</dd>
      <dt>ablated</dt>
      <dd><${Diff} ids=${target} common=${after} kind="added" /></dd>
      <dd class="number">${format(score)}</dd>
    </dl>
    <p class="note">The ablated model gives the translation of the full model a score of ${format(ablation.rescored.score)}${" "}
      instead of ${format(ablation.full.score)}.</p>
  </section>`;
}

/** What the heads that are off change: the indices that both outputs have in common; none if no head is off. */
export function changes({ ablation, target }) {
  if (!ablation) return {};
  const before = [...ablation.target, END];
  const common = longestCommonSubsequence(before, target);
  return { before, common: common.a, after: common.b };
}

export function Diff({ ids, common, kind }) {
  return ids.map((id, i) => html`<span class="diff-token ${common.has(i) ? "" : kind}">${label(latest.value, id)}</span>`);
}

/** The indices of a longest common subsequence in both lists. */
export function longestCommonSubsequence(a, b) {
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      length[i][j] = a[i] === b[j] ? 1 + length[i + 1][j + 1] : Math.max(length[i + 1][j], length[i][j + 1]);
  const indices = { a: new Set(), b: new Set() };
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) indices.a.add(i++) && indices.b.add(j++);
    else if (length[i + 1][j] >= length[i][j + 1]) i++;
    else j++;
  }
  return indices;
}
