// Attention weights of every layer and head: as lines between two columns, as a heat map, and as thumbnails of all heads.

import { linkHorizontal } from "d3-shape";
import { html } from "htm/preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { fill, headColour, matrixImage, plainColour, strength } from "./colours.js";
import { Choice, Figure, percent, samePosition, shorten } from "./components.js";
import { live } from "./data.js";
import { dark, highlight, hovered, inspection, layer, narrow, off, onLeave, shownLayer, shownView, specialTokens, stack, tooltip, view } from "./state.js";
import { isSpecial, label, tokenAt } from "./tokens.js";
import { COMBINED, combinedViews, countLayers, headBytes, sizes, STACKS, weights } from "./weights.js";

const MIN_WEIGHT = 0.03; // smaller weights are not drawn as lines

export function Attention() {
  const shown = inspection.value;
  const { layers, heads } = sizes(shown, stack.value);
  const combined = shownView.value in COMBINED;
  const matrix = useMemo(
    () => weights(shown, stack.value, shownLayer.value - 1, combined ? shownView.value : shownView.value - 1),
    [shown, stack.value, shownLayer.value, shownView.value],
  );
  const { rows, columns } = shownPositions(shown);
  const long = Math.max(rows.length, columns.length) > 30;
  const colour = (i) =>
    matrix.head ? headColour(matrix.head[i]) : combined ? plainColour() : headColour(shownView.value - 1);
  const title = `${STACKS[stack.value].title}, layer ${shownLayer.value}, ${combined ? shownView.value : `head ${shownView.value}`}`;
  const name = `attention-${stack.value}-${shownLayer.value}-${shownView.value}`;
  return html`<section aria-labelledby="attention">
    <h2 id="attention">Attention</h2>
    <p class="lead">${STACKS[stack.value].description} ${combined ? `This view shows ${COMBINED[shownView.value]}.` : ""}</p>
    <div class="controls">
      <${Choice} name="stack" label="Attention" chosen=${stack.value} onChoose=${(name) => (stack.value = name)}
        options=${Object.entries(STACKS).filter(([name]) => countLayers(shown, name)).map(([name, { title }]) => [name, title])} />
      <${Choice} name="layer" label="Layer" chosen=${shownLayer.value} onChoose=${(n) => (layer.value = n)}
        options=${oneTo(layers).map((n) => [n, n])} />
      <${Choice} name="view" label="Head" chosen=${shownView.value} onChoose=${(n) => (view.value = n)}
        options=${[...oneTo(heads).map((n) => [n, n, headColour(n - 1)]), ...combinedViews(shown).map((name) => [name, name])]} />
      <label class="switch"><input type="checkbox" checked=${specialTokens.value} onChange=${(event) => (specialTokens.value = event.target.checked)} />
        special tokens</label>
    </div>
    <div class="pair attention ${long ? "long" : ""}">
      <${Figure} name="${name}-lines" title="Lines" hint=${title}>
        <${Lines} ...${{ matrix, rows, columns, colour }} />
      <//>
      <${Figure} name="${name}-map" title="Heat map" hint=${title}>
        <${HeatMap} ...${{ matrix, rows, columns, colour }} />
      <//>
    </div>
    <${Grid} />
    <p class="caution">Attention is not an explanation: it shows which positions a head reads, not why the model wrote a token, and
      other weights may give the same output.</p>
  </section>`;
}

const oneTo = (n) => Array.from({ length: n }, (_, i) => i + 1);

/** The positions shown as rows and columns; the columns of the decoder begin before the first target token. */
function shownPositions(shown) {
  const positions = (side, shift) =>
    shown[side]
      .map((_, index) => ({ side, index, position: index + shift }))
      .filter((at) => specialTokens.value || !isSpecial(tokenAt(shown, at)))
      .map((at) => ({ ...at, label: label(shown, tokenAt(shown, at)) }));
  const { rows, columns } = STACKS[stack.value];
  return { rows: positions(rows, 0), columns: positions(columns, stack.value === "decoder" ? -1 : 0) };
}

