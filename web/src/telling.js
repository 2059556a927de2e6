// The head and the pair of positions with which a picture begins: the one that a question is about, or one that tells something.

import { beginsWord, isMarker, isWord, tokenAt } from "./tokens.js";
import { headBytes, oneTo, sizes, STACKS } from "./weights.js";

const LEAST = 0.1; // a lower weight answers no question
const FAR = 2; // positions from the diagonal

/** A position as the figures have it; the columns of the decoder begin before the first target token. */
const positionOf = (stack, part, index) => ({ side: STACKS[stack][part], position: index - (stack === "decoder" && part === "columns" ? 1 : 0) });
const indices = (shown, stack, part, accept) => {
  const all = sizes(shown, stack)[part];
  return [...Array(all).keys()].filter((index) => accept(tokenAt(shown, positionOf(stack, part, index)), index));
};

/** The highest of some weights: {layer, head, query, key, weight}, counted from 1; null if there is none. */
function highest(shown, stack, rows, columns, { layer = null, head = null, accept = () => true } = {}) {
  const size = sizes(shown, stack);
  let best = null;
  for (const l of layer ? [layer] : oneTo(size.layers))
    for (const h of head ? [head] : oneTo(size.heads)) {
      const bytes = headBytes(shown, stack, l - 1, h - 1);
      for (const row of rows)
        for (const column of columns) {
          const weight = bytes[row * size.columns + column] / 255;
          if (weight > (best?.weight ?? 0) && accept(row, column)) best = { layer: l, head: h, row, column, weight };
        }
    }
  return best && { ...best, query: positionOf(stack, "rows", best.row), key: positionOf(stack, "columns", best.column) };
}

/** The tokens that begin words, or, in a script without spaces, all of letters. */
function words(shown, stack, part) {
  const beginnings = indices(shown, stack, part, (id) => beginsWord(shown, id));
  return beginnings.length > 1 ? beginnings : indices(shown, stack, part, (id) => isWord(shown, id));
}

/** The weights of the last cross-attention, as the mean of its heads, which align the translation with the text. */
export function alignment(shown) {
  const { layers, heads, rows, columns } = sizes(shown, "cross");
  const sums = new Uint32Array(rows * columns);
  for (const h of oneTo(heads)) headBytes(shown, "cross", layers - 1, h - 1).forEach((byte, i) => (sums[i] += byte));
  return { of: (row, column) => sums[row * columns + column], rows };
}

/** The step of the decoder that belongs to a source token. */
export function alignedStep(shown, column) {
  const { of, rows } = alignment(shown);
  const weights = Array.from({ length: rows }, (_, row) => of(row, column));
  return weights.indexOf(Math.max(...weights));
}

/**
 * The highest weight between words that are far from the diagonal, if there is one, of all heads or of one. Of the
 * cross-attention, a source word counts only for the word that it is aligned with: some heads look one word ahead.
 */
export function strongest(shown, stack, { layer = null, head = null } = {}) {
  const [rows, columns] = ["rows", "columns"].map((part) => words(shown, stack, part));
  const { rows: height, columns: width } = sizes(shown, stack);
  const aligned = stack === "cross" ? alignment(shown) : null;
  const fits = (row, column) => (aligned ? columns.every((other) => aligned.of(row, other) <= aligned.of(row, column)) : row !== column);
  const distance = (row, column) => Math.abs(aligned ? (row * width) / height - column : row - column);
  const far = highest(shown, stack, rows, columns, { layer, head, accept: (row, column) => distance(row, column) >= FAR && fits(row, column) });
  if (far?.weight >= LEAST) return far;
  return highest(shown, stack, rows, columns, { layer, head, accept: fits })
    ?? highest(shown, stack, indices(shown, stack, "rows", () => true), indices(shown, stack, "columns", () => true), { layer, head });
}

/** The indices of the tokens of a word, where it first occurs; none if it does not. */
function tokensOf(shown, side, word) {
  const pieces = shown[side].map((id) => (isMarker(shown, id) ? " " : shown.tokens[id][0].replaceAll("▁", " ")));
  const at = ` ${pieces.join("")} `.search(new RegExp(`(?<![\\p{L}])${word}(?![\\p{L}])`, "u")) - 1;
  if (at < 0) return [];
  let end = 0;
  return pieces.flatMap((piece, index) => {
    const start = end;
    end += piece.length;
    return start < at + word.length && at < end ? [index] : [];
  });
}

/** The head that answers a question, or null: "it>animal" asks who looks from one word to another, ">lent" who looks at a word of the source. */
export function answer(shown, stack, question, head = {}) {
  const [from, to] = question.split(">");
  const { rows, columns } = STACKS[stack];
  const keys = tokensOf(shown, columns, to);
  const queries = from ? tokensOf(shown, rows, from) : keys.map((key) => alignedStep(shown, key));
  return highest(shown, stack, queries, keys, head);
}

/** The token of the text, not a marker, that a head looks at most from a query. */
export function mostSeen(shown, stack, { layer, head, query }) {
  const row = query.position;
  return highest(shown, stack, [row], indices(shown, stack, "columns", (id) => !isMarker(shown, id)), { layer, head });
}

/** The head that looks at the token before or after each token most: {layer, head, by, weight}; the weight is a mean. */
export function neighbour(shown) {
  const { layers, heads, columns } = sizes(shown, "encoder");
  let best = null;
  for (const l of oneTo(layers))
    for (const h of oneTo(heads))
      for (const by of [-1, 1]) {
        const bytes = headBytes(shown, "encoder", l - 1, h - 1);
        const rows = indices(shown, "encoder", "rows", (id, n) => !isMarker(shown, id) && n + by >= 0 && n + by < columns && !isMarker(shown, shown.source[n + by]));
        const weight = rows.reduce((sum, n) => sum + bytes[n * columns + n + by] / 255, 0) / Math.max(1, rows.length);
        if (weight > (best?.weight ?? 0)) best = { layer: l, head: h, by, weight };
      }
  return best;
}

/** The share of the weight of a query that goes to markers. */
export function markerShare(shown, stack, { layer, head, query }) {
  const { columns } = sizes(shown, stack);
  const bytes = headBytes(shown, stack, layer - 1, head - 1);
  const all = indices(shown, stack, "columns", (id) => isMarker(shown, id));
  return all.reduce((sum, column) => sum + bytes[query.position * columns + column] / 255, 0);
}
