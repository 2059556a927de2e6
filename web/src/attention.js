// Attention: every layer and head, as lines between two columns, as a heat map, and all heads at a glance.

import { linkHorizontal } from "d3-shape";
import { html } from "htm/preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { fill, headColour, picture, plainColour, strength } from "./colours.js";
import { Choice, Figure, percent, same, shorten } from "./parts.js";
import { live } from "./source.js";
import { dark, layer, leave, look, mark, markers, narrow, off, shownLayer, shownView, stack, tip, view } from "./state.js";
import { isMarker, label, tokenAt } from "./tokens.js";
import { headBytes, JOINED, sizes, STACKS, weights } from "./weights.js";

const FAINTEST = 0.03; // weights below are not drawn as lines

export function Attention() {
  const found = look.value;
  const { layers, heads } = sizes(found, stack.value);
  const joined = shownView.value in JOINED;
  const matrix = useMemo(
    () => weights(found, stack.value, shownLayer.value - 1, joined ? shownView.value : shownView.value - 1),
    [found, stack.value, shownLayer.value, shownView.value],
  );
  const seen = shownPlaces(found);
  const long = Math.max(seen.rows.length, seen.columns.length) > 30;
  const colour = (i) =>
    matrix.owner ? headColour(matrix.owner[i]) : joined ? plainColour() : headColour(shownView.value - 1);
  const title = `${STACKS[stack.value].title}, layer ${shownLayer.value}, ${joined ? shownView.value : `head ${shownView.value}`}`;
  const name = `attention-${stack.value}-${shownLayer.value}-${shownView.value}`;
  return html`<section aria-labelledby="attention">
    <h2 id="attention">Attention</h2>
    <p class="lead">${STACKS[stack.value].says} ${joined ? `Shown is ${JOINED[shownView.value]}.` : ""}</p>
    <div class="controls">
      <${Choice} name="stack" label="Attention" chosen=${stack.value} onChoose=${(word) => (stack.value = word)}
        options=${Object.entries(STACKS).map(([word, { title }]) => [word, title])} />
      <${Choice} name="layer" label="Layer" chosen=${shownLayer.value} onChoose=${(n) => (layer.value = n)}
        options=${counted(layers).map((n) => [n, n])} />
      <${Choice} name="view" label="Head" chosen=${shownView.value} onChoose=${(n) => (view.value = n)}
        options=${[...counted(heads).map((n) => [n, n, headColour(n - 1)]), ...Object.keys(JOINED).map((word) => [word, word])]} />
      <label class="switch"><input type="checkbox" checked=${markers.value} onChange=${(event) => (markers.value = event.target.checked)} />
        special tokens</label>
    </div>
    <div class="pair attention ${long ? "long" : ""}">
      <${Figure} name="${name}-lines" title="Lines" hint=${title}>
        <${Lines} ...${{ matrix, seen, colour }} />
      <//>
      <${Figure} name="${name}-map" title="Map" hint=${title}>
        <${HeatMap} ...${{ matrix, seen, colour }} />
      <//>
    </div>
    <${Grid} />
    <p class="caution">Attention is not an explanation: it shows where a head took values from, not why the model wrote a word, and
      other weights may give the same output.</p>
  </section>`;
}

export const counted = (n) => Array.from({ length: n }, (_, i) => i + 1);

/** Rows and columns on show, each with its place; the decoder's columns start before the first written token. */
function shownPlaces(found) {
  const { rows, columns } = STACKS[stack.value];
  const shift = stack.value === "decoder" ? -1 : 0;
  const places = (side, shift) =>
    found[side]
      .map((_, index) => ({ side, index, place: index + shift }))
      .filter((at) => markers.value || !isMarker(tokenAt(found, at)))
      .map((at) => ({ ...at, label: label(found, tokenAt(found, at)) }));
  return { rows: places(rows, 0), columns: places(columns, shift) };
}

