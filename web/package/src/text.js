// Texts around the model: symbols, sentences, and the languages that a text may be in. Data comes from rules.json.

const [TAG_START, TAG_END, ESCAPE] = ["\ue110", "\ue111", "\ue011"];
const RESERVED = Array.from({ length: 16 }, (_, n) => String.fromCodePoint(0xe100 + n));
const LETTERS = new Map([["\u2581", "s"], [ESCAPE, "e"], ["\ufffd", "f"], ...[...RESERVED, TAG_START, TAG_END].map((symbol, n) => [symbol, String.fromCharCode(65 + n)])]);
const ORIGINALS = new Map([...LETTERS].map(([symbol, letter]) => [letter, symbol]));
const TO_ESCAPE = new RegExp(`[${[...LETTERS.keys()].join("")}]`, "g");
const ESCAPED = new RegExp(`${ESCAPE}([${[...ORIGINALS.keys()].join("")}])`, "g");
const SYMBOL = new RegExp(`${TAG_START}[^${TAG_END}]*${TAG_END}|[${RESERVED.join("")}\ufffd]`, "g");

/** A reserved symbol as its number, or a tag as its language, in ⟨⟩; null for other texts. */
export function describeSymbol(text) {
  if (RESERVED.includes(text)) return `⟨${RESERVED.indexOf(text)}⟩`;
  return text.startsWith(TAG_START) && text.endsWith(TAG_END) ? `⟨${text.slice(1, -1)}⟩` : null;
}
export const languageTag = (code) => `${TAG_START}${code}${TAG_END}`;
/** A user's text without characters that have a meaning for the model. */
export const escape = (text) => text.replace(TO_ESCAPE, (symbol) => ESCAPE + LETTERS.get(symbol));
/** The text of an output, without its symbols. */
export const unescape = (marked) => marked.replace(SYMBOL, "").replace(ESCAPED, (_, letter) => ORIGINALS.get(letter));
/** The ids of the reserved symbols, which no output contains unless its source does; null if the vocabulary has none. */
export function reservedTokens({ ids }) {
  const first = ids.get(RESERVED[0]);
  return first !== undefined && RESERVED.every((symbol, n) => ids.get(symbol) === first + n) ? { first, count: RESERVED.length } : null;
}

const SLOTS = RESERVED.slice(0, 10); // each stands for a protected span
const SLOT = new RegExp(`([${SLOTS.join("")}])`);
const CLOSING = ".,;:!?'\"»”’";
const OPENING_OF = { ")": "(", "]": "[", "}": "{" };

/** The spans of a text that its translation contains unchanged, such as addresses and placeholders: [start, end]. */
export function protectedSpans(text, { protect }) {
  return protect ? [...text.matchAll(protect)].map(({ 0: found, index }) => trimmed(text, index, index + found.length)).filter(([start, end]) => end > start) : [];
}

/** Without the punctuation after an address, which belongs to the sentence. */
function trimmed(text, start, end) {
  const found = text.slice(start, end);
  if (!/^(http|ftp|www\.)/.test(found) && !found.includes("/")) return [start, end];
  const count = (letter) => text.slice(start, end).split(letter).length;
  for (; end > start + 1; end--) {
    const last = text[end - 1];
    if (!CLOSING.includes(last) && !(OPENING_OF[last] && count(last) > count(OPENING_OF[last]))) break;
  }
  return [start, end];
}

const NUMBER = /(?<![\p{L}\p{N}]|\d[.,:\/-])(?:\d{2,}|\p{L}+\d[\p{L}\p{N}]*)(?![\p{L}\p{N}]|[.,:\/-]\d)/gu;
const HAS_SPACES = /[\p{L}\p{N}](?<![\u0e00-\u109f\u1780-\u17ff])(?<=[^\u2e80-\u{10ffff}]|[\uac00-\ud7a3])/u;
const insideWord = (text, at) => at > 0 && at < text.length && HAS_SPACES.test(text[at - 1]) && HAS_SPACES.test(text[at]);

