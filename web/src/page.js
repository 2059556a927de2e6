// Look inside a translation.

import { html, render } from "htm/preact";
import { Attention } from "./attention.js";
import { listenToKeys } from "./keys.js";
import { Next } from "./next.js";
import { Tip } from "./parts.js";
import { Places } from "./places.js";
import { Search } from "./search.js";
import { keepLooking, live } from "./source.js";
import { heard, keepAddress, look, theme } from "./state.js";
import { Without } from "./without.js";
import { Words } from "./words.js";

const THEMES = { auto: "light", light: "dark", dark: "auto" };

function Page() {
  return html`<header>
      <h1>transduce <span>look inside a translation</span></h1>
      <button type="button" class="theme" onClick=${() => (theme.value = THEMES[theme.value])}>${theme.value} paper</button>
    </header>
    <main aria-busy=${heard.value !== look.value}>
      <${Words} />
      ${look.value ? html`<${Without} /><${Attention} /><${Search} /><${Next} /><${Places} />` : html`<${Welcome} />`}
    </main>
    <footer>
      ${look.value && html`<p>${modelFacts(look.value.model)}</p>`}
      <p>A dot before a token is the space before a word; ⟨start⟩ and ⟨end⟩ are markers.</p>
      <p>Keys: <kbd>/</kbd> text · <kbd>e</kbd> <kbd>d</kbd> <kbd>c</kbd> attention · <kbd>[</kbd> <kbd>]</kbd> layer ·${" "}
        <kbd>,</kbd> <kbd>.</kbd> head · <kbd>m</kbd> mean · <kbd>x</kbd> max · <kbd>r</kbd> rollout · <kbd>s</kbd> special tokens ·${" "}
        <kbd>j</kbd> <kbd>k</kbd> step</p>
      <p>${live ? "The address of this page holds what you see: share it with whoever can reach this server."
        : "This file holds all it shows. To type other text, force a beginning or switch heads off, open the page of transduce serve."}</p>
    </footer>
    <${Tip} />`;
}

function Welcome() {
  return html`<div class="welcome">
    <p>As you type, the translation appears, and below it how it came about: what each attention head looks at, the tree that
      beam search grows, the words that almost came next.</p>
  </div>`;
}

function modelFacts({ encoder_layers, decoder_layers, num_heads, d_model, vocab_size, parameters }) {
  const written = (n) => n.toLocaleString("en");
  return `${encoder_layers} + ${decoder_layers} layers, ${num_heads} heads, d_model ${d_model}, a vocabulary of ${written(vocab_size)}, ${written(parameters)} parameters`;
}

keepAddress();
keepLooking();
listenToKeys();
render(html`<${Page} />`, document.getElementById("page"));