function Lines({ matrix, seen: { rows, columns }, colour }) {
  const tallest = Math.max(rows.length, columns.length);
  const pitch = Math.max(17, Math.min(29, 470 / tallest));
  const [left, right, width] = narrow.value ? [112, 212, 330] : [150, 370, 520];
  const height = tallest * pitch + 30;
  const y = (list, n) => 34 + pitch * (n + (tallest - list.length) / 2);
  const link = linkHorizontal();
  const { looks, seen, cell } = mark.value;
  const lit = (row, column) => {
    const [from, to] = [same(looks, row), same(seen, column)];
    return cell ? from && to : from || to;
  };
  const any = rows.some((row) => same(looks, row)) || columns.some((column) => same(seen, column));
  const shown = [];
  rows.forEach((row, r) =>
    columns.forEach((column, c) => {
      const i = row.index * matrix.columns + column.index;
      const weight = matrix.value[i];
      if (weight >= FAINTEST) shown.push({ row, column, r, c, i, weight, lit: lit(row, column) });
    }),
  );
  const share = (column) => shown.find((line) => line.lit && line.column === column && same(looks, line.row))?.weight;
  return html`<svg class="figure lines" viewBox="0 0 ${width} ${height}" role="img"
    aria-label="Lines from ${rows.length} places that look to ${columns.length} places they look at; the stronger, the more weight">
    <text x=${left - 8} y="14" class="tick end">${rowsTitle()}</text>
    <text x=${right + 8} y="14" class="tick">looks at</text>
    <g class=${any ? "some-lit" : ""}>
      ${shown.map(
        (line) => html`<path key="${line.r}-${line.c}" class=${line.lit ? "line lit" : "line"} stroke=${colour(line.i)}
          d=${link({ source: [left, y(rows, line.r)], target: [right, y(columns, line.c)] })}
          stroke-opacity=${line.lit ? 1 : strength(line.weight)} stroke-width=${0.6 + 3.4 * line.weight} />`,
      )}
    </g>
    ${rows.map(
      (row, r) => html`<${Word} key=${`r${r}`} at=${row} x=${left - 8} y=${y(rows, r)} anchor="end"
        marked=${same(looks, row)} marks=${{ looks: row }} box=${[0, left, pitch]} />`,
    )}
    ${columns.map((column, c) => {
      const part = share(column);
      return html`<${Word} key=${`c${c}`} at=${column} x=${right + 8} y=${y(columns, c)} anchor="start"
          marked=${same(seen, column)} marks=${{ seen: column }} box=${[right, width, pitch]} />
        ${part > 0 && html`<text key=${`p${c}`} x=${width - 4} y=${y(columns, c)} class="share end">${percent(part)}</text>`}`;
    })}
  </svg>`;
}

const rowsTitle = () => (STACKS[stack.value].rows === "source" ? "reading" : "writing");

function Word({ at, x, y, anchor, marked, marks, box: [from, to, pitch] }) {
  const show = () => (mark.value = { looks: null, seen: null, ...marks });
  return html`<g onPointerEnter=${show} onPointerLeave=${leave}>
    <rect x=${from} y=${y - pitch / 2} width=${to - from} height=${pitch} class=${marked ? "back marked" : "back"} rx="4" />
    <text x=${x} y=${y} class="word ${at.side} ${anchor} ${marked ? "strong" : ""}">${shorten(at.label, narrow.value ? 12 : 16)}</text>
  </g>`;
}

function HeatMap({ matrix, seen: { rows, columns }, colour }) {
  const most = Math.max(rows.length, columns.length, 8);
  const room = narrow.value ? 225 : most > 30 ? 640 : 470;
  const size = Math.max(9, Math.min(30, room / most));
  const [left, top] = narrow.value ? [92, 80] : [118, 96];
  const [width, height] = [columns.length * size, rows.length * size];
  const at = (r, c) => rows[r].index * matrix.columns + columns[c].index;
  const image = useMemo(
    () => columns.length && rows.length && picture(columns.length, rows.length, (i) => {
      const cell = at(Math.floor(i / columns.length), i % columns.length);
      return [colour(cell), strength(matrix.value[cell])];
    }),
    [matrix, dark.value, markers.value],
  );
  const point = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const place = (client, start, span, n) => Math.max(0, Math.min(n - 1, Math.floor(((client - start) / span) * n)));
    const r = place(event.clientY, box.top, box.height, rows.length);
    const c = place(event.clientX, box.left, box.width, columns.length);
    mark.value = { looks: rows[r], seen: columns[c], cell: true };
    tip.value = {
      at: new DOMRect(event.clientX - 8, event.clientY - 8, 16, 16),
      body: html`<b class=${rows[r].side}>${rows[r].label}</b> looks at <b class=${columns[c].side}>${columns[c].label}</b>${" "}
        with <b class="weight">${percent(matrix.value[at(r, c)])}</b>`,
    };
  };
  const row = rows.findIndex((place) => same(mark.value.looks, place));
  const column = columns.findIndex((place) => same(mark.value.seen, place));
  const fine = `font-size:${Math.max(8, Math.min(12, size))}px`;
  const legend = Math.max(150, Math.min(width, 200));
  return html`<svg class="figure heat" viewBox="0 0 ${Math.max(left + width + 50, 330)} ${top + height + 46}" role="img"
    aria-label="Heat map of ${rows.length} by ${columns.length} weights; the stronger the colour, the more weight">
    ${image && html`<image href=${image} x=${left} y=${top} width=${width} height=${height} preserveAspectRatio="none" class="pixels" />`}
    <rect x=${left} y=${top} width=${width} height=${height} class="frame" onPointerDown=${point} onPointerMove=${point} onPointerLeave=${leave} />
    ${row >= 0 && html`<rect class="marker-box" x=${left} y=${top + row * size} width=${width} height=${size} />`}
    ${column >= 0 && html`<rect class="marker-box" x=${left + column * size} y=${top} width=${size} height=${height} />`}
    ${rows.map(
      (place, r) => html`<text x=${left - 7} y=${top + (r + 0.5) * size} style=${fine} class="word small end ${place.side} ${r === row ? "strong" : ""}">
        ${shorten(place.label, narrow.value ? 11 : 14)}</text>`,
    )}
    ${columns.map(
      (place, c) => html`<text transform="translate(${left + (c + 0.5) * size} ${top - 8}) rotate(-55)"
        style=${fine} class="word small ${place.side} ${c === column ? "strong" : ""}">${shorten(place.label, narrow.value ? 11 : 14)}</text>`,
    )}
    <${Legend} x=${left} y=${top + height + 16} width=${legend} colour=${shownView.value in JOINED ? plainColour() : headColour(shownView.value - 1)} />
  </svg>`;
}

