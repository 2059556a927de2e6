// Files: a short text file fills the box; a longer one, or a document, is translated into a file.

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { useRef } from "preact/hooks";
import { askJson, sleep } from "./api.js";
import { direction, server, shownFrom, shownTo } from "./languages.js";
import { setText } from "./state.js";
import { translateAll } from "./translate.js";

const IN_BOX = 5000; // characters that still fit into the box
const LARGEST = 20_000_000; // bytes
const POLL = 300; // milliseconds between questions about the progress of a document

/** The file in progress: {name, share, url, error}. */
const job = signal(null);
let controller = new AbortController();

export async function takeFiles(files) {
  const [file] = files;
  if (!file) return;
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  const note = (facts) => !signal.aborted && (job.value = { name: file.name, share: null, url: "", error: "", ...facts });
  try {
    if (file.size > LARGEST) throw new Error("the file is too large: split it");
    const content = await readText(file);
    if (content === null) note({ url: await translateDocument(file, note, signal), download: translatedName(file.name) });
    else if (content.length <= Math.min(IN_BOX, server.value.characters)) {
      job.value = null;
      setText(content);
    } else {
      const translated = await translateAll(content, (share) => note({ share }), signal);
      note({ share: 1, url: URL.createObjectURL(new Blob([translated], { type: "text/plain" })), download: translatedName(file.name) });
    }
  } catch (failure) {
    note({ error: failure.message });
  }
}

/** The content of a plain text file, or null for other files, which are left to the server. */
async function readText(file) {
  const document = /\.(docx|odt|odp|pptx|epub|x?html?|xlf|xliff|sdlxliff|tmx|pot?|srt|vtt|md|markdown)$/i;
  if (document.test(file.name)) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text.replaceAll("\r\n", "\n");
  } catch {
    throw new Error("this is neither a UTF-8 text file nor a document");
  }
}

/** The address of the translation of a document, which the server translates in the background. */
async function translateDocument(file, note, signal) {
  note({ share: 0 });
  const form = new FormData();
  form.append("file", file);
  form.append("source", shownFrom.value || "auto");
  form.append("target", shownTo.value || direction.value.model);
  let status = await askJson("v1/documents", { body: form, signal });
  const path = `v1/documents/${status.id}`;
  signal.addEventListener("abort", () => fetch(path, { method: "DELETE" }));
  while (status.state === "running") {
    note({ share: status.done / Math.max(1, status.total) });
    await sleep(POLL, signal);
    status = await askJson(path, { signal });
  }
  if (status.error) throw new Error(status.error);
  return status.url.slice(1); // relative, as the server may be behind a prefix
}

const translatedName = (name) => name.replace(/(\.[^.]*)?$/, (ending) => `.${shownTo.value || "translated"}${ending}`);

export function FileInput() {
  const input = useRef();
  return html`<button type="button" onClick=${() => input.current.click()}>Open a file</button>
    <input type="file" hidden ref=${input} aria-label="File to translate" onChange=${(event) => {
      takeFiles(event.target.files);
      event.target.value = "";
    }} />`;
}

/** The progress and the result of a file. */
export function FileJob() {
  if (!job.value) return null;
  const { name, share, url, download, error } = job.value;
  const close = () => {
    controller.abort();
    job.value = null;
  };
  return html`<div class="file-job" role="status">
    <b>${name}</b>
    ${error ? html`<span class="error">${error}</span>` : url ? html`<a href=${url} download=${download}>Save the translation</a>`
      : html`<progress max="1" value=${share ?? undefined} aria-label="Translation of ${name}"></progress><span aria-hidden="true">${Math.round(100 * share)} %</span>`}
    <button type="button" onClick=${close}>${url || error ? "Close" : "Stop"}</button>
  </div>`;
}
