// The page: a translator and, below it, the inspection of a sentence.

import { html, render } from "htm/preact";
import { Tooltip } from "./components.js";
import { inspected, live, startLoading } from "./data.js";
import { Examples } from "./examples.js";
import { Generate } from "./generate.js";
import { Help, helpOpen } from "./help.js";
import { LookInside } from "./look.js";
import { generates, isSite, translates } from "./site.js";
import { addShortcuts } from "./shortcuts.js";
import { busy, error, inspection, latest, lecture, syncUrl, theme } from "./state.js";
import { startTranslating, translating } from "./translate.js";
import { Translator } from "./translator.js";
import { isText } from "./weights.js";

const NEXT_THEME = { auto: "light", light: "dark", dark: "auto" };

/** The texts of a site of files, and which of them this is; 0 is the list of all. */
const site = JSON.parse(document.getElementById("site")?.textContent ?? "null");
const addressOf = (number) => (number ? `${number}.html` : "index.html");

function SiteList() {
  return html`<header><h1>transduce <span>look inside a model</span></h1></header>
    <main><ul class="site">${site.texts.map(([text, translation], n) => html`<li><a href=${addressOf(n + 1)}><b dir="auto">${text}</b><span dir="auto">${translation}</span></a></li>`)}</ul></main>`;
}

function SiteLinks() {
  const links = [[0, "All sentences"], [site.here - 1, "‹ Previous"], [site.here + 1, "Next ›"]];
  return html`<nav class="site-links" aria-label="Site">${links.filter(([number], n) => n === 0 || (number > 0 && number <= site.texts.length)).map(([number, name]) => html`<a href=${addressOf(number)}>${name}</a>`)}</nav>`;
}

function Page() {
  const model = inspection.value?.model;
  const ofText = inspection.value && isText(inspection.value);
  return html`${site && html`<${SiteLinks} />`}<header>
      <h1>transduce <span>${!translates ? "a language model" : live ? "translate and look inside" : `inspect a ${ofText ? "text" : "translation"}`}</span></h1>
      <div class="header-buttons">
        ${inspection.value && html`<button type="button" class="theme" aria-pressed=${lecture.value} onClick=${() => (lecture.value = !lecture.value)}>lecture mode</button>`}
        <button type="button" class="theme" aria-label="Keyboard shortcuts" onClick=${() => (helpOpen.value = true)}>?</button>
        <button type="button" class="theme" onClick=${() => (theme.value = NEXT_THEME[theme.value])}>theme: ${theme.value}</button>
      </div>
    </header>
    <main aria-busy=${latest.value !== inspection.value || translating.value || busy.value}>
      ${live && translates && html`<${Translator} /><${Examples} />`}
      ${generates && html`<${Generate} />`}
      ${(!live || inspected.value || error.value) && html`<${LookInside} />`}
    </main>
    <footer>
      ${model && html`<p>${modelFacts(model)}</p>`}
      ${model && html`<p>A dot before a token is the space before a word. Markers are ⟨start⟩, ⟨end⟩, the tag of the target language and ␣, the start of a word by itself.</p>`}
      <p>${isSite ? "The model runs in this browser; the text is sent nowhere. After the first visit, this page works without a network."
        : live ? "The URL of this page stores the current view: share it with anyone who can reach this server."
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

function start() {
  syncUrl();
  if (live && translates) startTranslating();
  startLoading();
  addShortcuts();
  render(html`<${Page} />`, document.getElementById("page"));
}

if (site?.here === 0) render(html`<${SiteList} />`, document.getElementById("page"));
else start();
