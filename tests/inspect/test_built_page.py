"""The page in the package is built from the current sources in `web/`, and is small."""

import gzip
import hashlib
from pathlib import Path

from transduce.inspect.page import MEDIA_TYPES, static_file

WEB = Path(__file__).parents[2] / "web"


def test_the_page_is_built_from_the_current_sources() -> None:
    names = [f"src/{path.name}" for path in (WEB / "src").iterdir()] + ["build.mjs", "package-lock.json"]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\n".encode() + (WEB / name).read_bytes())
    first_line = static_file("page.js").split(b"\n")[0].decode()
    assert first_line.split()[-1] == digest.hexdigest(), "the page is older than its sources: run `make web`"


def test_the_page_takes_at_most_100_kilobytes_compressed() -> None:
    assert sum(len(gzip.compress(static_file(name))) for name in MEDIA_TYPES) <= 100_000
