// Attention weights as the page shows them: one head, or all heads of a layer combined into one matrix.

export const STACKS = {
  encoder: { title: "Encoder", rows: "source", columns: "source",
    description: "Each source token attends to all source tokens." },
  decoder: { title: "Decoder", rows: "target", columns: "target",
    description: "Each decoder step attends to the target tokens before it." },
  cross: { title: "Cross", rows: "target", columns: "source",
    description: "Each decoder step, which writes one token, attends to the source tokens." },
};

/** What the self-attention of a text is called, whose weights have the place of the encoder's. */
const TEXT_STACKS = {
  language_model: { title: "Self", description: "Each token attends to itself and to the tokens before it." },
  encoder: { title: "Self", description: "Each token attends to all tokens." },
};

/** Whether the inspection is that of a text which a language model or an encoder read, not of a translation. */
export const isText = (inspection) => inspection.kind in TEXT_STACKS;

/** Title and description of an attention. */
export const stackWords = (inspection, stack) => TEXT_STACKS[inspection.kind] ?? STACKS[stack];

export const COMBINED = {
  mean: "the mean of all heads of this layer",
  max: "the maximum over all heads of this layer, in the colour of the head that has it",
  rollout: "the attention rollout: the product of the mean attention of all layers up to this one, with residual connections",
};

/** The numbers from 1 to n, by which layers and heads are counted. */
export const oneTo = (n) => Array.from({ length: n }, (_, i) => i + 1);

/** The number of layers with this attention; recurrent and convolutional models have cross-attention only, texts none. */
export const countLayers = (inspection, stack) => inspection.tables[stack].shape[0];

/** The combined views of a model; a rollout needs self-attention. */
export const combinedViews = (inspection) =>
  Object.keys(COMBINED).filter((name) => name !== "rollout" || countLayers(inspection, "encoder") > 0);

export function sizes(inspection, stack) {
  const { rows, columns } = STACKS[stack];
  return {
    layers: countLayers(inspection, stack),
    heads: inspection.model.num_heads,
    rows: inspection[rows].length,
    columns: inspection[columns].length,
  };
}

/** The weights of one head as bytes, in row-major order. */
export function headBytes(inspection, stack, layer, head) {
  const { heads, rows, columns } = sizes(inspection, stack);
  const size = rows * columns;
  return inspection.attention[stack].subarray((layer * heads + head) * size, (layer * heads + head + 1) * size);
}

/** The weights of one view of a layer (a head's index, or a key of COMBINED); for max also the head of each weight. */
export function weights(inspection, stack, layer, view) {
  const { rows, columns } = sizes(inspection, stack);
  const matrix = { rows, columns, value: null, head: null };
  if (view === "rollout") matrix.value = rollout(inspection, stack, layer);
  else if (view === "mean") matrix.value = mean(inspection, stack, layer);
  else if (view === "max") Object.assign(matrix, maximum(inspection, stack, layer));
  else matrix.value = Float32Array.from(headBytes(inspection, stack, layer, view), (byte) => byte / 255);
  return matrix;
}

function mean(inspection, stack, layer) {
  const { heads, rows, columns } = sizes(inspection, stack);
  const value = new Float32Array(rows * columns);
  for (let head = 0; head < heads; head++)
    headBytes(inspection, stack, layer, head).forEach((byte, i) => (value[i] += byte / 255 / heads));
  return value;
}

function maximum(inspection, stack, layer) {
  const { heads, rows, columns } = sizes(inspection, stack);
  const value = new Float32Array(rows * columns);
  const headOf = new Uint8Array(rows * columns);
  for (let head = 0; head < heads; head++)
    headBytes(inspection, stack, layer, head).forEach((byte, i) => {
      if (byte / 255 > value[i]) [value[i], headOf[i]] = [byte / 255, head];
    });
  return { value, head: headOf };
}

/**
 * Attention rollout (Abnar and Zuidema, 2020): the output of a sub-layer is half its input and half what it attends to.
 * The output of a decoder step depends on the target tokens and, through cross-attention, on the source tokens.
 */
function rollout(inspection, stack, layer) {
  const S = inspection.source.length;
  const depth = stack === "encoder" ? layer + 1 : inspection.model.encoder_layers;
  let source = identity(S);
  for (let n = 0; n < depth; n++) source = average(source, product(mean(inspection, "encoder", n), source, S, S, S));
  if (stack === "encoder") return source;
  const T = inspection.target.length;
  let fromTarget = identity(T);
  let fromSource = new Float32Array(T * S);
  for (let n = 0; n <= layer; n++) {
    const self = mean(inspection, "decoder", n);
    fromTarget = average(fromTarget, product(self, fromTarget, T, T, T));
    fromSource = average(fromSource, product(self, fromSource, T, T, S));
    fromTarget = average(fromTarget, new Float32Array(T * T));
    fromSource = average(fromSource, product(mean(inspection, "cross", n), source, T, S, S));
  }
  return stack === "decoder" ? fromTarget : fromSource;
}

const identity = (n) => Float32Array.from({ length: n * n }, (_, i) => (i % (n + 1) === 0 ? 1 : 0));
const average = (a, b) => a.map((x, i) => (x + b[i]) / 2);

/** The matrix product of a (n × m) and b (m × k). */
function product(a, b, n, m, k) {
  const c = new Float32Array(n * k);
  for (let i = 0; i < n; i++)
    for (let j = 0; j < m; j++) {
      const factor = a[i * m + j];
      if (factor) for (let l = 0; l < k; l++) c[i * k + l] += factor * b[j * k + l];
    }
  return c;
}
