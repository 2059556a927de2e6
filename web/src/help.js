// The list of keyboard shortcuts, which can be switched off.

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useRef } from "preact/hooks";
import { isSite, translates } from "./site.js";

const STORED = "transduce-shortcuts";
export const helpOpen = signal(false);
export const shortcutsOn = signal(stored() !== "off");

const LIST = [
  [["/"], "go to the text"],
  [["?"], "this list"],
  [["Esc"], "close a list, or remove the highlight"],
  [["e", "d", "c"], "encoder, decoder, cross-attention"],
  [["[", "]"], "previous, next layer"],
  [[",", "."], "previous, next head"],
  [["m", "x", "r"], "mean, maximum, rollout of all heads"],
  [["s"], "show or hide markers"],
  [["j", "k"], "previous, next step of the decoder"],
  [["l"], "lecture mode"],
  [["← ↑ → ↓"], "move within tokens, heads, predictions, the tree"],
];

const LACKS = "Unlike transduce translate, this page reads no documents other than plain text, does not write numbers and units as the target language does, and gives abbreviations and CAPITALS to the model as they are.";

export function Help() {
  const dialog = useRef();
  useEffect(() => {
    if (helpOpen.value) dialog.current.showModal();
  }, [helpOpen.value]);
  if (!helpOpen.value) return null;
  return html`<dialog class="help" ref=${dialog} aria-labelledby="help-title" onClose=${() => (helpOpen.value = false)}>
    <div class="help-head"><h2 id="help-title">Keyboard shortcuts</h2><button type="button" aria-label="Close" onClick=${() => dialog.current.close()}>×</button></div>
    <label class="switch"><input type="checkbox" checked=${shortcutsOn.value} onChange=${(event) => switchShortcuts(event.target.checked)} /> single-key shortcuts are on</label>
    <dl>${LIST.map(([keys, meaning]) => html`<dt>${keys.map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${meaning}</dd>`)}</dl>
    ${isSite && translates && html`<p>${LACKS}</p>`}
  </dialog>`;
}

function switchShortcuts(on) {
  shortcutsOn.value = on;
  try {
    localStorage.setItem(STORED, on ? "on" : "off");
  } catch {
    // without storage, the choice holds until the page is closed
  }
}

function stored() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null;
  }
}
