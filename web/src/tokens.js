// Tokens as people read them.

const MARKERS = { 0: "pad", 1: "unknown", 2: "start", 3: "end" };
export const [START, END] = [2, 3];

/** How a token is written on the page; a space shows as ␣ only where nothing else would show. */
export function label(look, id) {
  if (id in MARKERS) return `⟨${MARKERS[id]}⟩`;
  const piece = look.tokens[id][0];
  return piece.replace(/^▁+(?=.)/u, (spaces) => "·".repeat(spaces.length)).replaceAll("▁", "␣");
}

export const isMarker = (id) => id in MARKERS;

export function hex(look, id) {
  return look.tokens[id][1].match(/../g)?.join(" ").toUpperCase() ?? "none";
}

/** The text of ids: their bytes, read as UTF-8. */
export function spell(look, ids) {
  const bytes = ids.filter((id) => !isMarker(id)).map((id) => look.tokens[id][1]).join("");
  const text = new TextDecoder().decode(Uint8Array.from(bytes.match(/../g) ?? [], (pair) => parseInt(pair, 16)));
  return text.replace(/^ /, "");
}

/** The id at a place: of the source, or of what a target step wrote; target place -1 is the start. */
export const tokenAt = (look, { side, place }) => (place < 0 ? START : look[side][place]);
