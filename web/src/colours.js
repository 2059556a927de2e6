// Colours for light and dark paper; those of the heads stay apart for every kind of colour vision.

import { dark } from "./state.js";

const HEADS = {
  light: ["#0098e0", "#a84000", "#306050", "#a83890", "#b09000", "#002098", "#709880", "#600810"],
  dark: ["#3868a8", "#f08818", "#20b088", "#d8a0e0", "#e0f090", "#8858f0", "#b0f8d8", "#d02848"],
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
