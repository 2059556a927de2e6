// How tokens are displayed.

const SPECIAL = { 0: "pad", 1: "unknown", 2: "start", 3: "end" };
export const [START, END] = [2, 3];

/** The label of a token: spaces at its start are shown as ·, other spaces as ␣; null is a token that is not known. */
export function label(inspection, id) {
  if (id === null) return "?";
  if (id in SPECIAL) return `⟨${SPECIAL[id]}⟩`;
  return pieceLabel(inspection.tokens[id][0]);
}

/** The label of a piece in SentencePiece's notation. */
export function pieceLabel(piece) {
  if (piece === "</s>") return `⟨${SPECIAL[END]}⟩`;
  return piece.replace(/^▁+(?=.)/u, (spaces) => "·".repeat(spaces.length)).replaceAll("▁", "␣");
}

export const isSpecial = (id) => id in SPECIAL;

/** Whether a token is not part of the text: a special token, the tag of a language, or the start of a word by itself. */
export const isMarker = (inspection, id) => id in SPECIAL || (id !== null && /^(⟨.*⟩|▁)$/u.test(inspection.tokens[id][0]));
export const isWord = (inspection, id) => id !== null && !isMarker(inspection, id) && /\p{L}/u.test(inspection.tokens[id][0]);
/** Whether a token begins a word of several letters. */
export const beginsWord = (inspection, id) => isWord(inspection, id) && /^▁/u.test(inspection.tokens[id][0]);
/** A token without the mark of the space before it. */
export const bare = (inspection, id) => label(inspection, id).replace(/^·+/u, "");

/** The word that a token is part of, without punctuation. */
export function wordOf(inspection, { side, position }) {
  const piece = (at) => (inspection[side][at] !== undefined && !isMarker(inspection, inspection[side][at]) ? inspection.tokens[inspection[side][at]][0] : null);
  const joins = (at) => piece(at) !== null && /^[\p{L}\p{M}\p{N}]/u.test(piece(at)); // continues the word before it
  if (piece(position) === null || !/\p{L}/u.test(piece(position))) return bare(inspection, tokenAt(inspection, { side, position }));
  let [start, end] = [position, position + 1];
  while (joins(start) && piece(start - 1) !== null && /[\p{L}\p{M}\p{N}]$/u.test(piece(start - 1))) start -= 1;
  while (joins(end)) end += 1;
  return inspection[side].slice(start, end).map((id) => bare(inspection, id)).join("");
}

export function hex(inspection, id) {
  return inspection.tokens[id][1].match(/../g)?.join(" ").toUpperCase() ?? "none";
}

/** The text of token ids: their bytes, decoded as UTF-8. */
export function decode(inspection, ids) {
  const bytes = ids.filter((id) => !isSpecial(id)).map((id) => inspection.tokens[id][1]).join("");
  const text = new TextDecoder().decode(Uint8Array.from(bytes.match(/../g) ?? [], (pair) => parseInt(pair, 16)));
  return text.replace(/^ /, "");
}

/** The token id at a position of the source or the target; target position -1 is the start token. */
export const tokenAt = (inspection, { side, position }) => (position < 0 ? START : inspection[side][position]);
