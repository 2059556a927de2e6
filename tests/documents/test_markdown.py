"""Markdown: what is markup stays, and what is text is translated and escaped."""

import re

import pytest
from markdown_it import MarkdownIt
from translated_documents import read, translated

from transduce.documents.document import AlignedTranslation


def test_markup_moves_with_the_words_that_it_belongs_to() -> None:
    document = read("many.md", b"the **red** house\n")
    swapped = AlignedTranslation("la maison rouge", [((0, 3), (0, 2)), ((4, 7), (10, 15)), ((8, 13), (3, 9))])
    assert document.write([swapped]) == b"la maison **rouge**\n"


def test_markdown_escapes_what_would_be_markup() -> None:
    document = read("a.md", b"some words\n\n| a | b |\n|---|---|\n| cell | x |\n")
    outputs = ["# a *b* [c] `d` snake_case", "a", "b", "c|d", "x"]
    written = document.write([AlignedTranslation(text) for text in outputs]).decode()
    assert written.startswith("\\# a \\*b\\* \\[c\\] \\`d\\` snake_case\n")
    assert "| c\\|d | x |" in written


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# March 5", "# 5. März"),
        ("> ### March 5", "> ### 5. März"),
        ("- March 5", "- 5\\. März"),
        ("March 5", "5\\. März"),
        ("March 5\n===", "5\\. März\n==="),
        ("| March 5 |\n|---|", "| 5. März |\n|---|"),
        ("March 5 | x\n---|---", "5\\. März | 5. März\n---|---"),
    ],
)
def test_a_number_with_a_period_is_escaped_where_it_would_start_a_list(source: str, expected: str) -> None:
    written = translated(read("a.md", f"{source}\n".encode()), lambda _: "5. März").decode()
    assert written == f"{expected}\n"
    rendered = MarkdownIt("commonmark").enable("table").render(written)
    assert re.findall(r">(5[^<]*)<", rendered) == ["5. März"] * written.count("März")


@pytest.mark.parametrize(
    "row",
    [
        r"| ![one \| two](x.png) dog | `a\|b` cat |",
        r'| <img alt="one \| two"> dog | [cat](x "one \| two") |',
        r"| one \| two `a\\|b` | $a\|b$ dog [cat](a\|b) |",
    ],
)
def test_a_vertical_bar_in_a_cell_of_a_markdown_table_keeps_its_backslash(row: str) -> None:
    written = translated(read("a.md", f"| x | y |\n|---|---|\n{row}\n".encode()), str.upper).decode()
    assert written.splitlines()[-1] == re.sub("one|two|dog|cat", lambda word: word[0].upper(), row)


def test_alternative_texts_of_markdown_are_texts_of_their_own() -> None:
    source = (
        "See ![a *b* \\[c](x.png) or ![d] or [![e][]](l) or ![1](y).\n\n> ![f  \n> g](z)\n\n[d]: d.png\n[e]: e.png\n"
    )
    document = read("a.md", source.encode())
    assert [text.text for text in document.texts] == ["See or or or .", "a b [c", "d", "e", "f g"]
    written = translated(document, str.upper).decode()
    assert written.startswith("SEE ![A *B* \\[C](x.png) OR ![D][d] OR [![E][e]](l) OR ![1](y).\n\n> ![F G](z)\n")


def test_title_and_description_in_the_front_matter_are_translated() -> None:
    source = (
        "---\ntitle: My page\ndescription: \"It's all\"\r\nsummary: 'some words'\nexcerpt: one\n  two\n"
        'subtitle: "a\\tb"\nslug: my-page\ndate: 2024-01-02\n---\n\nThe text.\n'
    )
    document = read("a.md", source.encode())
    texts = ["My page", "It's all", "some words", "one two", "The text."]
    assert [text.text for text in document.texts] == texts
    outputs = ["Titre : ma page", 'C\\est "tout"', "l'été", "un deux", "Texte."]
    written = document.write([AlignedTranslation(text) for text in outputs]).decode()
    assert written == (
        '---\ntitle: "Titre : ma page"\ndescription: "C\\\\est \\"tout\\""\r\nsummary: "l\'été"\nexcerpt: un deux\n'
        'subtitle: "a\\tb"\nslug: my-page\ndate: 2024-01-02\n---\n\nTexte.\n'
    )
    nested = b"---\ntitle: A page\n  en: of several\nsummary: 'one\n  two'\n---\n"
    assert not read("a.md", nested).texts
    toml = read("a.md", b"+++\ntitle = 'some words'\ndraft = true\n+++\n")
    assert translated(toml, str.upper) == b"+++\ntitle = 'SOME WORDS'\ndraft = true\n+++\n"


