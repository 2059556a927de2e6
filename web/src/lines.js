// Attention as lines between two columns of tokens. What is highlighted is drawn on a layer of its own, so that a pointer
// that moves does not redraw thousands of lines.

import { linkHorizontal } from "d3-shape";
import { html } from "htm/preact";
import { useRef } from "preact/hooks";
import { strength } from "./colours.js";
import { percent, samePosition, shorten, useVisible } from "./components.js";
import { highlight, hovered, lecture, narrow, onLeave, pinned, stack, togglePin } from "./state.js";
import { STACKS } from "./weights.js";

const MIN_WEIGHT = 0.03; // smaller weights are not drawn as lines
const link = linkHorizontal();

export function Lines({ map }) {
  const { rows, columns, weight, colour } = map;
  const longest = Math.max(rows.length, columns.length);
  const big = lecture.value;
  const pitch = big ? Math.max(30, Math.min(52, (innerHeight - 330) / longest)) : Math.max(17, Math.min(29, 470 / longest));
  const room = Math.max(420, Math.min(870, innerWidth > 860 ? (innerWidth - 170) / 2 : innerWidth - 110)); // a projector may have few pixels
  const [left, right, width] = big ? [room * 0.287, room * (room < 600 ? 0.58 : 0.678), room].map(Math.round) : narrow.value ? [112, 212, 330] : [150, 370, 520];
  const head = big ? 44 : 34;
  const height = longest * pitch + head;
  const y = (list, n) => head + pitch * (n + (longest - list.length) / 2);
  const path = (r, c) => link({ source: [left, y(rows, r)], target: [right, y(columns, c)] });
  const letters = big ? Math.round(room / 48) : narrow.value ? 12 : 16;
  const places = { left, right, width, height, head, pitch, y, path, letters };
  return html`<div class="layers lines">
    <svg class="figure" style=${big ? `width:${width}px` : ""} viewBox="0 0 ${width} ${height}" role="img"
      aria-label="Lines from ${rows.length} query positions to ${columns.length} key positions; stronger lines have more weight">
      <text x=${left - 8} y="14" class="tick end">${STACKS[stack.value].rows === "source" ? "token" : "token written"}</text>
      <text x=${right + 8} y="14" class="tick">attends to</text>
      ${rows.map((row, r) => columns.map((column, c) => {
        const w = weight(row, column);
        return w >= MIN_WEIGHT && html`<path class="line" stroke=${colour(row, column)} d=${path(r, c)} stroke-opacity=${strength(w)} stroke-width=${0.6 + 3.4 * w} />`;
      }))}
      ${rows.map((row, r) => html`<${TokenLabel} at=${row} role=${{ query: row }} x=${left - 8} y=${y(rows, r)} anchor="end" from=${0} to=${left} pitch=${pitch} letters=${letters} />`)}
      ${columns.map((column, c) => html`<${TokenLabel} at=${column} role=${{ key: column }} x=${right + 8} y=${y(columns, c)} anchor="start" from=${right} to=${width} pitch=${pitch} letters=${letters} />`)}
    </svg>
    <${Highlighted} ...${{ map, places, big }} />
  </div>`;
}

function TokenLabel({ at, role, x, y, anchor, from, to, pitch, letters }) {
  const show = () => (hovered.value = { query: null, key: null, ...role });
  return html`<g onPointerEnter=${show} onPointerLeave=${onLeave} onClick=${() => togglePin(role)}>
    <rect x=${from} y=${y - pitch / 2} width=${to - from} height=${pitch} class="back" />
    <text x=${x} y=${y} class="token ${at.side} ${anchor}">${shorten(at.label, letters)}</text>
  </g>`;
}

/** The lines and labels that are highlighted, above a veil over all others. */
function Highlighted({ map: { rows, columns, weight, colour }, places, big }) {
  const { left, right, width, height, head, pitch, y, path, letters } = places;
  const element = useRef();
  const { query, key, cell } = useVisible(element).value ? highlight.value : (pinned.value ?? {}); // what is pinned is saved with the figure
  const activeRows = rows.map((row, r) => ({ row, r })).filter(({ row }) => samePosition(query, row));
  const activeColumns = columns.map((column, c) => ({ column, c })).filter(({ column }) => samePosition(key, column));
  const any = activeRows.length > 0 || activeColumns.length > 0;
  const lines = [];
  const add = (row, r, column, c) => weight(row, column) >= MIN_WEIGHT && lines.push({ row, r, column, c, w: weight(row, column) });
  for (const { row, r } of activeRows)
    if (cell) activeColumns.forEach(({ column, c }) => add(row, r, column, c));
    else columns.forEach((column, c) => add(row, r, column, c));
  if (!cell && !activeRows.length) for (const { column, c } of activeColumns) rows.forEach((row, r) => add(row, r, column, c));
  const marked = (at, x, atY, anchor, from, to) => html`<rect x=${from} y=${atY - pitch / 2} width=${to - from} height=${pitch} rx="4" class="back highlighted" />
    <text x=${x} y=${atY} class="token strong ${at.side} ${anchor}">${shorten(at.label, letters)}</text>`;
  return html`<svg class="overlay" ref=${element} style=${big ? `width:${width}px` : ""} viewBox="0 0 ${width} ${height}" aria-hidden="true">
    ${any && html`<rect class="veil" x=${left} y=${head - pitch / 2} width=${right - left} height=${height - head + pitch / 2} />`}
    ${lines.map(({ row, r, column, c, w }) => html`<path class="line" stroke=${colour(row, column)} d=${path(r, c)} stroke-width=${0.6 + 3.4 * w} />`)}
    ${activeRows.map(({ row, r }) => marked(row, left - 8, y(rows, r), "end", 0, left))}
    ${activeColumns.map(({ column, c }) => marked(column, right + 8, y(columns, c), "start", right, width))}
    ${activeRows.length === 1 && lines.map(({ c, w }) => html`<text x=${width - 4} y=${y(columns, c)} class="weight end">${percent(w)}</text>`)}
  </svg>`;
}