function Lines({ matrix, rows, columns, colour }) {
  const longest = Math.max(rows.length, columns.length);
  const pitch = Math.max(17, Math.min(29, 470 / longest));
  const [left, right, width] = narrow.value ? [112, 212, 330] : [150, 370, 520];
  const height = longest * pitch + 30;
  const y = (list, n) => 34 + pitch * (n + (longest - list.length) / 2);
  const link = linkHorizontal();
  const { query, key, cell } = highlight.value;
  const isActive = (row, column) => {
    const [from, to] = [samePosition(query, row), samePosition(key, column)];
    return cell ? from && to : from || to;
  };
  const anyActive = rows.some((row) => samePosition(query, row)) || columns.some((column) => samePosition(key, column));
  const lines = [];
  rows.forEach((row, r) =>
    columns.forEach((column, c) => {
      const i = row.index * matrix.columns + column.index;
      const weight = matrix.value[i];
      if (weight >= MIN_WEIGHT) lines.push({ row, column, r, c, i, weight, active: isActive(row, column) });
    }),
  );
  const activeWeight = (column) => lines.find((line) => line.active && line.column === column && samePosition(query, line.row))?.weight;
  return html`<svg class="figure lines" viewBox="0 0 ${width} ${height}" role="img"
    aria-label="Lines from ${rows.length} query positions to ${columns.length} key positions; stronger lines have more weight">
    <text x=${left - 8} y="14" class="tick end">${STACKS[stack.value].rows === "source" ? "token" : "token written"}</text>
    <text x=${right + 8} y="14" class="tick">attends to</text>
    <g class=${anyActive ? "has-active" : ""}>
      ${lines.map(
        (line) => html`<path key="${line.r}-${line.c}" class=${line.active ? "line active" : "line"} stroke=${colour(line.i)}
          d=${link({ source: [left, y(rows, line.r)], target: [right, y(columns, line.c)] })}
          stroke-opacity=${line.active ? 1 : strength(line.weight)} stroke-width=${0.6 + 3.4 * line.weight} />`,
      )}
    </g>
    ${rows.map(
      (row, r) => html`<${TokenLabel} key=${`r${r}`} at=${row} x=${left - 8} y=${y(rows, r)} anchor="end"
        highlighted=${samePosition(query, row)} onHover=${{ query: row }} box=${[0, left, pitch]} />`,
    )}
    ${columns.map((column, c) => {
      const weight = activeWeight(column);
      return html`<${TokenLabel} key=${`c${c}`} at=${column} x=${right + 8} y=${y(columns, c)} anchor="start"
          highlighted=${samePosition(key, column)} onHover=${{ key: column }} box=${[right, width, pitch]} />
        ${weight > 0 && html`<text key=${`p${c}`} x=${width - 4} y=${y(columns, c)} class="weight end">${percent(weight)}</text>`}`;
    })}
  </svg>`;
}

function TokenLabel({ at, x, y, anchor, highlighted, onHover, box: [from, to, pitch] }) {
  const show = () => (hovered.value = { query: null, key: null, ...onHover });
  return html`<g onPointerEnter=${show} onPointerLeave=${onLeave}>
    <rect x=${from} y=${y - pitch / 2} width=${to - from} height=${pitch} class=${highlighted ? "back highlighted" : "back"} rx="4" />
    <text x=${x} y=${y} class="token ${at.side} ${anchor} ${highlighted ? "strong" : ""}">${shorten(at.label, narrow.value ? 12 : 16)}</text>
  </g>`;
}

