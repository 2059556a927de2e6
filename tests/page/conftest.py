"""Fixtures of the page: a small model, a server and Chromium."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from helpers import small_model
from pages import EXPERTS, TEXT, TIMEOUT, draw_figures, serve_page, settled, sync_api

from transduce.inspect import inspection as inspection_module
from transduce.inspect.inspection import Inspection
from transduce.inspect.request import InspectionRequest
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import EOS, Tokenizer
from transduce.translation.translator import Translator

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WINDOW = {"width": 1280, "height": 900}


@pytest.fixture(scope="session")
def page_translator(toy_tokenizer: Tokenizer) -> Translator:
    """Random weights with large positional encodings and a probable end: outputs vary, and depend on every head."""
    model = small_model(32, toy_tokenizer.vocab_size, positions="learned").eval()
    with torch.no_grad():
        model.embedding.positions.table_TD.mul_(4)
        model.embedding.weight_VD[4:276] *= 0.2  # symbols and single bytes
        model.embedding.weight_VD[EOS] *= 2.5
    return Translator(model, toy_tokenizer, config=SearchConfig(max_extra=3))


@pytest.fixture(scope="session")
def translator(page_translator: Translator) -> Translator:
    return page_translator


@pytest.fixture(scope="session")
def inspection(translator: Translator) -> Inspection:
    return inspection_module.inspect_translation(translator, InspectionRequest(text=TEXT))


@pytest.fixture(scope="session")
def address(translator: Translator) -> Iterator[str]:
    with serve_page(translator) as address:
        yield address


@pytest.fixture(scope="package", autouse=True)
def inspected_once() -> Iterator[None]:
    """The server and the tests inspect the same sentences, which takes seconds with the bundled model."""
    compute, known = inspection_module.inspect_translation, {}

    def inspect_once(translator: Translator, request: InspectionRequest) -> Inspection:
        key = (id(translator), repr(request))
        if key not in known:
            known[key] = compute(translator, request)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspection_module, "inspect_translation", inspect_once)
        yield


@pytest.fixture(scope="session")
def bundled() -> Translator:
    """The bundled model: English, German and French, sentence by sentence."""
    return Translator.load()


@pytest.fixture(scope="session")
def bundled_address(bundled: Translator) -> Iterator[str]:
    with serve_page(bundled, bundled) as address:
        yield address


@pytest.fixture(scope="package")  # not the session: while Playwright runs, asyncio.run fails in every other test
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Window:
    """A window of the browser."""

    page: Any
    options: dict[str, Any]
    errors: list[str] = field(default_factory=list)
    """Errors in its console."""

    @classmethod
    def open(cls, browser: Any, options: dict[str, Any]) -> "Window":
        window = cls(browser.new_context(**options).new_page(), options)
        window.page.set_default_timeout(TIMEOUT)
        window.page.on("pageerror", lambda error: window.errors.append(str(error)))
        window.page.on("console", lambda message: message.type == "error" and window.errors.append(message.text))
        return window

    def reset(self) -> None:
        """Restore the state of a new window, for another test. Listeners stay: a test removes those that it adds."""
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.evaluate("localStorage.clear(); sessionStorage.clear();")
        self.page.goto("about:blank")
        self.page.context.clear_permissions()
        self.page.set_viewport_size(self.options["viewport"])
        self.page.mouse.move(0, 0)
        self.errors.clear()


@pytest.fixture(scope="package")
def idle_windows(browser: Any) -> list[Window]:
    """Windows that no test uses. To load the page in a new one takes three times the processor time."""
    return []


@pytest.fixture
def open_page(browser: Any, idle_windows: list[Window]) -> Iterator[Callable[..., Any]]:
    """A function that opens an address in a window of its own; an error in the console fails the test."""
    used: list[Window] = []

    def open_page(address: str, **options: Any) -> Any:
        options = {"viewport": WINDOW, "reduced_motion": "reduce"} | options
        window = next((window for window in idle_windows if window.options == options), None)
        if window:
            idle_windows.remove(window)
        used.append(window or Window.open(browser, options))
        used[-1].page.goto(address)
        return used[-1].page

    yield open_page
    errors = [line for window in used for line in window.errors]
    for window in used:
        try:
            window.reset()
            idle_windows.append(window)
        except sync_api.Error:  # a test that failed may leave it in any state
            window.page.context.close()
    expected = (
        "status of 400",
        "status of 403",
        "status of 404",
        "status of 413",
        "status of 429",
        "status of 503",
        "ERR_",
    )
    assert not [line for line in errors if not any(known in line for known in expected)]


@pytest.fixture
def page(open_page: Callable[..., Any], address: str, inspection: Inspection, translator: Translator) -> Any:
    """The page with the inspection of TEXT, with everything that it can show."""
    page = open_page(f"{address}#text={TEXT}&sentence=0&{EXPERTS}")
    settled(page, translator.tokenizer.decode(inspection.best.tokens))
    draw_figures(page)
    return page
