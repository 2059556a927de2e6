// Loads damaged copies of a model and prints every failure that is not an EngineError: node run_hostile.mjs FOLDER ENGINE.wasm COUNT
// Each copy has random changes of one of its files; what loads anyway also translates and is inspected, or generates.

import { existsSync, readFileSync } from "node:fs";
import { BYTE_LEVEL } from "../../web/package/src/byte_level.js";
import { LocalGenerator } from "../../web/package/src/generator.js";
import { buildModel } from "../../web/package/src/local.js";
import { EngineError, Library } from "../../web/package/src/wasm.js";

const [folder, engineFile, count] = process.argv.slice(2);
const names = ["model.json", "model.safetensors", ...["tokenizer.model", BYTE_LEVEL].filter((name) => existsSync(`${folder}/${name}`))];
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
    const table = [card, card.facts, card.facts.search ?? card, card.model, card.model][draw(5)];
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
    const model = buildModel({ name: "toy", languages: {} }, library, { ...files, "rules.json": new TextEncoder().encode("{}") });
    if (model instanceof LocalGenerator) await model.generate("dedu babo gigo \ue100 🙂", { maxTokens: 20, temperature: 0 });
    else await model.translate(["dedu babo gigo \ue100 🙂"], { beam: 2, words: true });
    if (model.canInspect) model.inspect("dedu babo");
    outcomes.loaded++;
  } catch (failure) {
    if (failure instanceof EngineError) outcomes.refused++;
    else outcomes.failures.push(`${number} ${name}: ${failure.stack}`);
  }
}
process.stdout.write(JSON.stringify(outcomes));
