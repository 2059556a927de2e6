// A path of half a minute through the model for the sentence that is shown: its clock, its words and its numbers.

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { askJson } from "./api.js";
import { DataTable, format, percent } from "./components.js";
import { live } from "./data.js";
import { direction } from "./languages.js";
import { Scene } from "./path_scene.js";
import { inspection, pinned, shownLayer, shownView, stack, still } from "./state.js";
import { alignedStep, strongest } from "./telling.js";
import { bare, decode, isMarker, label, tokenAt, wordOf } from "./tokens.js";
import { headBytes, sizes, STACKS } from "./weights.js";

/** The stages with their end in seconds; `text` uses the context of `pathContext`. */
const STAGES = [
  { name: "Tokens", end: 4, text: ({ shown }) => `The text becomes ${shown.source.length} tokens. Each is looked up in a table of ${shown.model.vocab_size.toLocaleString("en")} vectors of ${shown.model.d_model} numbers${shown.positions.count ? ", and the encoding of its position, the coloured strip, is added" : ""}.` },
  { name: "Layers", end: 9, text: ({ shown }) => `The vectors rise through the ${shown.model.encoder_layers} layers of the encoder. In each of them, ${shown.model.num_heads} heads let every token look at the others.` },
  { name: "One head", end: 12, text: ({ place, subject }) => `Here is one of the heads: ${place}. ${subject}` },
  { name: "Query and keys", end: 17, text: () => "It makes a query, and a key for every token. The better a key fits the query, the stronger the line." },
  { name: "Softmax", end: 21, text: ({ hidden, best }) => `Softmax makes weights of it that sum to 100 %. “${best.name}” gets ${percent(best.weight)}${hidden > 0.005 ? `; markers, which are not drawn, get ${percent(hidden)}` : ""}.` },
  { name: "Values", end: 25, text: ({ best }) => `Every token also has a value. They are mixed in these shares, so most of the mixture comes from “${best.name}”, and it is added to the vector.` },
  { name: "Next word", end: 30, text: ({ next, before, written }) => `After the last layer, the vector is compared with every token of the vocabulary. After “${before || "…"}”, ${next[0].written ? "the most probable one is" : `the search wrote “${written}”, but the most probable one is`} “${next[0].name}” with ${percent(next[0].probability)}.` },
];
const SECONDS = STAGES.at(-1).end;
const REST = 4; // seconds that a stage is shown if nothing may move
const LISTED = 8; // positions whose numbers are listed

const time = signal(SECONDS); // before it is played, the whole picture is shown
const playing = signal(false);
const withNumbers = signal(false);

const stageAt = (seconds) => Math.max(0, STAGES.findIndex(({ end }) => seconds <= end + 1e-6));

export function Path() {
  const context = pathContext(inspection.value);
  useEffect(() => (playing.value ? (still.value ? showStages() : run()) : undefined), [playing.value, still.value]);
  if (!context) return null;
  const stage = stageAt(time.value);
  const play = () => {
    if (!playing.value && time.value >= SECONDS) time.value = 0;
    playing.value = !playing.value;
  };
  const step = (by) => {
    playing.value = false;
    time.value = STAGES[(stage + by) % STAGES.length].end; // after the last stage comes the first
  };
  const shares = STAGES.map(({ end }, n) => Math.max(0, Math.min(1, (time.value - (STAGES[n - 1]?.end ?? 0)) / (end - (STAGES[n - 1]?.end ?? 0)))));
  const text = STAGES[stage].text(context);
  return html`<section id="path" aria-labelledby="path-title">
    <h2 id="path-title">The path of a word through the model</h2>
    <div class="card path">
      <${Scene} context=${context} shares=${shares} label="${STAGES[stage].name}: ${text}" />
      <p class="path-text" aria-live="polite"><b>${stage + 1}. ${STAGES[stage].name}.</b> ${text}</p>
      <div class="path-controls">
        <button type="button" class="play main" onClick=${play}>${playing.value ? "Pause" : "Play"}</button>
        <button type="button" class="play" disabled=${stage === 0} onClick=${() => step(-1)}>Back</button>
        <button type="button" class="play" onClick=${() => step(time.value < STAGES[stage].end ? 0 : 1)}>Next</button>
        <input type="range" aria-label="Time" min="0" max=${SECONDS} step="0.1" value=${time.value} aria-valuetext="${Math.round(time.value)} of ${SECONDS} seconds, ${STAGES[stage].name}"
          onInput=${(event) => ([playing.value, time.value] = [false, Number(event.target.value)])} />
        <span class="path-time">${Math.round(time.value)} / ${SECONDS} s</span>
        <label class="switch"><input type="checkbox" checked=${withNumbers.value} onChange=${(event) => (withNumbers.value = event.target.checked)} /> show numbers</label>
      </div>
      ${withNumbers.value && html`<${Numbers} context=${context} />`}
    </div>
  </section>`;
}

