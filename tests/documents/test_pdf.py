"""PDF files: the paragraphs that their lines are joined to, and the documents that are written of them."""

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import docx
import pytest
from commands import complaint
from document_samples.pdf import PdfLine, pdf_of, text_lines
from pypdf import PdfReader, PdfWriter
from translated_documents import read, translated

from transduce.errors import DataError

FIRST = ("The committee met on the third of March to discuss", "the budget of the coming year, and it was agreed that")
LAST = "a report is written."


def texts(*pages: list[PdfLine], **options: Any) -> list[str]:
    return [text.text for text in read("a.pdf", pdf_of(*pages), **options).texts]


def test_lines_become_paragraphs_at_gaps_sizes_and_marks() -> None:
    heading = (70.0, 740.0, 18.0, "Annual report")
    listed = text_lines("- the first point of the list, which is long enough", "for two lines", "- the second", y=600)
    assert texts([heading, *text_lines(*FIRST, LAST), *text_lines(*FIRST, LAST, y=655), *listed]) == [
        "Annual report",
        f"{FIRST[0]} {FIRST[1]} {LAST}",
        f"{FIRST[0]} {FIRST[1]} {LAST}",
        "- the first point of the list, which is long enough for two lines",
        "- the second",
    ]


def test_a_paragraph_ends_at_a_short_line_or_before_an_indented_one() -> None:
    full = "This line of the paragraph is full to its end."
    assert texts(text_lines(*FIRST, LAST, *FIRST)) == [" ".join([*FIRST, LAST]), " ".join(FIRST)]
    indented = [*text_lines(*FIRST, full), (85, 664, 10, FIRST[0]), (70, 652, 10, FIRST[1])]
    assert texts(indented) == [" ".join([*FIRST, full]), " ".join(FIRST)]
    assert texts(text_lines("babo", "gigo", *FIRST, *FIRST)) == ["babo", "gigo", " ".join([*FIRST, *FIRST])]


@pytest.mark.parametrize(
    ("above", "below", "joined"),
    [
        ("the trans-", "lation", "the translation"),
        ("a well-", "known name", "a well-known name"),  # which is known from elsewhere in the document
        ("from Jean-", "Paul", "from Jean-Paul"),
        ("the trans\xad", "lation", "the translation"),
        ("from 1990 -", "2000", "from 1990 - 2000"),
    ],
)
def test_words_divided_at_the_end_of_a_line_are_joined(above: str, below: str, joined: str) -> None:
    before = "The well-known author of this report writes about"
    found = texts(text_lines(before, f"all the other lines of the page and {above}", f"{below} and of all other lines"))
    assert found == [f"{before} all the other lines of the page and {joined} and of all other lines"]


def test_a_paragraph_continues_on_the_next_page_or_in_the_next_column() -> None:
    following = text_lines("the other half of the sentence follows on the top.", y=780, x=300)
    assert texts([*text_lines(*FIRST), *following]) == [f"{' '.join(FIRST)} {following[0][3]}"]
    assert texts(text_lines(*FIRST), following) == [f"{' '.join(FIRST)} {following[0][3]}"]
    assert texts(text_lines(*FIRST), text_lines(*FIRST)) == [" ".join(FIRST)] * 2


def test_headers_and_footers_are_left_out_if_three_pages_have_them() -> None:
    def page(number: int) -> list[PdfLine]:
        margins = [(70.0, 800.0, 8.0, "Example Company"), (300.0, 30.0, 8.0, f"Page {number}")]
        return [*margins, *text_lines(*FIRST, f"in part {number}.")]

    body = [f"{' '.join(FIRST)} in part {number}." for number in (1, 2, 3)]
    assert texts(page(1), page(2), page(3)) == body
    assert texts(page(1), page(2)) == ["Example Company", "Page 1", body[0], "Example Company", "Page 2", body[1]]


def test_the_translation_is_a_docx_file_with_the_sizes_of_the_text() -> None:
    document = read("a.pdf", pdf_of([(70, 740, 18, "Annual report & plan"), *text_lines(*FIRST)]))
    written = docx.Document(io.BytesIO(translated(document, str.upper)))
    assert [paragraph.text for paragraph in written.paragraphs] == ["ANNUAL REPORT & PLAN", " ".join(FIRST).upper()]
    runs = [paragraph.runs[0] for paragraph in written.paragraphs]
    assert [(run.font.size.pt, bool(run.bold)) for run in runs] == [(18, True), (10, False)]


