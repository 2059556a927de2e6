// The picture of the path: tokens at the bottom, the layers above them, one head with its lines, and the next word at the top.

import { html } from "htm/preact";
import { divergingColour, headColour } from "./colours.js";
import { percent, shorten } from "./components.js";
import { narrow } from "./state.js";

const LETTERS = 12; // of a token
const CELLS = 6; // numbers of the positional encoding in a strip
const ease = (x) => x * x * (3 - 2 * x);

/** `shares` has the share of each stage that is over, from 0 to 1: tokens, layers, head, lines, softmax, values, word. */
export function Scene({ context, shares, label }) {
  const [tokens, layers, lit, lines, softmax, values, word] = shares.map(ease);
  const places = layout(context);
  const { width, height, keys, more, query, bottom, top } = places;
  const colour = headColour(context.head - 1);
  return html`<svg class="path-scene" viewBox="0 0 ${width} ${height}" role="img" aria-label=${label}>
    <${Layers} ...${{ context, places, layers }} />
    ${keys.map((key, n) => html`<${Key} key=${n} ...${{ one: key, n, context, places, tokens, layers, softmax, colour }} />`)}
    ${lines > 0 && keys.map((key, n) => html`<path class="path-line" pathLength="1" d=${curve(key.x, top - 40 * key.weight * softmax, query)} stroke=${colour} stroke-width=${1 + 9 * key.weight}
      stroke-opacity=${0.15 + 0.85 * Math.sqrt(key.weight)} stroke-dasharray="1" stroke-dashoffset=${1 - Math.max(0, Math.min(1, lines * keys.length * 0.6 - n * 0.6 + lines))} />`)}
    ${values > 0 && keys.filter(({ weight }) => weight > 0.02).map((key) => html`<circle class="path-value" fill=${colour} r=${3 + 9 * Math.sqrt(key.weight)} ...${along(key.x, top - 40 * key.weight, query, values)} />`)}
    <${Query} ...${{ context, places, lit, values, colour }} />
    <${HeadGrid} ...${{ context, places, lit, colour }} />
    <${Word} ...${{ context, places, word }} />
    <text x="8" y=${bottom + 42} class="tick">${context.stack === "decoder" ? "the translation so far" : "the text"}${more && "; tokens of little weight are left out"}</text>
  </svg>`;
}

/** The keys with the most weight that fit into the picture, in the order of the text, and where everything is. */
function layout({ keys: all, stack, query: { position } }) {
  const small = narrow.value;
  const [width, height, right, bottom] = small ? [380, 490, 380, 430] : [960, 430, 720, 380];
  const isQuery = ({ index }) => stack === "encoder" && index === position;
  const wide = ({ name }) => Math.max(46, 8 * Math.min(name.length, LETTERS) + 10);
  let room = right - 16;
  const chosen = [...all].sort((a, b) => isQuery(b) - isQuery(a) || b.weight - a.weight).filter((key) => (room -= wide(key)) >= 0).sort((a, b) => a.index - b.index);
  const gap = (right - 16 - chosen.reduce((sum, key) => sum + wide(key), 0)) / chosen.length;
  let end = 8;
  const keys = chosen.map((key) => ({ ...key, x: (end += wide(key) + gap) - (wide(key) + gap) / 2 }));
  const top = bottom - 190; // the upper end of the layers, where lines begin
  return { small, width, height, keys, more: all.length > keys.length, right, bottom, top, query: { x: keys.find(isQuery)?.x ?? (8 + right) / 2, y: top - (small ? 80 : 100) } };
}

