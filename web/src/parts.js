// What several parts of the page are made of.

import { html } from "htm/preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { saveFigure } from "./export.js";
import { forget, leave, mark, tip } from "./state.js";

/** A choice of one, by pointer or arrow keys: options are [value, what to show, colour]. */
export function Choice({ name, label, options, chosen, onChoose }) {
  return html`<fieldset class="choice">
    <legend>${label}</legend>
    <div>
      ${options.map(
        ([value, shown, colour]) => html`<label key=${value} style=${colour ? `--own:${colour}` : ""} class=${colour ? "own" : ""}>
          <input type="radio" name=${name} value=${value} checked=${value === chosen} onChange=${() => onChoose(value)} />
          <span>${shown}</span>
        </label>`,
      )}
    </div>
  </fieldset>`;
}

export function Slider({ label, value, shown = value, onSlide, ...range }) {
  return html`<label class="slider">
    <span>${label}</span>
    <input type="range" value=${value} ...${range} onInput=${(event) => onSlide(Number(event.target.value))} />
    <output>${shown}</output>
  </label>`;
}

/** A picture with its title, a word of explanation, and buttons to take it along. */
export function Figure({ name, title, hint, wide, children }) {
  const figure = useRef();
  const save = (kind) => saveFigure(figure.current.querySelector("svg.figure"), name, kind);
  return html`<figure class="card" ref=${figure} data-figure=${name}>
    <figcaption>
      <div><h3>${title}</h3>${hint && html`<p>${hint}</p>`}</div>
      <div class="take">
        ${["svg", "png"].map(
          (kind) => html`<button type="button" onClick=${() => save(kind)} aria-label="Save “${title}” as ${kind.toUpperCase()}">
            ${kind.toUpperCase()}
          </button>`,
        )}
      </div>
    </figcaption>
    <div class=${wide ? "scroll" : "fit"} tabindex=${wide ? 0 : undefined} role=${wide ? "group" : undefined} aria-label=${wide ? title : undefined}>
      ${children}
    </div>
  </figure>`;
}

/** What an element needs to mark places everywhere, and to show a tip, while it is pointed at or has the focus. */
export function pointing(marks, body) {
  const show = (event) => {
    mark.value = { looks: null, seen: null, ...marks };
    tip.value = body && { at: event.currentTarget.getBoundingClientRect(), body };
  };
  return { onPointerEnter: show, onFocus: show, onPointerLeave: leave, onBlur: forget };
}

export function Tip() {
  const box = useRef();
  useLayoutEffect(() => {
    if (!tip.value) return;
    const { at } = tip.value;
    const { width, height } = box.current.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left + at.width / 2 - width / 2, innerWidth - width - 8));
    const below = at.bottom + 8;
    const top = below + height > innerHeight - 8 ? Math.max(8, at.top - height - 8) : below;
    box.current.style.transform = `translate(${left}px, ${top}px)`;
  });
  return tip.value && html`<div class="tip" role="tooltip" ref=${box}>${tip.value.body}</div>`;
}

export const same = (a, b) => a && b && a.side === b.side && a.place === b.place;
export const percent = (p) => (p >= 0.995 ? "100 %" : p >= 0.0995 ? `${Math.round(100 * p)} %` : `${(100 * p).toPrecision(2)} %`);
/** A negative number with a minus sign of its own. */
export const minus = (x, digits = 3) => x.toFixed(digits).replace("-", "−");
export const shorten = (word, length) => ([...word].length > length ? `${[...word].slice(0, length - 1).join("")}…` : word);
