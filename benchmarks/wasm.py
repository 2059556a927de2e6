"""The page's engine in Chromium beside engine native with one thread, with the bundled model.

    python benchmarks/wasm.py --lines test.en [--to de] [--sentences 200] [--rounds 3]

Each round translates the same sentences in both, one by one and all at once, in turns; a ratio is the median over the
rounds. Sentences of one token sequence each: both have the same tokens and the same search. `first translation` is from
the start of loading to the first output with all files in the browser's cache; `longest block` is the longest time in
which the page's main thread did not answer, measured by a timer while the worker translates.
"""

import functools
import json
import shutil
import statistics
import tempfile
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from setting import SEED, make_parser, print_setting, write_results

from transduce.files.files import read_lines
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
    options = parser.parse_args()
    if not (options.lines or options.smoke):
        parser.error("--lines is required")
    texts = (
        SMOKE if options.smoke else [line for line in read_lines(options.lines) if line.strip()][: options.sentences]
    )
    rounds = 1 if options.smoke else options.rounds
    translator = Translator.load(BUNDLED, engine="native", threads=1, beam=options.beam)
    with tempfile.TemporaryDirectory() as folder:
        site = export_site(BUNDLED, Path(folder) / "site")
        shutil.copytree(ROOT / "web/package/src", Path(folder) / "site/package")
        (Path(folder) / "site/benchmark.html").write_text(PAGE, encoding="utf-8")
        server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=f"{folder}/site"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_context().new_page()
            address = f"http://localhost:{server.server_port}/benchmark.html"
            measured = measure(page, address, translator, texts, options.to, options.beam, rounds)
            facts = {"browser": f"Chromium {browser.version}", "instructions": measured.pop("instructions")}
            browser.close()
        server.shutdown()
    setting = print_setting(
        **facts, model="bundled", sentences=len(texts), beam=options.beam, rounds=rounds, threads=1, seed=SEED
    )
    results = {"page": {**measured, "download, MB": site.download / 1e6}}
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


if __name__ == "__main__":
    main()
