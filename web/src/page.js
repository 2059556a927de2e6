// The inspection page.

import { html, render } from "htm/preact";
import { Ablation } from "./ablation.js";
import { Attention } from "./attention.js";
import { Tooltip } from "./components.js";
import { live, startLoading } from "./data.js";
import { Positions } from "./positions.js";
import { Predictions } from "./predictions.js";
import { Search } from "./search.js";
import { addShortcuts } from "./shortcuts.js";
import { inspection, latest, syncUrl, theme } from "./state.js";
import { Translation } from "./translation.js";

const NEXT_THEME = { auto: "light", light: "dark", dark: "auto" };

function Page() {
  return html`<header>
      <h1>transduce <span>inspect a translation</span></h1>
      <button type="button" class="theme" onClick=${() => (theme.value = NEXT_THEME[theme.value])}>theme: ${theme.value}</button>
    </header>
    <main aria-busy=${latest.value !== inspection.value}>
      <${Translation} />
      ${inspection.value ? html`<${Ablation} /><${Attention} /><${Search} /><${Predictions} />
        ${inspection.value.positions.count > 0 && html`<${Positions} />`}` : html`<${Welcome} />`}
    </main>
    <footer>
      ${inspection.value && html`<p>${modelFacts(inspection.value.model)}</p>`}
      <p>A dot before a token is the space before a word; ⟨start⟩ and ⟨end⟩ are special tokens.</p>
      <p>Keyboard shortcuts: <kbd>/</kbd> text · <kbd>e</kbd> <kbd>d</kbd> <kbd>c</kbd> encoder, decoder, cross · <kbd>[</kbd> <kbd>]</kbd> layer ·${" "}
        <kbd>,</kbd> <kbd>.</kbd> head · <kbd>m</kbd> mean · <kbd>x</kbd> max · <kbd>r</kbd> rollout · <kbd>s</kbd> special tokens ·${" "}
        <kbd>j</kbd> <kbd>k</kbd> step</p>
      <p>${live ? "The URL of this page stores the current view: share it with anyone who can reach this server."
        : "This file is self-contained. To translate other text, force a prefix or switch heads off, use the page of transduce serve."}</p>
    </footer>
    <${Tooltip} />`;
}

function Welcome() {
  return html`<div class="welcome">
    <p>The text is translated as you type. Below the translation, this page shows the attention weights of every head, the
      beam search tree and the most probable next tokens.</p>
  </div>`;
}

function modelFacts({ encoder_layers, decoder_layers, num_heads, d_model, vocab_size, parameters }) {
  const format = (n) => n.toLocaleString("en");
  return `${encoder_layers} + ${decoder_layers} layers, ${num_heads} heads, d_model ${d_model}, a vocabulary of ${format(vocab_size)} tokens, ${format(parameters)} parameters`;
}

syncUrl();
startLoading();
addShortcuts();
render(html`<${Page} />`, document.getElementById("page"));
