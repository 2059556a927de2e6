"""Measure frames per second and CPU time per frame while a pointer moves over the figures of a long sentence.

python web/frame_rate.py http://127.0.0.1:5000/ "a sentence of about 70 tokens"
"""

import argparse
import shutil
from urllib.parse import quote

from playwright.sync_api import CDPSession, sync_playwright

MEASURE = """async ([selector, frames]) => {
  const element = document.querySelector(selector);
  element.scrollIntoView({ block: "center", behavior: "instant" });
  const nextFrame = () => new Promise(requestAnimationFrame);
  for (let i = 0; i < 10; i++) await nextFrame();
  const box = element.getBoundingClientRect();
  const area = (element.closest(".scroll") ?? element).getBoundingClientRect();
  const top = Math.max(box.top, area.top, 140);
  const bottom = Math.min(box.bottom, area.bottom, innerHeight - 10);
  const start = performance.now();
  for (let i = 0; i < frames; i++) {
    const clientX = box.left + box.width * (0.5 + 0.45 * Math.sin(i / 11));
    const clientY = top + (bottom - top) * (0.5 + 0.45 * Math.sin(i / 7));
    const target = document.elementFromPoint(clientX, clientY) ?? element;
    const event = { clientX, clientY, bubbles: true, pointerType: "mouse" };
    for (const name of ["pointerover", "pointerenter", "pointermove"])
      target.dispatchEvent(new PointerEvent(name, event));
    target.parentElement?.dispatchEvent(new PointerEvent("pointerenter", { ...event, bubbles: false }));
    await nextFrame();
  }
  return [(1000 * frames) / (performance.now() - start), document.querySelectorAll(".tokens.source button").length];
}"""
PLACES = {"heat map": ".heat .frame", "lines": ".lines svg", "tokens": ".tokens.source", "search tree": ".tree"}


def cpu_seconds(devtools: CDPSession) -> float:
    """The CPU time of all tasks of the page's main thread."""
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def main() -> None:
    """Open the page, inspect the sentence, and print the rate for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("text")
    parser.add_argument("--frames", type=int, default=240)
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{options.address}#text={quote(options.text)}&sentence=0&stack=encoder")
        page.locator("main[aria-busy=false] #inspected").wait_for(timeout=60_000)
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        for name, selector in PLACES.items():
            page.evaluate(MEASURE, [selector, 10])  # the figure may be drawn for the first time
            before = cpu_seconds(devtools)
            rate, tokens = page.evaluate(MEASURE, [selector, options.frames])
            cost = 1000 * (cpu_seconds(devtools) - before) / options.frames
            print(
                f"{name}, {tokens} source tokens: {rate:.0f} frames/s, {cost:.1f} ms of CPU time per frame", flush=True
            )
        browser.close()


if __name__ == "__main__":
    main()
