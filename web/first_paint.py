"""Measure the latency of the page: from the last keystroke to the painted inspection, without the search.

    python web/first_paint.py -m runs/demo "This morning the old doctor lent our daughter a new picture."

The page waits 150 ms for further keystrokes before it sends a request; the result includes this time.
"""

import argparse
import shutil
import socket
import statistics
import threading

import uvicorn
from playwright.sync_api import sync_playwright

from transduce.serve.api_keys import ApiKeys
from transduce.serve.app import make_app
from transduce.serve.limits import Limits
from transduce.serve.served_models import ServedModels
from transduce.translation.translator import Translator

MEASURE_LATENCY = """async (character) => {
  const [input, output] = ["text", "translation"].map((id) => document.getElementById(id));
  const nextFrame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const painted = () => nextFrame().then(() => performance.now() - start);
  const until = (condition) => new Promise((resolve) => {
    const check = () => condition() && (observer.disconnect(), resolve());
    const observer = new MutationObserver(check);
    observer.observe(document.body, { attributes: true, childList: true, subtree: true });
    check();
  });
  const start = performance.now();
  input.value += character;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  await until(() => output.ariaBusy === "true");
  await until(() => output.ariaBusy === "false");
  const translation = await painted();
  await until(() => document.querySelector("main").ariaBusy === "false");
  return [translation, await painted()];
}"""


def measure(address: str, text: str, rounds: int) -> list[tuple[float, float, float]]:
    """Milliseconds from the last keystroke to the painted translation and to all figures, and of the inspection."""
    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}#text={text[:-1]}&sentence=0")
        page.locator("main[aria-busy=false] #inspected:not(.stale)").wait_for()
        for _ in range(rounds):
            with page.expect_response("**/inspect/look") as response:
                translation, everything = page.evaluate(MEASURE_LATENCY, text[-1])
            response.value.finished()
            timing = response.value.request.timing
            times.append((translation, everything, timing["responseEnd"] - timing["requestStart"]))
            with page.expect_response("**/inspect/look"):
                page.locator("#text").fill(text[:-1])
            page.locator("main[aria-busy=false] #inspected:not(.stale)").wait_for()
        browser.close()
    return times


def main() -> None:
    """Serve a model, measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    models = ServedModels([("model", Translator.load(options.model))])
    server = uvicorn.Server(uvicorn.Config(make_app(models, Limits(), ApiKeys([])), log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            times = measure(f"http://127.0.0.1:{listening.getsockname()[1]}/", options.text, options.rounds)
        finally:
            server.should_exit = True
            thread.join()
    translation, everything, inspection = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"medians of {len(times)} rounds: the translation is painted after {translation:.0f} ms, all figures after")
    print(f"{everything:.0f} ms, of which the server inspects the sentence for {inspection:.0f} ms")


if __name__ == "__main__":
    main()
