"""Damaged and malicious documents: one clear line, no more memory than the limits allow, nothing else is read."""

import contextlib
import io
import struct
import zipfile
from pathlib import Path

import pytest
from document_samples import SAMPLES, docx_of, odt_of, paragraph, replace_member, run
from hypothesis import given
from hypothesis import strategies as st

from transduce.deadline import Deadline
from transduce.documents import package
from transduce.documents.document import AlignedTranslation, ReadOptions
from transduce.documents.read import read_document
from transduce.errors import DataError

BOMB = '<!DOCTYPE a [<!ENTITY a "' + "a" * 100 + '">' + '<!ENTITY b "' + "&a;" * 100 + '">]>'


def refusal(kind: str, data: bytes) -> str:
    """The message of the error; it has one line."""
    with pytest.raises(DataError) as error:
        read_document(kind, data, f"file.{kind}", ReadOptions("en", "de"))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("kind", ["xliff", "tmx"])
@pytest.mark.parametrize(
    "declaration",
    [BOMB, '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>', '<!DOCTYPE a [<!ENTITY % x SYSTEM "http://x/">]>'],
)
def test_entities_are_not_declared(kind: str, declaration: str) -> None:
    text = f"{declaration}<{kind}>&b;</{kind}>".encode()
    assert refusal(kind, text) == f"file.{kind}: XML that declares entities is not read; replace them by their text"


def test_an_entity_bomb_in_a_package() -> None:
    source = f"{BOMB}<w:document/>"
    data = replace_member(docx_of(), word__document_xml=source)
    assert refusal("docx", data).startswith("file.docx: word/document.xml: XML that declares entities is not read")


def test_other_files_are_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmx14.dtd").write_text('<!ENTITY x "secret">')
    monkeypatch.chdir(tmp_path)
    data = SAMPLES["memory.tmx"]().replace(b"with ", b"&x; with ")
    document = read_document("tmx", data, "a.tmx", ReadOptions("en", "de"))
    assert "secret" not in document.texts[0].text


