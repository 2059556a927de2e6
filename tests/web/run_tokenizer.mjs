// Encodes texts and decodes ids with a vocabulary: node run_tokenizer.mjs FILE INPUT.json; a .json file is byte-level BPE

import { readFileSync } from "node:fs";
import { ByteLevelTokenizer } from "../../web/package/src/byte_level.js";
import { Tokenizer } from "../../web/package/src/tokenizer.js";

const [model, input] = process.argv.slice(2);
const tokenizer = new (model.endsWith(".json") ? ByteLevelTokenizer : Tokenizer)(readFileSync(model));
const { texts, ids } = JSON.parse(readFileSync(input, "utf8"));
process.stdout.write(JSON.stringify({ ids: texts.map((text) => tokenizer.encode(text)), texts: ids.map((list) => tokenizer.decode(list)) }));
