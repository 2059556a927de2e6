// The page: a translator and, below it, the inspection of a sentence.

import { html, render } from "htm/preact";
import { Tooltip } from "./components.js";
import { inspected, live, startLoading } from "./data.js";
import { Examples } from "./examples.js";
import { Help, helpOpen } from "./help.js";
import { LookInside } from "./look.js";
import { addShortcuts } from "./shortcuts.js";
import { busy, error, inspection, latest, lecture, syncUrl, text, theme } from "./state.js";
import { startTranslating, translating } from "./translate.js";
import { Translator } from "./translator.js";
import { isText } from "./weights.js";

const NEXT_THEME = { auto: "light", light: "dark", dark: "auto" };

function Page() {
  const model = inspection.value?.model;
  const ofText = inspection.value && isText(inspection.value);
  return html`<header>
      <h1>transduce <span>${live ? "translate and look inside" : `inspect a ${ofText ? "text" : "translation"}`}</span></h1>
      <div class="header-buttons">
        ${inspection.value && html`<button type="button" class="theme" aria-pressed=${lecture.value} onClick=${() => (lecture.value = !lecture.value)}>lecture mode</button>`}
        <button type="button" class="theme" aria-label="Keyboard shortcuts" onClick=${() => (helpOpen.value = true)}>?</button>
        <button type="button" class="theme" onClick=${() => (theme.value = NEXT_THEME[theme.value])}>theme: ${theme.value}</button>
      </div>
    </header>
    <main aria-busy=${latest.value !== inspection.value || translating.value || busy.value}>
      ${live && html`<${Translator} />`}
      ${live && !text.value && html`<${Examples} />`}
      ${(!live || inspected.value || error.value) && html`<${LookInside} />`}
    </main>
    <footer>
      ${model && html`<p>${modelFacts(model)}</p>`}
      ${model && html`<p>A dot before a token is the space before a word; ⟨start⟩ and ⟨end⟩ are special tokens.</p>`}
      <p>${live ? "The URL of this page stores the current view: share it with anyone who can reach this server."
        : ofText ? "This file is self-contained."
        : "This file is self-contained. To translate other text, force a prefix or switch heads off, use the page of transduce serve."}</p>
    </footer>
    <${Help} />
    <${Tooltip} />`;
}

function modelFacts({ encoder_layers, decoder_layers, num_heads, d_model, vocab_size, parameters }) {
  const format = (n) => n.toLocaleString("en");
  const layers = decoder_layers ? `${encoder_layers} + ${decoder_layers}` : encoder_layers;
  return `${layers} layers, ${num_heads} heads, d_model ${d_model}, a vocabulary of ${format(vocab_size)} tokens, ${format(parameters)} parameters`;
}

syncUrl();
if (live) startTranslating();
startLoading();
addShortcuts();
render(html`<${Page} />`, document.getElementById("page"));
