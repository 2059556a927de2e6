"""ODT files: elements that stand for white space."""

import re

import pytest
from document_samples import odt_of
from translated_documents import members, read, translated

from transduce.documents.document import AlignedTranslation


@pytest.mark.parametrize(
    ("paragraph", "written"),
    [
        ('a<text:s text:c="3"/>b', "A B"),
        ("a <text:s/>b", "A B"),
        ("a<text:s/> <text:s/>b", "A B"),
        ("<text:span>a<text:s/></text:span> b", "<text:span>A</text:span> B"),
        ('<text:s text:c="4"/>a b<text:s></text:s>', '<text:s text:c="4"/>A B '),
        ('<text:span><text:s text:c="4"/>a b</text:span>', '<text:span><text:s text:c="4" />A B</text:span>'),
        ('a <text:span> <text:s text:c="9"/></text:span>b', 'A <text:span><text:s text:c="9" /></text:span>B'),
        ("<text:span>a<text:s/></text:span><text:s/>b", "<text:span>A</text:span> B"),
    ],
)
def test_a_space_of_an_odt_file_stays_an_element_if_it_is_not_between_words(paragraph: str, written: str) -> None:
    document = read("a.odt", odt_of(f"<text:p>{paragraph}</text:p>"))
    assert [text.text for text in document.texts] == ["a b"]
    content = members("a.odt", translated(document, str.upper))["content.xml"].decode()
    assert f"<text:p>{written}</text:p>" in content
    swapped = AlignedTranslation("B A", [((0, 1), (2, 3)), ((2, 3), (0, 1))])
    content = members("a.odt", document.write([swapped]))["content.xml"].decode()
    assert content.count("<text:s ") == written.count("<text:s ")


@pytest.mark.parametrize("paragraph", ["One. <text:s/>Two", 'Name:<text:s text:c="9"/>Date:<text:s/>', "Go!<text:s/>"])
def test_a_space_after_a_sentence_or_a_label_of_an_odt_file_separates_texts(paragraph: str) -> None:
    document = read("a.odt", odt_of(f"<text:p>{paragraph}</text:p>"))
    assert [text.text for text in document.texts] == [text for text in re.split("<.*?>| ", paragraph) if text]
    content = members("a.odt", translated(document, str.upper))["content.xml"].decode()
    assert f"<text:p>{re.sub('[a-z]+(?![^<>]*>)', lambda word: word[0].upper(), paragraph)}</text:p>" in content


@pytest.mark.parametrize(
    ("paragraph", "links", "written"),
    [
        ("He came home <text:s/>late.", "He-Er came-kam home-Hause late-spät .-.", "Er kam spät nach Hause."),
        ("If you want <text:s/>to come, call me.", "If-Wenn you-du want-willst come-kommen ,-, call-ruf .-.",
         "Wenn du kommen willst, ruf mich an."),
        ("<text:span>He came home <text:s/>late</text:span>.", "He-Er came-kam home-Hause late-spät .-.",
         "<text:span>Er kam spät nach Hause</text:span>."),
    ],
)  # fmt: skip
def test_a_space_of_an_odt_file_does_not_come_before_a_punctuation_mark(
    paragraph: str, links: str, written: str
) -> None:
    document = read("a.odt", odt_of(f"<text:p>{paragraph}</text:p>"))
    (source,), target = [text.text for text in document.texts], re.sub("<.*?>", "", written)
    alignment = [(span(source, one), span(target, other)) for one, other in re.findall("(\\S+)-(\\S+)", links)]
    content = members("a.odt", document.write([AlignedTranslation(target, alignment)]))["content.xml"].decode()
    assert f"<text:p>{written}</text:p>" in content


def span(text: str, word: str) -> tuple[int, int]:
    return text.index(word), text.index(word) + len(word)
