// The caption of the picture: which head looks from where to where, and how much.

import { html } from "htm/preact";
import { percent } from "./components.js";
import { inspection, layer, markers, pinned, question, shownLayer, shownView, stack, story, view } from "./state.js";
import { answer, markerShare, mostSeen, neighbour, strongest } from "./telling.js";
import { wordOf } from "./tokens.js";
import { countLayers, headBytes, sizes } from "./weights.js";

const LEAST = 0.1; // a head with less weight does not answer the question

/** Choose the head and the pair that answer the question of an example. */
export function answerQuestion() {
  const shown = inspection.value;
  const wanted = question.value;
  question.value = ""; // the address has the answer from now on
  if (!wanted || !countLayers(shown, stack.value)) return;
  const found = wanted === "neighbour" ? neighbour(shown) : answer(shown, stack.value, wanted);
  if (!found) return;
  [layer.value, view.value] = [found.layer, found.head];
  pinned.value = found.query ? { query: found.query, key: found.key, cell: true } : null;
}

/** The caption as text; empty if all heads of a layer are combined. */
export const captionText = () => caption().replaceAll(" %", "\u00a0%");

function caption() {
  const shown = inspection.value;
  const head = shownView.value;
  if (!shown || typeof head !== "number" || !countLayers(shown, stack.value)) return "";
  const place = `Layer ${shownLayer.value}, head ${head}`;
  const asked = story.value?.text === shown.text && story.value.stack === stack.value ? story.value : null;
  if (asked?.question === "neighbour" && !pinned.value) return neighbourText(shown, place, head);
  const pair = shownPair(shown, head);
  if (!pair) return "";
  const [from, to] = [pair.query, pair.key].map((at) => wordOf(shown, at));
  const other = asked?.other && answer(shown, stack.value, `${asked.question.split(">")[0]}>${asked.other}`, { layer: shownLayer.value, head });
  if (asked && pair.weight < LEAST) return `No head of this model looks from “${from}” to “${to}” with more than ${percent(pair.weight)}: it has not learned this.`;
  const most = mostSeen(shown, stack.value, { layer: shownLayer.value, head, query: pair.query });
  const [looked, isOther] = most?.weight > pair.weight ? [wordOf(shown, most.key), wordOf(shown, most.key) !== to] : ["", false];
  const compared = other ? `, to “${asked.other}”: ${percent(other.weight)}` : isOther ? `, but more to “${looked}”: ${percent(most.weight)}` : "";
  return stack.value === "encoder" ? `${place} looks from “${from}” to “${to}”: ${percent(pair.weight)}${compared}.`
    : `${place}: when the model writes “${from}”, it looks at “${to}”: ${percent(pair.weight)}${compared}.`;
}

function neighbourText(shown, place, head) {
  const found = neighbour(shown);
  if (found.layer !== shownLayer.value || found.head !== head) return "";
  return `${place} looks from each token to the one ${found.by < 0 ? "before" : "after"} it: ${percent(found.weight)} on average.`;
}

/** The pinned pair in the head that is shown, or the strongest pair of this head. */
function shownPair(shown, head) {
  const { query, key } = pinned.value ?? {};
  if (!query || !key) return strongest(shown, stack.value, { layer: shownLayer.value, head });
  const { columns } = sizes(shown, stack.value);
  const column = key.position + (stack.value === "decoder" ? 1 : 0);
  return { query, key, weight: headBytes(shown, stack.value, shownLayer.value - 1, head - 1)[query.position * columns + column] / 255 };
}

/** The caption, and what is hidden. */
export function Caption() {
  const shown = inspection.value;
  const head = shownView.value;
  const words = captionText();
  if (!words) return null;
  const pair = shownPair(shown, head);
  const share = pair && markerShare(shown, stack.value, { layer: shownLayer.value, head, query: pair.query });
  return html`<p class="caption" role="status">${words}</p>
    ${!markers.value && share >= 0.05 && html`<p class="note">${percent(share)} of its weight there goes to markers, which are hidden: the end of the text, the tag of a language, the start of a word.
      Heads look there when they find nothing. <button type="button" onClick=${() => (markers.value = true)}>Show markers</button></p>`}`;
}
