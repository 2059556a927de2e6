"""`transduce translate` on documents."""

import gzip
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from commands import complaint
from document_samples import docx_of, paragraph, run

from transduce import ConfigError, DataError, Translator, translate_document


def translate(transduce: Any, trained: Any, *words: str | Path, **options: Any) -> Any:
    return transduce("translate", "-m", trained.run, *words, cwd=trained.folder, **options)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.docx"
    path.write_bytes(docx_of(paragraph(run("babo "), run("dedu", "<w:b/>"), run(" gigo")), paragraph(run("42"))))
    return path


def test_a_document_is_written_next_to_the_original(transduce: Any, trained: Any, report: Path) -> None:
    import docx

    outcome = translate(transduce, trained, report)
    assert outcome.code == 0, outcome.err
    assert outcome.out == ""
    written = report.with_name("report.translated.docx")
    assert f"{written} written: 1 text in " in outcome.err.splitlines()[-1]
    plain = translate(transduce, trained, "babo dedu gigo").out.strip()
    first, second, *_ = docx.Document(str(written)).paragraphs
    assert (first.text, second.text) == (plain, "42")
    bold = [part.text for part in first.runs if part.bold]
    assert len(bold) == 1
    assert bold[0] in plain
    with zipfile.ZipFile(report) as old, zipfile.ZipFile(written) as new:
        assert [name for name in old.namelist() if old.read(name) != new.read(name)] == ["word/document.xml"]
    written.write_text("edited")
    refused = complaint(translate(transduce, trained, report))
    assert refused == f"{written} exists already; name another file, or give --force to overwrite it"
    assert written.read_text() == "edited"
    assert translate(transduce, trained, report, "--force").code == 0
    assert docx.Document(str(written)).paragraphs[0].text == plain


def test_existing_translations_stay_unless_asked(transduce: Any, trained: Any, tmp_path: Path) -> None:
    catalogue = 'msgid "babo gigo"\nmsgstr ""\n\nmsgid "dedu"\nmsgstr "kept"\n'
    source, out = tmp_path / "a.po", tmp_path / "b.po"
    source.write_text(catalogue)
    plain = translate(transduce, trained, "babo gigo").out.strip()
    assert translate(transduce, trained, source, "-o", out).code == 0
    assert out.read_text() == catalogue.replace('msgstr ""', f'msgstr "{plain}"')
    assert translate(transduce, trained, source, "-o", out, "--retranslate", "--force").code == 0
    assert "kept" not in out.read_text()


@pytest.mark.parametrize(("before", "after"), [("", ""), ("<b>", "</b>")])
def test_the_mark_of_a_mnemonic_is_not_read_as_text(
    transduce: Any, trained: Any, tmp_path: Path, before: str, after: str
) -> None:
    (source := tmp_path / "a.po").write_text(f'msgid "{before}_babo gigo{after}"\nmsgstr ""\n')
    plain = translate(transduce, trained, "babo gigo").out.strip()
    assert translate(transduce, trained, source, "-o", "-").out.splitlines()[1] == f'msgstr "{before}_{plain}{after}"'


