"""The documentation: the site builds without warnings, is complete, and refers only to what exists."""

import inspect
import json
import re
import runpy
import shlex
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.main import get_command

import transduce
from transduce.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
ANOTHER_PACKAGE = runpy.run_path(str(ROOT / "tests/third_party_feature/last_token/__init__.py"))["FEATURE"].commands
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.fixture(scope="module")
def site(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with the options of `make docs`."""
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package)
    recipe = re.search(r"\$\(BIN\)/python -m sphinx (.*) build/docs", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert recipe
    assert "--fail-on-warning" in recipe[1]
    folder = tmp_path_factory.mktemp("site")
    # A fifth of the time is spent on garbage collection, and an eighth on the stems of words to search for.
    faster = "import gc, sphinx.search.en as en; gc.disable(); en.SearchEnglish.stem = lambda self, word: word"
    done = transduce(*shlex.split(recipe[1]), folder, program="sphinx", cwd=ROOT, before=faster)
    assert (done.code, done.err) == (0, "")
    return folder


def text_of(page: Path) -> str:
    """The text of an HTML page, without tags."""
    return " ".join(unescape(re.sub("<[^>]+>", "", page.read_text(encoding="utf-8"))).split())


def code_of(page: Path) -> list[str]:
    """The lines of all code blocks, and all inline code."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    inline = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    return lines + [" ".join(code.split()) for code in inline]


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()


@pytest.mark.parametrize("name", transduce.__all__)
def test_every_public_name_is_documented(site: Path, name: str) -> None:
    html, text = (site / "api.html").read_text(encoding="utf-8"), text_of(site / "api.html")
    assert f'id="transduce.{name}"' in html
    docstring = inspect.getdoc(getattr(transduce, name))
    assert docstring
    assert " ".join(docstring.partition("\n\n")[0].replace("`", "").split()) in text


def test_every_command_and_option_is_documented(site: Path) -> None:
    html, text = (site / "command-line.html").read_text(encoding="utf-8"), text_of(site / "command-line.html")
    commands = dict(runpy.run_path(str(ROOT / "docs" / "command_line.py"))["commands"]())
    assert {"transduce train", "transduce data check"} <= commands.keys()
    for name, command in commands.items():
        assert f'id="{name.replace(" ", "-")}"' in html
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                assert option in text


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = link.partition("#")
        if not re.match("https?:", link):
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@every_page
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    for name in re.findall(r"`((?:\w+/)+[\w-]+\.(?:py|c|h|toml|sh|json|md))`", page.read_text(encoding="utf-8")):
        assert any((folder / name).exists() for folder in (ROOT, ROOT / "src" / "transduce")), name


@pytest.fixture(scope="module")
def commands() -> Any:
    """The parser of the command line."""
    return get_command(app)


@every_page
def test_every_command_of_a_page_is_valid(page: Path, commands: Any) -> None:
    for code in code_of(page):
        words = shlex.split(code.partition(" | ")[2] or code, comments=True) if "transduce " in code else []
        if "transduce" not in words[:1] or not re.match("[a-z]", "".join(words[1:])) or words[1] in ANOTHER_PACKAGE:
            continue
        words = words[1 : min(words.index(word) if word in words else len(words) for word in "<>")]
        command = commands
        while hasattr(command, "commands") and words:
            command = command.commands[words.pop(0)]
        if words:  # otherwise only the name is mentioned
            command.make_context("transduce", words)


@every_page
def test_python_examples_import_what_exists(page: Path) -> None:
    for line in code_of(page):
        if re.match(r"(from|import) transduce", line):
            exec(line, {})


@pytest.fixture(scope="module")
def figures() -> Any:
    """The names of docs/figures.py."""
    return runpy.run_path(str(ROOT / "docs" / "figures.py"))


ENTRIES: dict[str, Any] = {
    "decode": {
        "what": "Speed",
        "unit": "tokens/s",
        "processor": "a CPU",
        "command": "python decode.py",
        "recorded": "2026-11-17",
        "results": {
            "greedy": {"ours": 342631.9, "ours / it": 4.528},
            "beam 4": {"ours": 98765.4, "seeds": [1.5, 2.25]},
        },
    }
}


def test_every_figure_of_the_pages_is_that_of_the_file(figures: Any) -> None:
    entries = json.loads((ROOT / "benchmarks" / "figures.json").read_text(encoding="utf-8"))
    assert list(figures["wrong"](ROOT, entries, write=False)) == []
    for entry in entries.values():
        assert {"processor", "command", "results"} <= entry.keys()


def test_figures_of_a_text_are_written_as_they_are_rounded(figures: Any) -> None:
    sources = "343,000 = decode > greedy > ours\n4.5 = decode > greedy > ours / it\n"
    page = f"With 4.5 GB: 343,000 tokens/s, 4.5 times.\n\n<!-- figures\n{sources}-->\n"
    assert figures["fill"](page, ENTRIES) == page
    assert figures["without_source"](page) == ["4.5 GB"]
    assert figures["fill"](page.replace("343,000", "351,000"), ENTRIES) == page


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("343,000", 342_631.9, "343,000"),
        ("1,048", 1_050, "1,050"),
        ("1,000", 342_631.9, "342,600"),
        ("4.50", 4.528, "4.53"),
        ("1.5, 2.0", [1.5, 2.28], "1.5, 2.3"),
        ("90", 97, "97"),
        ("5", 12, "12"),
        ("14 of 14", "13 of 14", "13 of 14"),
    ],
)
def test_a_figure_is_rounded_like_the_text(text: str, value: object, shown: str, figures: Any) -> None:
    assert figures["like"](text, value) == shown


