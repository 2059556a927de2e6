// Components and functions that several sections use.

import { useSignal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { saveFigure } from "./export.js";
import { item, roving } from "./roving.js";
import { clearHighlight, hovered, onLeave, resting, togglePin, tooltip } from "./state.js";

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

/** A figure with its title, a hint, buttons to download it, and its data: `table()` returns {columns, rows}. */
export function Figure({ name, title, hint, wide, table, children }) {
  const figure = useRef();
  const [open, setOpen] = useState(false);
  const save = (kind) => saveFigure(figure.current.querySelector("svg.figure"), figure.current.querySelectorAll("svg:is(.overlay, .labels)"), name, kind);
  return html`<figure class="card" ref=${figure} data-figure=${name}>
    <figcaption>
      <div><h3>${title}</h3>${hint && html`<p>${hint}</p>`}</div>
      <div class="downloads" role="toolbar" aria-label="“${title}”" ...${roving}>
        ${table && html`<button type="button" ...${item("save", true)} aria-expanded=${open} aria-label="Data of “${title}”" onClick=${() => setOpen(!open)}>Data</button>`}
        ${["svg", "png"].map(
          (kind, n) => html`<button type="button" ...${item("save", !table && n === 0)} onClick=${() => save(kind)} aria-label="Save “${title}” as ${kind.toUpperCase()}">
            ${kind.toUpperCase()}
          </button>`,
        )}
      </div>
    </figcaption>
    <div class=${wide ? "scroll" : "fit"} tabindex=${wide ? 0 : undefined} role=${wide ? "group" : undefined} aria-label=${wide ? title : undefined}>
      ${children}
    </div>
    ${open && html`<${DataTable} title=${title} ...${table()} />`}
  </figure>`;
}

/** A length of a figure as a percentage of its size. */
export const part = (length, of) => `${(100 * length) / of}%`;

/** Labels of a figure that stick to an edge of the scrolled area; their coordinates are those of the figure, for `saveFigure`. */
export function Labels({ kind, box, total, children }) {
  return html`<svg class="labels ${kind}" viewBox="${box.left} ${box.top} ${box.width} ${box.height}" aria-hidden="true"
    style="width:${part(box.width, total.width)};margin-top:${part(box.top, total.width)}">${children}</svg>`;
}

/** The numbers of a figure. */
export function DataTable({ title, columns, rows }) {
  return html`<div class="scroll data" tabindex="0" role="group" aria-label="Data of “${title}”"><table>
    <thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map(([first, ...others]) => html`<tr><th scope="row">${first}</th>${others.map((value) => html`<td>${value}</td>`)}</tr>`)}</tbody>
  </table></div>`;
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

/** `tooltip.size`, if it is known, saves measuring the tooltip, which takes longer than drawing it. */
export function Tooltip() {
  const element = useRef();
  useLayoutEffect(() => {
    if (!element.current) return;
    const { target, size } = tooltip.value;
    const [width, height] = size ?? [element.current.offsetWidth, element.current.offsetHeight];
    const left = Math.max(8, Math.min(target.left + target.width / 2 - width / 2, innerWidth - width - 8));
    const below = target.bottom + 8;
    const top = below + height > innerHeight - 8 ? Math.max(8, target.top - height - 8) : below;
    element.current.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  });
  if (!tooltip.value || resting.value) return null;
  const { body, size } = tooltip.value;
  return html`<div class="tooltip" role="tooltip" ref=${element} style=${size ? `width:${size[0]}px;height:${size[1]}px` : ""}>${body}</div>`;
}

/** A signal that tells whether an element is in the window, so that what nobody sees need not be drawn again. */
export function useVisible(element) {
  const visible = useSignal(false);
  useEffect(() => {
    const belowBar = { rootMargin: "-80px 0px 0px" }; // the bar with the sentence covers the rest
    const observer = new IntersectionObserver((entries) => (visible.value = entries.at(-1).isIntersecting), belowBar);
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return visible;
}

export const samePosition = (a, b) => a && b && a.side === b.side && a.position === b.position;
export const percent = (p) => (p >= 0.995 ? "100 %" : p >= 0.0995 ? `${Math.round(100 * p)} %` : `${(100 * p).toPrecision(2)} %`);
/** Format a number with a typographic minus sign. */
export const format = (x, digits = 3) => x.toFixed(digits).replace("-", "−");
export const shorten = (word, length) => ([...word].length > length ? `${[...word].slice(0, length - 1).join("")}…` : word);