def test_texts_of_several_lines_in_the_front_matter_are_translated() -> None:
    source = (
        "---\ndescription: |  # literal\n\n  A *new*\n  page.\n\n  - all\n\n    of `it`\ntitle: My page\n"
        "summary: >-\r\n    some words\r\n    here\r\ndate: |\n  kept\n---\n\nThe text.\n"
    )
    document = read("a.md", source.encode())
    texts = ["A new page.", "all", "of `it`", "My page", "some words here", "The text."]
    assert [text.text for text in document.texts] == texts
    words = "|".join(["A", "new", "page", "all", "of", "My", "some words", "here", "The text"])
    expected = re.sub(rf"\b(?:{words})\b", lambda word: word[0].upper(), source)
    assert translated(document, str.upper).decode() == expected


def test_attributes_of_html_in_markdown_are_translated() -> None:
    source = (
        "<table>\n<tr><td title='the cat'>a dog</td></tr>\n</table>\n\n"
        'See <img src="a.png" alt="a dog"> and\n<abbr title=cat class="x">it</abbr> `<b title="x">`.\n\n'
        '<hr title="a mouse">\n'
    )
    document = read("a.md", source.encode())
    texts = ["the cat", "a dog", 'See and it `<b title="x">`.', "a dog", "cat", "a mouse"]
    assert sorted(text.text for text in document.texts) == sorted(texts)
    written = translated(document, lambda text: text.upper().replace("DOG", '*DOG* & "CO"')).decode()
    assert "<td title='THE CAT'>A *DOG* &amp; \"CO\"</td>" in written
    assert '<img src="a.png" alt="A *DOG* &amp; &quot;CO&quot;">' in written
    assert '<abbr title="CAT" class="x">IT</abbr> `<b title="x">`' in written
    assert '<hr title="A MOUSE">' in written


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("press <kbd>Ctrl</kbd>+<kbd>C</kbd> here", "PRESS <kbd>Ctrl</kbd>+<kbd>C</kbd> HERE"),
        ("a <code>b *c*<br>`</code>`</code> d", "A <code>b *c*<br>`</code>`</code> D"),
        ("> a <var\n> x>b\n> c</var> d", "> A <var\n> x>b\n> c</var> D"),
        (
            'a <i translate="no"><i>b</i> <b title="c">c</b></i> d',
            'A <i translate="no"><i>b</i> <b title="c">c</b></i> D',
        ),
        ("a <kbd>b <samp>c</samp> d", "A <kbd>B <samp>c</samp> D"),
        ("a </kbd> b <b>c</b> <kbd>d", "A </kbd> B <b>C</b> <kbd>D"),
    ],
)
def test_html_elements_in_markdown_that_are_not_translated_stay(source: str, expected: str) -> None:
    assert translated(read("a.md", f"{source}\n".encode()), str.upper).decode() == f"{expected}\n"


def test_titles_of_links_and_images_in_markdown_are_translated() -> None:
    source = """See [the shop](a.html "Our *new* shop"), [![x](b.png 'a picture')](<c d> (stays)) or [e](f "7").\n"""
    document = read("a.md", source.encode())
    assert [text.text for text in document.texts] == ["See the shop, or e.", "Our *new* shop", "x", "a picture"]
    outputs = ["Voir la boutique, ou e.", 'Un "bon" x_', "y", "une image"]
    written = document.write([AlignedTranslation(text) for text in outputs]).decode()
    assert '(a.html "Un \\"bon\\" x\\_")' in written
    assert """[![y](b.png "une image")](<c d> (stays))""" in written
    assert '(f "7")' in written


