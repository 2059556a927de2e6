// The attention that is chosen, as the figures need it.

import { useMemo } from "preact/hooks";
import { headColour, plainColour } from "./colours.js";
import { shownLayer, shownView, markers, stack } from "./state.js";
import { isMarker, label, tokenAt } from "./tokens.js";
import { COMBINED, combinedViews, countLayers, STACKS, stackWords, weights } from "./weights.js";

/** The layer and the view that are shown of an inspection: the chosen ones, or the nearest ones that its model has. */
function chosenPart(shown) {
  const view = shownView.value;
  const known = combinedViews(shown);
  return {
    layer: Math.min(shownLayer.value, countLayers(shown, stack.value)),
    view: !(view in COMBINED) ? Math.min(view, shown.model.num_heads) : known.includes(view) ? view : "max",
  };
}

export function attentionTitle(shown) {
  const { layer, view } = chosenPart(shown);
  return `${stackWords(shown, stack.value).title}, layer ${layer}, ${view in COMBINED ? view : `head ${view}`}`;
}

/** The chosen attention of an inspection: its positions, and the weight and the colour of each pair of them. */
export function useAttention(shown) {
  const { layer, view } = chosenPart(shown);
  const combined = view in COMBINED;
  const matrix = useMemo(
    () => weights(shown, stack.value, layer - 1, combined ? view : view - 1),
    [shown, stack.value, layer, view],
  );
  const at = (row, column) => row.index * matrix.columns + column.index;
  return {
    ...shownPositions(shown),
    shown,
    view,
    matrix,
    weight: (row, column) => matrix.value[at(row, column)],
    colour: (row, column) =>
      matrix.head ? headColour(matrix.head[at(row, column)]) : combined ? plainColour() : headColour(view - 1),
  };
}

/** The positions shown as rows and columns; the columns of the decoder begin before the first target token. */
export function shownPositions(shown) {
  const positions = (side, shift) =>
    shown[side]
      .map((_, index) => ({ side, index, position: index + shift }))
      .filter((at) => markers.value || !isMarker(shown, tokenAt(shown, at)))
      .map((at) => ({ ...at, label: label(shown, tokenAt(shown, at)) }));
  const { rows, columns } = STACKS[stack.value];
  return { rows: positions(rows, 0), columns: positions(columns, stack.value === "decoder" ? -1 : 0) };
}
