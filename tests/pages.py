"""Functions for tests of the page in Chromium."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from serving import serve_in_thread

from transduce.translation.translator import Translator

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright, which drives the browser, is not installed: pip install playwright"
)

TIMEOUT = 120_000
"""Milliseconds after which a test gives up waiting for the page, on a machine that is busy with other tests."""
expect = sync_api.expect
expect.set_options(timeout=TIMEOUT)

TEXT = "dedu babo gigo babo"
EXPERTS = "layer=2&view=max&markers=true&experts=true"
"""The view that shows everything: all heads of the upper layer, combined, with markers, and below them each head."""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
AXE = Path(__file__).parents[1] / "web/node_modules/axe-core/axe.min.js"


@contextlib.contextmanager
def serve_page(*translators: Translator, keys: Sequence[str] = (), **limits: Any) -> Iterator[str]:
    """The address of a server with models on a free local port."""
    named = [(f"model{number}" if number else "model", one) for number, one in enumerate(translators)]
    with serve_in_thread(named, keys, **limits) as (address, _):
        yield f"{address}/"


def load_axe(page: Any) -> None:
    """Load axe-core into a page, which must bypass its content security policy."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run npm ci in web/")
    page.evaluate(AXE.read_text(encoding="utf-8"))


def accessibility_problems(page: Any, passes: int = 10) -> list[Any]:
    """What axe-core finds, once nothing is wider than the window; more rules than `passes` must find no fault."""
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    # To describe every element that passes would take most of the time.
    results = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    assert len(results["passes"]) > passes
    problems = [(one["id"], node) for one in results["violations"] for node in one["nodes"]]
    return [(name, node["target"], node["failureSummary"]) for name, node in problems]


def settled(page: Any, translation: str) -> None:
    """Wait until the page has inspected this translation and is not busy."""
    _expect_text(page, "main[aria-busy=false] #inspected:not(.stale)", translation)


def translated(page: Any, translation: str) -> None:
    """Wait until the translator shows this translation."""
    _expect_text(page, "#translation[aria-busy=false]", translation)


def _expect_text(page: Any, selector: str, text: str) -> None:
    """Wait until an element has this text, looking in every frame; `expect` looks only after 100, 350 and 850 ms."""
    words = "document.querySelector(selector)?.textContent.trim().replace(/\\s+/g, ' ')"
    with contextlib.suppress(sync_api.TimeoutError):  # the message of `expect` is better
        page.wait_for_function(f"([selector, text]) => {words} === text", arg=[selector, text], timeout=TIMEOUT / 4)
    expect(page.locator(selector)).to_have_text(text)


def wait_for_value(page: Any, read: Callable[[], Any], expected: Any) -> None:
    """Wait until a function returns this value: the page renders asynchronously. For what `expect` cannot state."""
    deadline = time.monotonic() + TIMEOUT / 1000
    while (value := read()) != expected and time.monotonic() < deadline:
        page.wait_for_timeout(20)
    assert value == expected


def wait_for_frames(page: Any, count: int) -> None:
    """Wait until the browser has drawn this many frames, and so has sent the events of what happened before."""
    page.evaluate("async (n) => { while (n--) await new Promise(requestAnimationFrame); }", count)


def draw_figures(page: Any) -> None:
    """Show every figure once: only then does the browser know its size, and moves what is below it."""
    page.evaluate(
        """async () => {
            const drawn = async () => { for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame); };
            for (const figure of document.querySelectorAll("[data-figure] > .scroll")) {
                scrollTo({ top: scrollY + figure.getBoundingClientRect().top, behavior: "instant" });
                await drawn();
            }
            scrollTo({ top: 0, behavior: "instant" });
            await drawn();
        }"""
    )


def hover(locator: Any) -> None:
    """Move the pointer to an element until its tooltip stays: if the page has just scrolled, its event hides it."""
    page = locator.page

    def tooltips() -> int:
        page.mouse.move(0, 0)
        locator.hover()
        wait_for_frames(page, 3)
        return int(page.locator(".tooltip").count())

    wait_for_value(page, tooltips, 1)


def state(page: Any) -> dict[str, str]:
    """The state in the URL, which is updated after a short delay."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment).items()}


def expect_state(page: Any, **expected: str) -> None:
    """Wait until the URL has these parameters."""
    wait_for_value(page, lambda: {name: state(page).get(name) for name in expected}, expected)


def fractions(locator: Any) -> list[float]:
    """The percentages that elements show, as fractions; NaN for an element that shows none yet."""
    texts = [text.strip("<% \n") for text in locator.all_text_contents()]
    return [float(text) / 100 if text else float("nan") for text in texts]


def choose(page: Any, group: str, value: object) -> None:
    """Choose a radio button."""
    page.locator(f"input[name={group}][value='{value}']").evaluate("button => button.click()")


def slide(slider: Any, value: float) -> None:
    """Move a slider."""
    slider.evaluate("(s, v) => { s.value = v; s.dispatchEvent(new Event('input', { bubbles: true })); }", value)
