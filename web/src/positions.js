// The positional encoding: one vector for each position, and the similarity of positions.

import { html } from "htm/preact";
import { useMemo, useRef } from "preact/hooks";
import { divergingColour, matrixImage } from "./colours.js";
import { Figure, useVisible } from "./components.js";
import { dark, highlight, hovered, inspection, onLeave } from "./state.js";

const byteToNumber = (byte) => (byte - 128) / 127;

/** The vector of one position as a strip of colours. */
export function PositionStrip({ positions: { width, count, bytes }, position }) {
  if (position >= count) return null;
  const image = matrixImage(width, 1, (i) => divergingColour(byteToNumber(bytes[position * width + i])));
  return html`<img class="strip" src=${image} alt="" />`;
}

export function Positions() {
  const { positions, model } = inspection.value;
  const { width, count, bytes } = positions;
  const encoding = useMemo(
    () => matrixImage(width, count, (i) => divergingColour(byteToNumber(bytes[i]))),
    [positions, dark.value],
  );
  const similarity = useMemo(() => cosineSimilarities(positions), [positions]);
  const similarityImage = useMemo(() => matrixImage(count, count, (i) => divergingColour(similarity[i])), [similarity, dark.value]);
  const element = useRef();
  const position = useVisible(element).value ? highlightedPosition() : null;
  return html`<section ref=${element} id="positions-section" aria-labelledby="positions">
    <h2 id="positions">Positional encoding</h2>
    <p class="lead">${model.positions === "learned"
      ? "A learned vector for each position is added to the embedding of the token."
      : "Sines and cosines of different wavelengths, added to the embedding of each token, encode its position."}${" "}
      Point at a token above or at a position here.</p>
    <div class="pair">
      <${Figure} name="positional-encoding" title="Encoding" hint="one row for each position, one column for each of ${width} dimensions" table=${() => positionTable(positions)}>
        <${Matrix} image=${encoding} count=${count} columns=${width} position=${position} axis="dimension" label="Encoding of each position" />
      <//>
      <${Figure} name="position-similarity" title="Similarity of positions" hint="cosine similarity between the vectors of two positions"
        table=${() => ({ columns: ["position", ...range(count)], rows: range(count).map((i) => [i, ...range(count).map((j) => similarity[i * count + j].toFixed(2))]) })}>
        <${Matrix} image=${similarityImage} count=${count} columns=${count} position=${position} axis="position" value=${similarity}
          label="Similarity between all positions" />
      <//>
    </div>
  </section>`;
}

const range = (n) => Array.from({ length: n }, (_, i) => i);

/** The first dimensions of each position, relative to the largest number. */
function positionTable({ width, count, bytes }) {
  const dimensions = range(Math.min(width, 32));
  return { columns: ["position", ...dimensions], rows: range(count).map((n) => [n, ...dimensions.map((d) => byteToNumber(bytes[n * width + d]).toFixed(2))]) };
}

function highlightedPosition() {
  const at = highlight.value.query ?? highlight.value.key;
  if (!at) return null;
  return at.side === "target" ? at.position + 1 : at.position;
}

function Matrix({ image, count, columns, position, axis, value, label }) {
  const [left, top, w, h] = [34, 6, 420, 300];
  const rowHeight = h / count;
  const onPoint = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const row = Math.min(count - 1, Math.floor(((event.clientY - box.top) / box.height) * count));
    hovered.value = { query: { side: "position", position: row }, key: null };
  };
  const highlighted = position !== null && position < count;
  return html`<svg class="figure" viewBox="0 0 ${left + w + 6} ${top + h + 26}" role="img" aria-label=${label}>
    <image href=${image} x=${left} y=${top} width=${w} height=${h} preserveAspectRatio="none" class="pixels" />
    <rect x=${left} y=${top} width=${w} height=${h} class="frame" onPointerDown=${onPoint} onPointerMove=${onPoint} onPointerLeave=${onLeave} />
    ${[0, Math.floor(count / 2), count - 1].map(
      (n) => html`<text x=${left - 6} y=${top + (n + 0.5) * rowHeight} class="tick end">${n}</text>`,
    )}
    <text x=${left + w / 2} y=${top + h + 18} class="tick middle">${axis}</text>
    <text x=${left} y=${top + h + 18} class="tick">0</text>
    <text x=${left + w} y=${top + h + 18} class="tick end">${columns - 1}</text>
    ${highlighted && html`<rect x=${left - 1} y=${top + position * rowHeight - 1} width=${w + 2} height=${rowHeight + 2} class="highlight-box" />
      <text x=${left - 6} y=${top + (position + 0.5) * rowHeight} class="tick end strong">${position}</text>`}
    ${highlighted && value && html`<polyline class="curve" points=${Array.from({ length: count }, (_, n) =>
      `${left + ((n + 0.5) * w) / count},${top + (h * (1 - value[position * count + n])) / 2}`).join(" ")} />`}
  </svg>`;
}

function cosineSimilarities({ width, count, bytes }) {
  const rows = Array.from({ length: count }, (_, n) => {
    const row = Float32Array.from(bytes.subarray(n * width, (n + 1) * width), byteToNumber);
    const norm = Math.hypot(...row) || 1;
    return row.map((x) => x / norm);
  });
  const similarity = new Float32Array(count * count);
  for (let i = 0; i < count; i++)
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let k = 0; k < width; k++) sum += rows[i][k] * rows[j][k];
      similarity[i * count + j] = similarity[j * count + i] = sum;
    }
  return similarity;
}
