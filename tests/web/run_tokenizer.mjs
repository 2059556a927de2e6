// Encodes texts and decodes ids with a vocabulary: node run_tokenizer.mjs tokenizer.model INPUT.json

import { readFileSync } from "node:fs";
import { Tokenizer } from "../../web/package/src/tokenizer.js";

const [model, input] = process.argv.slice(2);
const tokenizer = new Tokenizer(readFileSync(model));
const { texts, ids } = JSON.parse(readFileSync(input, "utf8"));
process.stdout.write(JSON.stringify({ ids: texts.map((text) => tokenizer.encode(text)), texts: ids.map((list) => tokenizer.decode(list)) }));
