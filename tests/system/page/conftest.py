"""Fixtures of the page: a small model, a server and Chromium."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import small_model
from pages import TEXT, TIMEOUT, draw_figures, serve_page, settled, sync_api

from transduce.inspect.inspection import Inspection, InspectionRequest, inspect_translation
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import EOS, Tokenizer
from transduce.translator import Translator

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WINDOW = {"width": 1280, "height": 900}


@pytest.fixture(scope="session")
def page_translator(toy_tokenizer: Tokenizer) -> Translator:
    """Random weights with large positional encodings and a probable end: outputs vary, and depend on every head."""
    torch.set_num_threads(1)  # a model this small is slower with several threads
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
    return inspect_translation(translator, InspectionRequest(text=TEXT))


@pytest.fixture(scope="session")
def address(translator: Translator) -> Iterator[str]:
    with serve_page(translator) as address:
        yield address


@pytest.fixture(scope="module")  # not the session: while Playwright runs, asyncio.run fails in every other test
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """A function that opens an address in a new window; an error in the console fails the test."""
    errors: list[str] = []
    contexts = []

    def open_page(address: str, **options: Any) -> Any:
        contexts.append(browser.new_context(**{"viewport": WINDOW, "reduced_motion": "reduce"} | options))
        page = contexts[-1].new_page()
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
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
    """The page with the inspection of TEXT."""
    page = open_page(f"{address}#text={TEXT}&sentence=0")
    settled(page, translator.tokenizer.decode(inspection.best.tokens))
    draw_figures(page)
    return page
