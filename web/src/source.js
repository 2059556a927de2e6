// Where looks come from: the server, as one types; or this very file, if it holds one.

import { effect } from "@preact/signals";
import { beam, busy, forget, heard, look, off, prefix, searched, text, trouble } from "./state.js";
import { fromBytes } from "./wire.js";

const PAUSE = 90; // milliseconds without a keystroke before asking

const held = document.getElementById("look");
export const live = held === null;

export function keepLooking() {
  if (!live) {
    const bytes = Uint8Array.from(atob(held.textContent), (character) => character.charCodeAt(0));
    heard.value = look.value = fromBytes(bytes.buffer);
    [text.value, prefix.value, off.value] = [look.value.text, look.value.prefix, look.value.off];
    return;
  }
  let asked = new AbortController();
  effect(() => {
    const wanted = {
      text: text.value,
      beam: beam.value,
      length_penalty: searched.value,
      prefix: prefix.value,
      off: off.value,
    };
    asked.abort(); // an answer to what is no longer asked must not show
    asked = new AbortController();
    const { signal } = asked;
    if (!wanted.text.trim()) {
      forget(); // what tips and marks point at goes with the look
      [heard.value, look.value, trouble.value, busy.value] = [null, null, "", false];
      return;
    }
    busy.value = true;
    const timer = setTimeout(() => ask(wanted, signal), PAUSE);
    signal.addEventListener("abort", () => clearTimeout(timer));
  });
}

async function ask(wanted, signal) {
  try {
    const answer = await fetch("inspect/look", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(wanted),
      signal,
    });
    if (!answer.ok) throw new Error(await reason(answer));
    const found = fromBytes(await answer.arrayBuffer());
    if (signal.aborted) return;
    forget();
    [heard.value, trouble.value, busy.value] = [found, "", false];
    await painted(); // the translation must not wait for the pictures
    if (signal.aborted) return;
    forget();
    look.value = found;
  } catch (error) {
    if (signal.aborted) return;
    trouble.value = error instanceof TypeError ? "the server does not answer" : error.message;
    busy.value = false;
  }
}

const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

async function reason(answer) {
  const body = await answer.json().catch(() => ({}));
  const word = body.error ?? body.detail;
  return typeof word === "string" ? word : `the server refuses (${answer.status})`;
}
