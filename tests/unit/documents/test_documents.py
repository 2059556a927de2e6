"""Every sample document, translated by a function instead of a model."""

import io
import re
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from document_samples import SAMPLES
from document_samples import word as word_samples
from document_samples.localization import X1, X1_END

from transduce.documents.document import Document, Output
from transduce.documents.options import ReadOptions
from transduce.documents.read import read_document
from transduce.errors import DataError
from transduce.text.inline_tags import TaggedText

BILINGUAL = ("po", "xliff", "tmx")
"""Formats that keep the source text beside the translation."""
NAMES = sorted(SAMPLES)
MONOLINGUAL = [name for name in NAMES if not name.endswith(BILINGUAL)]


def read(name: str, data: bytes | None = None, **options: Any) -> Document:
    data = SAMPLES[name]() if data is None else data
    return read_document(name.rpartition(".")[2], data, name, ReadOptions("en", "de", **options))


def translated(document: Document, translate: Callable[[str], str]) -> bytes:
    """The document with each word aligned with the word at the same place; protected text is not translated."""

    def output(tagged: TaggedText) -> Output:
        words = [word.span() for word in re.finditer(r"\S+", tagged.text)]
        text, at = "", 0
        for start, end, _ in tagged.protected:
            text += translate(tagged.text[at:start]) + tagged.text[start:end]
            at = end
        return Output(text + translate(tagged.text[at:]), [(word, word) for word in words])

    return document.write([output(text) for text in document.texts])


def members(name: str, data: bytes) -> dict[str, bytes]:
    """The content of a document: that of the members of a package."""
    if not name.endswith(("docx", "odt")):
        return {"": data}
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        return {info.filename: package.read(info) for info in package.infolist()}


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
                owner = next(element.iterancestors("{*}p", "{*}h"), None)
                if element is paragraph or owner is paragraph or owner is None:
                    format_ = etree.QName(element).localname if name.endswith("odt") else run_format(element)
                    characters += "".join(f"{letter}[{format_}]" for letter in element.text or "" if letter.strip())
                    if element.tag.endswith("}noBreakHyphen"):
                        characters += f"\N{NON-BREAKING HYPHEN}[{format_}]"
                    if element is not paragraph and etree.QName(element).localname in (
                        "br",
                        "tab",
                        "footnoteReference",
                    ):
                        characters += etree.QName(element).localname
            content.append(characters)
    return content


def without_protected(tagged: TaggedText) -> str:
    """The text outside of the protected ranges."""
    text = tagged.text
    for start, end, _ in reversed(tagged.protected):
        text = text[:start] + text[end:]
    return text


def run_format(element: Any) -> str:
    """The names of the properties of a run, and of the elements around it."""
    run = next(element.iterancestors("{*}r"), None)
    properties = None if run is None else run.find("{*}rPr")
    names = [] if properties is None else [child.tag.rpartition("}")[2] for child in properties]
    around = [] if run is None else [one.tag.rpartition("}")[2] for one in run.iterancestors("{*}hyperlink", "{*}ins")]
    return " ".join(sorted({*names, *around} - {"lang", "noProof"}))


@pytest.mark.parametrize("name", MONOLINGUAL)
def test_identical_translations_give_the_identical_document(name: str) -> None:
    data = SAMPLES[name]()
    written = translated(read(name), str)
    assert members(name, written) == members(name, data)
    assert [*members(name, written)] == [*members(name, data)]


@pytest.mark.parametrize("name", [name for name in MONOLINGUAL if name.endswith(("docx", "odt"))])
def test_a_paragraph_that_is_written_anew_has_the_same_text_and_formatting(
    name: str,
) -> None:
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
        if not name.startswith(("quotation", "escapes", "broken", "voices", "crlf", "plain.srt")):
            assert new.lower() == old.lower()  # those are rewrapped or escaped
        again = read(name, written)
        assert [text.text.upper() for text in again.texts] == [text.text.upper() for text in document.texts]
        assert not [word for text in again.texts for word in re.findall("[a-z]{2}", without_protected(text))]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(BILINGUAL)])
def test_existing_translations_are_kept_and_missing_ones_are_added(name: str) -> None:
    document = read(name)
    assert document.texts
    written = translated(document, str.upper)
    assert not read(name, written).texts  # nothing is left to translate
    assert translated(read(name, written), str.upper) == written
    again = read(name, written, retranslate=True)
    assert len(again.texts) >= len(document.texts)
    assert {text.text for text in document.texts} <= {text.text for text in again.texts}


