"""The page of `transduce export --to web` in Chromium: it needs no server and no network, and checks files."""

import functools
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pages import expect

from transduce.models.folder import BUNDLED
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
    export_site(BUNDLED, tmp_path / "site")
    server = SiteServer(tmp_path / "site")
    yield server
    server.stop()


def test_it_translates_offers_alternatives_and_works_offline(open_page: Callable[..., Any], server: SiteServer) -> None:
    page = open_page(f"{server.address}#text=Where is the station?&to=de")
    expect(page.locator("#translation")).to_have_text("Wo ist der Bahnhof?")
    expect(page.locator("footer")).to_contain_text("translated in this browser and sent nowhere")
    assert page.locator(".look, .examples").count() == 0
    page.get_by_text("Bahnhof?", exact=True).click()
    expect(page.locator(".alternatives li").first).to_contain_text("Bahnhof")
    page.keyboard.press("Escape")
    page.locator("#text").fill("Good morning!\nWhere are you?")
    expect(page.locator("#translation p")).to_have_text(["Guten Morgen!", "Wo bist du?"])
    server.stop()
    page.goto("about:blank")
    page.goto(f"{server.address}#text=I am hungry.&to=fr")
    expect(page.locator("#translation")).to_have_text("J'ai faim.")


def test_a_damaged_file_gets_one_clear_message(open_page: Callable[..., Any], server: SiteServer) -> None:
    damaged = max((server.folder / "model").glob("*.bin"), key=lambda path: path.name)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    page = open_page(f"{server.address}#text=Where is the station?&to=de")
    expect(page.get_by_role("alert")).to_contain_text(
        f"{damaged.name} is damaged: it is not the file that was exported"
    )
