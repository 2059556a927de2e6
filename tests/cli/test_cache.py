"""`transduce cache`: its size, and emptying it."""

import os
import time
from pathlib import Path
from typing import Any

from commands import in_cache
from toy_run import TINY, as_sets, write_lines


def test_the_cache_is_measured_and_emptied_of_our_files_only(transduce: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before = in_cache(cache)
    outcome = transduce("cache", cwd=tmp_path, before=before)
    assert (outcome.code, outcome.out) == (0, f"{cache}: 0 bytes\n")
    write_lines(tmp_path / "text.tsv", [f"ba bo {n}\tbo ba {n}" for n in range(30)])
    words = ["train", "--train", "text.tsv", *as_sets(TINY), "--set", "train.steps=1", "--out", "run"]
    trained = transduce(*words, cwd=tmp_path, before=f"{before}os.environ['TRANSDUCE_NATIVE'] = '0'")
    assert trained.code == 0, trained.err
    (prepared,) = cache.iterdir()
    size = sum(path.stat().st_size for path in prepared.iterdir())

    foreign = cache / "letters"
    foreign.mkdir()
    (foreign / "dear.txt").write_text("Dear")
    (cache / ("0" * 32)).mkdir()  # the right name, but not a prepared corpus
    (cache / ("1" * 32)).symlink_to(foreign)
    (cache / f"native-{'a' * 16}.so").write_bytes(b"1234567")
    unfinished = [cache / f"{'2' * 32}.{name}.tmp" for name in ("old", "new")]
    for folder in unfinished:
        folder.mkdir()
    os.utime(unfinished[0], (time.time() - 7200,) * 2)

    shown = transduce("cache", cwd=tmp_path, before=before).out.splitlines()
    assert [line.split()[:3] for line in shown[1:]] == [
        ["2", "unfinished", "corpora"],
        ["1", "prepared", "corpora"],
        ["1", "compiled", "libraries"],
        ["3", "other", "files"],
    ]
    assert f"{size / 1000:.1f} kB" in shown[2]

    cleared = transduce("cache", "--clear", cwd=tmp_path, before=before)
    assert cleared.out.splitlines()[0] == f"{cache}: freed {(size + 7) / 1000:.1f} kB"
    left = {path.name for path in cache.iterdir()}
    assert left == {"letters", "0" * 32, "1" * 32, unfinished[1].name}
    assert (foreign / "dear.txt").read_text() == "Dear"
    again = transduce(*words, "--set", "train.steps=2", cwd=tmp_path, before=before)
    assert again.code == 0, again.err
    assert "resuming from" in again.err