def zip_of(**members: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return written.getvalue()


def test_zip_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MAX_MEMBER_BYTES", 10_000)
    monkeypatch.setattr(package, "MAX_PACKAGE_BYTES", 100_000)
    data = zip_of(word__document_xml=b" " * 10_001)
    assert refusal("docx", data) == "file.docx: its member 'word/document.xml' has 10,001 bytes, more than 10,000"
    data = zip_of(**{f"m{number}": b" " * 30_000 for number in range(4)}, content_xml=b"<a/>")
    assert refusal("odt", data) == "file.odt: more than 10,000 members or 0 MB when decompressed"


def test_a_member_that_is_larger_than_its_entry_says(monkeypatch: pytest.MonkeyPatch) -> None:
    data = zip_of(content_xml=b"<a>" + b" " * 100_000 + b"</a>")
    size = struct.pack("<L", 100_007)
    assert data.count(size) == 2
    assert refusal("odt", data.replace(size, struct.pack("<L", 10))).startswith("file.odt: its member 'content.xml' is")


def test_files_of_another_kind() -> None:
    assert refusal("docx", b"plain text") == (
        "file.docx: damaged, or not a file of this format (it is not a zip archive)"
    )
    assert refusal("docx", odt_of("")) == "file.docx: not a DOCX file: it has no word/document.xml"
    assert refusal("odt", docx_of()) == "file.odt: not an ODT file: it has no content.xml"
    assert refusal("xliff", SAMPLES["memory.tmx"]()) == "file.xliff: not an XLIFF file: its outermost element is tmx"
    assert refusal("vtt", b"1\n") == "file.vtt: not a WebVTT file: it does not start with WEBVTT"
    assert refusal("srt", b"some text").startswith("file.srt: no subtitle found; a cue begins with")
    assert refusal("po", b'msgid "a"\nnonsense\n') == "file.po, line 1: not a line of a PO file in this message"


def test_broken_encodings() -> None:
    assert refusal("md", b"fine\n\xff\xfe\xfa") == (
        "file.md, line 2: not UTF-8; convert the file, e.g. with: iconv -f ISO-8859-1 -t UTF-8 FILE"
    )
    assert refusal("html", b'<meta charset="klingon">') == (
        "file.html: the encoding klingon is not known; convert the file to UTF-8"
    )
    assert refusal("md", b"\x89PNG\r\n\x1a\n") == "file.md, line 1: not UTF-8; this is not a text file"
    assert refusal("srt", b"a\0b") == "file.srt, line 1: a NUL character; this is not a text file"
    assert refusal("xliff", b'<?xml version="1.0" encoding="utf-8"?><xliff>\xff</xliff>') == (
        "file.xliff, line 1: not UTF-8; convert the file, e.g. with: iconv -f ISO-8859-1 -t UTF-8 FILE"
    )
    assert refusal("tmx", b'<?xml version="1.0" encoding="zip"?><tmx/>').startswith("file.tmx: the encoding zip is not")


def test_deep_and_broken_xml() -> None:
    assert refusal("xliff", b"<xliff>" + b"<g>" * 300) == "file.xliff: elements are nested more than 256 deep"
    assert refusal("xliff", b"<xliff>\n<file></xliff>") == "file.xliff, line 2: not well-formed XML: mismatched tag"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("docx", docx_of(*[paragraph(run("a"))] * 10)),
        ("xliff", b"<xliff>" + b"<g/>" * 30 + b"</xliff>"),
        ("po", b'msgid "a"\nmsgstr ""\n\n' * 20),
        ("srt", b"00:00:01,000 --> 00:00:02,000\na\n\n" * 20),
    ],
)
def test_a_server_limits_the_objects_of_a_file(kind: str, data: bytes) -> None:
    read_document(kind, data, "a", ReadOptions("en", "de"))
    with pytest.raises(DataError, match="more than 25 elements"), Deadline(60, 25).applied():
        read_document(kind, data, "a", ReadOptions("en", "de"))


def test_an_encrypted_package() -> None:
    data = bytearray(zip_of(content_xml=b"<a/>"))
    directory = data.index(b"PK\x01\x02")
    data[directory + 8] |= 1
    data[6] |= 1
    assert refusal("odt", bytes(data)).endswith("is encrypted; remove the password first")


@given(st.data())
def test_cut_and_changed_files_give_an_error_or_a_document(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SAMPLES)))
    content = bytearray(SAMPLES[name]())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    with contextlib.suppress(DataError):
        document = read_document(name.rpartition(".")[2], bytes(content), name, ReadOptions("en", "de"))
        document.write([AlignedTranslation("x" + text.text) for text in document.texts])


def test_a_paragraph_with_many_runs_takes_linear_time() -> None:
    data = docx_of(paragraph(*(run("word ", "<w:b/>" if number % 2 else "") for number in range(4000))))
    document = read_document("docx", data, "a.docx", ReadOptions())
    assert len(document.texts) == 1


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("srt", b"00:00:01,000 --> 00:00:02,000\n" + b"a b\n" * 20_000),
        ("srt", b"00:00:01,000 --> 00:00:02,000\na b\n" + b" " * 400_000),
        ("md", b"A cat `` " + b"` " * 20_000 + b"`` here."),
        ("po", b'msgid ""\nmsgstr ""\n\nmsgid "&Open ' + b"%s " * 10_000 + b'"\nmsgstr ""\n'),
    ],
)
def test_time_and_memory_are_proportional_to_the_size(kind: str, data: bytes) -> None:
    document = read_document(kind, data, f"file.{kind}", ReadOptions("en", "de"))  # hours if they were quadratic
    (text,) = document.texts
    written = document.write([AlignedTranslation(text.text.replace("a", "x").replace("Open", "Out"))])
    assert abs(len(written) - (2 * len(data) if kind == "po" else len(data))) < 100
    assert written.count(b"\n") == data.count(b"\n")
