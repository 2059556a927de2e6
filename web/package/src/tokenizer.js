// SentencePiece vocabularies: pieces of a text by BPE, by the unigram model or by characters, as the library finds them.

import { mergeAll } from "./merges.js";
import { describeSymbol, escape } from "./text.js";
import { EngineError } from "./wasm.js";

const SPACE = "\u2581";
const [UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE] = [2, 3, 4, 5, 6]; // types of pieces; 1 is a normal one
const [UNIGRAM, BPE, CHARACTERS] = [1, 2, 4]; // types of models
const encoder = new TextEncoder();

/** The fields of a protocol buffer, each [number, content]: a number, or bytes. */
function* fieldsOf(message) {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = message[at++];
      if (byte === undefined || factor > 2 ** 63) throw new EngineError("tokenizer.model is damaged");
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = varint();
    const [number, wire] = [Math.floor(tag / 8), tag % 8];
    if (wire === 0) yield [number, varint()];
    else {
      const length = wire === 2 ? varint() : wire === 5 ? 4 : wire === 1 ? 8 : -1;
      if (length < 0 || at + length > message.length) throw new EngineError("tokenizer.model is damaged");
      yield [number, message.subarray(at, (at += length))];
    }
  }
}
const contents = (message) => Object.fromEntries(fieldsOf(message));
const float = (bytes) => (bytes ? new DataView(bytes.buffer, bytes.byteOffset).getFloat32(0, true) : 0);

export class Tokenizer {
  constructor(model) {
    const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    this.pieces = [];
    let [trainer, normalizer] = [{}, {}];
    try {
      for (const [number, content] of fieldsOf(model))
        if (number === 1) {
          const piece = contents(content);
          this.pieces.push({ text: utf8.decode(piece[1]), score: float(piece[2]), type: piece[3] ?? 1 });
        } else if (number === 2) trainer = contents(content);
        else if (number === 3) normalizer = contents(content);
    } catch (failure) {
      throw failure instanceof EngineError ? failure : new EngineError("tokenizer.model is damaged: a piece is no text");
    }
    this.type = trainer[3] ?? UNIGRAM;
    if (![UNIGRAM, BPE, CHARACTERS].includes(this.type) || this.pieces.length < 5) throw new EngineError("tokenizer.model is no vocabulary that this program reads");
    if (normalizer[2]?.length || trainer[24]) throw new EngineError("tokenizer.model normalizes text in a way that this program does not know");
    this.addsPrefix = Boolean(normalizer[3] ?? 1);
    this.removesSpaces = Boolean(normalizer[4] ?? 1);
    this.escapesSpaces = Boolean(normalizer[5] ?? 1);
    this.ids = new Map(); // of the pieces that a text can be cut into
    this.symbols = new Map(); // by their first characters: the texts of user-defined pieces, the longest first
    this.bytes = new Array(256);
    this.unknown = 1;
    this.pieces.forEach(({ text, type }, id) => {
      if (type === UNKNOWN) this.unknown = id;
      else if (type === BYTE) this.bytes[parseInt(text.slice(3, 5), 16)] = id;
      else if (type !== CONTROL) this.ids.set(text, id);
      if (type !== USER_DEFINED) return;
      const first = String.fromCodePoint(text.codePointAt(0) ?? 0);
      this.symbols.set(first, [...(this.symbols.get(first) ?? []), text].sort((a, b) => b.length - a.length));
    });
    this.fallsBack = Boolean(trainer[35]) && this.bytes.every((id) => id !== undefined);
    const scores = this.pieces.filter(({ type }) => type === 1).map(({ score }) => score);
    this.lowest = scores.reduce((a, b) => Math.min(a, b), Infinity);
    this.highest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
    this.longest = this.pieces.reduce((most, { text }) => Math.max(most, text.length), 1);
  }

  get size() {
    return this.pieces.length;
  }

