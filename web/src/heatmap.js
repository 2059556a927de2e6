// Attention as a matrix of cells. Labels and the marks of the highlighted row and column are on layers of their own: the
// marks because they move with the pointer, the labels because they stay in view while a large map is scrolled.

import { effect } from "@preact/signals";
import { html } from "htm/preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { headColour, matrixImage, plainColour, strength } from "./colours.js";
import { Labels, part, percent, samePosition, shorten } from "./components.js";
import { dark, highlight, hovered, lecture, narrow, onLeave, markers, togglePin, tooltip } from "./state.js";
import { COMBINED, oneTo } from "./weights.js";

export const LONG = 26; // more tokens need the whole width of the page
const MIN_CELL = 12; // smaller cells have labels that cannot be read; a larger map is scrolled

export function HeatMap({ map, label = "Heat map" }) {
  const { rows, columns, weight, colour, matrix } = map;
  const places = layout(rows, columns);
  const { left, top, size, width, height, total } = places;
  const image = useMemo(
    () => columns.length && rows.length && matrixImage(columns.length, rows.length, (i) => {
      const [row, column] = [rows[Math.floor(i / columns.length)], columns[i % columns.length]];
      return [colour(row, column), strength(weight(row, column))];
    }),
    [matrix, dark.value, markers.value],
  );
  const cellAt = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const index = (client, start, span, n) => Math.max(0, Math.min(n - 1, Math.floor(((client - start) / span) * n)));
    return [rows[index(event.clientY, box.top, box.height, rows.length)], columns[index(event.clientX, box.left, box.width, columns.length)]];
  };
  const onPoint = (event) => {
    const [row, column] = cellAt(event);
    const { query, key, cell } = hovered.peek() ?? {};
    if (query !== row || key !== column || !cell) hovered.value = { query: row, key: column, cell: true };
    tooltip.value = {
      target: new DOMRect(event.clientX - 8, event.clientY - 8, 16, 16),
      size: [230, 60],
      body: map.tell?.(row, column) ?? html`<b class=${row.side}>${row.label}</b> attends to <b class=${column.side}>${column.label}</b>${" "}
        with weight <b class="weight">${percent(weight(row, column))}</b>`,
    };
  };
  const onClick = (event) => {
    const [query, key] = cellAt(event);
    togglePin({ query, key, cell: true });
  };
  return html`<div class="layers labelled heat" style=${places.style}>
    <svg class="figure" viewBox="0 0 ${total.width} ${total.height}" role="img"
      aria-label="${label} of ${rows.length} by ${columns.length} weights; stronger colours have more weight">
      ${image && html`<image href=${image} x=${left} y=${top} width=${width} height=${height} preserveAspectRatio="none" class="pixels" />`}
      <rect x=${left} y=${top} width=${width} height=${height} class="frame" onPointerDown=${onPoint} onPointerMove=${onPoint} onPointerLeave=${onLeave} onClick=${onClick} />
      ${map.legend !== false && html`<${Legend} x=${left} y=${top + height + (lecture.value ? 26 : 16)} width=${Math.max(150, Math.min(width, 200))} view=${map.view} heads=${matrix.head ? map.shown.model.num_heads : 0} />`}
    </svg>
    <${Mark} kind="column" list=${columns} role="key" shift="translateX" box=${{ left, top, width: size, height }} total=${total} />
    <${Labels} kind="rows" box=${{ left: 0, top, width: left, height }} total=${total}>${rows.map((at, r) => html`<${RowLabel} ...${{ at, r, places }} />`)}<//>
    <${Mark} kind="row" list=${rows} role="query" shift="translateY" box=${{ left: 0, top, width: left + width, height: size }} total=${total} />
    <${Labels} kind="columns" box=${{ left: 0, top: 0, width: total.width, height: top }} total=${total}>${columns.map((at, c) => html`<${ColumnLabel} ...${{ at, c, places }} />`)}<//>
    <${Labels} kind="corner" box=${{ left: 0, top: 0, width: left, height: top }} total=${total} />
  </div>`;
}

function layout(rows, columns) {
  const longest = Math.max(rows.length, columns.length, 8);
  const big = lecture.value;
  const [left, top] = big ? [210, 170] : narrow.value ? [92, 80] : [118, 96];
  const available = big ? Math.min(innerHeight - 540, 620) : narrow.value ? 225 : longest > LONG ? 900 : 336; // as wide as the page, or as half of it
  const size = Math.max(big ? 26 : MIN_CELL, Math.min(big ? 48 : longest > LONG ? 20 : 30, available / longest));
  const [width, height] = [columns.length * size, rows.length * size];
  const total = { width: Math.max(left + width + (big ? 120 : 60), 330), height: top + height + (big ? 84 : 56) };
  const exact = big || size === MIN_CELL || longest > LONG; // one unit is one pixel, and the figure may be scrolled
  const font = big ? "" : `font-size:${Math.max(11, Math.min(12, size))}px`;
  return { left, top, size, width, height, total, font, letters: big ? 14 : narrow.value ? 11 : 14, style: exact ? `width:${total.width}px` : "" };
}

function RowLabel({ at, r, places: { left, top, size, font, letters } }) {
  return html`<text x=${left - 7} y=${top + (r + 0.5) * size} style=${font} class="token small end ${at.side}">${shorten(at.label, letters)}</text>`;
}

function ColumnLabel({ at, c, places: { left, top, size, font, letters } }) {
  return html`<text transform="translate(${left + (c + 0.5) * size} ${top - 8}) rotate(-55)" style=${font} class="token small ${at.side}">${shorten(at.label, letters)}</text>`;
}

/** A mark is moved by a transform, which the compositor does without painting anything, and without rendering this again. */
function Mark({ kind, list, role, shift, box, total }) {
  const layer = useRef();
  useLayoutEffect(() => effect(() => {
    const n = list.findIndex((at) => samePosition(highlight.value[role], at));
    const [mark] = layer.current.children;
    mark.hidden = n < 0;
    mark.style.transform = `${shift}(${100 * n}%)`;
  }));
  return html`<div ref=${layer} class="marks" aria-hidden="true"><div class="mark" data-mark=${kind}
    style="left:${part(box.left, total.width)};top:${part(box.top, total.height)};width:${part(box.width, total.width)};height:${part(box.height, total.height)}"></div></div>`;
}

/** The scale of weights; in the view of the maximum, one for each head, whose colour the cells have. */
function Legend({ x, y, width, view, heads }) {
  const colours = heads ? oneTo(heads).map((h) => headColour(h - 1)) : [view in COMBINED ? plainColour() : headColour(view - 1)];
  const image = useMemo(
    () => matrixImage(64, colours.length, (i) => [colours[Math.floor(i / 64)], strength((i % 64) / 63)]),
    [colours.join()],
  );
  const bar = heads ? Math.min(3 * heads, 18) : 8;
  const gap = lecture.value ? 16 : 10;
  return html`<g aria-hidden="true" class="scale">
    <image href=${image} x=${x} y=${y} width=${width} height=${bar} preserveAspectRatio="none" class=${heads ? "pixels" : ""} />
    <text x=${x} y=${y + bar + gap} class="tick middle">0</text>
    <text x=${x + width / 2} y=${y + bar + gap} class="tick middle">50 %</text>
    <text x=${x + width} y=${y + bar + gap} class="tick middle">100 %</text>
    ${heads > 0 && html`<text x=${x + width + 12} y=${y + bar / 2} class="tick">heads 1 to ${heads}</text>`}
  </g>`;
}
