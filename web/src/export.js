// Saves a figure as an SVG file with inline styles, or as a PNG file at double resolution.

const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
  "opacity", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "image-rendering", "visibility"];

export async function saveFigure(svg, layers, name, kind) {
  const text = new XMLSerializer().serializeToString(complete(svg, layers));
  const blob = kind === "svg" ? new Blob([text], { type: "image/svg+xml" }) : await toPng(text, svg);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${name}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
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
