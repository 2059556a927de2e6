// Colours that stay apart for every kind of colour vision (after Okabe and Ito), for light and dark paper.

import { dark } from "./state.js";

const HEADS = {
  light: ["#0068a8", "#c85200", "#00805f", "#b3528b", "#a87400", "#2b8fca", "#6a3d9a", "#6b6b00"],
  dark: ["#5cb6f2", "#ff9a57", "#3fcf9f", "#ee9bc8", "#f2bd45", "#9ad7ff", "#c3a1f5", "#d6d35b"],
};
const PLAIN = { light: "#2f5fbf", dark: "#86b1ff" };
const POLES = { light: ["#2166ac", "#b35806"], dark: ["#6bb1f0", "#f0a35c"] };

const paper = () => (dark.value ? "dark" : "light");
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** Of head h, counted from 0; beyond eight they come again, paler. */
export function headColour(h) {
  const colour = HEADS[paper()][h % 8];
  if (h < 8) return colour;
  const ground = dark.value ? 0 : 255;
  return `#${rgb(colour).map((c) => Math.round(c * 0.6 + ground * 0.4).toString(16).padStart(2, "0")).join("")}`;
}

export const plainColour = () => PLAIN[paper()];

/** A picture of a matrix, a pixel a cell, as a data address: `paint(i)` gives [hex colour, strength 0 to 1]. */
export function picture(width, height, paint) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  fill(canvas, paint);
  return canvas.toDataURL();
}

export function fill(canvas, paint) {
  const { width, height } = canvas;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const known = new Map();
  for (let i = 0; i < width * height; i++) {
    const [colour, strength] = paint(i);
    if (!known.has(colour)) known.set(colour, rgb(colour));
    image.data.set(known.get(colour), 4 * i);
    image.data[4 * i + 3] = Math.round(255 * strength);
  }
  context.putImageData(image, 0, 0);
}

/** Small weights must not vanish: the eye gets the square root. */
export const strength = (weight) => Math.sqrt(Math.min(1, weight));

/** Of a number from -1 to 1. */
export const poleColour = (x) => [POLES[paper()][x < 0 ? 0 : 1], Math.min(1, Math.abs(x))];
