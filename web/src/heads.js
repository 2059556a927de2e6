// Thumbnails of all heads, and which of them look from one token to another.

import { html } from "htm/preact";
import { useMemo, useRef } from "preact/hooks";
import { shownPositions } from "./attention_map.js";
import { headColour, matrixImage, strength } from "./colours.js";
import { percent, useVisible } from "./components.js";
import { live } from "./data.js";
import { item, roving } from "./roving.js";
import { dark, highlight, inspection, layer, off, pinned, shownLayer, shownView, stack, view } from "./state.js";
import { countLayers, headBytes, isText, oneTo, sizes, STACKS } from "./weights.js";

const LISTED = 5;

/** All heads of a stack with their weight at a cell, as {l, h, weight}, counted from 1; ranked if there is a cell. */
function rankedHeads(shown, cell) {
  const { layers, heads, columns } = sizes(shown, stack.value);
  const all = oneTo(layers).flatMap((l) => oneTo(heads).map((h) => ({ l, h, weight: 0 })));
  if (!cell) return all;
  for (const one of all) one.weight = headBytes(shown, stack.value, one.l - 1, one.h - 1)[cell.row * columns + cell.column] / 255;
  return all.sort((a, b) => b.weight - a.weight);
}

/** The indices of the pinned pair of positions in the matrices of the chosen attention; null if there is none. */
function pinnedCell() {
  const { query, key } = pinned.value ?? {};
  const { rows, columns } = STACKS[stack.value];
  if (query?.side !== rows || key?.side !== columns) return null;
  return { row: query.position, column: key.position + (stack.value === "decoder" ? 1 : 0), query, key };
}

/** The question "who looks from this token to that one?", answered by the heads with the highest weights. */
export function WhoLooks() {
  const shown = inspection.value;
  const { rows, columns } = shownPositions(shown);
  const cell = pinnedCell();
  const at = (list, position) => list.findIndex((one) => one.position === position?.position);
  const chosen = { row: at(rows, pinned.value?.query?.side === rows[0]?.side ? pinned.value.query : null), column: at(columns, cell?.key) };
  const ask = (row, column) => (pinned.value = { query: rows[row] ?? null, key: columns[column] ?? null, cell: column >= 0 && row >= 0 });
  const select = (name, list, value, choose) => html`<select aria-label=${name} onChange=${(event) => choose(Number(event.target.value))}>
    <option value="-1" selected=${value < 0}>choose …</option>
    ${list.map((one, n) => html`<option key=${n} value=${n} selected=${n === value}>${one.label}</option>`)}
  </select>`;
  return html`<div class="card who" role="group" aria-label="Who looks from one token to another">
    <p class="who-question">Who looks from ${select("From token", rows, chosen.row, (row) => ask(row, chosen.column))}
      to ${select("To token", columns, chosen.column, (column) => ask(chosen.row, column))} ?</p>
    ${cell && html`<ol class="who-list" aria-label="Heads with the highest weight" ...${roving}>
      ${rankedHeads(shown, cell).slice(0, LISTED).map(({ l, h, weight }, n) => html`<li><button type="button" ...${item("who", n === 0)} style="--own:${headColour(h - 1)}"
        onClick=${() => ([layer.value, view.value] = [l, h])}>layer ${l}, head ${h} <b>${percent(weight)}</b></button></li>`)}
    </ol>`}
  </div>`;
}

export function AllHeads() {
  const shown = inspection.value;
  const { layers } = sizes(shown, stack.value);
  const cell = pinnedCell();
  return html`<div class="card heads">
    <div class="heads-title">
      <h3>All heads</h3>
      <p>${isText(shown) ? "Self-attention" : `${STACKS[stack.value].title} attention`}, ${cell ? "the heads with the highest weight first" : `one row for each of ${layers} layers`}. ${isText(shown) ? "Choose a head to enlarge it." : live
        ? "Choose a head to enlarge it; switch it off to see its effect on the translation."
        : "Choose a head to enlarge it. Switching heads off needs the model: open this page with transduce serve."}</p>
    </div>
    <div class="scroll" role="group" aria-label="All heads" ...${roving}>
      <${HighlightGrid}>
        ${rankedHeads(shown, cell).map(({ l, h, weight }, n) => html`<${Tile} key="${stack.value}.${l}.${h}" layer=${l} head=${h} first=${n === 0} weight=${cell && weight} />`)}
      <//>
    </div>
  </div>`;
}

/** Highlights a row and a column on every thumbnail, without redrawing the thumbnails. */
function HighlightGrid({ children }) {
  const { heads, rows, columns } = sizes(inspection.value, stack.value);
  const { rows: rowSide, columns: columnSide } = STACKS[stack.value];
  const element = useRef();
  const { query, key } = useVisible(element).value ? highlight.value : {};
  const row = query?.side === rowSide ? query.position : -1;
  const column = key?.side === columnSide ? key.position + (stack.value === "decoder" ? 1 : 0) : -1;
  return html`<div ref=${element} class="grid ${row >= 0 ? "row" : ""} ${column >= 0 ? "column" : ""}"
    style="--heads:${heads};--rows:${rows};--columns:${columns};--row:${row};--column:${column}">${children}</div>`;
}

function Tile({ layer: l, head: h, first, weight }) {
  const shown = inspection.value;
  const name = `${stack.value}.${l}.${h}`;
  const { rows, columns } = sizes(shown, stack.value);
  const image = useMemo(() => { // not a canvas, which the browser would composite as a layer of its own in every frame
    const bytes = headBytes(shown, stack.value, l - 1, h - 1);
    const colour = headColour(h - 1);
    return matrixImage(columns, rows, (i) => [colour, strength(bytes[i] / 255)]);
  }, [shown, stack.value, dark.value]);
  const isOff = off.value.includes(name);
  const chosen = shownLayer.value === l && shownView.value === h;
  const choose = () => ([layer.value, view.value] = [l, h]);
  const toggle = () => (off.value = isOff ? off.value.filter((other) => other !== name) : [...off.value, name]);
  return html`<div class="tile ${isOff ? "off" : ""} ${chosen ? "chosen" : ""}" style="--own:${headColour(h - 1)}">
    <button type="button" class="thumbnail" aria-pressed=${chosen} aria-label="Show layer ${l}, head ${h}" ...${item("thumbnail", first)} onClick=${choose}>
      <img src=${image} alt="" />
    </button>
    <div class="tile-foot">
      <span>${l}.${h}${weight !== null && html` <b>${percent(weight)}</b>`}</span>
      ${!isText(shown) && html`<button type="button" role="switch" class="power" aria-checked=${!isOff} disabled=${!live || !countLayers(shown, "decoder")} data-head=${name}
        aria-label="Layer ${l}, head ${h}" ...${item("power", first)} onClick=${toggle}>${isOff ? "off" : "on"}</button>`}
    </div>
  </div>`;
}
