// Attention weights of every layer and head: as lines between two columns, as a heat map, and as thumbnails of all heads.

import { html } from "htm/preact";
import { attentionTitle, useAttention } from "./attention_map.js";
import { headColour } from "./colours.js";
import { Choice, Figure, percent } from "./components.js";
import { HeatMap, LONG } from "./heatmap.js";
import { AllHeads, WhoLooks } from "./heads.js";
import { Lines } from "./lines.js";
import { experts, inspection, layer, lecture, markers, narrow, shownLayer, shownView, stack, view } from "./state.js";
import { Caption } from "./story.js";
import { COMBINED, combinedViews, countLayers, isText, oneTo, sizes, STACKS, stackWords } from "./weights.js";

export function Attention() {
  const shown = inspection.value;
  const { layers, heads } = sizes(shown, stack.value);
  const map = useAttention(shown);
  const { rows, columns } = map;
  const long = Math.max(rows.length, columns.length) > LONG;
  const title = attentionTitle(shown);
  const name = `attention-${stack.value}-${shownLayer.value}-${shownView.value}`;
  const table = () => ({ columns: ["token", ...columns.map((column) => column.label)],
    rows: rows.map((row) => [row.label, ...columns.map((column) => percent(map.weight(row, column)))]) });
  return html`<section class="attention-section" id="attention-section" aria-labelledby="attention">
    <h2 id="attention">Attention</h2>
    <${Caption} />
    <div class="pair attention ${long ? "long" : ""}">
      <${Figure} name="${name}-lines" title="Lines" hint=${title} table=${table} wide=${long || narrow.value || lecture.value}><${Lines} map=${map} /><//>
      <${Figure} name="${name}-map" title="Heat map" hint=${title} table=${table} wide=${long || narrow.value || lecture.value}><${HeatMap} map=${map} /><//>
    </div>
    <div class="controls">
      ${!isText(shown) && html`<${Choice} name="stack" label="Attention" chosen=${stack.value} onChoose=${(name) => (stack.value = name)}
        options=${Object.entries(STACKS).filter(([name]) => countLayers(shown, name)).map(([name, { title }]) => [name, title])} />`}
      <${Choice} name="layer" label="Layer" chosen=${shownLayer.value} onChoose=${(n) => (layer.value = n)}
        options=${oneTo(layers).map((n) => [n, n])} />
      <${Choice} name="view" label="Head" chosen=${shownView.value} onChoose=${(n) => (view.value = n)}
        options=${[...oneTo(heads).map((n) => [n, n, headColour(n - 1)]), ...(experts.value || shownView.value in COMBINED ? combinedViews(shown).map((name) => [name, name]) : [])]} />
      <label class="switch"><input type="checkbox" checked=${markers.value} onChange=${(event) => (markers.value = event.target.checked)} /> markers</label>
      <label class="switch"><input type="checkbox" checked=${experts.value} onChange=${(event) => (experts.value = event.target.checked)} /> all heads</label>
    </div>
    <p class="lead">${stackWords(shown, stack.value).description} ${shownView.value in COMBINED ? `This view shows ${COMBINED[shownView.value]}.` : ""}${" "}
      Click on a token or a cell to keep it highlighted.</p>
    <${WhoLooks} />
    ${experts.value && html`<${AllHeads} />`}
    <p class="caution">Attention is not an explanation: it shows which positions a head reads, not why the model ${isText(shown) ? "predicts" : "wrote"} a token, and
      other weights may give the same output.</p>
  </section>`;
}
