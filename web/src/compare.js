// Another sentence, or the same one by another model, beside the inspected one.

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { attentionTitle, useAttention } from "./attention_map.js";
import { Figure, format } from "./components.js";
import { inspect } from "./data.js";
import { HeatMap } from "./heatmap.js";
import { direction, server } from "./languages.js";
import { inspection, stack } from "./state.js";
import { countLayers } from "./weights.js";

const otherText = signal("");
const otherModel = signal("");

export function Compare() {
  const shown = inspection.value;
  const [other, setOther] = useState(null);
  const [reason, setReason] = useState("");
  const models = server.value?.models.filter((one) => one.inspect) ?? [];
  const wanted = otherText.value.trim() || (otherModel.value ? shown.text : "");
  useEffect(() => {
    setReason("");
    if (!wanted) return setOther(null);
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const model = models.find(({ name }) => name === otherModel.value);
        const request = { text: wanted, ...direction.value, ...(model && { model: model.name, to: model.tagged ? direction.value.to : undefined }) };
        setOther(await inspect(request, controller.signal));
      } catch (failure) {
        if (!controller.signal.aborted) setReason(failure.message);
      }
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
    ${other && html`<div class="pair">
      <${Side} shown=${shown} name="first" /><${Side} shown=${other} name="second" />
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
