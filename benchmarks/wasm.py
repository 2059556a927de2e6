"""The page's engine in Chromium beside engine native with one thread, with the bundled model.

    python benchmarks/wasm.py --lines test.en [--to de] [--sentences 200] [--rounds 3]

Each round translates the same sentences in both, one by one and all at once, in turns; a ratio is the median over the
rounds. Sentences of one token sequence each: both have the same tokens and the same search. `first translation` is from
the start of loading to the first output with all files in the browser's cache; `longest block` is the longest time in
which the page's main thread did not answer, measured by a timer while the worker translates.

With --peer, onnxruntime-web, the engine of transformers.js, is installed by npm into a temporary folder (or taken from
the node_modules of the folder named by --peer-folder) and runs `transduce export --to onnx` of the same model: in
float32, and in the 8 bits that transformers.js uses in a browser without a GPU (dynamic quantization). Transformers.js
itself does not load the export, which has no merged decoder, so a greedy loop with past keys and values calls the same
graphs as it would; tokens are found beforehand. All engines have one thread, and search greedily, one by one.
"""

import functools
import json
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import sentencepiece
from playwright.sync_api import sync_playwright
from setting import SEED, make_parser, print_setting, write_results

from transduce.files.files import read_lines
from transduce.interop.export_model import export_model
from transduce.models.folder import BUNDLED
from transduce.translation.translator import Translator
from transduce.web.site import export_site

ROOT = Path(__file__).parents[1]
SMOKE = ["Where is the station?", "I don't want to buy this kind of sofa."]
PAGE = """<!doctype html><meta charset="utf-8"><script type="module">
import { Translator } from "./package/index.js";
let longest = 0, last = performance.now();
setInterval(() => { const now = performance.now(); longest = Math.max(longest, now - last - 5); last = now; }, 5);
window.load = async () => {
  const began = performance.now();
  window.t = await Translator.load(location.href);
  await t.translate("Where is the station?", { to: "de" });
  return (performance.now() - began) / 1000;
};
window.run = async (texts, options, together) => {
  [longest, last] = [0, performance.now()];
  const began = performance.now();
  if (together) await t.translate(texts, options);
  else for (const text of texts) await t.translate(text, options);
  return { seconds: (performance.now() - began) / 1000, longest };
};
window.ready = true;
</script>"""


PEER = "onnxruntime-web@1.31.0-dev.20260914-8d85527a0"
"""The version that transformers.js 4.3.1 depends on."""
PEER_PAGE = """<!doctype html><meta charset="utf-8"><script type="module">
import * as ort from "./ort/ort.wasm.min.mjs";
ort.env.wasm.wasmPaths = new URL("ort/", location.href).href;
ort.env.wasm.numThreads = 1;
const models = {};
const integers = (ids) => new ort.Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);
window.load = async (folder) => {
  const externalData = folder === "float32" ? [{ path: "weights.bin", data: `${folder}/weights.bin` }] : [];
  models[folder] = [];
  for (const name of ["encoder", "decoder", "decoder_with_past"])
    models[folder].push(await ort.InferenceSession.create(`${folder}/${name}_model.onnx`, { externalData }));
};
const translate = async ([encoder, first, next], source, { start, end, never }) => {
  const mask = integers(source.map(() => 1));
  const { last_hidden_state: memory } = await encoder.run({ input_ids: integers(source), attention_mask: mask });
  let inputs = { encoder_hidden_states: memory, encoder_attention_mask: mask, input_ids: integers([start]) };
  const output = [];
  let past = {};
  for (let session = first; output.length < source.length + 50; session = next) {
    const { logits, ...present } = await session.run(inputs);
    for (const [name, value] of Object.entries(present)) past[name.replace("present", "past_key_values")] = value;
    const row = logits.data.subarray(logits.data.length - logits.dims.at(-1));
    for (const id of output.length ? never : [...never, end]) row[id] = -Infinity;
    let best = 0;
    for (let id = 1; id < row.length; id++) if (row[id] > row[best]) best = id;
    if (best === end) break;
    output.push(best);
    inputs = { encoder_attention_mask: mask, input_ids: integers([best]), ...past };
  }
  return output;
};
window.run = async (folder, sources, ids) => {
  const outputs = [];
  const began = performance.now();
  for (const source of sources) outputs.push(await translate(models[folder], source, ids));
  return { outputs, seconds: (performance.now() - began) / 1000 };
};
window.ready = true;
</script>"""


