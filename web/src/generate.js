// Continues a text with a language model, on a page without a server.

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { waiting } from "./api.js";
import { Slider } from "./components.js";
import { continueText, translates } from "./site.js";
import { text } from "./state.js";

const LENGTHS = [50, 100, 200, 500]; // tokens
const prompt = translates ? signal("") : text; // a translator on the same page has the text
const continuation = signal("");
const reason = signal("");
const [temperature, length] = [signal(0.8), signal(200)];
const running = signal(null); // the AbortController of what is being generated

async function start() {
  const controller = (running.value = new AbortController());
  [continuation.value, reason.value] = ["", ""];
  const options = { temperature: temperature.value, maxTokens: length.value, seed: Math.floor(Math.random() * 2 ** 31), signal: controller.signal };
  try {
    await continueText(prompt.value, { ...options, onText: (more) => (continuation.value += more) }, (progress) => (waiting.value = progress));
  } catch (failure) {
    if (!controller.signal.aborted) reason.value = failure.message;
  }
  running.value = null;
}

export function Generate() {
  return html`<section class="generate" aria-labelledby="generate">
    <h2 id="generate">Continue a text</h2>
    <textarea class="card" rows="4" aria-label="Beginning of the text" dir="auto" value=${prompt.value} onInput=${(event) => (prompt.value = event.target.value)}></textarea>
    <div class="controls">
      <button type="button" class="play" onClick=${() => (running.value ? running.value.abort() : start())}>${running.value ? "Stop" : "Continue"}</button>
      <${Slider} label="Temperature" min="0" max="1.5" step="0.1" value=${temperature.value} shown=${temperature.value.toFixed(1)} onSlide=${(x) => (temperature.value = x)} />
      <label class="choice">tokens <select value=${length.value} onChange=${(event) => (length.value = Number(event.target.value))}>${LENGTHS.map((n) => html`<option value=${n}>${n}</option>`)}</select></label>
    </div>
    ${waiting.value && html`<p class="note" role="status">${waiting.value}</p>`}
    ${reason.value && html`<p class="error" role="alert">${reason.value}</p>`}
    <output class="card" aria-label="Continuation" dir="auto">${continuation.value}</output>
  </section>`;
}