def test_the_translation_as_text_has_a_line_for_each_paragraph() -> None:
    document = read("a.pdf", pdf_of([(70, 740, 18, "Annual report"), *text_lines(*FIRST)]), output="text")
    assert translated(document, str.upper).decode() == f"ANNUAL REPORT\n\n{' '.join(FIRST).upper()}\n"


def test_pages_without_text_are_told() -> None:
    document = read("a.pdf", pdf_of(text_lines(*FIRST), [], []))
    assert document.warning == "a.pdf: no text on 2 of 3 pages (first: page 2)"
    assert not read("a.pdf", pdf_of(text_lines(*FIRST))).warning


def encrypted(password: str, algorithm: str) -> bytes:
    writer, written = PdfWriter(PdfReader(io.BytesIO(pdf_of(text_lines(*FIRST))))), io.BytesIO()
    writer.encrypt(password, "owner", algorithm=algorithm)
    writer.write(written)
    return written.getvalue()


def test_a_file_without_a_password_for_reading_is_read() -> None:
    assert [text.text for text in read("a.pdf", encrypted("", "RC4-128")).texts] == [" ".join(FIRST)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encrypted("secret", "RC4-128"), "encrypted; remove the password first"),
        (pdf_of([], []), "no text, only pictures; recognize its text first, for example with ocrmypdf"),
        (b"%PDF-1.7\n", "damaged, or not a PDF file: "),
        (b"", "damaged, or not a PDF file: "),
        (b"<html>", "damaged, or not a PDF file: "),
        (pdf_of(text_lines(*FIRST)).replace(b"/Kids [5 0 R]", b"/Kids [2 0 R]"), ""),
        (pdf_of(text_lines(*FIRST)).replace(b"/Pages 2 0 R", b"/Pages 3 0 R"), ""),
    ],
)
def test_files_that_cannot_be_read_get_one_line(data: bytes, message: str) -> None:
    with pytest.raises(DataError) as raised:
        read("a.pdf", data)
    assert str(raised.value).startswith(f"a.pdf: {message}")
    assert "\n" not in str(raised.value)


def test_every_cut_or_changed_file_is_read_or_refused() -> None:
    data = pdf_of([(70, 740, 18, "Annual report"), *text_lines(*FIRST)])
    for place in range(0, len(data), 23):
        for damaged in (data[:place], data[:place] + b"\xff\x00>>" + data[place + 4 :]):
            with suppress(DataError):
                read("a.pdf", damaged)


def test_command(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (source := tmp_path / "a.pdf").write_bytes(pdf_of(text_lines("babo dedu", y=700), text_lines(y=600), []))

    def translate(*words: str | Path) -> Any:
        return transduce("translate", "-m", trained.run, source, *words, cwd=trained.folder)

    outcome = translate()
    assert outcome.code == 0, outcome.err
    assert f"warning: {source}: no text on 2 of 3 pages (first: page 2)" in outcome.err
    (paragraph,) = docx.Document(str(tmp_path / "a.translated.docx")).paragraphs
    assert translate("-o", tmp_path / "a.txt").code == 0
    assert (tmp_path / "a.txt").read_text() == f"{paragraph.text}\n"
    message = complaint(translate("-o", tmp_path / "b.pdf"))
    assert message.endswith(f"the translation of {source} is written as docx or text; end its name in .docx or .txt")
    (tmp_path / "a.txt").write_text("edited\n")
    for words, written in (((), "a.translated.docx"), (("-o", tmp_path / "a.txt"), "a.txt")):
        message = complaint(translate(*words))
        assert message == f"{tmp_path / written} exists already; name another file, or give --force to overwrite it"
    assert (tmp_path / "a.txt").read_text() == "edited\n"
    assert translate("-o", tmp_path / "a.txt", "--force").code == 0
    assert (tmp_path / "a.txt").read_text() == f"{paragraph.text}\n"