def test_standard_input_and_the_format_text(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = translate(transduce, trained, "--format", "html", stdin="<p>babo <b>gigo</b></p>\n")
    assert outcome.out.startswith("<p>")
    assert outcome.out.endswith("</p>\n")
    assert outcome.out.count("<b>") == outcome.out.count("</b>") == 1
    page = tmp_path / "a.md"
    page.write_text("babo gigo\n")
    plain = translate(transduce, trained, "babo gigo").out
    assert translate(transduce, trained, page, "--format", "text").out == plain


def test_a_dash_as_the_output_is_standard_output(transduce: Any, trained: Any, tmp_path: Path) -> None:
    page, text = tmp_path / "a.html", tmp_path / "a.txt"
    page.write_text("<p>babo gigo</p>\n")
    text.write_text("babo gigo\n")
    words = translate(transduce, trained, "babo gigo").out
    assert translate(transduce, trained, page, "--out", "-").out == f"<p>{words.strip()}</p>\n"
    assert translate(transduce, trained, text, "--out", "-").out == words
    assert complaint(translate(transduce, trained, text, "--out", "-", "--resume")).startswith("--resume needs --out")
    refused = transduce("inspect", "-m", trained.run, "babo", "--out", "-", cwd=trained.folder)
    assert complaint(refused) == "--out -: this command does not write to standard output; name a file"
    assert not (trained.folder / "-").exists()
    assert sorted(tmp_path.iterdir()) == [page, text]


def test_alternative_texts_of_markdown_are_translated(transduce: Any, trained: Any) -> None:
    separate, inside = "![babo gigo](a.png) [![1.0](b.svg)](c)\n", "\ndedu ![babo *gigo*](a.png) dedu\n"
    words = translate(transduce, trained, stdin="babo gigo\ndedu dedu\n").out.splitlines()
    outcome = translate(transduce, trained, "--format", "md", stdin=separate + inside)
    first, _, second = outcome.out.splitlines()
    assert first == f"![{words[0]}](a.png) [![1.0](b.svg)](c)"
    found = re.fullmatch(r"(.*) ?!\[(.*)\]\(a\.png\)(.*)", second)
    assert found
    assert (found[1] + found[3]).split() == words[1].split()
    assert found[2].replace("*", "") == words[0]


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_a_compressed_document_is_a_document(
    transduce: Any, trained: Any, tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    page = b"<p>babo <b>gigo</b></p>\n"
    (tmp_path / "page.html").write_bytes(page)
    (compressed := tmp_path / f"other.html{suffix}").write_bytes(compress(page))
    assert translate(transduce, trained, tmp_path / "page.html").code == 0
    assert translate(transduce, trained, compressed).code == 0
    assert (tmp_path / "other.translated.html").read_bytes() == (tmp_path / "page.translated.html").read_bytes()
    compressed.write_bytes(compress(page)[:-9])
    message = complaint(translate(transduce, trained, compressed, "--force"))
    assert message.startswith(f"{compressed}: damaged or cut short after line")


def test_documents_are_written_to_a_folder(transduce: Any, trained: Any, report: Path, tmp_path: Path) -> None:
    (page := tmp_path / "page.html").write_text("<p>babo</p>")
    (folder := tmp_path / "new.1").mkdir()
    assert translate(transduce, trained, report, page, "-o", folder).code == 0
    names = ["page.translated.html", "report.translated.docx"]
    assert sorted(path.name for path in folder.iterdir()) == names
    refused = complaint(translate(transduce, trained, report, page, "-o", folder))
    assert refused.startswith(f"{folder / names[1]} exists already; ")
    refused = complaint(translate(transduce, trained, page, page, "-o", folder, "--force"))
    assert refused == f"--out {folder}: several documents have the same name; translate them separately"
    refused = complaint(translate(transduce, trained, "--format", "html", "-o", folder, stdin="<p>babo</p>"))
    assert refused == f"--out {folder} is a folder; name a file for the document from standard input"


def test_mistakes_are_named(transduce: Any, trained: Any, report: Path, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("babo\n")
    damaged = tmp_path / "b.docx"
    damaged.write_bytes(report.read_bytes()[:3000])
    xml = tmp_path / "c.xliff"
    xml.write_text('<!DOCTYPE a [<!ENTITY a "b">]><xliff>&a;</xliff>')

    def mistake(*words: str | Path) -> str:
        return complaint(translate(transduce, trained, *words))

    assert mistake(report, text) == f"{text} is text, {report} is a document; translate them separately"
    (slides := tmp_path / "a.pptx").write_bytes(b"PK")
    assert mistake(slides).startswith(f"{slides}: .pptx files are not translated; convert it, e.g. to .docx")
    (resources := tmp_path / "a.properties").write_text("babo.title = babo gigo\n")
    assert mistake(resources).startswith(f"{resources}: .properties files are not translated; convert it")
    for name in ("a.md", "b.txt", "a.bin", "a.odt"):
        assert "has its format, docx; end its name in .docx" in mistake(report, "-o", tmp_path / name)
    assert "the output is lines of text; end its name in .txt" in mistake(text, "-o", tmp_path / "a.docx")
    assert "has its format, docx; end its name in .docx" in mistake(report, "-o", tmp_path / "a.jsonl")
    assert "there is no folder" in mistake(report, "-o", tmp_path / "missing" / "a.docx")
    lines_only = "documents do not support {}, only lines and rows do"
    assert mistake(report, "--long", "refuse") == lines_only.format("--long refuse")
    assert mistake(report, "--nbest", "2", "--confidence") == lines_only.format("--nbest, --confidence")
    assert mistake(report, "--resume") == lines_only.format("--resume")
    for text_format in ("html", "srt", "docx"):
        assert mistake("<p>babo gigo</p>", "--format", text_format) == (
            f"--format {text_format} is for files and standard input, and <p>babo gigo</p> is text; "
            f"pipe it in: echo TEXT | transduce translate --format {text_format}"
        )
    assert mistake(report, "--format", "rtf").startswith(
        "--format rtf is not known; use one of docx, html, md, odt, pdf, po, "
    )
    assert mistake(report, "--jsonl", "--shard", "1/2") == lines_only.format("--jsonl, --shard")
    assert mistake(text, "--retranslate") == "--retranslate needs a document; a text file has no translations"
    assert mistake(report, report, "-o", "x.docx").startswith("--out names one file, but there are several documents")
    assert mistake(damaged) == f"{damaged}: damaged, or not a file of this format (it is not a zip archive)"
    assert mistake(xml) == f"{xml}: XML that declares entities is not read; replace them by their text"
    assert not list(tmp_path.glob("*.translated.*"))


def test_a_model_can_be_trained_on_a_translation_memory(transduce: Any, trained: Any, tmp_path: Path) -> None:
    pairs = zip(*((trained.folder / f"train.{side}").read_text().splitlines() for side in ("src", "tgt")), strict=True)
    units = [
        f'<tu><tuv xml:lang="aa"><seg>{one}</seg></tuv><tuv xml:lang="bb"><seg>{other}</seg></tuv></tu>'
        for one, other in pairs
    ]
    memory = tmp_path / "memory.tmx"
    memory.write_text(f'<tmx version="1.4"><header srclang="aa"/><body>{"".join(units)}</body></tmx>')
    outcome = transduce("data", "check", memory, "-o", tmp_path / "clean.tsv", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "clean.tsv").read_text().count("\n") > 100
    outcome = transduce(
        "train", "--train", memory, "--valid", memory, "--preset", "tiny", *trained.words[11:],
        "--set", "train.steps=2", "--out", "run", cwd=tmp_path,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "run" / "model").is_dir()


def test_python_translates_a_document_as_the_command_does(transduce: Any, trained: Any, report: Path) -> None:
    assert translate(transduce, trained, report).code == 0
    expected = report.with_name("report.translated.docx")
    translator = Translator.load(trained.run)
    written = translate_document(translator, report, expected.with_name("other.docx"))
    assert written == expected.with_name("other.docx")
    assert written.read_bytes() == expected.read_bytes()
    with pytest.raises(
        ConfigError, match=r"exists already; name another file \(out\), or overwrite it with force=True"
    ):
        translate_document(translator, report)
    assert translate_document(translator, str(report), force=True) == expected
    with pytest.raises(ConfigError, match=r"a\.html: the translation of .* has its format, docx"):
        translate_document(translator, report, "a.html")
    with pytest.raises(ConfigError, match="there is no folder missing; make it first"):
        translate_document(translator, report, "missing/a.docx")
    with pytest.raises(DataError, match="has not the name of a document; translate lines with Translator"):
        translate_document(translator, "a.txt")
