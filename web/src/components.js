// Components and functions that several sections use.

import { html } from "htm/preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { saveFigure } from "./export.js";
import { clearHighlight, hovered, onLeave, togglePin, tooltip } from "./state.js";

/** A group of radio buttons; options are [value, label, colour]. */
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

/** A figure with its title, a hint, and buttons to download it. */
export function Figure({ name, title, hint, wide, children }) {
  const figure = useRef();
  const save = (kind) => saveFigure(figure.current.querySelector("svg.figure"), name, kind);
  return html`<figure class="card" ref=${figure} data-figure=${name}>
    <figcaption>
      <div><h3>${title}</h3>${hint && html`<p>${hint}</p>`}</div>
      <div class="downloads">
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

/** Event handlers that highlight positions in all figures and show a tooltip on hover and focus, and pin on click. */
export function highlightOnHover(positions, body, onClick = () => {}) {
  const show = (event) => {
    hovered.value = { query: null, key: null, ...positions };
    tooltip.value = body && { target: event.currentTarget.getBoundingClientRect(), body };
  };
  const click = (event) => {
    show(event); // the first tap on a touch screen
    if (positions.query || positions.key) togglePin(positions);
    onClick(event);
  };
  return { onPointerEnter: show, onFocus: show, onPointerLeave: onLeave, onBlur: clearHighlight, onClick: click };
}

export function Tooltip() {
  const element = useRef();
  useLayoutEffect(() => {
    if (!tooltip.value) return;
    const { target } = tooltip.value;
    const { width, height } = element.current.getBoundingClientRect();
    const left = Math.max(8, Math.min(target.left + target.width / 2 - width / 2, innerWidth - width - 8));
    const below = target.bottom + 8;
    const top = below + height > innerHeight - 8 ? Math.max(8, target.top - height - 8) : below;
    element.current.style.transform = `translate(${left}px, ${top}px)`;
  });
  return tooltip.value && html`<div class="tooltip" role="tooltip" ref=${element}>${tooltip.value.body}</div>`;
}

export const samePosition = (a, b) => a && b && a.side === b.side && a.position === b.position;
export const percent = (p) => (p >= 0.995 ? "100 %" : p >= 0.0995 ? `${Math.round(100 * p)} %` : `${(100 * p).toPrecision(2)} %`);
/** Format a number with a typographic minus sign. */
export const format = (x, digits = 3) => x.toFixed(digits).replace("-", "−");
export const shorten = (word, length) => ([...word].length > length ? `${[...word].slice(0, length - 1).join("")}…` : word);
