"""How long the page takes beyond decoding: from the last keystroke to the painted look, less the search.

    python web/first_paint.py -m runs/demo "This morning the old doctor lent our daughter a new picture."

The page waits 90 ms for further keystrokes before it asks; that is part of the figure.
"""

import argparse
import json
import shutil
import socket
import statistics
import threading

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import sync_playwright

from transduce.inspect.routes import inspect_routes
from transduce.translator import Translator

TYPED_TO_PAINTED = """async (character) => {
  const [box, output] = ["text", "translation"].map((id) => document.getElementById(id));
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const painted = () => frame().then(() => performance.now() - began);
  const until = (met) => new Promise((done) => {
    const check = () => met() && (watch.disconnect(), done());
    const watch = new MutationObserver(check);
    watch.observe(document.body, { attributes: true, childList: true, subtree: true });
    check();
  });
  const began = performance.now();
  box.value += character;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  await until(() => output.classList.contains("stale"));
  await until(() => !output.classList.contains("stale"));
  const first = await painted();
  await until(() => document.querySelector("main").ariaBusy === "false");
  return [first, await painted()];
}"""


def measure(address: str, text: str, rounds: int) -> list[tuple[float, float, float]]:
    """Milliseconds to the translation on the screen, to all pictures, and of the search, for a last character typed."""
    figures = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}#text={text[:-1]}")
        page.locator("main[aria-busy=false] #translation:not(.stale)").wait_for()
        for _ in range(rounds):
            with page.expect_response("**/inspect/look") as answer:
                first, whole = page.evaluate(TYPED_TO_PAINTED, text[-1])
            body = answer.value.body()
            header = json.loads(body[4 : 4 + int.from_bytes(body[:4], "little")])
            figures.append((first, whole, 1000 * header["seconds"]["search"]))
            with page.expect_response("**/inspect/look"):
                page.locator("#text").fill(text[:-1])
            page.locator("main[aria-busy=false] #translation:not(.stale)").wait_for()
        browser.close()
    return figures


def main() -> None:
    """Serve a model, type, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--rounds", type=int, default=11)
    words = parser.parse_args()
    app = FastAPI()
    app.include_router(inspect_routes(Translator.load(words.model)))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            figures = measure(f"http://127.0.0.1:{listening.getsockname()[1]}/", words.text, words.rounds)
        finally:
            server.should_exit = True
            thread.join()
    search, first, whole = (
        statistics.median(column)
        for column in zip(*((search, first - search, whole - search) for first, whole, search in figures), strict=True)
    )
    print(
        f"medians of {len(figures)}: search {search:.0f} ms; beyond it, translation and tokens are on the screen after"
    )
    print(f"{first:.0f} ms, all pictures after {whole:.0f} ms")


if __name__ == "__main__":
    main()
