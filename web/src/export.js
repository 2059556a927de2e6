// Saves a figure as an SVG file with inline styles, or as a PNG file at double resolution.

const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
  "opacity", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "image-rendering", "visibility"];

export async function saveFigure(svg, layers, name, kind) {
  const text = new XMLSerializer().serializeToString(complete(svg, layers));
  const blob = kind === "svg" ? new Blob([text], { type: "image/svg+xml" }) : await toPng(text, svg);
  saveBlob(blob, `${name}.${kind}`);
}

export function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const CARD = { width: 1200, margin: 48, large: 36, small: 22 };

/** Save a card: the caption, the text and its translation above the figure. */
export async function saveCard(figure, { caption, text, translation }, name, kind) {
  const svg = figure.querySelector("svg.figure");
  const drawn = complete(svg, figure.querySelectorAll("svg:is(.overlay, .labels)"));
  const { width, margin, large, small } = CARD;
  const { width: inner, height: innerHeight } = svg.viewBox.baseVal;
  const scale = Math.min((width - 2 * margin) / inner, 900 / innerHeight);
  const style = getComputedStyle(figure);
  const card = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  let y = margin;
  const add = (words, size, colour, weight) => {
    for (const line of wrap(words, (width - 2 * margin) / (0.54 * size))) {
      const element = document.createElementNS("http://www.w3.org/2000/svg", "text");
      Object.entries({ x: margin, y: (y += size * 1.3) - size * 0.3, fill: colour, "font-size": size, "font-weight": weight, "font-family": "system-ui, sans-serif" }).forEach((pair) => element.setAttribute(...pair));
      element.textContent = line;
      card.append(element);
    }
  };
  const colour = (property) => resolve(figure, property);
  add(caption, large, style.color, 700);
  y += 10;
  add(text, small, colour("--source"), 400);
  add(translation, small, colour("--target"), 400);
  drawn.setAttribute("x", (width - scale * inner) / 2);
  drawn.setAttribute("y", (y += 24));
  drawn.setAttribute("viewBox", `0 0 ${inner} ${innerHeight}`);
  drawn.setAttribute("width", scale * inner);
  drawn.setAttribute("height", scale * innerHeight);
  y += scale * innerHeight;
  add("Attention of a Transformer, drawn by transduce", 18, colour("--soft"), 400);
  const height = Math.round(y + margin / 2);
  Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` }).forEach((pair) => card.setAttribute(...pair));
  const background = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  Object.entries({ width, height, fill: style.backgroundColor }).forEach((pair) => background.setAttribute(...pair));
  card.prepend(background);
  card.append(drawn);
  const content = new XMLSerializer().serializeToString(card);
  saveBlob(kind === "svg" ? new Blob([content], { type: "image/svg+xml" }) : await toPng(content, { viewBox: { baseVal: { width, height } } }), `${name}.${kind}`);
}

/** The lines of a text of at most so many characters. */
function wrap(text, most) {
  const lines = [""];
  for (const word of text.split(/\s+/).filter(Boolean))
    if (lines.at(-1).length + word.length > most && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] += `${lines.at(-1) ? " " : ""}${word}`;
  return lines.filter(Boolean);
}

/** The colour of a property that depends on the theme. */
function resolve(element, property) {
  const probe = document.createElement("span");
  probe.style.color = `var(${property})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** A copy of a figure with the layers above it, which have the same coordinates, and a background. */
function complete(svg, layers) {
  const copy = withInlineStyles(svg);
  for (const layer of layers) copy.append(...withInlineStyles(layer).childNodes);
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const background = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  background.setAttribute("width", "100%");
  background.setAttribute("height", "100%");
  background.setAttribute("fill", getComputedStyle(svg.closest(".card")).backgroundColor);
  copy.prepend(background);
  return copy;
}

function withInlineStyles(svg) {
  const copy = svg.cloneNode(true);
  const [shown, copied] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  shown.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of ["class", "style", "tabindex", "role", "aria-label"]) copied[i].removeAttribute(name);
    for (const name of STYLES) copied[i].setAttribute(name, style.getPropertyValue(name));
  });
  return copy;
}

async function toPng(text, svg) {
  const { width, height } = svg.viewBox.baseVal;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
