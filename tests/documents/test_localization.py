"""Files of translators (PO, XLIFF, TMX), which keep the source text beside the translation."""

import re

import pytest
from document_samples import SAMPLES
from document_samples.localization import X1, X1_END
from translated_documents import BILINGUAL, read, translated

from transduce.documents.document import AlignedTranslation
from transduce.errors import DataError

NAMES = sorted(name for name in SAMPLES if name.endswith(BILINGUAL))


@pytest.mark.parametrize("name", NAMES)
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
        if old.isheader() or old.isobsolete() or str(old.target) or not re.search(r"[a-z]|\d\W", str(old.source)):
            assert str(new.target) == str(old.target)
        else:
            assert new.target.strings if new.hasplural() else str(new.target)
            sources = [str(form) for form in old.source.strings] if old.hasplural() else [str(old.source)]
            targets = [str(form) for form in new.target.strings] if old.hasplural() else [str(new.target)]
            assert [re.sub("</?B>|%D", lambda tag: tag[0].lower(), text.upper()) for text in sources] == targets


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


@pytest.mark.parametrize(
    ("target", "written"),
    [
        ("", "<target>{}</target>"),
        ("<target/>", "<target>{}</target>"),
        ("<target>{}</target>", "<target>{}</target>"),
        ("<target><mrk mtype='seg' mid='2'/> | <mrk mtype='seg' mid='1'></mrk></target>",
         "<target><mrk mtype='seg' mid='2'>TWO.</mrk> | <mrk mtype='seg' mid='1'>ONE <x id='1'/>DOG.</mrk></target>"),
        ("<target><mrk mtype='seg' mid='1'>Ein.</mrk> <mrk mtype='seg' mid='2' /></target>",
         "<target><mrk mtype='seg' mid='1'>Ein.</mrk> <mrk mtype='seg' mid='2'>TWO.</mrk></target>"),
        ("<target><mrk mtype='seg' mid='2'>Zwei.</mrk></target>",
         "<target><mrk mtype='seg' mid='1'>ONE <x id='1'/>DOG.</mrk> <mrk mtype='seg' mid='2'>Zwei.</mrk></target>"),
        *((target, target) for target in (
            "<target>Alles.</target>",
            "<target><mrk mtype='seg' mid='1'>Ein.</mrk> Zwei.</target>",
            "<target><g id='1'>Zwei.</g> <mrk mtype='seg' mid='1'></mrk></target>",
            "<target><mrk mtype='seg' mid='1'>Ein.</mrk> <mrk mtype='seg' mid='3'>Zwei.</mrk></target>",
            "<target><mrk mtype='seg' mid='1'>Ein.</mrk> <mrk mtype='seg' mid='1'>Zwei.</mrk></target>",
        )),
    ],
)  # fmt: skip
def test_segments_of_xliff_stay_and_are_translated_if_they_are_not(target: str, written: str) -> None:
    segments = "<mrk mtype='seg' mid='1'>one <x id='1'/>dog.</mrk> <mrk mtype='seg' mid='2'>two.</mrk>"
    text = "<source>one <x id='1'/>dog. two.</source>"
    unit = f"<trans-unit id='1'>{text}<seg-source>{segments}</seg-source>{target.format(segments)}</trans-unit>"
    unit = unit.replace("<target>", "<target state='new'>") if "{}" in target else unit
    translation = translated(read("a.xliff", f"{X1}{unit}{X1_END}".encode()), str.upper).decode()
    both = "<mrk mtype='seg' mid='1'>ONE <x id='1'/>DOG.</mrk> <mrk mtype='seg' mid='2'>TWO.</mrk>"
    assert f"</seg-source>{written.format(both)}" in translation.replace(" state='new'", "")
    assert not read("a.xliff", translation.replace(" state='new'", "").encode()).texts


@pytest.mark.parametrize(
    "segments",
    [
        "<mrk mtype='seg'>One dog.</mrk> <mrk mtype='seg'>Two.</mrk>",
        "<mrk mtype='seg' mid='1'>One dog.</mrk> <mrk mtype='seg' mid='1'>Two.</mrk>",
        "<mrk mtype='seg' mid='1'>One dog.</mrk> Two.",
    ],
)
@pytest.mark.parametrize("target", ["", "<target/>", "<target><mrk mtype='seg'/></target>"])
def test_segments_of_xliff_that_are_not_the_whole_text_are_ignored(segments: str, target: str) -> None:
    unit = f"<trans-unit id='1'><source>One dog. Two.</source><seg-source>{segments}</seg-source>{target}</trans-unit>"
    translation = translated(read("a.xliff", f"{X1}{unit}{X1_END}".encode()), str.upper).decode()
    assert "</seg-source><target>ONE DOG. TWO.</target>" in translation


def test_codes_between_segments_of_xliff_are_no_words() -> None:
    codes = "<bpt id='1'>&lt;b&gt;</bpt><g id='3'>{}</g><ept id='1'>&lt;/b&gt;</ept>"
    source = codes.format("<mrk mtype='seg' mid='1'>Two.</mrk>")
    unit = f"<trans-unit id='1'><source>Two.</source><seg-source>{source}</seg-source></trans-unit>"
    translation = translated(read("a.xliff", f"{X1}{unit}{X1_END}".encode()), str.upper).decode()
    assert f"<target>{source.replace('Two', 'TWO')}</target>" in translation


