// The translator: languages, the text, and its translation.

import { batch } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { keyWanted, useKey } from "./api.js";
import { Alternatives } from "./alternatives.js";
import { FileJobs, takeFiles } from "./files.js";
import { betterSource, detected, detectedSource, nameOf, remark, server, shownFrom, shownModel, shownTo, sources, swapped, targets } from "./languages.js";
import { TextBox } from "./source_text.js";
import { from, model, setText, text, to } from "./state.js";
import { translation } from "./translate.js";
import { TranslationBox } from "./translation_text.js";

export function Translator() {
  const [over, setOver] = useState(false);
  useEffect(() => { // on the whole page: elsewhere, a browser would leave it and open the file
    const onDrag = (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      setOver(event.type === "dragover" || (event.type === "dragleave" && event.relatedTarget !== null));
      if (event.type === "drop") takeFiles(event.dataTransfer.files);
    };
    const types = ["dragover", "dragleave", "drop"];
    for (const type of types) addEventListener(type, onDrag);
    return () => types.forEach((type) => removeEventListener(type, onDrag));
  }, []);
  return html`<section class="translator" id="translator" aria-label="Translator">
    <${Languages} />
    <p class="remark" role="status">${betterSource.value
      ? html`The text looks ${nameOf(betterSource.value)}. <button type="button" onClick=${() => (from.value = "")}>Detect the language</button>` : remark.value}</p>
    ${keyWanted.value && html`<${KeyEntry} />`}
    <div class="boxes ${over ? "over" : ""}">
      <${TextBox} />
      <${TranslationBox} />
    </div>
    <${FileJobs} />
    <${Alternatives} />
  </section>`;
}

function Languages() {
  const select = (label, value, options, choose) => html`<select aria-label=${label} value=${value} onChange=${(event) => choose(event.target.value)}>
    ${options.map(([code, name]) => html`<option key=${code} value=${code} selected=${code === value}>${name}</option>`)}
  </select>`;
  const found = detected.value?.language && (detectedSource.value || !detected.value.available);
  const auto = found ? `${detected.value.name} (detected)` : "Detect language";
  const swap = () => {
    const { source, target } = swapped.value;
    batch(() => {
      setText(translation.value || text.value);
      [from.value, to.value] = [sources.value.length > 1 ? source : "", target];
    });
  };
  return html`<div class="languages">
    ${sources.value.length > 1
      ? select("From", shownFrom.value, [["", auto], ...sources.value.map((code) => [code, nameOf(code)])], (code) => (from.value = code))
      : html`<span class="language">${shownFrom.value ? nameOf(shownFrom.value) : "Text"}</span>`}
    <button type="button" class="swap" aria-label="Swap languages" title="Swap languages" disabled=${!swapped.value} onClick=${swap}>⇄</button>
    ${targets.value.length > 1
      ? select("To", shownTo.value, targets.value.map((code) => [code, nameOf(code)]), (code) => (to.value = code))
      : html`<span class="language">${shownTo.value ? nameOf(shownTo.value) : "Translation"}</span>`}
    ${server.value?.models.length > 1 &&
    html`<label class="model">Model ${select("Model", model.value, [["", `automatic: ${shownModel.value?.name}`], ...server.value.models.map(({ name }) => [name, name])],
      (name) => (model.value = name))}</label>`}
  </div>`;
}

function KeyEntry() {
  const [value, setValue] = useState("");
  const submit = (event) => {
    event.preventDefault();
    useKey(value.trim());
  };
  return html`<form class="key" onSubmit=${submit}>
    <label for="key">API key</label>
    <input id="key" type="password" autocomplete="current-password" value=${value} onInput=${(event) => setValue(event.target.value)} />
    <button type="submit" disabled=${!value.trim()}>Use this key</button>
    <span class="error" role="alert">${keyWanted.value}</span>
  </form>`;
}