def test_existing_translations_are_replaced_if_requested() -> None:
    written = translated(read("contexts.po", retranslate=True), str.upper).decode()
    assert written.count('msgstr "OPEN"') == 2
    assert '#~ msgstr ""' in written
    assert b'<target state="final">DONE</target>' in translated(read("kept.xliff", retranslate=True), str.upper)
    assert b'<tuv xml:lang="de"><seg>DONE</seg></tuv>' in translated(read("memory.tmx", retranslate=True), str.upper)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".po")])
def test_another_library_reads_the_translated_catalogue(name: str) -> None:
    from translate.storage.po import pofile

    before, after = pofile.parsestring(SAMPLES[name]()), pofile.parsestring(translated(read(name), str.upper))
    assert len(before.units) == len(after.units)
    for old, new in zip(before.units, after.units, strict=True):
        assert (str(new.source), new.getlocations(), new.getnotes(), new.getcontext()) == (
            str(old.source), old.getlocations(), old.getnotes(), old.getcontext(),
        )  # fmt: skip
        if old.isheader() or old.isobsolete() or str(old.target) or not re.search("[a-z]", str(old.source)):
            assert str(new.target) == str(old.target)
        else:
            assert new.target.strings if new.hasplural() else str(new.target)
            sources = [str(one) for one in old.source.strings] if old.hasplural() else [str(old.source)]
            targets = [str(one) for one in new.target.strings] if old.hasplural() else [str(new.target)]
            assert [re.sub("</?B>", lambda tag: tag[0].lower(), one.upper()) for one in sources] == targets


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith((".xliff", ".tmx"))])
def test_the_rest_of_a_bilingual_file_is_the_same_xml(name: str) -> None:
    from lxml import etree

    def without_targets(data: bytes) -> str:
        root = etree.fromstring(data)
        for element in root.iter("{*}target", "{*}tuv"):
            if element.tag.endswith("target") or element.get("{http://www.w3.org/XML/1998/namespace}lang")[:2] == "de":
                if element.tail and element.getprevious() is not None:
                    element.getprevious().tail = element.tail
                element.getparent().remove(element)
        return re.sub(r">\s+<", "><", etree.tostring(root, method="c14n").decode())

    data, written = SAMPLES[name](), translated(read(name), str.upper)
    assert without_targets(written.replace(b' target-language="de"', b"")) == without_targets(data)


@pytest.mark.parametrize("name", NAMES)
def test_a_document_can_be_written_again(name: str) -> None:
    document = read(name)
    assert translated(document, str.upper) == translated(document, str.upper)


def test_inline_codes_are_in_the_translation() -> None:
    written = translated(read("codes.xliff"), str.upper).decode()
    assert '\n  <target>PRESS <g id="1">THE <x id="2"/>BUTTON</g> NOW</target>' in written
    assert '<target><bpt id="1">&lt;b&gt;</bpt>BOLD<ept id="1">&lt;/b&gt;</ept> TEXT</target>' in written
    assert '<tuv xml:lang="de"><seg>WITH <bpt i="1">{b}</bpt>BOLD<ept i="1">{/b}</ept> WORDS</seg></tuv>' in (
        translated(read("memory.tmx"), str.upper).decode()
    )


@pytest.mark.parametrize(
    ("name", "before", "after", "side"),
    [
        ("segments.xliff", b'trgLang="de"', b'trgLang="fr"', "target"),
        ("segments.xliff", b'srcLang="en"', b'srcLang="fr-CA"', "source"),
        ("codes.xliff", b'source-language="en"', b'source-language="en-GB" target-language="fr"', "target"),
        ("plurals.po", b'msgid ""\nmsgstr ""\n', b'msgid ""\nmsgstr ""\n"Language: fr\\n"\n', "target"),
    ],
)
def test_a_file_of_other_languages_is_refused(name: str, before: bytes, after: bytes, side: str) -> None:
    source = SAMPLES[name]().replace(before, after, 1)
    assert after in source
    with pytest.raises(DataError, match=f"the {side} language of the file is fr"):
        read(name, source)


def test_a_po_file_without_any_message_is_refused() -> None:
    with pytest.raises(DataError, match=r"plurals\.po, line 1: not a line of a PO file"):
        read("plurals.po", b'msgid "House\n')


