"""`transduce inspect`: one page, or one line that says why not."""

from pathlib import Path
from typing import Any

import pytest
from commands import complaint, inspected_header


def test_inspect_writes_one_self_contained_page(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = ["--beam", "2", "--prefix", "gigo", "--off", "cross.1.2", "-o", tmp_path / "look.html"]
    outcome = transduce("inspect", "-m", "run", "babo dedu", *words, cwd=trained.folder)
    assert (outcome.code, outcome.err) == (0, "")
    source, output, _ = outcome.out.splitlines()
    assert source == "babo dedu"
    assert output.startswith("→ gigo")
    header = inspected_header(tmp_path / "look.html")
    assert (header["text"], header["beam"], header["off"]) == ("babo dedu", 2, ["cross.1.2"])
    assert output == f"→ {header['translation']}"


def test_the_translation_has_the_protected_text(transduce: Any, tmp_path: Path) -> None:
    text = "Write to info@example.com before 5:30."
    many = " and ".join(f"{number}.5 apples" for number in range(12))
    assert transduce("inspect", many, "--to", "de", "-o", tmp_path / "many.html", cwd=tmp_path).code == 0
    outcome = transduce("inspect", text, "--to", "de", "-o", tmp_path / "look.html", cwd=tmp_path)
    _, output, _ = outcome.out.splitlines()
    assert "info@example.com" in output
    assert "5:30" in output
    assert output == f"→ {inspected_header(tmp_path / 'look.html')['translation']}"


def test_inspect_writes_a_site_with_a_page_for_each_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("babo dedu\tstack=encoder&view=1\n\ngigo\n", encoding="utf-8")
    site = ["--site", tmp_path / "site", tmp_path / "texts.txt"]
    outcome = transduce("inspect", "-m", "run", *site, cwd=trained.folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("wrote 2 pages: ")
    headers = [inspected_header(tmp_path / "site" / f"{number}.html") for number in (1, 2)]
    assert [header["text"] for header in headers] == ["babo dedu", "gigo"]
    assert 'id="view">stack=encoder&view=1<' in (tmp_path / "site/1.html").read_text(encoding="utf-8")
    assert all(header["translation"] in (tmp_path / "site/index.html").read_text() for header in headers)
    assert sorted(path.name for path in (tmp_path / "site/static").iterdir()) == ["page.css", "page.js"]
    again = complaint(transduce("inspect", "-m", "run", *site, cwd=trained.folder))
    assert "exists already; name a new folder" in again
    both = ["--site", tmp_path / "new", tmp_path / "texts.txt", "-o", tmp_path / "a.html"]
    refused = complaint(transduce("inspect", "-m", "run", *both, cwd=trained.folder))
    assert refused == "--site writes a folder of pages, --out a page; leave out one of them"
    (tmp_path / "long.txt").write_text("babo\n" + "babo " * 300, encoding="utf-8")
    long = complaint(
        transduce("inspect", "-m", "run", "--site", tmp_path / "new", tmp_path / "long.txt", cwd=trained.folder)
    )
    assert "sentence 2: the text has 301 tokens" in long
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([" "], "the text is empty"),
        (["babo", "--off", "cross.1.9"], "head cross.1.9 does not exist: cross has layers 1 to 1 with heads 1 to 2"),
        (["babo", "--beam", "99"], "beam must be at most 16"),
        (["babo " * 300], "the text has 301 tokens; the model takes 256: shorten it"),
        (["babo", "-o", "nowhere/look.html"], "nowhere/look.html"),
        (["nothing.txt", "--site", "site"], "nothing.txt"),
    ],
)
def test_inspect_refuses_what_it_cannot_show_in_one_line(
    transduce: Any, trained: Any, words: list[str], reason: str
) -> None:
    assert reason in complaint(transduce("inspect", "-m", "run", *words, cwd=trained.folder))
