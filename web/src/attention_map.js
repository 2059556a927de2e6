// The attention that is chosen, as the figures need it.

import { useMemo } from "preact/hooks";
import { headColour, plainColour } from "./colours.js";
import { shownLayer, shownView, specialTokens, stack } from "./state.js";
import { isSpecial, label, tokenAt } from "./tokens.js";
import { COMBINED, countLayers, STACKS, stackWords, weights } from "./weights.js";

export const attentionTitle = (shown) =>
  `${stackWords(shown, stack.value).title}, layer ${shownLayer.value}, ${shownView.value in COMBINED ? shownView.value : `head ${shownView.value}`}`;

/** The chosen attention of an inspection: its positions, and the weight and the colour of each pair of them. */
export function useAttention(shown) {
  const combined = shownView.value in COMBINED;
  const chosenLayer = Math.min(shownLayer.value, countLayers(shown, stack.value));
  const matrix = useMemo(
    () => weights(shown, stack.value, chosenLayer - 1, combined ? shownView.value : shownView.value - 1),
    [shown, stack.value, chosenLayer, shownView.value],
  );
  const at = (row, column) => row.index * matrix.columns + column.index;
  return {
    ...shownPositions(shown),
    shown,
    matrix,
    weight: (row, column) => matrix.value[at(row, column)],
    colour: (row, column) =>
      matrix.head ? headColour(matrix.head[at(row, column)]) : combined ? plainColour() : headColour(shownView.value - 1),
  };
}

/** The positions shown as rows and columns; the columns of the decoder begin before the first target token. */
export function shownPositions(shown) {
  const positions = (side, shift) =>
    shown[side]
      .map((_, index) => ({ side, index, position: index + shift }))
      .filter((at) => specialTokens.value || !isSpecial(tokenAt(shown, at)))
      .map((at) => ({ ...at, label: label(shown, tokenAt(shown, at)) }));
  const { rows, columns } = STACKS[stack.value];
  return { rows: positions(rows, 0), columns: positions(columns, stack.value === "decoder" ? -1 : 0) };
}