def test_a_translation_that_the_encoding_of_a_po_file_lacks_is_refused() -> None:
    header = b'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=ISO-8859-1\\n"\n\n'
    document = read("plurals.po", header + b'msgid "caf\xe9"\nmsgstr ""\n')
    assert b'msgstr "CAF\xc9"' in translated(document, str.upper)
    with pytest.raises(DataError, match="ISO-8859-1 lacks 'œ'"):
        translated(document, lambda _: "cœur")


@pytest.mark.parametrize(
    "content", ["<ph id='1'/> files", " <ph id='1'/> files <x id='2'/> ", "\t<g id='1'>files</g> ", "files <!-- b -->"]
)
def test_white_space_around_elements_of_xliff_stays(content: str) -> None:
    unit = f"<trans-unit id='1'><source>{content}</source></trans-unit>"
    document = read("a.xliff", f"{X1}{unit}{X1_END}".encode())
    assert f"<target>{content.replace('files', 'FILES')}</target>" in translated(document, str.upper).decode()


def test_xliff_gets_the_target_language() -> None:
    source = SAMPLES["segments.xliff"]().replace(b' trgLang="de"', b"")
    assert b'srcLang="en" trgLang="de">' in translated(read("segments.xliff", source), str.upper)
    file = b"<file><body><trans-unit id='1'><source>a text</source></trans-unit></body></file>"
    done = b"<file target-language='de'><body><trans-unit id='1'><source>a</source></trans-unit></body></file>"
    written = translated(read("a.xliff", b"<xliff version='1.2'>" + file + done + file + b"<file/></xliff>"), str.upper)
    assert re.findall(rb"<file(.*?)>", written) == [
        b' target-language="de"', b" target-language='de'", b' target-language="de"', b"/",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("<x id='1' equiv-text='{{name}}'/>", "`{{name}}` "),
        ("<ph id='1' disp='{name}'/>", "`{name}` "),
        ("<ph id='1'>%s</ph>", "`%s` "),
        ("<x id='1' equiv-text='&lt;br/>'/>", ""),
        ("<x id='1'/>", ""),
    ],
)
def test_placeholders_of_xliff_are_read_as_words(code: str, text: str) -> None:
    unit = f"<trans-unit id='1'><source>Hello {code} again</source></trans-unit>"
    document = read("a.xliff", f"{X1}{unit}{X1_END}".encode())
    assert [one.text for one in document.texts] == [f"Hello {text}again"]
    assert f"<target>HELLO {code} AGAIN</target>" in translated(document, str.upper).decode()


@pytest.mark.parametrize("state", ["new", "needs-translation", "final", ""])
def test_a_copy_that_is_marked_as_untranslated_is_translated(state: str) -> None:
    unit = f"<trans-unit id='1'><source>The end</source><target state='{state}'>The end</target></trans-unit>"
    other = f"<trans-unit id='2'><source>The end</source><target state='{state}'>Ende</target></trans-unit>"
    written = translated(read("a.xliff", f"{X1}{unit}{other}{X1_END}".encode()), str.upper).decode()
    expected = "THE END" if state in ("new", "needs-translation") else "The end"
    assert re.findall("<target.*?>(.*?)</target>", written) == [expected, "Ende"]


def test_the_header_of_a_template_gets_encoding_and_language() -> None:
    header = b'msgid ""\nmsgstr ""\n"Language: \\n"\n"Content-Type: text/plain; charset=CHARSET\\n"\n\n'
    document = read("a.po", header + b'msgid "cold"\nmsgstr ""\n')
    assert translated(document, lambda _: "kühl").decode() == (
        'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "cold"\nmsgstr "kühl"\n'
    )


def test_the_header_of_webvtt_gets_the_language() -> None:
    cue = "00:01.000 --> 00:02.000\n{}\n\nNOTE\nLanguage: en\n"
    document = read("a.vtt", f"WEBVTT\nKind: captions\nLanguage: en-US\n\n{cue.format('the end')}".encode())
    expected = f"WEBVTT\nKind: captions\nLanguage: de\n\n{cue.format('THE END')}"
    assert translated(document, str.upper).decode() == expected
    document = read("a.vtt", f"WEBVTT\n\n{cue.format('the end')}".encode())  # without a header
    assert translated(document, str.upper).decode() == f"WEBVTT\n\n{cue.format('THE END')}"


def test_markup_moves_with_the_words_that_it_belongs_to() -> None:
    document = read("many.md", b"the **red** house\n")
    swapped = Output("la maison rouge", [((0, 3), (0, 2)), ((4, 7), (10, 15)), ((8, 13), (3, 9))])
    assert document.write([swapped]) == b"la maison **rouge**\n"


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


