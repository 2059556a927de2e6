"""Word files: fields, formulas, comments and descriptions of pictures."""

import re

from document_samples import word as word_samples
from translated_documents import members, read, translated


def test_comments_and_descriptions_of_a_word_file_are_translated() -> None:
    texts = [text.text for text in read("comments.docx").texts]
    assert texts == ["seen here", "a cat & a dog", "the animals", "A remark on this"]
    document = members("x.docx", translated(read("comments.docx"), str.upper))["word/document.xml"]
    assert b'name="Picture 1" descr="A CAT &amp; A DOG" title="THE ANIMALS"' in document


def test_fields_and_formulas_of_a_word_file_are_read_as_words() -> None:
    assert [text.text for text in read("formula.docx").texts] == ["where `x` is free"]
    assert "`May` is a month" in [text.text for text in read("fields.docx").texts]
    document = members("x.docx", translated(read("formula.docx"), str.upper))["word/document.xml"]
    assert re.sub(rb"<.*?>", b"", document).strip() == b"WHERE x IS FREE"


def test_space_after_an_element_at_the_start_of_a_paragraph_is_written_once() -> None:
    bookmark, symbol = '<w:bookmarkStart w:id="0" w:name="a"/>', '<w:r><w:sym w:font="Wingdings" w:char="F0E0"/></w:r>'
    for first in (bookmark, symbol):
        for text in (" click here", "click here "):
            source = word_samples.docx_of(word_samples.paragraph(first, word_samples.run(text), first))
            document = members("x.docx", translated(read("a.docx", source), str.upper))["word/document.xml"].decode()
            body = document[document.index("<w:body>") : document.index("<w:sectPr")]
            assert re.sub("<.*?>", "", body) == text.upper()
