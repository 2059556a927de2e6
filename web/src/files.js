// Files: a short text file fills the box; longer ones, documents and several files are translated into files, one after the other.

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

/** The files that were opened: {id, name, share, url, download, error, warning, controller}; share is null until its turn comes. */
const jobs = signal([]);
let turn = Promise.resolve(); // one file is translated at a time
let ids = 0;

const change = (id, facts) => (jobs.value = jobs.value.map((job) => (job.id === id ? { ...job, ...facts } : job)));

export function takeFiles(files) {
  const list = [...files];
  for (const file of list) {
    const job = { id: ids++, name: file.name, share: null, url: "", error: "", warning: "", controller: new AbortController() };
    jobs.value = [...jobs.value, job];
    turn = turn.then(() => job.controller.signal.aborted || translateFile(file, job, list.length === 1));
  }
}

async function translateFile(file, { id, controller: { signal } }, isOnly) {
  const note = (facts) => !signal.aborted && change(id, facts);
  const download = file.name.replace(/(\.[^.]*)?$/, (ending) => `.${shownTo.value || "translated"}${ending}`);
  try {
    if (file.size > LARGEST) throw new Error("the file is too large: split it");
    const content = await readText(file);
    if (content === null) note({ ...(await translateDocument(file, note, signal)), download });
    else if (isOnly && content.length <= Math.min(IN_BOX, server.value.characters)) {
      jobs.value = jobs.value.filter((job) => job.id !== id);
      setText(content);
    } else {
      const translated = await translateAll(content, (share) => note({ share }), signal);
      note({ share: 1, url: URL.createObjectURL(new Blob([translated], { type: "text/plain" })), download });
    }
  } catch (failure) {
    note({ error: failure.message });
  }
}

/** The content of a plain text file, or null for a document, which is left to the server. */
async function readText(file) {
  const ending = file.name.match(/\.[^.]*$/)?.[0].toLowerCase();
  const documents = server.value.formats.filter((format) => format !== ".txt");
  if (documents.includes(ending)) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return text.replaceAll("\r\n", "\n");
  } catch {
    // not UTF-8: the message below
  }
  throw new Error(`files of this format are not translated; supported are text in UTF-8 and ${documents.join(", ")}`);
}

/** The address of the translation of a document, which the server translates in the background, and what it lacks. */
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
  return { url: status.url.slice(1), warning: status.warning }; // relative, as the server may be behind a prefix
}

export function FileInput() {
  const input = useRef();
  return html`<button type="button" onClick=${() => input.current.click()}>Open files</button>
    <input type="file" hidden multiple ref=${input} aria-label="Files to translate" onChange=${(event) => {
      takeFiles(event.target.files);
      event.target.value = "";
    }} />`;
}

/** The progress and the results of files. */
export function FileJobs() {
  return jobs.value.map((job) => html`<${FileJob} key=${job.id} job=${job} />`);
}

function FileJob({ job: { id, name, share, url, download, error, warning, controller } }) {
  const close = () => {
    controller.abort();
    jobs.value = jobs.value.filter((job) => job.id !== id);
  };
  return html`<div class="file-job" role="status">
    <b>${name}</b>
    ${error ? html`<span class="error">${error}</span>` : url ? html`<a href=${url} download=${download}>Save the translation</a>
        ${warning && html`<span class="note">${warning}</span>`}`
      : share === null ? html`<span class="note">waiting …</span>`
      : html`<progress max="1" value=${share} aria-label="Translation of ${name}"></progress><span aria-hidden="true">${Math.round(100 * share)} %</span>`}
    <button type="button" aria-label="${url || error ? "Close" : "Stop"} ${name}" onClick=${close}>${url || error ? "Close" : "Stop"}</button>
  </div>`;
}
