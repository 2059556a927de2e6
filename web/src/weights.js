// Attention as the page shows it: one head, or all heads of a layer as one matrix.

export const STACKS = {
  encoder: { title: "Encoder", layers: "encoder_layers", rows: "source", columns: "source",
    says: "Source tokens look at each other." },
  decoder: { title: "Decoder", layers: "decoder_layers", rows: "target", columns: "target",
    says: "Each step looks back at what has been written." },
  cross: { title: "Cross", layers: "decoder_layers", rows: "target", columns: "source",
    says: "Each step, writing one token, looks at the source." },
};

export const JOINED = {
  mean: "the mean of all heads of this layer",
  max: "the highest weight of any head of this layer, in that head’s colour",
  rollout: "what reaches this layer from the input, all layers up to it multiplied, with half passed on unchanged by each",
};

export function sizes(look, stack) {
  const length = (side) => look[side].length;
  return {
    layers: look.model[STACKS[stack].layers],
    heads: look.model.num_heads,
    rows: length(STACKS[stack].rows),
    columns: length(STACKS[stack].columns),
  };
}

/** The bytes of one head, row after row. */
export function headBytes(look, stack, layer, head) {
  const { heads, rows, columns } = sizes(look, stack);
  const size = rows * columns;
  return look.attention[stack].subarray((layer * heads + head) * size, (layer * heads + head + 1) * size);
}

/** Weights of a layer as `view` (a head's number, or a name of JOINED) shows them; for max also whose each is. */
export function weights(look, stack, layer, view) {
  const { rows, columns } = sizes(look, stack);
  const found = { rows, columns, value: null, owner: null };
  if (view === "rollout") found.value = rollout(look, stack, layer);
  else if (view === "mean") found.value = mean(look, stack, layer);
  else if (view === "max") Object.assign(found, highest(look, stack, layer));
  else found.value = Float32Array.from(headBytes(look, stack, layer, view), (byte) => byte / 255);
  return found;
}

function mean(look, stack, layer) {
  const { heads, rows, columns } = sizes(look, stack);
  const value = new Float32Array(rows * columns);
  for (let head = 0; head < heads; head++)
    headBytes(look, stack, layer, head).forEach((byte, i) => (value[i] += byte / 255 / heads));
  return value;
}

function highest(look, stack, layer) {
  const { heads, rows, columns } = sizes(look, stack);
  const value = new Float32Array(rows * columns);
  const owner = new Uint8Array(rows * columns);
  for (let head = 0; head < heads; head++)
    headBytes(look, stack, layer, head).forEach((byte, i) => {
      if (byte / 255 > value[i]) [value[i], owner[i]] = [byte / 255, head];
    });
  return { value, owner };
}

/**
 * Attention rollout (Abnar and Zuidema, 2020): each sub-layer passes on half of what it got and half of what it looked at.
 * In the decoder, what reaches a step comes from the target tokens and, through cross-attention, from the source.
 */
function rollout(look, stack, layer) {
  const S = look.source.length;
  const depth = stack === "encoder" ? layer + 1 : look.model.encoder_layers;
  let source = identity(S);
  for (let n = 0; n < depth; n++) source = half(source, product(mean(look, "encoder", n), source, S, S, S));
  if (stack === "encoder") return source;
  const T = look.target.length;
  let fromTarget = identity(T);
  let fromSource = new Float32Array(T * S);
  for (let n = 0; n <= layer; n++) {
    const self = mean(look, "decoder", n);
    fromTarget = half(fromTarget, product(self, fromTarget, T, T, T));
    fromSource = half(fromSource, product(self, fromSource, T, T, S));
    fromTarget = half(fromTarget, new Float32Array(T * T));
    fromSource = half(fromSource, product(mean(look, "cross", n), source, T, S, S));
  }
  return stack === "decoder" ? fromTarget : fromSource;
}

const identity = (n) => Float32Array.from({ length: n * n }, (_, i) => (i % (n + 1) === 0 ? 1 : 0));
const half = (a, b) => a.map((x, i) => (x + b[i]) / 2);

/** (n, m) times (m, k). */
function product(a, b, n, m, k) {
  const c = new Float32Array(n * k);
  for (let i = 0; i < n; i++)
    for (let j = 0; j < m; j++) {
      const factor = a[i * m + j];
      if (factor) for (let l = 0; l < k; l++) c[i * k + l] += factor * b[j * k + l];
    }
  return c;
}