const curve = (x, y, query) => `M${x} ${y}C${x} ${(y + query.y) / 2} ${query.x} ${(y + query.y) / 2} ${query.x} ${query.y + 16}`;
function along(x, y, query, t) { // a point of the curve
  const bezier = (a, b, c, d) => (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t * t * c + t ** 3 * d;
  return { cx: bezier(x, x, query.x, query.x), cy: bezier(y, (y + query.y) / 2, (y + query.y) / 2, query.y + 16) };
}

function Layers({ context: { shown, layer, stack }, places: { right, bottom, top }, layers }) {
  const count = stack === "cross" ? shown.model.encoder_layers : stack === "decoder" ? layer : Math.max(1, layer);
  const [from, to] = [bottom - 52, top + 14];
  const step = (from - to) / count;
  return Array.from({ length: count }, (_, n) => html`<rect class="path-layer" x="4" y=${from - (n + 1) * step + 2} width=${right - 8} height=${Math.max(2, step - 4)} rx="5" opacity=${0.7 + 0.3 * Math.max(0, Math.min(1, layers * count - n))} />
    ${layers * count > n && html`<text x="12" y=${from - (n + 0.5) * step} class="tick small">layer ${n + 1}</text>`}`);
}

/** A token, its vector that rises through the layers, and its weight. */
function Key({ one, n, context, places, tokens, layers, softmax, colour }) {
  const { bottom, top, keys } = places;
  const { positions } = context.shown;
  const shift = (1 - Math.max(0, Math.min(1, tokens * 3 - (2 * n) / keys.length))) * 24;
  const from = bottom - 40;
  const y = from + (top + 8 - from) * layers;
  const cell = 6;
  const strip = one.index < positions.count
    ? Array.from({ length: CELLS }, (_, i) => divergingColour((positions.bytes[one.index * positions.width + Math.floor((i * positions.width) / CELLS)] - 128) / 127)) : [];
  return html`<g opacity=${1 - shift / 24} transform="translate(0 ${shift})">
    <text x=${one.x} y=${bottom} class="middle token ${context.stack === "decoder" ? "target" : "source"} ${one.index === context.best.index ? "strong" : ""}">${shorten(one.name, LETTERS)}</text>
    ${layers > 0 && html`<path class="path-trail" d="M${one.x} ${from}V${y}" />`}
    <g transform="translate(${one.x - (CELLS * cell) / 2} ${y - 5})">
      <rect class="path-vector" width=${CELLS * cell} height="10" rx="2" /><rect class="path-mixed" width=${CELLS * cell} height="10" rx="2" opacity=${layers} />
      ${strip.map(([fill, opacity], i) => html`<rect x=${i * cell} width=${cell} height="10" fill=${fill} fill-opacity=${opacity * tokens * (1 - layers)} />`)}
    </g>
    ${softmax > 0 && html`<rect x=${one.x - 9} y=${top + 2 - 40 * one.weight * softmax} width="18" height=${Math.max(1, 40 * one.weight * softmax)} rx="2" fill=${colour} fill-opacity="0.85" />
      ${one.weight >= 0.005 && html`<text x=${one.x} y=${bottom + 20} class="middle amount" opacity=${softmax}>${percent(one.weight)}</text>`}`}
  </g>`;
}

/** What the head works for, and the mixture of values that it makes. */
function Query({ context: { queryName, stack }, places: { query, keys, right, small }, lit, values, colour }) {
  const size = small ? 110 : 150;
  const x = Math.min(right - size / 2 - 4, Math.max(size / 2 + 4, query.x));
  let from = 0;
  return html`<g opacity=${lit} transform="translate(${x} ${query.y})">
    <rect class="path-query" x=${-size / 2} y="-16" width=${size} height="32" rx="8" stroke=${colour} />
    ${values > 0 && keys.map(({ weight, index }) => {
      const start = from;
      from += weight * size;
      return html`<rect key=${index} x=${-size / 2 + start * values} y="11" width=${Math.max(0, weight * size * values - 1)} height="5" fill=${colour} />`;
    })}
    <text class="middle token strong ${stack === "encoder" ? "source" : "target"}" y="-2">${stack === "encoder" ? "" : "writes "}${shorten(queryName, 14)}</text>
  </g>`;
}

/** All heads of this attention as squares, of which one lights up. */
function HeadGrid({ context: { shown, layer, head, stack }, places: { small, right, width, top }, lit, colour }) {
  const layers = shown.tables[stack].shape[0];
  const heads = shown.model.num_heads;
  const cell = Math.min(16, (small ? 120 : 200) / heads, 96 / layers);
  const [x, y] = small ? [width - heads * cell - 8, 8] : [right + 30, top + 36];
  return html`<g opacity=${Math.max(0.6, lit)} transform="translate(${x} ${y})">
    ${Array.from({ length: layers * heads }, (_, n) => {
      const [l, h] = [Math.floor(n / heads), n % heads];
      const here = l === layer - 1 && h === head - 1 && lit > 0.3;
      return html`<rect class=${here ? "path-here" : "path-head"} x=${h * cell} y=${(layers - 1 - l) * cell} width=${cell - 2} height=${cell - 2} rx="2" fill=${here ? colour : undefined} />`;
    })}
    <text y=${layers * cell + 10} class="tick">${layers} layers of ${heads} heads</text>
  </g>`;
}

/** The translation so far, with a question mark until its next word is written, and the probabilities of that word. */
function Word({ context: { next, before, written }, places: { small, right }, word }) {
  const [x, y, size] = small ? [8, 44, 96] : [right + 24, 40, 96];
  const rows = small ? next.slice(0, 3) : next;
  const most = small ? 18 : 60;
  return html`<g>
    <g opacity=${Math.min(1, word * 4)}>${rows.map(({ name, probability, written }, n) => html`<g transform="translate(${x} ${y + n * 20})" class=${written ? "written" : ""}>
      <rect class="track" width=${size} height="14" rx="3" /><rect class="bar" width=${Math.max(1, size * probability * word)} height="14" rx="3" />
      <text x=${size + 8} y="7" class="small token">${shorten(name, 11)} ${percent(probability)}</text></g>`)}</g>
    <text x="8" y="16" class="token target path-output">${before.length > most ? before.slice(-most).replace(/^\S*/u, "…") : before}${" "}<tspan class="strong">${word > 0.5 ? written : "?"}</tspan></text>
  </g>`;
}