/** What the translation of a text must contain: the translations of terms, the longest first, and numbers; each [start, end, translation]. */
export function requiredSpans(text, terms) {
  const found = [];
  const isFree = (start, end) => found.every(([from, to]) => end <= from || to <= start);
  const lower = text.toLowerCase().length === text.length ? text.toLowerCase() : text;
  for (const [term, translation] of terms ?? [])
    for (const searched of new Set([text, lower]))
      for (let at = searched.indexOf(term); at >= 0; at = searched.indexOf(term, at + term.length))
        if (!insideWord(text, at) && !insideWord(text, at + term.length) && isFree(at, at + term.length)) found.push([at, at + term.length, translation]);
  for (const { 0: number, index } of text.matchAll(NUMBER)) if (isFree(index, index + number.length)) found.push([index, index + number.length, number]);
  return found;
}

/** A user's text with a slot for each span, and what the slots stand for; of spans that overlap, the first in the list is used. */
export function withSlots(text, spans) {
  const slots = new Map();
  let [marked, at] = ["", 0];
  const used = spans.filter(([start, end], n) => spans.slice(0, n).every(([from, to]) => end <= from || to <= start)).slice(0, SLOTS.length);
  for (const [start, end, translation] of used.sort(([a], [b]) => a - b)) {
    const slot = SLOTS[slots.size];
    slots.set(slot, translation ?? text.slice(start, end));
    marked += escape(text.slice(at, start)) + slot;
    at = end;
  }
  return { marked: marked + escape(text.slice(at)), slots };
}

/** The text of an output, with what its slots stand for. */
export const restored = (marked, slots) => marked.split(SLOT).map((part) => (SLOTS.includes(part) ? (slots.get(part) ?? "") : unescape(part))).join("");

const base = (code) => code.split("-")[0];
const NEXT_WORD = /^[^\p{L}\p{N}]*([\p{L}\p{N}]+)/u;
const LAST_WORD = /([^\s"'“‘«„([{]+?)([.!?…]+)["'”’»)\]}]*$/u;

/** Whether a sentence may end before `next`, by the abbreviations of its language. */
function endsSentence(text, next, rules) {
  const last = text.match(LAST_WORD);
  if (!last || last[2] !== ".") return true;
  const following = next.match(NEXT_WORD)?.[1] ?? "";
  const word = last[1].toLowerCase();
  const has = (name) => rules.some((rule) => rule[name].has(word));
  if (has("never") || (has("numbered") && /^\p{N}/u.test(following))) return false;
  const starts = rules.some((rule) => rule.starters.has(following.toLowerCase()));
  if (/^\p{N}{1,3}$/u.test(word) && rules.some(({ ordinals }) => ordinals)) return starts;
  if (has("sometimes") || /^\p{Lu}$/u.test(last[1]) || /^(\p{L}\.)+\p{L}$/u.test(last[1])) return starts;
  return !/^\p{Ll}/u.test(following);
}

/** The sentences of a line as {text, after}: white space between them is in `after`, that around the line is not there. */
export function sentences(line, language, rules, spans = []) {
  const known = Object.entries(rules.abbreviations ?? {}).filter(([code]) => !language || code === base(language)).map(([, rule]) => rule);
  const found = [];
  let [start, text] = [0, line.trim()];
  const indentation = line.length - line.trimStart().length;
  for (const { index } of [...new Intl.Segmenter(language || undefined, { granularity: "sentence" }).segment(text)].slice(1).concat({ index: text.length })) {
    const part = text.slice(start, index).trimEnd();
    const more = text.slice(index);
    if (spans.some(([from, to]) => from < index + indentation && index + indentation < to)) continue;
    if (index < text.length && !(endsSentence(part, more, known) && /[\p{L}\p{N}]/u.test(part) && /[\p{L}\p{N}]/u.test(more))) continue;
    if (part) found.push({ text: part, after: text.slice(start + part.length, index) });
    start = index;
  }
  return found;
}

const CLAUSE_END = /(?<=[,;:…–—)\]»”])\s+|(?<=[，、；：،؛])/u;
/** Parts of a sentence that fit, each as long as possible: cut after clauses, else between words, else anywhere. */
export function splitLong({ text, after }, fits, level = 0) {
  if (fits(text) || level === 3) return [{ text, after }];
  const units = level < 2 ? cutAt(text, [CLAUSE_END, /\s+/][level]) : [...text].map((character) => ({ text: character, after: "" }));
  const parts = [];
  for (const unit of units) {
    const last = parts.at(-1);
    if (last && fits(last.text + last.after + unit.text)) parts[parts.length - 1] = { text: last.text + last.after + unit.text, after: unit.after };
    else parts.push(...splitLong(unit, fits, level + 1));
  }
  parts.at(-1).after += after;
  return parts;
}

