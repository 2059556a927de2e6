// Runs searches and forced decoding of a list of cases with one of the compiled engines, and prints what they give.
// node run_engine.mjs ENGINE.wasm CASES.json

import { readFileSync } from "node:fs";
import { Engine } from "../../web/package/src/engine.js";
import { Library } from "../../web/package/src/wasm.js";
import { readSettings, readTensors, Weights } from "../../web/package/src/weights.js";

const [engineFile, casesFile] = process.argv.slice(2);
const wasm = readFileSync(engineFile);
const results = [];
const ordered = (found) => [...found].filter(Boolean).sort(([a], [b]) => a - b).map(([, result]) => result);
for (const { folder, options, jobs, pairs } of JSON.parse(readFileSync(casesFile, "utf8"))) {
  const library = await Library.load(wasm);
  const weights = new Weights(library, readSettings(JSON.parse(readFileSync(`${folder}/model.json`, "utf8"))), readTensors(readFileSync(`${folder}/model.safetensors`)));
  const engine = new Engine(library, weights);
  const readings = ordered(engine.read(pairs)).map(({ attention, ...others }) => ({ ...others, attention: attention.map((row) => [...row]) }));
  results.push({ instructions: library.instructions, outputs: ordered(engine.search(jobs, options)), readings });
}
process.stdout.write(JSON.stringify(results, (_, value) => (value === -Infinity ? -1e300 : value)));
