// Another sentence, or the same one by another model, beside the inspected one.

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { longestCommonSubsequence } from "./ablation.js";
import { attentionTitle, useAttention } from "./attention_map.js";
import { divergingColour } from "./colours.js";
import { Figure, format, percent } from "./components.js";
import { inspect } from "./data.js";
import { HeatMap } from "./heatmap.js";
import { direction, server } from "./languages.js";
import { dark, inspection, markers, stack } from "./state.js";
import { countLayers } from "./weights.js";

const otherText = signal("");
const otherModel = signal("");

export function Compare() {
  const shown = inspection.value;
  const [other, setOther] = useState(null);
  const [reason, setReason] = useState("");
  const [working, setWorking] = useState(false);
  const models = server.value?.models.filter((one) => one.inspect) ?? [];
  const wanted = otherText.value.trim() || (otherModel.value ? shown.text : "");
  useEffect(() => {
    setReason("");
    setWorking(Boolean(wanted));
    if (!wanted) return setOther(null);
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const model = models.find(({ name }) => name === otherModel.value);
        const request = { text: wanted, ...direction.value, ...(model && { model: model.name, to: model.tagged ? direction.value.to : undefined }) };
        setOther((await inspect(request, controller.signal))[0]);
      } catch (failure) {
        if (!controller.signal.aborted) setReason(failure.message);
      }
      if (!controller.signal.aborted) setWorking(false);
    }, 300);
    return () => (clearTimeout(timer), controller.abort());
  }, [wanted, otherModel.value, direction.value]);
  return html`<section id="compare-section" aria-labelledby="compare">
    <h2 id="compare">Compare</h2>
    <p class="lead">Change a word of the sentence${models.length > 1 ? ", or choose another model," : ""} and see the same attention side by side.</p>
    <div class="controls compare-controls">
      <input type="text" class="card" aria-label="Sentence to compare with" dir="auto" placeholder=${shown.text} value=${otherText.value}
        onInput=${(event) => (otherText.value = event.target.value)} />
      ${models.length > 1 && html`<label class="choice">model <select value=${otherModel.value} onChange=${(event) => (otherModel.value = event.target.value)}>
        <option value="">the same</option>${models.map(({ name }) => html`<option value=${name}>${name}</option>`)}</select></label>`}
      <button type="button" class="play" onClick=${() => (otherText.value = shown.text)}>copy the sentence</button>
    </div>
    ${reason && html`<p class="error" role="alert">${reason}</p>`}
    ${working && html`<p class="note" role="status">inspecting the other sentence …</p>`}
    ${other && html`<div class="pair ${working ? "stale" : ""}">
      <${Side} shown=${shown} name="first" /><${Side} shown=${other} name="second" />
      ${countLayers(shown, stack.value) > 0 && countLayers(other, stack.value) > 0 && html`<${Difference} first=${shown} second=${other} />`}
    </div>`}
  </section>`;
}

function Side({ shown, name }) {
  if (!countLayers(shown, stack.value)) return html`<p class="note">“${shown.translation}”: this model has no such attention.</p>`;
  return html`<${Figure} name="compare-${name}" title=${shown.translation} hint="${attentionTitle(shown)}; score ${format(shown.score)}" wide>
    <${ComparedMap} shown=${shown} name=${name} />
  <//>`;
}

function ComparedMap({ shown, name }) {
  return html`<${HeatMap} map=${useAttention(shown)} label="Heat map of the ${name} sentence" />`;
}

/** What changes between the tokens that both sentences have. */
function Difference({ first, second }) {
  const [one, two] = [useAttention(first), useAttention(second)];
  const map = useMemo(() => {
    const [rows, columns] = ["rows", "columns"].map((part) => common(one[part], two[part]));
    const change = (row, column) => two.weight(row.other, column.other) - one.weight(row, column);
    return { rows, columns, shown: first, view: one.view, matrix: {}, legend: false,
      weight: (row, column) => Math.abs(change(row, column)), colour: (row, column) => divergingColour(change(row, column))[0],
      tell: (row, column) => html`<b class=${row.side}>${row.label}</b> → <b class=${column.side}>${column.label}</b>: ${percent(one.weight(row, column))} → <b class="weight">${percent(two.weight(row.other, column.other))}</b>` };
  }, [one.matrix, two.matrix, markers.value, dark.value]);
  if (!map.rows.length || !map.columns.length) return null;
  return html`<${Figure} name="compare-difference" title="Difference" hint="of the tokens that both have; orange: more weight in the second, blue: less" wide>
    <${HeatMap} map=${map} label="Difference" />
  <//>`;
}

/** The positions of tokens that both lists have in the same order, each with the other one. */
function common(first, second) {
  const both = longestCommonSubsequence(first.map(({ label }) => label), second.map(({ label }) => label));
  const others = [...both.b].map((n) => second[n]);
  return [...both.a].map((n, place) => ({ ...first[n], other: others[place] }));
}
