"""Word files: comments and descriptions of pictures."""

from translated_documents import members, read, translated


def test_comments_and_descriptions_of_a_word_file_are_translated() -> None:
    texts = [text.text for text in read("comments.docx").texts]
    assert texts == ["seen here", "a cat & a dog", "the animals", "A remark on this"]
    document = members("x.docx", translated(read("comments.docx"), str.upper))["word/document.xml"]
    assert b'name="Picture 1" descr="A CAT &amp; A DOG" title="THE ANIMALS"' in document
