"""Every sample document, translated by a function instead of a model."""

import re
from typing import Any

import pytest
from document_samples import SAMPLES
from translated_documents import BILINGUAL, members, read, translated

from transduce.translation.markup import TaggedText

NAMES = sorted(SAMPLES)
MONOLINGUAL = [name for name in NAMES if not name.endswith(BILINGUAL)]


def visible(name: str, data: bytes) -> list[str]:
    """The text of every paragraph of a package, with the formatting of its characters, in the order of the file."""
    from lxml import etree

    content = []
    for member, source in members(name, data).items():
        if not member.endswith(".xml"):
            continue
        root = etree.fromstring(source)
        for paragraph in root.iter("{*}p", "{*}h"):
            characters = ""
            for element in paragraph.iter():
                local_name = etree.QName(element).localname
                owner = next(element.iterancestors("{*}p", "{*}h"), None)
                if element is paragraph or owner is paragraph or owner is None:
                    format_ = local_name if name.endswith("odt") else run_format(element)
                    characters += "".join(f"{letter}[{format_}]" for letter in element.text or "" if letter.strip())
                    if local_name == "noBreakHyphen":
                        characters += f"\N{NON-BREAKING HYPHEN}[{format_}]"
                    if local_name in ("br", "tab", "footnoteReference"):
                        characters += local_name
            content.append(characters)
    return content


def run_format(element: Any) -> str:
    """The names of the properties of a run, and of the elements around it."""
    run = next(element.iterancestors("{*}r"), None)
    properties = None if run is None else run.find("{*}rPr")
    names = [] if properties is None else [child.tag.rpartition("}")[2] for child in properties]
    around = [] if run is None else [one.tag.rpartition("}")[2] for one in run.iterancestors("{*}hyperlink", "{*}ins")]
    return " ".join(sorted({*names, *around} - {"lang", "noProof"}))


def without_protected(tagged: TaggedText) -> str:
    """The text outside of the protected ranges."""
    text = tagged.text
    for start, end, _ in reversed(tagged.protected):
        text = text[:start] + text[end:]
    return text


@pytest.mark.parametrize("name", MONOLINGUAL)
def test_identical_translations_give_the_identical_document(name: str) -> None:
    data = SAMPLES[name]()
    written = translated(read(name), str)
    assert members(name, written) == members(name, data)
    assert [*members(name, written)] == [*members(name, data)]


@pytest.mark.parametrize("name", [name for name in MONOLINGUAL if name.endswith(("docx", "odt"))])
def test_a_paragraph_that_is_written_anew_has_the_same_text_and_formatting(name: str) -> None:
    document = read(name)
    for _, unit in document._units:
        unit.copy = False
    written = translated(document, str)
    assert visible(name, written) == visible(name, SAMPLES[name]())


@pytest.mark.parametrize("name", MONOLINGUAL)
def test_translations_replace_every_text_and_nothing_else(name: str) -> None:
    data = SAMPLES[name]()
    document = read(name)
    assert document.texts
    written = translated(document, str.upper)
    if name.endswith(("docx", "odt")):
        assert [text.lower() for text in visible(name, written)] == [text.lower() for text in visible(name, data)]
        before, after = members(name, data), members(name, written)
        assert {one for one in before if before[one] != after[one]} <= {
            "word/document.xml", "word/footnotes.xml", "word/comments.xml", "content.xml",
            *(one for one in before if re.match("word/(header|footer)", one)),
        }  # fmt: skip
        again = read(name, written)
        expected = sorted(without_protected(text).upper() for text in document.texts)
        assert sorted(map(without_protected, again.texts)) == expected
    else:
        encoding = "latin-1" if name == "latin1.html" else "utf-8"
        old, new = data.decode(encoding), written.decode(encoding)
        rewrapped_or_escaped = ("quotation", "escapes", "broken", "voices", "crlf", "plain.srt")
        if not name.startswith(rewrapped_or_escaped):
            assert new.lower() == old.lower()
        again = read(name, written)
        assert [text.text.upper() for text in again.texts] == [text.text.upper() for text in document.texts]
        assert not [word for text in again.texts for word in re.findall("[a-z]{2}", without_protected(text))]


@pytest.mark.parametrize("name", NAMES)
def test_a_document_can_be_written_again(name: str) -> None:
    document = read(name)
    assert translated(document, str.upper) == translated(document, str.upper)
