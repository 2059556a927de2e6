"""HTML: attributes, the language of a page, and its encoding."""

import re
from typing import Any
from unittest.mock import Mock

import pytest
from translated_documents import read, translated

from transduce.documents import html_text
from transduce.documents.document import AlignedTranslation, ReadOptions
from transduce.documents.html_text import HtmlText
from transduce.documents.read import read_document


def test_attributes_for_people_are_translated() -> None:
    texts = {text.text for text in read("attributes.html").texts}
    assert texts >= {
        'About "us"', "The whole page", "a hint", "a small cat", "strong", "Your name", "Send", "Some fruit",
        "open the menu", "See and this.",
    }  # fmt: skip
    assert not [text for text in texts if "kept" in text or text == "Brand"]
    written = translated(read("attributes.html"), lambda text: f'{text}"<')
    assert b"value=Send&quot;&lt;>" in written
    assert b'value="Send it"' in translated(read("attributes.html"), lambda text: f"{text} it")
    assert b"title='The whole page&quot;&lt;'" in written
    assert b'alt="a small cat&quot;&lt;"' in written


@pytest.mark.parametrize(
    ("tag", "translated_tag"),
    [
        ('<html lang="en">', '<html lang="de">'),
        ("<HTML class=a Lang=en-US>", "<HTML class=a Lang=de>"),
        ("<html xml:lang='en' lang='en'>", "<html xml:lang='de' lang='de'>"),
        ("<html data-lang=en>", "<html data-lang=en>"),
        ('<p lang="fr">', '<p lang="fr">'),
    ],
)
def test_a_translated_page_tells_its_language(tag: str, translated_tag: str) -> None:
    page = read_document("html", f"<!DOCTYPE html>{tag}<p>text</p>".encode(), "a.html", ReadOptions("en", "de"))
    assert translated(page, str.upper) == f"<!DOCTYPE html>{translated_tag}<p>TEXT</p>".encode()
    unknown = read_document("html", f"{tag}<p>text</p>".encode(), "a.html", ReadOptions())
    assert translated(unknown, str.upper) == f"{tag}<p>TEXT</p>".encode()


def test_a_character_that_the_encoding_lacks_becomes_a_reference() -> None:
    written = read("latin1.html").write([AlignedTranslation("кофе")])
    assert written.endswith("<p>&#1082;&#1086;&#1092;&#1077;</p>".encode("latin-1"))


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<div><a href=x>Home</a> <a href=y>About <b>us</b></a></div>", ["Home", "About us"]),
        ("<p><span><a>One</a></span> | <a>Two</a></p>", ["One", "Two"]),
        ("<p>See <a>this</a> <a>page</a></p>", ["See this page"]),
        ("<p><a>A whole sentence.</a></p>", ["A whole sentence."]),
    ],
)
def test_links_side_by_side_are_texts_of_their_own(page: str, texts: list[str]) -> None:
    document = read("a.html", page.encode())
    assert [text.text for text in document.texts] == texts
    upper = re.sub(r"(?<=>)[^<]+|^[^<]+", lambda text: text[0].upper(), page)
    assert translated(document, str.upper).decode() == upper


@pytest.mark.parametrize(
    ("page", "output", "written"),
    [
        ("H<sub>2</sub>O is wet.", "Nass ist H2O.", "Nass ist H<sub>2</sub>O."),
        (
            "C<sub>6</sub>H<sub>12</sub> and x<sub>1</sub>",
            "X1 und C6H12",
            "X<sub>1</sub> und C<sub>6</sub>H<sub>12</sub>",
        ),
        ("<i>un</i>usual", "ungewöhnlich", "<i>ungewöhnlich</i>"),
    ],
)
def test_a_tag_inside_a_copied_word_stays_inside(page: str, output: str, written: str) -> None:
    document = read("a.html", f"<p>{page}</p>".encode())
    length = len(document.texts[0].text)
    assert (
        document.write([AlignedTranslation(output, [((0, length), (0, len(output)))])]).decode() == f"<p>{written}</p>"
    )


@pytest.mark.parametrize("tags", ["<img src=a><img src=b>", "<input><!-- c --><input>"])
def test_no_space_comes_between_tags_side_by_side(tags: str) -> None:
    document = read("a.html", f"<p>Hi {tags} friend.</p>".encode())
    swapped = AlignedTranslation("Freund, hallo!", [((0, 2), (8, 13)), ((3, 9), (0, 6))])
    assert tags in document.write([swapped]).decode()
    hello = AlignedTranslation("Hallo Freund!", [((0, 2), (0, 5)), ((3, 9), (6, 12))])
    assert document.write([hello]).decode() == f"<p>Hallo {tags} Freund!</p>"


class _CountedText(str):
    """A text that counts the characters of its slices."""

    copied = 0

    def __getitem__(self, place: Any) -> str:
        part = super().__getitem__(place)
        self.copied += len(part)
        return part


def test_the_time_for_many_tags_grows_with_their_number() -> None:
    """Once, the rest of the page was copied for each tag: 5 MB of tags took minutes."""
    page = _CountedText("<b>a</b><div>" * 1_000)
    assert len(HtmlText(page).texts) == 1_000
    assert page.copied < 10 * len(page)


def test_a_page_is_scanned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = Mock(wraps=html_text._read_tag)
    attributes = Mock(wraps=html_text._attributes_with_text)
    monkeypatch.setattr(html_text, "_read_tag", tags)
    monkeypatch.setattr(html_text, "_attributes_with_text", attributes)
    document = read_document("html", b"<div>" * 500 + b'<img alt="A cat">', "a.html", ReadOptions("en", "de"))
    assert [text.text for text in document.texts] == ["A cat"]
    assert (tags.call_count, attributes.call_count) == (501, 1)


def test_a_number_by_itself_is_a_text_if_it_has_groups_a_currency_or_a_unit() -> None:
    numbers = ["7", "2.10", "3.11.4", "0.125", "3,14", "1,200", "1.234,50", "$4.99", "8.5%", "2.5 kg", "5:30"]
    document = read("a.html", "".join(f"<td>{number}</td>" for number in numbers).encode())
    assert [tagged.text for tagged in document.texts] == numbers[5:]
