"""The page in the package is built from the current sources in `web/`, and is small."""

import gzip
import hashlib
from importlib.resources import files
from pathlib import Path

from transduce.inspect.page import MEDIA_TYPES, static_file

WEB = Path(__file__).parents[2] / "web"


def test_the_page_is_built_from_the_current_sources() -> None:
    names = [f"{folder}/{path.name}" for folder in ("src", "package/src") for path in (WEB / folder).iterdir()]
    digest = hashlib.sha256()
    for name in sorted([*names, "build.mjs", "package-lock.json"]):
        digest.update(f"{name}\n".encode() + (WEB / name).read_bytes())
    site = Path(str(files("transduce.web"))) / "static"
    for content in (
        static_file("page.js"),
        *((site / f"{name}.js").read_bytes() for name in ("worker", "service-worker")),
    ):
        first_line = content.split(b"\n")[0].decode()
        assert first_line.split()[-1] == digest.hexdigest(), "the page is older than its sources: run `make web`"


def test_the_page_takes_at_most_100_kilobytes_compressed() -> None:
    assert sum(len(gzip.compress(static_file(name))) for name in MEDIA_TYPES) <= 100_000