/** Move the clock with the frames of the browser. */
function run() {
  let last = performance.now();
  let frame = requestAnimationFrame(function tick(now) {
    time.value = Math.min(SECONDS, time.value + (now - last) / 1000);
    last = now;
    if (time.value >= SECONDS) playing.value = false;
    else frame = requestAnimationFrame(tick);
  });
  return () => cancelAnimationFrame(frame);
}

/** Show the end of each stage for a while; nothing moves. */
function showStages() {
  const next = () => {
    const stage = stageAt(time.value);
    time.value = time.value < STAGES[stage].end ? STAGES[stage].end : STAGES[Math.min(STAGES.length - 1, stage + 1)].end;
    if (time.value >= SECONDS) playing.value = false;
  };
  next();
  const timer = setInterval(next, 1000 * REST);
  return () => clearInterval(timer);
}

/** What the path is about: a head, its query and the weights of its keys, and the step of the decoder that follows. */
function pathContext(shown) {
  const name = stack.value;
  const chosen = typeof shownView.value === "number" ? { layer: shownLayer.value, head: shownView.value } : strongest(shown, name, { layer: shownLayer.value });
  if (!chosen) return null;
  const { layer, head } = chosen;
  const { rows, columns: side } = STACKS[name];
  const pinnedQuery = pinned.value?.query?.side === rows ? pinned.value.query : null;
  const query = pinnedQuery ?? strongest(shown, name, { layer, head })?.query;
  if (!query) return null;
  const { columns } = sizes(shown, name);
  const row = headBytes(shown, name, layer - 1, head - 1).subarray(query.position * columns, (query.position + 1) * columns);
  const shift = name === "decoder" ? 1 : 0;
  const keys = Array.from(row, (byte, index) => ({ index, id: tokenAt(shown, { side, position: index - shift }), weight: byte / 255 }))
    .filter(({ id, index }) => !isMarker(shown, id) && (name !== "decoder" || index <= query.position))
    .map((key) => ({ ...key, name: bare(shown, key.id) }));
  if (!keys.length) return null;
  const best = keys.reduce((first, key) => (key.weight > first.weight ? key : first));
  const step = rows === "target" ? query.position : alignedStep(shown, query.position);
  const token = wordOf(shown, query);
  const kind = { encoder: "self-attention of the encoder", decoder: "self-attention of the decoder", cross: "attention of the decoder to the source" }[name];
  return {
    shown, layer, head, query, step, keys, best, hidden: 1 - keys.reduce((sum, { weight }) => sum + weight, 0), stack: name, queryName: token,
    place: `head ${head} of layer ${layer} in the ${kind}`,
    subject: rows === "target" ? `It works for the step that writes “${token}”.` : `It works for the token “${token}”.`,
    before: decode(shown, shown.target.slice(0, step)),
    written: bare(shown, shown.target[step]),
    next: shown.next.token[step].slice(0, 5).map((id, n) => ({ name: bare(shown, id), probability: Math.exp(shown.next.log_prob[step][n]), written: id === shown.target[step] })),
  };
}

const SHOWN = 6; // numbers of a vector that are written out
const vector = (numbers) => `(${numbers.slice(0, SHOWN).map((x) => format(x, 2)).join(", ")}${numbers.length > SHOWN ? ", …" : ""})`;

/** Query, keys, products, weights and values of the head, which the server computes; a file has the weights only. */
function Numbers({ context: { shown, stack: name, layer, head, query, keys } }) {
  const [{ numbers, reason }, setAnswer] = useState({ numbers: null, reason: "" });
  const headName = `${name}.${layer}.${head}`;
  useEffect(() => {
    if (!live) return;
    const controller = new AbortController();
    setAnswer({ numbers: null, reason: "" });
    askJson("inspect/head", { body: { text: shown.text, output: shown.target.slice(0, -1), head: headName, query: query.position, ...direction.value }, signal: controller.signal })
      .then((answer) => setAnswer({ numbers: answer, reason: "" }), (failure) => !controller.signal.aborted && setAnswer({ numbers: null, reason: failure.message }));
    return () => controller.abort();
  }, [shown, headName, query.position]);
  if (reason) return html`<p class="error">${reason}</p>`;
  const listed = [...keys].sort((a, b) => b.weight - a.weight).slice(0, LISTED).sort((a, b) => a.index - b.index);
  if (!live) return html`<${DataTable} title="the head" columns=${["token", "weight"]} rows=${listed.map((key) => [label(shown, key.id), percent(key.weight)])} />`;
  if (!numbers) return html`<p class="note" role="status">computing …</p>`;
  const root = Math.sqrt(numbers.query.length);
  return html`<div class="path-numbers">
    <p>query q = <code>${vector(numbers.query)}</code></p>
    <${DataTable} title="the head" columns=${["token", "key k", "q · k", `q · k / √${numbers.query.length}`, "softmax", "value v"]}
      rows=${listed.map(({ id, index }) => [label(shown, id), vector(numbers.keys[index]), format(numbers.products[index], 2), format(numbers.products[index] / root, 2), percent(numbers.weights[index]), vector(numbers.values[index])])} />
    <p>sum of the values, each multiplied by its weight = <code>${vector(numbers.output)}</code></p>
  </div>`;
}