function HeatMap({ matrix, rows, columns, colour }) {
  const longest = Math.max(rows.length, columns.length, 8);
  const available = narrow.value ? 225 : longest > 30 ? 640 : 470;
  const size = Math.max(9, Math.min(30, available / longest));
  const [left, top] = narrow.value ? [92, 80] : [118, 96];
  const [width, height] = [columns.length * size, rows.length * size];
  const at = (r, c) => rows[r].index * matrix.columns + columns[c].index;
  const image = useMemo(
    () => columns.length && rows.length && matrixImage(columns.length, rows.length, (i) => {
      const cell = at(Math.floor(i / columns.length), i % columns.length);
      return [colour(cell), strength(matrix.value[cell])];
    }),
    [matrix, dark.value, specialTokens.value],
  );
  const onPoint = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const cellIndex = (client, start, span, n) => Math.max(0, Math.min(n - 1, Math.floor(((client - start) / span) * n)));
    const r = cellIndex(event.clientY, box.top, box.height, rows.length);
    const c = cellIndex(event.clientX, box.left, box.width, columns.length);
    hovered.value = { query: rows[r], key: columns[c], cell: true };
    tooltip.value = {
      target: new DOMRect(event.clientX - 8, event.clientY - 8, 16, 16),
      body: html`<b class=${rows[r].side}>${rows[r].label}</b> attends to <b class=${columns[c].side}>${columns[c].label}</b>${" "}
        with weight <b class="weight">${percent(matrix.value[at(r, c)])}</b>`,
    };
  };
  const row = rows.findIndex((position) => samePosition(highlight.value.query, position));
  const column = columns.findIndex((position) => samePosition(highlight.value.key, position));
  const fontSize = `font-size:${Math.max(8, Math.min(12, size))}px`;
  const legend = Math.max(150, Math.min(width, 200));
  return html`<svg class="figure heat" viewBox="0 0 ${Math.max(left + width + 50, 330)} ${top + height + 46}" role="img"
    aria-label="Heat map of ${rows.length} by ${columns.length} weights; stronger colours have more weight">
    ${image && html`<image href=${image} x=${left} y=${top} width=${width} height=${height} preserveAspectRatio="none" class="pixels" />`}
    <rect x=${left} y=${top} width=${width} height=${height} class="frame" onPointerDown=${onPoint} onPointerMove=${onPoint} onPointerLeave=${onLeave} />
    ${row >= 0 && html`<rect class="highlight-box" x=${left} y=${top + row * size} width=${width} height=${size} />`}
    ${column >= 0 && html`<rect class="highlight-box" x=${left + column * size} y=${top} width=${size} height=${height} />`}
    ${rows.map(
      (position, r) => html`<text x=${left - 7} y=${top + (r + 0.5) * size} style=${fontSize} class="token small end ${position.side} ${r === row ? "strong" : ""}">
        ${shorten(position.label, narrow.value ? 11 : 14)}</text>`,
    )}
    ${columns.map(
      (position, c) => html`<text transform="translate(${left + (c + 0.5) * size} ${top - 8}) rotate(-55)"
        style=${fontSize} class="token small ${position.side} ${c === column ? "strong" : ""}">${shorten(position.label, narrow.value ? 11 : 14)}</text>`,
    )}
    <${Legend} x=${left} y=${top + height + 16} width=${legend} colour=${shownView.value in COMBINED ? plainColour() : headColour(shownView.value - 1)} />
  </svg>`;
}

function Legend({ x, y, width, colour }) {
  const image = useMemo(() => matrixImage(64, 1, (i) => [colour, strength(i / 63)]), [colour]);
  return html`<image href=${image} x=${x} y=${y} width=${width} height="7" preserveAspectRatio="none" />
    ${[0, 0.5, 1].map((p) => html`<text x=${x + p * width} y=${y + 18} class="tick middle">${p ? percent(p) : "0"}</text>`)}`;
}

function Grid() {
  const { layers, heads } = sizes(inspection.value, stack.value);
  return html`<div class="card heads">
    <div class="heads-title">
      <h3>All heads</h3>
      <p>${STACKS[stack.value].title} attention, one row for each layer. ${live
        ? "Choose a head to enlarge it; switch it off to see its effect on the translation."
        : "Choose a head to enlarge it. Switching heads off needs the model: open this page with transduce serve."}</p>
    </div>
    <div class="scroll" tabindex="0" role="group" aria-label="All heads">
      <${HighlightGrid}>
        ${oneTo(layers).map((l) => oneTo(heads).map((h) => html`<${Tile} key="${stack.value}.${l}.${h}" layer=${l} head=${h} />`))}
      <//>
    </div>
  </div>`;
}

/** Highlights a row and a column on every thumbnail, without redrawing the thumbnails. */
function HighlightGrid({ children }) {
  const { heads, rows, columns } = sizes(inspection.value, stack.value);
  const { rows: rowSide, columns: columnSide } = STACKS[stack.value];
  const { query, key } = highlight.value;
  const row = query?.side === rowSide ? query.position : -1;
  const column = key?.side === columnSide ? key.position + (stack.value === "decoder" ? 1 : 0) : -1;
  return html`<div class="grid ${row >= 0 ? "row" : ""} ${column >= 0 ? "column" : ""}"
    style="--heads:${heads};--rows:${rows};--columns:${columns};--row:${row};--column:${column}">${children}</div>`;
}

function Tile({ layer: l, head: h }) {
  const shown = inspection.value;
  const name = `${stack.value}.${l}.${h}`;
  const canvas = useRef();
  const { rows, columns } = sizes(shown, stack.value);
  useEffect(() => {
    const bytes = headBytes(shown, stack.value, l - 1, h - 1);
    const colour = headColour(h - 1);
    fill(canvas.current, (i) => [colour, strength(bytes[i] / 255)]);
  }, [shown, stack.value, dark.value]);
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
      <button type="button" role="switch" class="power" aria-checked=${!isOff} disabled=${!live || !countLayers(shown, "decoder")} data-head=${name}
        aria-label="Layer ${l}, head ${h}" onClick=${toggle}>${isOff ? "off" : "on"}</button>
    </div>
  </div>`;
}