def test_the_header_of_a_template_gets_encoding_and_language() -> None:
    header = b'msgid ""\nmsgstr ""\n"Language: \\n"\n"Content-Type: text/plain; charset=CHARSET\\n"\n\n'
    document = read("a.po", header + b'msgid "cold"\nmsgstr ""\n')
    assert translated(document, lambda _: "kühl").decode() == (
        'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "cold"\nmsgstr "kühl"\n'
    )


@pytest.mark.parametrize(
    ("message", "text", "output", "written"),
    [
        ("&Save", "Save", "Speichern", "&Speichern"),
        ("Save &as ...", "Save as ...", "Speichern als ...", "Speichern &als ..."),
        ("E_xit", "Exit", "Beenden", "_Beenden"),
        ("Find ~Next", "Find Next", "Weitersuchen", "~Weitersuchen"),
        ("Open %(name)s _now", "Open %(name)s now", "%(name)s jetzt öffnen", "%(name)s _jetzt öffnen"),
        ("&Save ...", "Save ...", "保存 ...", "保存(&S) ..."),
        ("Cut && &paste", "Cut & paste", "Cut & Paste", "Cut && &Paste"),
        ("R&D and AT&T", "R&D and AT&T", "R&D und AT&T", "R&D und AT&T"),
        ("Drag&drop it", "Drag&drop it", "Drag&drop", "Drag&drop"),
        ("the file_name", "the file_name", "der file_name", "der file_name"),
        ("_very_ good & cheap &amp; so", "_very_ good & cheap &amp; so", "_x_ & &amp;", "_x_ & &amp;"),
        ("<b>&Save</b>", "Save", "Speichern", "<b>&Speichern</b>"),
        ("<a target='_x'>_Open</a>", "Open", "Öffnen", "<a target='_x'>_Öffnen</a>"),
        ("<b>Cut && &paste</b>", "Cut & paste", "Cut & Paste", "<b>Cut && &Paste</b>"),
        ("<b>R&D</b>", "R&D", "R&D", "<b>R&D</b>"),
        ("<b>A &amp; &b</b>", "A & &b", "A & &b", "<b>A &amp; &amp;b</b>"),
        ("see x.org/?&a=1", "see x.org/?&a=1", "siehe x.org/?&a=1", "siehe x.org/?&a=1"),
    ],
)
def test_a_mnemonic_is_not_read_and_marks_a_word_of_the_translation(
    message: str, text: str, output: str, written: str
) -> None:
    document = read("a.po", f'msgid "{message}"\nmsgstr ""\n'.encode())
    assert [one.text for one in document.texts] == [text]
    assert document.write([AlignedTranslation(output)]).decode().splitlines()[1] == f'msgstr "{written}"'


@pytest.mark.parametrize(
    ("source", "text", "written"),
    [
        ("A &lt;b&gt;red&lt;/b&gt; car", "A red car", "A &lt;b&gt;RED&lt;/b&gt; CAR"),
        ("<![CDATA[See <a href='x'>this <i>one</i></a>]]>", "See this one",
         "SEE &lt;a href='x'&gt;THIS &lt;i&gt;ONE&lt;/i&gt;&lt;/a&gt;"),
        ("Hello &lt;name&gt; &lt;b&gt;there", "Hello <name> <b>there", "HELLO &lt;NAME&gt; &lt;B&gt;THERE"),
        ("Save &amp;as ...", "Save as ...", "SAVE &amp;AS ..."),
        ("_Tea &amp; milk", "Tea & milk", "_TEA &amp; MILK"),
        ("Click <g id='1'>&amp;Save</g> now", "Click Save now", "CLICK <g id='1'>&amp;SAVE</g> NOW"),
        ("<g id='a_b'>E_xit</g> &lt; y", "Exit < y", "<g id='a_b'>_EXIT</g> &lt; Y"),
        ("<b/>R&amp;D _&lt;i&gt;x&lt;/i&gt;", "R&D _x", "<b/>R&amp;D _&lt;i&gt;X&lt;/i&gt;"),
    ],
)  # fmt: skip
def test_html_and_mnemonics_in_the_text_of_xliff_are_no_words(source: str, text: str, written: str) -> None:
    data = f'<xliff version="1.2"><file><trans-unit id="1"><source>{source}</source></trans-unit></file></xliff>'
    document = read("a.xliff", data.encode())
    assert [one.text for one in document.texts] == [text]
    assert f"<target>{written}</target>" in translated(document, str.upper).decode()


def test_lines_of_xliff_stay_lines_if_white_space_is_to_be_preserved() -> None:
    source = "One\n\n  two <g id='1'>three\nfour</g>\n"
    for attribute, target in (
        (' xml:space="preserve"', "ONE\n\n  TWO <g id='1'>THREE FOUR</g>\n"),
        ("", "ONE TWO <g id='1'>THREE FOUR</g>\n"),
    ):
        unit = f'<trans-unit id="1"{attribute}><source>{source}</source></trans-unit>'
        data = f'<xliff version="1.2"><file>{unit}</file></xliff>'
        assert f"<target>{target}</target>" in translated(read("a.xliff", data.encode()), str.upper).decode()
