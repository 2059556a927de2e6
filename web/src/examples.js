// Prepared views for the empty page: each has one sentence on what to see.

import { batch } from "@preact/signals";
import { html } from "htm/preact";
import { scrollToInspection } from "./data.js";
import { sources } from "./languages.js";
import { from, layer, note, pinWord, sentence, setText, stack, view } from "./state.js";

const SPIRIT = "It is in this spirit that a majority of American governments have passed new laws since 2009 making the registration or voting process more difficult.";
const LAW = "The Law will never be perfect, but its application should be just - this is what we are missing, in my opinion.";
const EXAMPLES = [
  { title: "Long-distance dependencies", note: "Figure 3 of the paper: which heads look from “making” to “more difficult”, nine words away?",
    text: SPIRIT, stack: "encoder", layer: 5, view: "max", pin: "making" },
  { title: "Anaphora", note: "Figure 4: where do the heads of one layer look from “its”, and do some find what it refers to?",
    text: LAW, stack: "encoder", layer: 5, view: "max", pin: "its" },
  { title: "What heads do", note: "Figure 5: two heads of a layer read the same sentence; one looks at neighbours, another far away.",
    text: LAW, stack: "encoder", layer: 5, view: 1 },
  { title: "What is tired?", note: "“it” could be the animal or the street: ask who looks from “it” to “animal”, then compare with “too wide”.",
    text: "The animal didn't cross the street because it was too tired.", stack: "encoder", layer: 4, view: "max", pin: "it" },
  { title: "Word order", note: "The German verb comes last: the lines of the cross-attention cross each other there.",
    text: "I know that the old doctor has lent our daughter a new book.", stack: "cross", layer: null, view: "max" },
];

/** Show an example. */
function open(example) {
  batch(() => {
    from.value = ""; // it is detected, also that of the next text
    setText(example.text);
    [stack.value, layer.value, view.value, pinWord.value, sentence.value, note.value] = [example.stack, example.layer, example.view, example.pin ?? "", 0, example.note];
  });
  scrollToInspection();
}

export function Examples() {
  const known = sources.value;
  if (known.length && !known.includes("en")) return null;
  return html`<section class="examples" aria-labelledby="examples">
    <h2 id="examples">Look inside a translation</h2>
    <ul>${EXAMPLES.map((one) => html`<li><button type="button" onClick=${() => open(one)}>
      <b>${one.title}</b><span>${one.note}</span></button></li>`)}</ul>
  </section>`;
}
