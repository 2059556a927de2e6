"""The page of `transduce export --to web` in Chromium: it needs no server and no network, and checks files."""

import functools
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from helpers import small_language_model, small_model
from pages import expect

from transduce.models.folder import BUNDLED, save_model
from transduce.web.site import export_site


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Write nothing."""


class SiteServer:
    """A server of files on a free local port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._files = (
            folder,
            ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))),
        )
        self.address = f"http://localhost:{self._files.server_port}/"
        threading.Thread(target=self._files.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._files.shutdown()
        self._files.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SiteServer]:
    export_site([("bundled", BUNDLED)], tmp_path / "site")
    server = SiteServer(tmp_path / "site")
    yield server
    server.stop()


def test_it_translates_offers_alternatives_and_works_offline(open_page: Callable[..., Any], server: SiteServer) -> None:
    page = open_page(f"{server.address}#text=Where is the station?&to=de")
    expect(page.locator("#translation")).to_have_text("Wo ist der Bahnhof?")
    expect(page.locator("footer")).to_contain_text("the text is sent nowhere")
    page.get_by_text("Bahnhof?", exact=True).click()
    expect(page.locator(".alternatives li").first).to_contain_text("Bahnhof")
    page.keyboard.press("Escape")
    look_inside(page)
    page.locator("#text").fill("Good morning!\nWhere are you?")
    expect(page.locator("#translation p")).to_have_text(["Guten Morgen!", "Wo bist du?"])
    server.stop()
    page.goto("about:blank")
    page.goto(f"{server.address}#text=I am hungry.&to=fr")
    expect(page.locator("#translation")).to_have_text("J'ai faim.")


def look_inside(page: Any) -> None:
    """Open an example, switch a head off, and read the numbers of another one."""
    expect(page.locator(".examples li")).to_have_count(5)
    page.locator(".examples summary").click()
    page.locator(".examples li button").first.click()
    expect(page.locator(".caption")).to_contain_text("looks from “it” to “animal”")
    expect(page.locator("#search-section .tree .node.winner")).to_have_count(1)
    page.locator("#reference-section textarea").fill("Das Tier war müde.")
    expect(page.locator(".scored-token").first).to_have_text("·Das")
    page.goto(f"{page.url}&off=cross.1.1,cross.1.2")
    expect(page.locator(".constraint")).to_contain_text("2 heads off")


def test_a_site_has_several_models_and_continues_texts(
    open_page: Callable[..., Any], toy_tokenizer: Any, tmp_path: Path
) -> None:
    facts: dict[str, Any] = {"directions": [["en", "de"]], "by_sentence": True}
    models = [small_model(number, toy_tokenizer.vocab_size) for number in (1, 2)]
    save_model(tmp_path / "first", models[0], toy_tokenizer, facts)
    save_model(tmp_path / "second", models[1], toy_tokenizer, facts | {"directions": [["en", "fr"]]})
    generates = {"task": "language_model", "max_length": 64}
    save_model(tmp_path / "poet", small_language_model(3, toy_tokenizer.vocab_size), toy_tokenizer, generates)
    names = ("first", "second", "poet")
    site = export_site([(name, tmp_path / name) for name in names], tmp_path / "site")
    assert site.purpose == "translates en to de, en to fr and continues texts"
    server = SiteServer(tmp_path / "site")
    page = open_page(f"{server.address}#text=dedu babo&to=fr&from=en")
    expect(page.get_by_label("Model")).to_contain_text("automatic: second")
    expect(page.locator("#translation")).not_to_be_empty()
    page.get_by_label("Beginning of the text").fill("dedu babo")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_label("Continuation")).not_to_be_empty()
    expect(page.get_by_role("button", name="Continue")).to_be_visible()  # not "Stop": it is complete
    server.stop()


def test_a_damaged_file_gets_one_clear_message(open_page: Callable[..., Any], server: SiteServer) -> None:
    damaged = max((server.folder / "model").glob("*.bin"), key=lambda path: path.name)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    page = open_page(f"{server.address}#text=Where is the station?&to=de")
    expect(page.get_by_role("alert")).to_contain_text(
        f"{damaged.name} is damaged: it is not the file that was exported"
    )
