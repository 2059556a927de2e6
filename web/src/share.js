// What can be taken away: a card with the picture and its caption, and the whole inspection as one file.

import { html } from "htm/preact";
import { useState } from "preact/hooks";
import { bytes, live } from "./data.js";
import { saveBlob, saveCard } from "./export.js";
import { currentView, inspection } from "./state.js";
import { captionText } from "./story.js";

export function Share() {
  const [reason, setReason] = useState("");
  const attempt = (save) => () => save().then(() => setReason(""), (failure) => setReason(`not saved: ${failure.message}`));
  const card = (kind) => attempt(() => {
    const { text, translation = "" } = inspection.value;
    const figure = document.querySelector("[data-figure$=-lines]");
    return saveCard(figure, { caption: captionText(), text, translation }, "attention-card", kind);
  });
  return html`<div class="share" role="group" aria-label="Share">
    <span>Share:</span>
    <button type="button" class="play" onClick=${card("png")}>picture with caption (PNG)</button>
    <button type="button" class="play" onClick=${card("svg")}>SVG</button>
    ${live && html`<button type="button" class="play" onClick=${attempt(saveFile)}>save as one HTML file</button>`}
    ${reason && html`<span class="error" role="alert">${reason}</span>`}
  </div>`;
}

/** Save the page with the inspection and the current view, as `transduce inspect` writes it. */
async function saveFile() {
  const [page, style, script] = await Promise.all(["", "static/page.css", "static/page.js"].map(async (path) => {
    const response = await fetch(path || location.pathname);
    if (!response.ok) throw new Error(`the server returned status ${response.status}`);
    return response.text();
  }));
  const data = new Uint8Array(bytes).reduce((all, byte) => all + String.fromCharCode(byte), "");
  const head = page.split("</head>")[0].replace(/<(link rel="(stylesheet|manifest)"|meta (http-equiv|name="transduce-model"))[^>]*>/g, "");
  const tag = (name, attributes, content) => `<${name}${attributes}>${content}</${name}>`;
  const scripts = [[' type="text/plain" id="inspection"', btoa(data)], [' type="text/plain" id="view"', currentView()], ["", script]];
  const body = `<div id="page"></div>${scripts.map(([attributes, content]) => tag("script", attributes, content)).join("\n")}`;
  saveBlob(new Blob([`${head}${tag("style", "", style)}</head>\n${tag("body", "", body)}\n</html>\n`], { type: "text/html" }), "look.html");
}
