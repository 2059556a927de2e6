// A guided path of three minutes through one step of the decoder, with the real numbers of one head.

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { askJson } from "./api.js";
import { format, percent } from "./components.js";
import { direction } from "./languages.js";
import { inspection, pinned, shownLayer, shownStep, shownView, stack } from "./state.js";
import { decode, isSpecial, label, tokenAt } from "./tokens.js";
import { STACKS } from "./weights.js";

const SHOWN = 6; // numbers of a vector that are written out
const KEYS = 8; // positions that are listed

const stop = signal(null); // index of the stop; null: the path is closed

/** The stops; `part` is the part of the model in the diagram, `text` and `numbers` use the context of `useContext`. */
const STOPS = [
  { title: "Tokens become vectors", part: "embedding",
    text: ({ shown }) => `The sentence has ${shown.source.length} tokens. Each is looked up in a table of ${shown.model.vocab_size.toLocaleString("en")} vectors with ${shown.model.d_model} numbers, and the encoding of its position is added.` },
  { title: "Query and keys", part: "attention",
    text: ({ name, queryLabel }) => `Head ${name} makes a query of ${queryLabel} and a key of every position that it may look at. The product of query and key says how well they fit.`,
    numbers: ({ numbers, labels }) => html`<p>q = <code>${vector(numbers.query)}</code></p>
      <${Rows} columns=${["position", "key k", "q · k"]} rows=${best(numbers).map((n) => [labels[n], vector(numbers.keys[n]), format(numbers.products[n], 2)])} />` },
  { title: "Softmax", part: "attention",
    text: ({ numbers }) => `The products are divided by √${numbers.query.length} = ${format(Math.sqrt(numbers.query.length), 2)}, so that they do not grow with the length of the vectors. Softmax makes weights of them, which sum to 1.`,
    numbers: ({ numbers, labels }) => html`<${Rows} columns=${["position", "q · k / √d", "e to that power, as a share"]}
      rows=${best(numbers).map((n) => [labels[n], format(numbers.products[n] / Math.sqrt(numbers.query.length), 2), html`<span class="probability-bar wide"><span style="width:${100 * numbers.weights[n]}%"></span></span> ${percent(numbers.weights[n])}`])} />` },
  { title: "Values", part: "attention",
    text: () => "Every position also has a value. The output of the head is their sum, each multiplied by its weight: the head has copied what it looked at.",
    numbers: ({ numbers, labels }) => html`<${Rows} columns=${["position", "weight", "value v"]} rows=${best(numbers).map((n) => [labels[n], percent(numbers.weights[n]), vector(numbers.values[n])])} />
      <p>sum = <code>${vector(numbers.output)}</code></p>` },
  { title: "All heads, all layers", part: "layers",
    text: ({ shown }) => `The outputs of the ${shown.model.num_heads} heads are joined, projected by W^O and added to the input. A feed-forward network follows; both are repeated in ${shown.model.encoder_layers} layers of the encoder and ${shown.model.decoder_layers} of the decoder.` },
  { title: "The next token", part: "output",
    text: ({ shown, step }) => `After “${decode(shown, shown.target.slice(0, step)) || "…"}”, the last vector is multiplied with the vector of every token of the vocabulary. Softmax makes probabilities of the products; beam search keeps several candidates.`,
    numbers: ({ shown, step }) => html`<${Rows} columns=${["token", "probability"]} rows=${shown.next.token[step].slice(0, 5).map((id, i) => [label(shown, id), percent(Math.exp(shown.next.log_prob[step][i]))])} />` },
];

const vector = (numbers) => `(${numbers.slice(0, SHOWN).map((x) => format(x, 2)).join(", ")}${numbers.length > SHOWN ? ", …" : ""})`;
/** The positions with the highest weights, in their order. */
const best = ({ weights }) => [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, KEYS).sort((a, b) => a - b);

export function Guide() {
  if (stop.value === null)
    return html`<p class="guide-start"><button type="button" class="play" onClick=${() => (stop.value = 0)}>Guided path: how one head works, in three minutes</button></p>`;
  return html`<${Path} />`;
}

