// Examples: each asks a question, and opens on the picture that answers it.

import { batch } from "@preact/signals";
import { html } from "htm/preact";
import { scrollToInspection } from "./data.js";
import { shownModel, sources } from "./languages.js";
import { from, layer, pinned, question, sentence, setText, stack, story, text, view } from "./state.js";

const SPIRIT = "It is in this spirit that a majority of American governments have passed new laws since 2009 making the registration or voting process more difficult.";
const LAW = "The Law will never be perfect, but its application should be just - this is what we are missing, in my opinion.";
/** `question` is answered by `telling.js`; `other` is a word that the answer is compared with. */
const EXAMPLES = [
  { title: "What is tired?", note: "“it” could be the animal or the street. Which one does a head look at?",
    text: "The animal didn't cross the street because it was too tired.", stack: "encoder", question: "it>animal", other: "street" },
  { title: "Word order", note: "The German verb comes last. Where does the model look when it writes it?",
    text: "I know that the old doctor has lent our daughter a new book.", stack: "cross", question: ">lent" },
  { title: "Long-distance dependencies", note: "Figure 3 of the paper: “making … more difficult”, several words apart.",
    text: SPIRIT, stack: "encoder", question: "making>difficult" },
  { title: "Anaphora", note: "Figure 4 of the paper: what does “its” refer to?",
    text: LAW, stack: "encoder", question: "its>Law", other: "opinion" },
  { title: "What heads do", note: "Figure 5 of the paper: some heads only look at the neighbours of a word.",
    text: LAW, stack: "encoder", question: "neighbour" },
];

function open(example) {
  batch(() => {
    from.value = ""; // it is detected, also that of the next text
    setText(example.text);
    [stack.value, layer.value, view.value, pinned.value] = [example.stack, null, null, null];
    [question.value, sentence.value, story.value] = [example.question, 0, example];
  });
  scrollToInspection();
}

/** The examples, which fold up when there is a text. */
export function Examples() {
  const known = sources.value;
  if ((known.length && !known.includes("en")) || shownModel.value?.inspect === false) return null;
  return html`<details class="examples" open=${!text.value}>
    <summary><h2>Look inside an example</h2></summary>
    <ul>${EXAMPLES.map((one) => html`<li><button type="button" onClick=${() => open(one)}>
      <b>${one.title}</b><span>${one.note}</span></button></li>`)}</ul>
  </details>`;
}
