// Translates lines with Bergamot, the engine of Firefox Translations, in WebAssembly:
//     node translate.cjs MODEL SHORTLIST|- VOCABULARY [VOCABULARY] < lines
const fs = require('fs');
const path = require('path');

const WORKER = path.join(__dirname, 'node_modules/@browsermt/bergamot-translator/worker');
const PRODUCTS = {
  int8_prepare_a: 'int8PrepareAFallback',
  int8_prepare_b: 'int8PrepareBFallback',
  int8_prepare_b_from_transposed: 'int8PrepareBFromTransposedFallback',
  int8_prepare_b_from_quantized_transposed: 'int8PrepareBFromQuantizedTransposedFallback',
  int8_prepare_bias: 'int8PrepareBiasFallback',
  int8_multiply_and_add_bias: 'int8MultiplyAndAddBiasFallback',
  int8_select_columns_of_b: 'int8SelectColumnsOfBFallback',
};
const SETTINGS = [
  'beam-size: 1', 'normalize: 0', 'word-penalty: 0', 'cpu-threads: 0', 'gemm-precision: int8shiftAll', 'skip-cost: true',
  'alignment: soft', 'quiet: true', 'quiet-translation: true', 'max-length-break: 128', 'mini-batch-words: 1024',
  'workspace: 128', 'max-length-factor: 3.0', '',
].join('\n');

const [model, shortlist, ...vocabularies] = process.argv.slice(2);

function translateLines() {
  const memory = (file, alignment) => {
    const bytes = file === '-' ? new Uint8Array(0) : fs.readFileSync(file);
    const aligned = new Module.AlignedMemory(bytes.length, alignment);
    aligned.getByteArrayView().set(bytes);
    return aligned;
  };
  const vocabulary = new Module.AlignedMemoryList();
  vocabularies.forEach(file => vocabulary.push_back(memory(file, 64)));
  const translator = new Module.TranslationModel(SETTINGS, memory(model, 256), memory(shortlist, 64), vocabulary, null);
  const texts = new Module.VectorString();
  const options = new Module.VectorResponseOptions();
  for (const line of fs.readFileSync(0, 'utf8').trimEnd().split('\n')) {
    texts.push_back(line);
    options.push_back({alignment: false, html: false, qualityScores: false});
  }
  const responses = new Module.BlockingService({cacheSize: 0}).translate(translator, texts, options);
  for (let i = 0; i < responses.size(); i++) console.log(responses.get(i).getTranslatedText());
}

global.Module = {
  instantiateWasm(imports, accept) {
    const products = Object.fromEntries(
      Object.entries(PRODUCTS).map(([name, own]) => [name, (...numbers) => Module.asm[own](...numbers)]));
    const code = fs.readFileSync(path.join(WORKER, 'bergamot-translator-worker.wasm'));
    WebAssembly.instantiate(code, {...imports, wasm_gemm: products}).then(({instance}) => accept(instance));
    return {};
  },
  onRuntimeInitialized: translateLines,
};
(0, eval)(fs.readFileSync(path.join(WORKER, 'bergamot-translator-worker.js'), 'utf8'));