class Files(SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Write nothing."""

    def end_headers(self) -> None:
        """Let the browser keep all files."""
        self.send_header("cache-control", "max-age=3600")
        super().end_headers()


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--to", default="de")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="install onnxruntime-web by npm, and measure it too")
    parser.add_argument("--peer-folder", type=Path, help="a folder in whose node_modules onnxruntime-web is")
    options = parser.parse_args()
    if not (options.lines or options.smoke):
        parser.error("--lines is required")
    texts = (
        SMOKE if options.smoke else [line for line in read_lines(options.lines) if line.strip()][: options.sentences]
    )
    rounds = 1 if options.smoke else options.rounds
    translator = Translator.load(BUNDLED, engine="native", threads=1, beam=options.beam)
    with tempfile.TemporaryDirectory() as folder:
        site = export_site([("bundled", BUNDLED)], Path(folder) / "site")
        shutil.copytree(ROOT / "web/package/src", Path(folder) / "site/package")
        (Path(folder) / "site/benchmark.html").write_text(PAGE, encoding="utf-8")
        server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=f"{folder}/site"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_context().new_page()
            address = f"http://localhost:{server.server_port}/benchmark.html"
            measured = measure(page, address, translator, texts, options.to, options.beam, rounds)
            compared = {}
            if options.peer or options.peer_folder:
                peer = write_peer(Path(folder) / "site", options.peer_folder)
                compared = compare(page, browser.new_context().new_page(), address, peer, texts, options.to, rounds)
            facts = {"browser": f"Chromium {browser.version}", "instructions": measured.pop("instructions")}
            browser.close()
        server.shutdown()
    setting = print_setting(
        **facts, model="bundled", sentences=len(texts), beam=options.beam, rounds=rounds, threads=1, seed=SEED
    )
    results = {"page": {**measured, "download, MB": site.download / 1e6}, **compared}
    print(json.dumps(results, indent=1))
    write_results(options, setting, results)


def measure(
    page: Any, address: str, translator: Translator, texts: list[str], to: str, beam: int, rounds: int
) -> dict[str, Any]:
    """Load the page twice, then translate in both engines in turns."""
    for _ in range(2):
        page.goto(address)
        page.wait_for_function("() => window.ready")
        first = page.evaluate("load()")
    results: dict[str, Any] = {"instructions": page.evaluate("t.facts.instructions"), "first translation, s": first}
    block = 0.0
    for together, name in ((False, "one by one"), (True, "all at once")):
        speeds: dict[str, list[float]] = {"page": [], "native": []}
        for _ in range(rounds):
            outcome = page.evaluate("([texts, options, together]) => run(texts, options, together)",
                                    [texts, {"to": to, "beam": beam}, together])  # fmt: skip
            block = max(block, outcome["longest"])
            speeds["page"].append(len(texts) / outcome["seconds"])
            start = time.perf_counter()
            if together:
                translator.translate(texts, to=to)
            else:
                for text in texts:
                    translator.translate(text, to=to)
            speeds["native"].append(len(texts) / (time.perf_counter() - start))
        ratios = [a / b for a, b in zip(speeds["page"], speeds["native"], strict=True)]
        results |= {f"{name}, sentences/s": statistics.median(speeds["page"]),
                    f"{name}, of native": statistics.median(ratios)}  # fmt: skip
    letter = " ".join(texts * 40).split()[:200]
    seconds = page.evaluate("([text, options]) => run([text], options, true)", [" ".join(letter), {"to": to}])[
        "seconds"
    ]
    return results | {"a letter of 200 words, s": seconds, "longest block, ms": block}


def write_peer(site: Path, installed: Path | None) -> "Peer":
    """Write onnxruntime-web and two ONNX models into the folder that is served."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    if installed is None:
        installed = site / "npm"
        subprocess.run(["npm", "install", "--silent", "--prefix", str(installed), PEER], check=True)
    shutil.copytree(installed / "node_modules/onnxruntime-web/dist", site / "ort")
    export_model(BUNDLED, "onnx", site / "float32")
    (site / "int8").mkdir()
    for path in (site / "float32").glob("*.onnx"):
        quantize_dynamic(separate_embedding(onnx.load(path)), site / "int8" / path.name, weight_type=QuantType.QUInt8)
    (site / "peer.html").write_text(PEER_PAGE, encoding="utf-8")
    return Peer(site / "float32")


def separate_embedding(model: Any) -> Any:
    """The model with a copy of the embedding for the projection: quantization transposes only that."""
    shared = next((tensor for tensor in model.graph.initializer if tensor.name == "model.shared.weight"), None)
    for node in model.graph.node if shared is not None else ():
        if node.op_type == "Gemm" and shared.name in node.input:
            projection = model.graph.initializer.add()
            projection.CopyFrom(shared)
            projection.name = "projection"
            node.input[list(node.input).index(shared.name)] = projection.name
    return model


class Peer:
    """The vocabulary of an ONNX export."""

    def __init__(self, folder: Path) -> None:
        self.ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        start, self.end = config["decoder_start_token_id"], config["eos_token_id"]
        never = sorted({start, config["pad_token_id"], self.ids["<unk>"]})
        self.markers = {"start": start, "end": self.end, "never": never}

    def encode(self, text: str, to: str) -> list[int]:
        """The ids of a source, with the tag of the target language."""
        pieces = self.pieces.encode(f"<2{to}> {text}", out_type=str)
        return [*(self.ids.get(piece, self.ids["<unk>"]) for piece in pieces), self.end]

    def decode(self, ids: list[int]) -> str:
        names = {number: piece for piece, number in self.ids.items()}
        return str(self.pieces.decode([names[number] for number in ids]))


def compare(
    page: Any, other: Any, address: str, peer: Peer, texts: list[str], to: str, rounds: int
) -> dict[str, dict[str, float]]:
    """Translate greedily in the page's engine and in onnxruntime-web in turns, sentence by sentence."""
    other.goto(address.replace("benchmark.html", "peer.html"))
    other.wait_for_function("() => window.ready")
    sources = [peer.encode(text, to) for text in texts]
    speeds: dict[str, list[float]] = {"page": [], "float32": [], "int8": []}
    for folder in ("float32", "int8"):
        other.evaluate("(folder) => load(folder)", folder)
        other.evaluate("([folder, texts, ids]) => run(folder, texts, ids)", [folder, sources[:1], peer.markers])
    same = {}
    ours = page.evaluate("([texts, options]) => t.translate(texts, options)", [texts, {"to": to, "beam": 1}])
    for _ in range(rounds):
        seconds = page.evaluate("([texts, options]) => run(texts, options, false)", [texts, {"to": to, "beam": 1}])
        speeds["page"].append(len(texts) / seconds["seconds"])
        for folder in ("float32", "int8"):
            code = "([folder, texts, ids]) => run(folder, texts, ids)"
            outcome = other.evaluate(code, [folder, sources, peer.markers])
            speeds[folder].append(len(texts) / outcome["seconds"])
            outputs = [peer.decode(ids) for ids in outcome["outputs"]]
            same[folder] = sum(a == b for a, b in zip(outputs, ours, strict=True))
    results = {"page, greedy": {"sentences/s": statistics.median(speeds["page"])}}
    for folder in ("float32", "int8"):
        ratios = [a / b for a, b in zip(speeds["page"], speeds[folder], strict=True)]
        results[f"onnxruntime-web, {folder}"] = {
            "sentences/s": statistics.median(speeds[folder]),
            "page / this": statistics.median(ratios),
            "outputs like the page's": same[folder],
        }
    return results


if __name__ == "__main__":
    main()
