// Colours for light and dark themes; those of the heads are distinguishable for every kind of colour vision.

import { dark } from "./state.js";

const HEADS = {
  light: ["#0098e0", "#a84000", "#306050", "#a83890", "#b09000", "#002098", "#709880", "#600810"],
  dark: ["#3868a8", "#f08818", "#20b088", "#d8a0e0", "#e0f090", "#8858f0", "#b0f8d8", "#d02848"],
};
const PLAIN = { light: "#2f5fbf", dark: "#86b1ff" };
const DIVERGING = { light: ["#2166ac", "#b35806"], dark: ["#6bb1f0", "#f0a35c"] };

const themeName = () => (dark.value ? "dark" : "light");
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** The colour of head h, counted from 0; from the ninth head on, the eight colours repeat in a paler form. */
export function headColour(h) {
  const colour = HEADS[themeName()][h % 8];
  if (h < 8) return colour;
  const background = dark.value ? 0 : 255;
  return `#${rgb(colour).map((c) => Math.round(c * 0.6 + background * 0.4).toString(16).padStart(2, "0")).join("")}`;
}

export const plainColour = () => PLAIN[themeName()];

/** A matrix as an image, one pixel per cell, as a data URL; `paint(i)` returns [hex colour, opacity 0 to 1]. */
export function matrixImage(width, height, paint) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const cache = new Map();
  for (let i = 0; i < width * height; i++) {
    const [colour, opacity] = paint(i);
    if (!cache.has(colour)) cache.set(colour, rgb(colour));
    image.data.set(cache.get(colour), 4 * i);
    image.data[4 * i + 3] = Math.round(255 * opacity);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

/** The opacity of a weight: its square root, so that small weights remain visible. */
export const strength = (weight) => Math.sqrt(Math.min(1, weight));

/** The colour and opacity of a number from -1 to 1. */
export const divergingColour = (x) => [DIVERGING[themeName()][x < 0 ? 0 : 1], Math.min(1, Math.abs(x))];