  /** The ids of a text. */
  encode(text) {
    const found = { [BPE]: this.#bpe, [UNIGRAM]: this.#unigram, [CHARACTERS]: (symbols) => symbols.map(({ text }) => text) }[this.type].call(this, this.#symbols(text));
    const ids = [];
    let wasUnknown = false;
    for (const piece of found) {
      const id = this.ids.get(piece);
      if (id !== undefined) ids.push(id);
      else if (this.fallsBack) for (const byte of encoder.encode(piece)) ids.push(this.bytes[byte]);
      else if (!wasUnknown) ids.push(this.unknown);
      wasUnknown = id === undefined;
    }
    return ids;
  }

  /** Whether a space is added before every text, as in vocabularies of sentences. */
  get addsSpace() {
    const newline = this.encode("\n").length;
    return newline > this.encode("\n\n").length - newline;
  }

  /** The ids of a text of any length, line by line; after a line break, no space is added. */
  encodeDocument(text) {
    const units = escape(text).match(/[^\n]*\n|[^\n]+/g) ?? [];
    const [newline, addsSpace] = [this.encode("\n").length, this.addsSpace];
    return units.flatMap((unit, n) => (n && addsSpace ? this.encode(`\n${unit}`).slice(newline) : this.encode(unit)));
  }

  /** The text of ids. */
  decode(ids) {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let text = "";
    let bytes = [];
    const flush = () => {
      for (let at = 0; at < bytes.length; ) { // each byte that is not part of a character becomes U+FFFD
        const size = characterSize(bytes, at);
        text += size ? decoder.decode(new Uint8Array(bytes.slice(at, at + size))) : "\ufffd";
        at += size || 1;
      }
      bytes = [];
    };
    let atStart = true;
    for (const id of ids) {
      const { text: piece, type } = this.pieces[id];
      if (type === BYTE) {
        bytes.push(parseInt(piece.slice(3, 5), 16));
        atStart = false;
        continue;
      }
      flush();
      if (type === CONTROL) continue;
      if (type === UNKNOWN) text += " \u2047 ";
      else if (atStart && (this.addsPrefix || this.removesSpaces) && piece.startsWith(SPACE)) {
        text += piece.slice(1).replaceAll(SPACE, " ");
        if (this.removesSpaces) continue;
      } else text += piece.replaceAll(SPACE, " ");
      atStart = false;
    }
    flush();
    return text;
  }

  /** A piece for people: a symbol as its number or its language in ⟨⟩. */
  label(id) {
    const { text } = this.pieces[id];
    return describeSymbol(text) ?? text;
  }

  /** The bytes that an id adds to a text; none for special tokens. */
  rawBytes(id) {
    const { text, type } = this.pieces[id];
    if (type === BYTE) return [parseInt(text.slice(3, 5), 16)];
    return id < 4 ? [] : encoder.encode(text.replaceAll(SPACE, " "));
  }

  /** The text as characters and user-defined symbols, each {text, frozen}; those of symbols are not merged. */
  #symbols(text) {
    text = text.toWellFormed?.() ?? text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
    if (this.removesSpaces) text = text.replace(/^ +| +$/g, "").replace(/ {2,}/g, " ");
    if (!text) return [];
    if (this.addsPrefix) text = ` ${text}`;
    if (this.escapesSpaces) text = text.replaceAll(" ", SPACE);
    const symbols = [];
    for (let at = 0; at < text.length; ) {
      const first = String.fromCodePoint(text.codePointAt(at));
      const symbol = this.symbols.get(first)?.find((symbol) => text.startsWith(symbol, at));
      symbols.push({ text: symbol ?? first, frozen: symbol !== undefined });
      at += (symbol ?? first).length;
    }
    return symbols;
  }

  /** Merge adjacent symbols, the pair with the highest score first. */
  #bpe(symbols) {
    const parts = new Map(); // of merged pieces that are not used
    const join = (left, right) => {
      const text = left.text + right.text;
      const id = left.frozen || right.frozen ? undefined : this.ids.get(text);
      if (id === undefined) return;
      if (this.pieces[id].type === UNUSED) parts.set(text, [left.text, right.text]);
      return { rank: -this.pieces[id].score, symbol: { text, frozen: false } };
    };
    const used = (text) => (parts.has(text) && this.pieces[this.ids.get(text)]?.type === UNUSED ? parts.get(text).flatMap(used) : [text]);
    return mergeAll(symbols, join).flatMap(({ text }) => used(text));
  }

  /** The most probable pieces; scores are rounded to 32 bits, as in the library. */
  #unigram(symbols) {
    const text = symbols.map(({ text }) => text).join("");
    const best = new Array(text.length + 1).fill(null); // at each end of a piece: {score, start}
    best[0] = { score: 0, start: 0 };
    const unknown = Math.fround(this.lowest - 10);
    for (let at = 0; at < text.length; ) {
      const width = text.codePointAt(at) > 0xffff ? 2 : 1;
      const here = best[at].score;
      const reach = (end, score) => {
        if (!best[end] || score > best[end].score) best[end] = { score: Math.fround(score), start: at };
      };
      let hasSingle = false;
      for (let length = 1; length <= this.longest && at + length <= text.length; length++) {
        const id = this.ids.get(text.slice(at, at + length));
        if (id === undefined || this.pieces[id].type === UNUSED) continue;
        const { type, score, text: piece } = this.pieces[id];
        reach(at + length, here + (type === USER_DEFINED ? Math.fround(encoder.encode(piece).length * this.highest) - 0.1 : score));
        hasSingle ||= length === width;
      }
      if (!hasSingle) reach(at + width, Math.fround(unknown + here));
      at += width;
    }
    const found = [];
    for (let end = text.length; end > 0; end = best[end].start) found.push(text.slice(best[end].start, end));
    return found.reverse();
  }
}

/** The number of bytes of the UTF-8 character at a place; 0 if there is none. */
function characterSize(bytes, at) {
  const first = bytes[at];
  if (first < 0x80) return 1;
  const size = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  const [second, ...others] = bytes.slice(at + 1, at + size);
  const lowest = { 0xe0: 0xa0, 0xf0: 0x90 }[first] ?? 0x80;
  const highest = { 0xed: 0x9f, 0xf4: 0x8f }[first] ?? 0xbf;
  return size && at + size <= bytes.length && second >= lowest && second <= highest && others.every((byte) => byte >> 6 === 2) ? size : 0;
}
