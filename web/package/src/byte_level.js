// Byte-level BPE vocabularies, as those of GPT-2 and SmolLM2: the ids that the library `tokenizers` finds.

import { mergeAll } from "./merges.js";
import { EngineError } from "./wasm.js";

export const BYTE_LEVEL = "byte_level.json";
const encoder = new TextEncoder();
const isText = (value) => typeof value === "string";
const escaped = (text) => [...text].map((character) => `\\u{${character.codePointAt(0).toString(16)}}`).join("");

export class ByteLevelTokenizer {
  addsSpace = false;
  #bytes; // the id of each byte; null if there is none
  #merges; // {rank, symbol} of two ids, by their pair as a number
  #added; // [pattern, ids] of the tokens that are found in a text as a whole
  #splits; // patterns that split a text into words, one after the other

  constructor(file) {
    const damaged = (why) => new EngineError(`${BYTE_LEVEL} is damaged: ${why}`);
    let content;
    try {
      content = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(file));
    } catch {
      throw damaged("it is no JSON");
    }
    const { pieces, bytes, merges, added, splits } = content ?? {};
    const isId = (value) => Number.isInteger(value) && value >= 0 && value < pieces.length;
    if (![pieces, bytes, merges, added, splits].every(Array.isArray) || !pieces.every(isText) || !splits.every(isText)) throw damaged("it is no vocabulary");
    if (bytes.length !== 256 || !bytes.every((id) => id === null || isId(id)) || merges.length % 3 || !merges.every(isId)) throw damaged("its merges do not fit");
    if (!added.every((group) => Array.isArray(group) && group.every((token) => Array.isArray(token) && isText(token[0]) && token[0] && isId(token[1])))) throw damaged("its added tokens do not fit");
    this.pieces = pieces; // the bytes of each token as characters from 0 to 255
    this.#bytes = bytes;
    this.#merges = new Map();
    for (let at = 0; at < merges.length; at += 3) this.#merges.set(merges[at] * pieces.length + merges[at + 1], { rank: at, symbol: merges[at + 2] });
    try {
      this.#splits = splits.map((pattern) => new RegExp(`(${pattern})`, "v"));
    } catch {
      throw damaged("it has no regular expressions");
    }
    this.#added = added.filter(({ length }) => length).map((group) => {
      const longestFirst = [...group].sort(([a], [b]) => b.length - a.length);
      return [new RegExp(`(${longestFirst.map(([text]) => escaped(text)).join("|")})`, "v"), new Map(group)];
    });
  }

  get size() {
    return this.pieces.length;
  }

  /** The ids of a text. */
  encode(text) {
    let parts = [text]; // texts, and ids of added tokens
    const cut = (split) => (parts = parts.flatMap((part) => (isText(part) ? split(part) : [part])));
    for (const [pattern, ids] of this.#added) cut((part) => part.split(pattern).map((text, n) => (n % 2 ? ids.get(text) : text)));
    for (const pattern of this.#splits) cut((part) => part.split(pattern).filter(Boolean));
    return cut((word) => {
      const ids = Array.from(encoder.encode(word), (byte) => this.#bytes[byte]).filter((id) => id !== null);
      return mergeAll(ids, (left, right) => this.#merges.get(left * this.size + right));
    });
  }

  /** The ids of a text of any length. */
  encodeDocument(text) {
    return this.encode(text);
  }

  /** The text of ids. */
  decode(ids) {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(ids.flatMap((id) => [...this.rawBytes(id)])));
  }

  /** The bytes that an id adds to a text; none for special tokens. */
  rawBytes(id) {
    return Uint8Array.from(this.pieces[id], (character) => character.charCodeAt(0));
  }
}