function Path() {
  const context = useContext();
  const { title, part, text, numbers } = STOPS[stop.value];
  const needsNumbers = part === "attention";
  return html`<section class="card guide" aria-labelledby="guide-title">
    <${Diagram} part=${part} />
    <div class="guide-text" aria-live="polite">
      <p class="note">stop ${stop.value + 1} of ${STOPS.length}</p>
      <h3 id="guide-title">${title}</h3>
      ${context.reason ? html`<p class="error">${context.reason}</p>` : needsNumbers && !context.numbers ? html`<p class="note">computing …</p>`
        : html`<p>${text(context)}</p>${numbers && html`<div class="guide-numbers scroll" tabindex="0" role="group" aria-label="Numbers of this stop">${numbers(context)}</div>`}`}
      <div class="guide-buttons">
        <button type="button" class="play" disabled=${stop.value === 0} onClick=${() => (stop.value -= 1)}>Back</button>
        <button type="button" class="play" disabled=${stop.value === STOPS.length - 1} onClick=${() => (stop.value += 1)}>Next</button>
        <button type="button" class="play" onClick=${() => (stop.value = null)}>Close</button>
      </div>
    </div>
  </section>`;
}

/** What the stops speak of: the chosen head, or the first one, at the chosen step or the pinned token of the source. */
function useContext() {
  const shown = inspection.value;
  const [answer, setAnswer] = useState({ numbers: null, reason: "" });
  const head = typeof shownView.value === "number" ? shownView.value : 1;
  const name = `${stack.value}.${shownLayer.value}.${head}`;
  const chosen = pinned.value?.query?.side === "source" ? pinned.value.query.position : firstWord(shown);
  const query = stack.value === "encoder" ? chosen : shownStep.value;
  useEffect(() => {
    const controller = new AbortController();
    setAnswer({ numbers: null, reason: "" });
    const output = shown.target.slice(0, -1);
    askJson("inspect/head", { body: { text: shown.text, output, head: name, query, ...direction.value }, signal: controller.signal })
      .then((numbers) => setAnswer({ numbers, reason: "" }), (failure) => !controller.signal.aborted && setAnswer({ numbers: null, reason: failure.message }));
    return () => controller.abort();
  }, [shown, name, query]);
  const { rows, columns } = STACKS[stack.value];
  const labels = shown[columns].map((_, index) => label(shown, tokenAt(shown, { side: columns, position: index - (stack.value === "decoder" ? 1 : 0) })));
  const queryLabel = rows === "target" ? `the step that writes “${label(shown, shown.target[query])}”` : `the token “${label(shown, shown.source[query])}”`;
  return { shown, step: shownStep.value, name, labels, queryLabel, ...answer };
}

const firstWord = (shown) => Math.max(0, shown.source.findIndex((id) => !isSpecial(id) && /^·?\p{L}{2}/u.test(label(shown, id))));

function Rows({ columns, rows }) {
  return html`<table><thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table>`;
}

/** The model of the paper's figure 1 with the place where the path is. */
function Diagram({ part }) {
  const { encoder_layers, decoder_layers } = inspection.value.model;
  const inEncoder = stack.value === "encoder";
  const here = { embedding: ["source"], attention: [stack.value], layers: ["encoder", "feed1", "decoder", "cross", "feed2"], output: ["output"] }[part];
  const box = (id, x, y, text) => html`<g class=${here.includes(id) ? "here" : ""}><rect x=${x} y=${y} width="96" height="26" rx="6" /><text x=${x + 48} y=${y + 13} class="middle">${text}</text></g>`;
  return html`<svg class="diagram" viewBox="0 0 250 270" role="img" aria-label="You are here: ${part}${part === "attention" ? ` of the ${inEncoder ? "encoder" : "decoder"}` : ""}">
    <path d="M58 232V96M58 96C58 60 134 110 144 126M192 232V22" />
    ${box("output", 144, 8, "softmax")}
    ${box("feed2", 144, 66, "feed forward")}${box("cross", 144, 112, "cross-attention")}${box("decoder", 144, 158, "self-attention")}${box("target", 144, 226, "embedding")}
    ${box("feed1", 10, 112, "feed forward")}${box("encoder", 10, 158, "self-attention")}${box("source", 10, 226, "embedding")}
    <text x="58" y="72" class="middle tick">encoder × ${encoder_layers}</text><text x="192" y="50" class="middle tick">decoder × ${decoder_layers}</text>
    <text x="58" y="262" class="middle tick">source</text><text x="192" y="262" class="middle tick">target so far</text>
  </svg>`;
}
