"""ODT files: elements that stand for white space."""

import re

import pytest
from document_samples import odt_of
from translated_documents import members, read, translated

from transduce.documents.document import AlignedTranslation


@pytest.mark.parametrize(
    ("paragraph", "written"),
    [
        ('a<text:s text:c="3"/>b', 'A<text:s text:c="3" />B'),
        ("a <text:s/>b", "A <text:s />B"),
        ("a<text:s/> <text:s/>b", "A<text:s /> <text:s />B"),
        ('<text:s text:c="4"/>a b<text:s></text:s>', '<text:s text:c="4" />A B<text:s />'),
        ("<text:span>a<text:s/></text:span> b", "<text:span>A<text:s /></text:span> B"),
    ],
)
def test_spaces_of_an_odt_file_come_out_once(paragraph: str, written: str) -> None:
    document = read("a.odt", odt_of(f"<text:p>{paragraph}</text:p>"))
    assert [text.text for text in document.texts] == ["a b"]
    content = members("a.odt", translated(document, str.upper))["content.xml"].decode()
    assert f"<text:p>{written}</text:p>" in content
    swapped = AlignedTranslation("B A", [((0, 1), (2, 3)), ((2, 3), (0, 1))])
    content = members("a.odt", document.write([swapped]))["content.xml"].decode()
    assert content.count("<text:s ") == len(re.findall("<text:s\\b", paragraph))
