"""PO, XLIFF and TMX files."""

from document_samples.registry import sample

PO_HEAD = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Plural-Forms: nplurals=2; plural=n != 1;\\n"\n\n'


@sample
def written_by_library_po() -> bytes:
    from translate.storage.po import pofile

    catalogue = pofile()
    catalogue.updateheader(add=True, content_type="text/plain; charset=UTF-8")
    for number in range(3):
        unit = catalogue.addsourceunit(
            f"Message number {number} of this long catalogue, which wraps its lines here and there"
        )
        unit.addlocation(f"main.c:{number}")
        unit.addnote("a note")
    return bytes(catalogue)


@sample
def plurals_po() -> str:
    return PO_HEAD + '#, c-format\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'


@sample
def contexts_po() -> str:
    return (
        PO_HEAD
        + 'msgctxt "menu"\nmsgid "Open"\nmsgstr ""\n\nmsgctxt "state"\nmsgid "Open"\nmsgstr "Offen"\n\n#~ msgid "old"\n#~ msgstr ""\n'
    )


@sample
def lines_po() -> str:
    return PO_HEAD + 'msgid ""\n"first line\\n"\n"second \\"line\\"\\n"\nmsgstr ""\n\nmsgid "with\\ttab"\nmsgstr ""\n'


@sample
def markup_po() -> str:
    return PO_HEAD + 'msgid "press <b>this</b> button"\nmsgstr ""\n\nmsgid "12 %"\nmsgstr ""\n'


@sample
def fuzzy_po() -> str:
    return PO_HEAD + '#, fuzzy\n#| msgid "before"\nmsgid "after"\nmsgstr "nachher"\n\nmsgid "new"\nmsgstr ""\r\n'


@sample
def written_by_library_xliff() -> bytes:
    from translate.storage.xliff import xlifffile

    catalogue = xlifffile()
    for text in ("First text", "Second text & more"):
        catalogue.addsourceunit(text)
    return bytes(catalogue)


X1 = '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n<file original="a" source-language="en" datatype="x"><body>\n'
X1_END = "</body></file>\n</xliff>\n"
X2 = '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de"><file id="f">'


@sample
def codes_xliff() -> str:
    return f"""{X1}<trans-unit id="1">
  <source>press <g id="1">the <x id="2"/>button</g> now</source>
</trans-unit><trans-unit id="2"><source><bpt id="1">&lt;b&gt;</bpt>bold<ept id="1">&lt;/b&gt;</ept> text</source><target/></trans-unit>
{X1_END}"""


@sample
def kept_xliff() -> str:
    return f"""{X1}<trans-unit id="1"><source>done</source><target state="final">fertig</target></trans-unit>
<trans-unit id="2" translate="no"><source>Brand</source></trans-unit>
<group translate="no"><trans-unit id="3"><source>Name</source></trans-unit></group>
<trans-unit id="4"><source>open</source><target></target><alt-trans><source>opened</source><target>x</target></alt-trans></trans-unit>
{X1_END}"""


@sample
def segments_xliff() -> str:
    return f"""{X2}<unit id="1"><segment><source>one <pc id="1">marked</pc> text</source></segment><ignorable><source> </source></ignorable>
<segment><source>two <ph id="2"/>parts<sc id="3"/>more<ec startRef="3"/></source><target>zwei</target></segment></unit></file></xliff>"""


@sample
def prefix_xliff() -> str:
    return '<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><x:file><x:body><x:trans-unit id="1"><x:source xml:lang="en">text</x:source></x:trans-unit></x:body></x:file></x:xliff>'


TMX = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="en" datatype="x"/><body>\n'


@sample
def memory_tmx() -> str:
    return f"""{TMX}<tu>
  <tuv xml:lang="en-US"><seg>with <bpt i="1">{{b}}</bpt>bold<ept i="1">{{/b}}</ept> words</seg></tuv>
</tu>
<tu><tuv xml:lang="en"><seg>done</seg></tuv><tuv xml:lang="de"><seg>fertig</seg></tuv></tu>
</body></tmx>"""


@sample
def languages_tmx() -> str:
    return f"""{TMX}<tu><tuv xml:lang="fr"><seg>bonjour</seg></tuv><tuv xml:lang="en"><seg>good day</seg></tuv></tu>
<tu><prop type="x">p</prop><tuv xml:lang="en"><seg>empty</seg></tuv><tuv xml:lang="de-DE"><seg></seg></tuv></tu></body></tmx>"""
