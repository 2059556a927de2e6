// Loads damaged copies of a model and prints every failure that is not an EngineError: node run_hostile.mjs FOLDER ENGINE.wasm COUNT
// Each copy has random changes of one of its files; what loads anyway also translates.

import { readFileSync } from "node:fs";
import { Engine } from "../../web/package/src/engine.js";
import { Tokenizer } from "../../web/package/src/tokenizer.js";
import { EngineError, Library } from "../../web/package/src/wasm.js";
import { readSettings, readTensors, Weights } from "../../web/package/src/weights.js";

const [folder, engineFile, count] = process.argv.slice(2);
const names = ["model.json", "model.safetensors", "tokenizer.model"];
const originals = Object.fromEntries(names.map((name) => [name, readFileSync(`${folder}/${name}`)]));
const wasm = readFileSync(engineFile);
let seed = 1;
const draw = (below) => ((seed = (seed * 48271) % 2147483647), seed % below);

/** A copy with some bytes or numbers changed, or cut; most changes are near the start, where headers are. */
function damaged(name) {
  let bytes = Uint8Array.from(originals[name]);
  const at = () => (draw(2) ? draw(bytes.length) : draw(Math.min(bytes.length, 3000)));
  if (name === "model.json") {
    const card = JSON.parse(new TextDecoder().decode(bytes));
    const table = draw(4) ? card.model : card;
    const keys = Object.keys(table);
    table[keys[draw(keys.length)]] = [0, -1, 1, 7, 1e9, 2 ** 53, 1.5, null, "x", {}, [], true, "pre", "ssru", "int8"][draw(15)];
    return new TextEncoder().encode(JSON.stringify(card));
  }
  for (let n = draw(4); n >= 0; n--) {
    const kind = draw(4);
    if (kind === 0) bytes[at()] = draw(256);
    else if (kind === 1) bytes = bytes.slice(0, at());
    else if (kind === 2) bytes[at()] ^= 1 << draw(8);
    else bytes.set([48 + draw(10)], at()); // a digit in the place of another, in headers
    if (!bytes.length) bytes = new Uint8Array(1);
  }
  return bytes;
}

const outcomes = { loaded: 0, refused: 0, failures: [] };
for (let number = 0; number < Number(count); number++) {
  const name = names[draw(3)];
  const files = { ...originals, [name]: damaged(name) };
  try {
    const library = await Library.load(wasm);
    const tokenizer = new Tokenizer(files["tokenizer.model"]);
    const settings = readSettings(JSON.parse(new TextDecoder().decode(files["model.json"])));
    const engine = new Engine(library, new Weights(library, settings, readTensors(files["model.safetensors"])));
    const tokens = tokenizer.encode("dedu babo gigo \ue100 🙂").filter((token) => token < settings.vocab_size);
    const options = { beam: 2, nbest: 2, length_penalty: 0.6, min_length: 1, max_extra: 5 };
    for (const result of engine.search([{ tokens }], options)) if (result) tokenizer.decode(result[1][0]?.tokens.filter((token) => token < tokenizer.size) ?? []);
    outcomes.loaded++;
  } catch (failure) {
    if (failure instanceof EngineError) outcomes.refused++;
    else outcomes.failures.push(`${number} ${name}: ${failure.stack}`);
  }
}
process.stdout.write(JSON.stringify(outcomes));