def test_formulas_in_markdown_stay() -> None:
    source = "Let $a_1 < b_1$ be true for $5 or $6 of it.\n\n$$ E = mc^2 $$\n\n> where $$x\n> = y$$ holds\n"
    document = read("a.md", source.encode())
    assert [text.text for text in document.texts] == [
        "Let `$a_1 < b_1$` be true for $5 or $6 of it.", "where `$$x = y$$` holds",
    ]  # fmt: skip
    outputs = [AlignedTranslation("for `$a_1 < b_1$` true"), AlignedTranslation("holds `$$x = y$$` where")]
    written = document.write(outputs).decode()
    assert written == "for $a_1 < b_1$ true\n\n$$ E = mc^2 $$\n\n> holds\n> $$x\n> = y$$\n> where\n"


def test_code_in_markdown_is_not_divided_by_a_line_break() -> None:
    document = read("a.md", b"Run the `git commit -a` command\nnow please.\n")
    written = document.write([AlignedTranslation("Please now call the `git commit -a` once")])
    assert written == b"Please now call the\n`git commit -a` once\n"


def test_the_kind_of_an_alert_in_markdown_keeps_its_line() -> None:
    document = read("a.md", b"> [!NOTE]\n> some words\n")
    assert translated(document, str.upper) == b"> [!NOTE]\n> SOME WORDS\n"


@pytest.mark.parametrize(
    "source",
    [
        ":::note\nsome words\n:::\n",
        "> ::: tip Title\n> some words\n> :::\n",
        ":::{note}\n:class: tip\nsome *words*\n:::\n",
        ":::note\n\nsome words\n\n:::\n",
    ],
)
def test_the_text_of_a_directive_in_markdown_is_translated(source: str) -> None:
    words = source.replace("some", "SOME").replace("words", "WORDS")
    assert translated(read("a.md", source.encode()), str.upper) == words.encode()


def test_all_paragraphs_of_a_definition_are_translated() -> None:
    source = (
        "Apple\n:   A fruit.\n\n    It grows on\n    trees.\n\n        code\n\n    - one\n\n"
        "Salt\n\n:   White.\n\n    Not sweet.\n\nText.\n\n    code\n"
    )
    words = source.upper().replace("CODE", "code")
    assert translated(read("a.md", source.encode()), str.upper).decode() == words


def test_a_term_and_its_definitions_are_texts_of_their_own() -> None:
    source = "Apple\n:   A *red* fruit\n:   A company\n\nSalt\n\n  ~ White: and\n    not sweet\n"
    document = read("a.md", source.encode())
    assert [text.text for text in document.texts] == [
        "Apple",
        "A red fruit",
        "A company",
        "Salt",
        "White: and not sweet",
    ]
    assert translated(document, str.upper).decode() == (
        "APPLE\n:   A *RED* FRUIT\n:   A COMPANY\n\nSALT\n\n  ~ WHITE: AND\n    NOT SWEET\n"
    )


def test_the_text_of_an_admonition_is_translated_where_it_is() -> None:
    source = (
        'One\n\n!!! note "Be careful"\n    Inside *of*\n    it.\n\n    - item\n\n    ```\n    kept\n    ```\n\n'
        "    ??? tip inline\n\n        Deeper.\n\n    Less deep.\n\n!!! Two\n\nThree\n\n    kept\n"
    )
    document = read("a.md", source.encode())
    texts = ["One", "Be careful", "Inside of it.", "item", "Deeper.", "Less deep.", "!!! Two", "Three"]
    assert [text.text for text in document.texts] == texts
    words = "|".join(["One", "Be careful", "Inside|of|it", "item", "Deeper", "Less deep", "Two", "Three"])
    expected = re.sub(rf"\b(?:{words})\b", lambda word: word[0].upper(), source)
    assert translated(document, str.upper).decode() == expected


def test_line_ends_stay_as_they_are() -> None:
    source = "> One\n> two  \n> three\n\nFour\nfive\n".replace("\n", "\r\n").encode()
    assert translated(read("a.md", source), str.upper) == source.upper()