function cutAt(text, separator) {
  const parts = [];
  let start = 0;
  for (const { 0: space, index } of text.matchAll(new RegExp(separator, "gu"))) {
    if (index > start) parts.push({ text: text.slice(start, index), after: space });
    start = index > start ? index + space.length : start;
  }
  if (start < text.length || !parts.length) parts.push({ text: text.slice(start), after: "" });
  return parts;
}

/** White space between two translations: line ends and tabs are kept, and in Chinese and Japanese there is none. */
export function between(after, target) {
  if (/[\n\r\t]/.test(after)) return after;
  return ["zh", "ja"].includes(base(target ?? "")) ? "" : " ";
}

const [TRIGRAMS, FEW, CERTAIN, TEMPERATURE] = [600, 8, 0.6, 3];
const WORD = /(?<![^\s([\u0022'’«„“¿¡-])\p{L}+(?![^\s)\]\u0022'’».,;:!?…“”-])/gu;

/** The most probable of these languages for a text, by its trigrams and words, as {language, probability}; null if that is not certain. */
export function detect(text, codes, rules) {
  const words = text.slice(0, 500).toLowerCase().match(WORD) ?? [];
  const trigrams = words.flatMap((word) => [...word].map((_, n) => `_${word}_`.slice(n, n + 3)));
  if (words.length + trigrams.length < FEW) return null;
  const scores = codes.map((code) => {
    const { ranks, wordRanks, letters } = rules.detection?.[base(code)] ?? {};
    if (!ranks) return -Infinity;
    const rare = (trigram) => ([...trigram].every((letter) => letters.has(letter)) ? -9.5 : -11.5);
    const ofTrigrams = trigrams.reduce((sum, one) => sum + (ranks.has(one) ? -1.5 - Math.log(ranks.get(one) + 20) : rare(one)), 0);
    return (ofTrigrams + words.reduce((sum, one) => sum + (wordRanks.has(one) ? -2 - Math.log(wordRanks.get(one) + 3) : -10), 0)) / TEMPERATURE;
  });
  const highest = Math.max(...scores);
  const total = scores.reduce((sum, score) => sum + Math.exp(score - highest), 0);
  return highest > -Infinity && 1 / total >= CERTAIN ? { language: codes[scores.indexOf(highest)], probability: 1 / total } : null;
}

/** The terms of a glossary with their translations, the longest first. */
export const readGlossary = (terms) => Object.entries(terms ?? {}).sort(([a], [b]) => b.length - a.length);

/** The rules of a site: lists of abbreviations, and the frequent trigrams and words of languages. */
export function readRules(file) {
  const rank = (list) => new Map(list.map((item, n) => [item, n]));
  const map = (table, read) => Object.fromEntries(Object.entries(table ?? {}).map(([code, value]) => [code, read(value)]));
  const lower = (words) => new Set(String(words ?? "").toLowerCase().split(/\s+/).filter(Boolean));
  const protect = (file.protect ?? []).map((pattern) => pattern.replaceAll("(?<g", "(?<p$g").replaceAll("\\k<g", "\\k<p$g"));
  return {
    // Names of groups are different in each pattern, which has its number in them.
    protect: protect.length ? new RegExp(protect.map((pattern, n) => pattern.replaceAll("p$g", `p${n}g`)).join("|"), "gv") : null,
    glossary: map(file.glossary, readGlossary),
    abbreviations: map(file.abbreviations, (rule) => ({ never: lower(rule.never), sometimes: lower(rule.sometimes), numbered: lower(rule.numbered), starters: lower(rule.starters), ordinals: Boolean(rule.ordinals) })),
    detection: map(file.detection, (line) => {
      const items = String(line).split(" ");
      return { ranks: rank(items.slice(0, TRIGRAMS)), wordRanks: rank(items.slice(TRIGRAMS)), letters: new Set(items.slice(0, TRIGRAMS).join("")) };
    }),
  };
}
