// The positional encoding: a vector for each place, and how alike the places are.

import { html } from "htm/preact";
import { useMemo } from "preact/hooks";
import { picture, poleColour } from "./colours.js";
import { Figure } from "./parts.js";
import { dark, leave, look, mark } from "./state.js";

const byteToNumber = (byte) => (byte - 128) / 127;

/** The vector of one place, as a strip of colours. */
export function PlaceStrip({ positions: { width, places, bytes }, place }) {
  if (place >= places) return null;
  const image = picture(width, 1, (i) => poleColour(byteToNumber(bytes[place * width + i])));
  return html`<img class="strip" src=${image} alt="" />`;
}

export function Places() {
  const found = look.value;
  const { width, places } = found.positions;
  const table = useMemo(() => encodingPicture(found.positions), [found.positions, dark.value]);
  const alike = useMemo(() => similarities(found.positions), [found.positions]);
  const alikePicture = useMemo(() => picture(places, places, (i) => poleColour(alike[i])), [alike, dark.value]);
  const place = markedPlace();
  const learnt = found.model.positions === "learned";
  return html`<section aria-labelledby="places">
    <h2 id="places">Where a token stands</h2>
    <p class="lead">${learnt
      ? "This model learnt a vector for each place; it is added to the token’s own."
      : "Sines and cosines of many wavelengths, added to each token’s vector, tell the model where it stands."}${" "}
      Point at a token above, or at a place here.</p>
    <div class="pair">
      <${Figure} name="positional-encoding" title="Encoding" hint="a row for each place, a column for each of ${width} dimensions">
        <${Rows} image=${table} places=${places} across=${width} shape=${[420, 300]} place=${place} axis="dimension" />
      <//>
      <${Figure} name="similarity-of-places" title="Similarity of places" hint="cosine between the vectors of two places">
        <${Rows} image=${alikePicture} places=${places} across=${places} shape=${[420, 300]} place=${place} axis="place" value=${alike} />
      <//>
    </div>
  </section>`;
}

function markedPlace() {
  const at = mark.value.looks ?? mark.value.seen;
  if (!at) return null;
  return at.side === "target" ? at.place + 1 : at.place;
}

function Rows({ image, places, across, shape: [w, h], place, axis, value }) {
  const [left, top] = [34, 6];
  const rowHeight = h / places;
  const point = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const row = Math.min(places - 1, Math.floor(((event.clientY - box.top) / box.height) * places));
    mark.value = { looks: { side: "place", place: row }, seen: null };
  };
  const marked = place !== null && place < places;
  return html`<svg class="figure" viewBox="0 0 ${left + w + 6} ${top + h + 26}" role="img"
    aria-label="${axis === "place" ? "Similarity of each place to each" : "Encoding of each place"}">
    <image href=${image} x=${left} y=${top} width=${w} height=${h} preserveAspectRatio="none" class="pixels" />
    <rect x=${left} y=${top} width=${w} height=${h} class="frame" onPointerDown=${point} onPointerMove=${point} onPointerLeave=${leave} />
    ${[0, Math.floor(places / 2), places - 1].map(
      (n) => html`<text x=${left - 6} y=${top + (n + 0.5) * rowHeight} class="tick end">${n}</text>`,
    )}
    <text x=${left + w / 2} y=${top + h + 18} class="tick middle">${axis}</text>
    <text x=${left} y=${top + h + 18} class="tick">0</text>
    <text x=${left + w} y=${top + h + 18} class="tick end">${across - 1}</text>
    ${marked && html`<rect x=${left - 1} y=${top + place * rowHeight - 1} width=${w + 2} height=${rowHeight + 2} class="marker-box" />
      <text x=${left - 6} y=${top + (place + 0.5) * rowHeight} class="tick end strong">${place}</text>`}
    ${marked && value && html`<polyline class="curve" points=${Array.from({ length: places }, (_, n) =>
      `${left + ((n + 0.5) * w) / places},${top + (h * (1 - value[place * places + n])) / 2}`).join(" ")} />`}
  </svg>`;
}

function encodingPicture({ width, places, bytes }) {
  return picture(width, places, (i) => poleColour(byteToNumber(bytes[i])));
}

function similarities({ width, places, bytes }) {
  const rows = Array.from({ length: places }, (_, n) => {
    const row = Float32Array.from(bytes.subarray(n * width, (n + 1) * width), byteToNumber);
    const norm = Math.hypot(...row) || 1;
    return row.map((x) => x / norm);
  });
  const alike = new Float32Array(places * places);
  for (let i = 0; i < places; i++)
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let k = 0; k < width; k++) sum += rows[i][k] * rows[j][k];
      alike[i * places + j] = alike[j * places + i] = sum;
    }
  return alike;
}