def test_comments_and_descriptions_of_a_word_file_are_translated() -> None:
    texts = [text.text for text in read("comments.docx").texts]
    assert texts == ["seen here", "a cat & a dog", "the animals", "A remark on this"]
    document = members("x.docx", translated(read("comments.docx"), str.upper))["word/document.xml"]
    assert b'name="Picture 1" descr="A CAT &amp; A DOG" title="THE ANIMALS"' in document


def test_markdown_escapes_what_would_be_markup() -> None:
    document = read("a.md", b"some words\n\n| a | b |\n|---|---|\n| cell | x |\n")
    outputs = ["# a *b* [c] `d` snake_case", "a", "b", "c|d", "x"]
    written = document.write([Output(text) for text in outputs]).decode()
    assert written.startswith("\\# a \\*b\\* \\[c\\] \\`d\\` snake_case\n")
    assert "| c\\|d | x |" in written


def test_alternative_texts_of_markdown_are_texts_of_their_own() -> None:
    source = (
        "See ![a *b* \\[c](x.png) or ![d] or [![e][]](l) or ![1](y).\n\n> ![f  \n> g](z)\n\n[d]: d.png\n[e]: e.png\n"
    )
    document = read("a.md", source.encode())
    assert [text.text for text in document.texts] == ["See or or or .", "a b [c", "d", "e", "f g"]
    written = translated(document, str.upper).decode()
    assert written.startswith("SEE ![A *B* \\[C](x.png) OR ![D][d] OR [![E][e]](l) OR ![1](y).\n\n> ![F G](z)\n")


def test_formulas_in_markdown_stay() -> None:
    source = "Let $a_1 < b_1$ be true for $5 or $6 of it.\n\n$$ E = mc^2 $$\n\n> where $$x\n> = y$$ holds\n"
    document = read("a.md", source.encode())
    assert [text.text for text in document.texts] == [
        "Let `$a_1 < b_1$` be true for $5 or $6 of it.", "where `$$x = y$$` holds",
    ]  # fmt: skip
    outputs = [Output("for `$a_1 < b_1$` true"), Output("holds `$$x = y$$` where")]
    written = document.write(outputs).decode()
    assert written == "for $a_1 < b_1$ true\n\n$$ E = mc^2 $$\n\n> holds\n> $$x\n> = y$$\n> where\n"


def test_code_in_markdown_is_not_divided_by_a_line_break() -> None:
    document = read("a.md", b"Run the `git commit -a` command\nnow please.\n")
    written = document.write([Output("Please now call the `git commit -a` once")])
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


def test_speakers_with_several_lines_are_separate() -> None:
    cue = "1\n00:00:01,000 --> 00:00:02,000\n"
    document = read("a.srt", f"{cue}Both of you!\n- Yes,\nof course.\n<i>- No.</i>\n".encode())
    assert [text.text for text in document.texts] == ["Both of you!", "Yes, of course.", "No."]
    written = cue + "BOTH OF YOU!\n- YES, OF\nCOURSE.\n<i>- NO.</i>\n"
    assert translated(document, str.upper).decode() == written
    document = read("a.srt", f"{cue}He has gone\n- to bed.\n".encode())
    assert [text.text for text in document.texts] == ["He has gone - to bed."]


def test_cues_without_an_empty_line_between_them_are_separate() -> None:
    times = "00:00:01,000 --> 00:00:02,000"
    source = f"1\n{times}\na cat\n2\n{times}\n10\nmore\n{times}\na dog\n"
    document = read("a.srt", source.encode())
    assert [text.text for text in document.texts] == ["a cat", "10 more", "a dog"]
    assert translated(document, str.upper).decode() == f"1\n{times}\nA CAT\n2\n{times}\n10\nMORE\n{times}\nA DOG\n"


def test_subtitles_keep_their_number_of_lines() -> None:
    document = read("plain.srt")
    written = document.write([Output("Guten Tag."), Output("Das sind zwei Zeilen mit Text.")]).decode()
    assert "Guten Tag.\n\n2\n" in written
    assert "Das sind zwei\nZeilen mit Text.\n" in written


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
    written = read("latin1.html").write([Output("кофе")])
    assert written.endswith("<p>&#1082;&#1086;&#1092;&#1077;</p>".encode("latin-1"))
