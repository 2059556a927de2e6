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