def test_a_table_is_written_from_an_entry(figures: Any) -> None:
    page = "<!-- table decode: ours; seeds -->\nold\n<!-- end -->"
    assert figures["fill"](page, ENTRIES).splitlines() == [
        "<!-- table decode: ours; seeds -->", "Speed:", "", "|  | ours | seeds |", "| --- | --- | --- |",
        "| greedy | 342,600 |  |", "| beam 4 | 98,770 | 1.50, 2.25 |", "",
        "<sub>tokens/s; a CPU; `python decode.py`; 2026-11-17</sub>", "<!-- end -->",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "page",
    [
        "5 s.\n\n<!-- figures\n5 = decode > greedy > theirs\n-->",
        "5 s.\n\n<!-- figures\n6 = decode > greedy > ours\n-->",
        "5 s.\n\n<!-- figures\n5\n-->",
        "<!-- table other -->\n<!-- end -->",
        "<!-- table decode: theirs -->\n<!-- end -->",
    ],
)
def test_a_wrong_source_is_refused(page: str, figures: Any) -> None:
    with pytest.raises(figures["FigureError"]):
        figures["fill"](page, ENTRIES)


@pytest.mark.parametrize("chart", sorted((ROOT / "docs" / "charts").glob("*.svg")), ids=lambda path: path.stem)
def test_a_chart_is_shown_and_described(chart: Path) -> None:
    assert ElementTree.parse(chart).getroot().get("aria-label")
    pages = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("results", "measurements")]
    assert f"(charts/{chart.name})" in "".join(pages)


def test_every_box_of_figure_1_leads_to_its_code(site: Path) -> None:
    svg = (ROOT / "docs" / "figure1.svg").read_text(encoding="utf-8")
    assert svg == runpy.run_path(str(ROOT / "docs" / "figure1.py"))["drawing"]()
    page = (site / "code.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="#([^"]+)"', svg)
    assert len(links) >= 15
    for link in links:
        assert f'id="{link}"' in page
        assert "highlight" in page.partition(f'id="{link}"')[2].partition("<section")[0]  # code follows


def test_the_home_page_shows_its_pictures(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    pictures = re.findall(r'(?:src|srcset|href)="(_static/(?:path|favicon)[^"?]*|_images/[^"]*)', page)
    assert len(pictures) >= 6
    for picture in pictures:
        assert (site / picture).stat().st_size > 0


def test_versions_of_the_site_stand_side_by_side(tmp_path: Path) -> None:
    publish = runpy.run_path(str(ROOT / "docs" / "versions.py"))["publish"]
    for version in ("0.9.0", "0.10.0rc1", "0.10.0", "0.9.0"):
        (tmp_path / "built").mkdir(exist_ok=True)
        (tmp_path / "built/objects.inv").write_bytes(f"# Sphinx inventory\n# Version: {version}\n".encode() + b"\xff")
        versions = publish(tmp_path / "built", tmp_path / "site")
    assert versions == ["0.10.0", "0.10.0rc1", "0.9.0"]
    assert json.loads((tmp_path / "site/versions.json").read_text(encoding="utf-8")) == versions
    assert 'url=0.10.0/index.html"' in (tmp_path / "site/index.html").read_text(encoding="utf-8")