function Legend({ x, y, width, colour }) {
  const image = useMemo(() => picture(64, 1, (i) => [colour, strength(i / 63)]), [colour]);
  return html`<image href=${image} x=${x} y=${y} width=${width} height="7" preserveAspectRatio="none" />
    ${[0, 0.5, 1].map((p) => html`<text x=${x + p * width} y=${y + 18} class="tick middle">${p ? percent(p) : "0"}</text>`)}`;
}

function Grid() {
  const found = look.value;
  const { layers, heads } = sizes(found, stack.value);
  return html`<div class="card heads">
    <div class="heads-title">
      <h3>All heads</h3>
      <p>${STACKS[stack.value].title} attention, a row for each layer. ${live
        ? "Choose one to see it large; switch one off to see what becomes of the translation."
        : "Choose one to see it large. Switching heads off needs the model: open this page with transduce serve."}</p>
    </div>
    <div class="scroll" tabindex="0" role="group" aria-label="All heads">
      <${MarkedGrid}>
        ${counted(layers).map((l) => counted(heads).map((h) => html`<${Tile} key="${stack.value}.${l}.${h}" layer=${l} head=${h} />`))}
      <//>
    </div>
  </div>`;
}

/** Marks the pointed row and column on every thumbnail, without drawing any of them anew. */
function MarkedGrid({ children }) {
  const { heads, rows, columns } = sizes(look.value, stack.value);
  const { rows: rowSide, columns: columnSide } = STACKS[stack.value];
  const { looks, seen } = mark.value;
  const row = looks?.side === rowSide ? looks.place : -1;
  const column = seen?.side === columnSide ? seen.place + (stack.value === "decoder" ? 1 : 0) : -1;
  return html`<div class="grid ${row >= 0 ? "row" : ""} ${column >= 0 ? "column" : ""}"
    style="--heads:${heads};--rows:${rows};--columns:${columns};--row:${row};--column:${column}">${children}</div>`;
}

function Tile({ layer: l, head: h }) {
  const found = look.value;
  const name = `${stack.value}.${l}.${h}`;
  const canvas = useRef();
  const { rows, columns } = sizes(found, stack.value);
  useEffect(() => {
    const bytes = headBytes(found, stack.value, l - 1, h - 1);
    const colour = headColour(h - 1);
    fill(canvas.current, (i) => [colour, strength(bytes[i] / 255)]);
  }, [found, stack.value, dark.value]);
  const isOff = off.value.includes(name);
  const chosen = shownLayer.value === l && shownView.value === h;
  const choose = () => ([layer.value, view.value] = [l, h]);
  const toggle = () => (off.value = isOff ? off.value.filter((other) => other !== name) : [...off.value, name]);
  return html`<div class="tile ${isOff ? "off" : ""} ${chosen ? "chosen" : ""}" style="--own:${headColour(h - 1)}">
    <button type="button" class="thumbnail" aria-pressed=${chosen} aria-label="Show layer ${l}, head ${h}" onClick=${choose}>
      <canvas ref=${canvas} width=${columns} height=${rows}></canvas>
    </button>
    <div class="tile-foot">
      <span>${l}.${h}</span>
      <button type="button" role="switch" class="power" aria-checked=${!isOff} disabled=${!live} data-head=${name}
        aria-label="Layer ${l}, head ${h}" onClick=${toggle}>${isOff ? "off" : "on"}</button>
    </div>
  </div>`;
}
