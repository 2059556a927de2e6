// The files of a site: fetched in pieces, each checked by its SHA-256 before it is used.

import { EngineError } from "./wasm.js";

const MOST = 2 ** 31; // bytes of a file
const NAME = /^[\w.-]{1,100}$/;
export const MANIFEST = "manifest.json";

async function fetchBytes(url, { signal, onBytes, cache } = {}) {
  let response;
  try {
    response = await (url.protocol === "file:" ? readFile(url) : fetch(url, { signal, cache }));
  } catch (failure) {
    signal?.throwIfAborted();
    throw new EngineError(`${url} cannot be loaded: ${failure.message}`);
  }
  if (!response.ok) throw new EngineError(`${url} cannot be loaded: the server returned status ${response.status}`);
  const chunks = [];
  let size = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    size += value.length;
    onBytes?.(value.length);
  }
  const bytes = new Uint8Array(size);
  chunks.reduce((at, chunk) => (bytes.set(chunk, at), at + chunk.length), 0);
  return bytes;
}

async function readFile(url) {
  const { readFile: read } = await import("node:fs/promises");
  return new Response(await read(url));
}

async function digest(bytes) {
  if (!globalThis.crypto?.subtle) throw new EngineError("files can only be checked on a page that is served over HTTPS, or by this computer (localhost)");
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The manifest of a site; an error if it is not one. */
export async function readManifest(folder, signal) {
  const bytes = await fetchBytes(new URL(MANIFEST, folder), { signal });
  let manifest;
  try {
    manifest = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    manifest = null;
  }
  const isPiece = (piece) => NAME.test(piece?.name) && Number.isInteger(piece.size) && piece.size > 0 && /^[0-9a-f]{64}$/.test(piece.sha256);
  const isFile = (file) => file?.size <= MOST && Array.isArray(file.pieces) && file.pieces.every(isPiece) && file.pieces.reduce((sum, { size }) => sum + size, 0) === file.size;
  if (manifest?.format !== 1 || typeof manifest.files !== "object" || !manifest.files || !Object.values(manifest.files).every(isFile) || !Array.isArray(manifest.directions))
    throw new EngineError(`${new URL(MANIFEST, folder)} is damaged, or of another version of transduce; export the model again`);
  return manifest;
}

/** The content of a file. */
export async function readSiteFile(folder, manifest, name, { signal, onBytes } = {}) {
  const file = manifest.files[name];
  if (!file) throw new EngineError(`${new URL(MANIFEST, folder)} has no file ${name}; export the model again`);
  let bytes;
  try {
    bytes = new Uint8Array(file.size);
  } catch {
    throw new EngineError(`${name} has ${Math.ceil(file.size / 2 ** 20)} MiB, more than there is memory for`);
  }
  let at = 0;
  for (const piece of file.pieces) {
    const url = new URL(piece.name, folder);
    const isGood = async (content) => content.length === piece.size && (await digest(content)) === piece.sha256;
    let content = await fetchBytes(url, { signal, onBytes });
    if (!(await isGood(content))) content = await fetchBytes(url, { signal, cache: "reload" }); // the browser's copy may be damaged
    if (!(await isGood(content)))
      throw new EngineError(`${url} is damaged: it is not the file that was exported; copy the folder to the server again, then reload`);
    bytes.set(content, at);
    at += content.length;
  }
  return bytes;
}
