"""Documents of many shapes, made by the libraries of their formats or written out, for tests of translation."""

import io
import re
import zipfile
from collections.abc import Callable
from functools import cache

SAMPLES: dict[str, Callable[[], bytes]] = {}
"""Makes a document; its format is the part of its name after the last dot."""


def sample(function: Callable[[], bytes | str]) -> Callable[[], bytes | str]:
    """Add a function named like name_format to the samples."""
    name, _, kind = function.__name__.rpartition("_")

    @cache
    def make() -> bytes:
        content = function()
        return content.encode() if isinstance(content, str) else content

    SAMPLES[f"{name}.{kind}"] = make
    return function


def replace_member(package: bytes, **members: str) -> bytes:
    """A zip package with other members; "__" in a keyword is a slash, "_" a dot."""
    new = {name.replace("__", "/").replace("_", "."): content for name, content in members.items()}
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as old, zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as output:
        for info in old.infolist():
            output.writestr(info, new.pop(info.filename, None) or old.read(info))
        for name, content in new.items():
            output.writestr(name, content)
    return written.getvalue()


def docx_of(*paragraphs: str, **members: str) -> bytes:
    """A DOCX file whose body has this XML."""
    import docx

    saved = io.BytesIO()
    docx.Document().save(saved)
    with zipfile.ZipFile(saved) as package:
        source = package.read("word/document.xml").decode()
    body = "".join(paragraphs)
    source = re.sub(r"<w:body>(.*?)(<w:sectPr)", lambda old: f"<w:body>{body}{old[2]}", source, flags=re.DOTALL)
    source = re.sub(
        r"<w:document ",
        '<w:document xmlns:mcx="http://schemas.openxmlformats.org/markup-compatibility/2006" ',
        source,
        count=1,
    )
    return replace_member(saved.getvalue(), word__document_xml=source, **members)


def run(text: str, properties: str = "") -> str:
    """A run of a DOCX paragraph."""
    properties = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r w:rsidR="00AB12CD">{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*content: str) -> str:
    """A DOCX paragraph."""
    return f'<w:p w:rsidR="00AB12CD"><w:pPr><w:jc w:val="both"/></w:pPr>{"".join(content)}</w:p>'


@sample
def written_by_library_docx() -> bytes:
    import docx
    from docx.enum.text import WD_BREAK

    document = docx.Document()
    document.add_heading("The annual report", 0)
    document.add_heading("First chapter", 1)
    one = document.add_paragraph("A plain start, ")
    one.add_run("bold words").bold = True
    one.add_run(" then ")
    one.add_run("slanted words").italic = True
    one.add_run(" at the end.")
    document.add_paragraph("an item", style="List Bullet")
    document.add_paragraph("a numbered item", style="List Number")
    one.add_run().add_break(WD_BREAK.PAGE)
    document.add_page_break()
    saved = io.BytesIO()
    document.save(saved)
    return saved.getvalue()


@sample
def tables_docx() -> bytes:
    import docx

    document = docx.Document()
    table = document.add_table(rows=2, cols=2)
    table.cell(0, 0).text = "upper left"
    table.cell(0, 1).text = "42"
    table.cell(1, 0).text = "lower left\nwith two lines"
    inner = table.cell(1, 1).add_table(1, 1)
    inner.cell(0, 0).text = "a table in a table"
    saved = io.BytesIO()
    document.save(saved)
    return saved.getvalue()


@sample
def headers_docx() -> bytes:
    import docx

    document = docx.Document()
    document.add_paragraph("body text")
    document.sections[0].header.paragraphs[0].text = "text of the header"
    document.sections[0].footer.paragraphs[0].text = "text of the footer"
    document.sections[0].different_first_page_header_footer = True
    document.sections[0].first_page_header.paragraphs[0].text = "the first page"
    saved = io.BytesIO()
    document.save(saved)
    return saved.getvalue()


@sample
def many_runs_docx() -> bytes:
    words = ["each", "word", "of", "this", "sentence", "has", "a", "run", "of", "its", "own"]
    return docx_of(paragraph(*(run(f"{word} ", "<w:b/>" if len(word) > 4 else "") for word in words)))


@sample
def languages_in_runs_docx() -> bytes:
    return docx_of(
        paragraph(run("one ", '<w:lang w:val="en-US"/>'), '<w:proofErr w:type="spellStart"/>', run("sentence")),
        paragraph(run("same ", "<w:b/><w:noProof/>"), run("format", '<w:b/><w:lang w:val="en-GB"/>')),
    )


@sample
def link_docx() -> bytes:
    link = f'<w:hyperlink r:id="rId9" w:history="1">{run("the linked words", "<w:u/>")}</w:hyperlink>'
    return docx_of(paragraph(run("Before "), link, run(" and after.")))


@sample
def link_with_formats_docx() -> bytes:
    link = f'<w:hyperlink w:anchor="top">{run("two ", "<w:u/>")}{run("formats", "<w:u/><w:b/>")}</w:hyperlink>'
    return docx_of(paragraph(link, run(" lead away")))


@sample
def fields_docx() -> bytes:
    def mark(kind: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'

    def field(instruction: str, *result: str) -> str:
        code = f'<w:r><w:instrText xml:space="preserve"> {instruction} </w:instrText></w:r>'
        return "".join([mark("begin"), code, mark("separate"), *result, mark("end")])

    return docx_of(
        paragraph(run("Page "), field("PAGE", run("7")), run(" of all")),
        paragraph(run("See "), field('HYPERLINK "http://example.org"', run("our site", "<w:u/>")), run(" today")),
        paragraph(
            mark("begin"), '<w:r><w:instrText>TOC \\o "1-3"</w:instrText></w:r>', mark("separate"), run("Contents")
        ),
        paragraph(run("The last entry"), mark("end")),
        paragraph(f'<w:fldSimple w:instr=" DATE ">{run("May")}</w:fldSimple>', run(" is a month")),
    )


@sample
def breaks_docx() -> bytes:
    return docx_of(
        paragraph("<w:r><w:t>first line</w:t><w:br/><w:t>second line</w:t></w:r>"),
        paragraph(run("name"), "<w:r><w:tab/></w:r>", run("value", "<w:b/>"), "<w:r><w:tab/><w:t>12</w:t></w:r>"),
        paragraph(run("soft"), "<w:r><w:softHyphen/><w:t>ly</w:t><w:noBreakHyphen/><w:t>bound</w:t></w:r>"),
    )


@sample
def revisions_docx() -> bytes:
    return docx_of(
        paragraph(
            run("kept "),
            f'<w:ins w:id="1" w:author="A">{run("inserted ")}</w:ins>',
            '<w:del w:id="2" w:author="A"><w:r><w:delText>deleted</w:delText></w:r></w:del>',
            run("words"),
        )
    )


@sample
def content_control_docx() -> bytes:
    inline = f'<w:sdt><w:sdtPr><w:alias w:val="n"/></w:sdtPr><w:sdtContent>{run("filled in")}</w:sdtContent></w:sdt>'
    block = f"<w:sdt><w:sdtPr/><w:sdtContent>{paragraph(run('a block'))}</w:sdtContent></w:sdt>"
    return docx_of(paragraph(run("Value: "), inline, run(" here")), block)


@sample
def text_box_docx() -> bytes:
    box = paragraph(run("inside the box"))
    content = (
        f"<mcx:AlternateContent><mcx:Choice Requires='wps'><w:drawing><w:txbxContent>{box}</w:txbxContent></w:drawing>"
        f"</mcx:Choice><mcx:Fallback><w:pict><w:txbxContent>{box}</w:txbxContent></w:pict></mcx:Fallback>"
        "</mcx:AlternateContent>"
    )
    return docx_of(paragraph(run("around "), f"<w:r>{content}</w:r>", run("the box")))


@sample
def notes_docx() -> bytes:
    notes = (
        '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'
        '<w:footnotes xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        '<w:footnote w:type="separator" w:id="-1"><w:p><w:r><w:separator/></w:r></w:p></w:footnote>'
        f'<w:footnote w:id="2">{paragraph("<w:r><w:footnoteRef/></w:r>", run(" text of the note"))}</w:footnote>'
        "</w:footnotes>"
    )
    reference = '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:footnoteReference w:id="2"/></w:r>'
    return docx_of(paragraph(run("A claim"), reference, run(" with a note.")), word__footnotes_xml=notes)


@sample
def marks_docx() -> bytes:
    return docx_of(
        paragraph(
            '<w:bookmarkStart w:id="0" w:name="here"/>',
            run("marked"),
            '<w:bookmarkEnd w:id="0"/>',
            '<w:commentRangeStart w:id="1"/>',
            run(" and discussed"),
            '<w:commentRangeEnd w:id="1"/><w:r><w:commentReference w:id="1"/></w:r>',
        )
    )


@sample
def characters_docx() -> bytes:
    return docx_of(
        paragraph(run("a &lt;tag&gt; &amp; an ampersand"), run(" \u00a0 wide   spaces ", "<w:i/>"), run("end")),
        paragraph(run("   ")),
        paragraph(run("2024"), run(" - ")),
        paragraph(),
    )


@sample
def formula_docx() -> bytes:
    formula = '<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"><m:r><m:t>x</m:t></m:r></m:oMath>'
    return docx_of(paragraph(run("where "), formula, run(" is free")))


ODT_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<office:document-content '
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
    'xmlns:xlink="http://www.w3.org/1999/xlink" office:version="1.3"><office:body><office:text>'
)


def odt_of(body: str) -> bytes:
    """An ODT file with this text."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as package:
        kind = zipfile.ZipInfo("mimetype")
        package.writestr(kind, "application/vnd.oasis.opendocument.text", zipfile.ZIP_STORED)
        package.writestr("content.xml", f"{ODT_HEAD}{body}</office:text></office:body></office:document-content>")
        package.writestr("META-INF/manifest.xml", "<manifest/>")
    return written.getvalue()


@sample
def plain_odt() -> bytes:
    return odt_of("<text:h text:outline-level='1'>A heading</text:h><text:p>A paragraph.</text:p><text:p/>")


@sample
def spans_odt() -> bytes:
    return odt_of(
        '<text:p>with <text:span text:style-name="T1">a bold part</text:span> and '
        '<text:a xlink:href="http://example.org">a <text:span>nested</text:span> link</text:a>.</text:p>'
    )


@sample
def spaces_odt() -> bytes:
    return odt_of("<text:p>one<text:tab/>two<text:line-break/>three<text:s text:c='3'/>four</text:p>")


@sample
def notes_odt() -> bytes:
    return odt_of(
        "<text:p>claim<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>its note</text:p>"
        "</text:note-body></text:note> and more</text:p>"
    )


@sample
def tables_odt() -> bytes:
    cells = "<table:table-cell><text:p>a cell</text:p></table:table-cell><table:table-cell><text:p>17</text:p></table:table-cell>"
    return odt_of(f"<table:table><table:table-row>{cells}</table:table-row></table:table>")


@sample
def comments_docx() -> bytes:
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    remark = paragraph(run("A remark on "), run("this", "<w:b/>"))
    picture = (
        '<w:r><w:drawing><wp:inline xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing">'
        '<wp:docPr id="1" name="Picture 1" descr="a cat &amp; a dog" title="the animals"/></wp:inline></w:drawing></w:r>'
    )
    return docx_of(
        paragraph(run("seen "), picture, run(" here")),
        word__comments_xml=f'<w:comments {names}><w:comment w:id="1" w:author="kept">{remark}</w:comment></w:comments>',
    )


@sample
def comments_odt() -> bytes:
    return odt_of(
        "<text:tracked-changes><text:deletion><text:p>deleted</text:p></text:deletion></text:tracked-changes>"
        "<text:p>kept<office:annotation><text:p>a remark</text:p></office:annotation><text:soft-page-break/> text</text:p>"
    )


@sample
def frame_odt() -> bytes:
    return odt_of(
        "<text:p>outer <draw:frame><draw:text-box><text:p>inner text</text:p></draw:text-box></draw:frame></text:p>"
    )


@sample
def plain_html() -> str:
    return "<!DOCTYPE html>\n<html><head><title>The title</title></head><body>\n <p>Some text.</p>\n</body></html>\n"


@sample
def inline_html() -> str:
    return '<p>with <b>bold</b>, <a href="x">a link</a>, <code>code()</code> &amp; more<br>next line</p>'


@sample
def scripts_html() -> str:
    return "<style>p { color: red }</style><script>var a = '<p>no</p>';</script><p>only this</p><!-- and not this -->"


@sample
def lists_html() -> str:
    return "<ul>\n  <li>one item</li>\n  <li><p>another</p>\n  <p translate='no'>Brand</p></li>\n</ul><pre>kept as is</pre>"


@sample
def attributes_html() -> str:
    return """<meta name="description" content="About &quot;us&quot;"><meta name="viewport" content="width=device-width">
<body title='The whole page'><p title="a hint">See <img src="a.png" alt="a small cat"> and <b title="strong">this</b>.</p>
<img alt="" src=b.png><img translate="no" alt="Brand" src="c.png"><code title="kept">x()</code>
<input placeholder="Your name" value="kept"><input type=submit value=Send><select><optgroup label="Some fruit"></select>
<a href="x" aria-label="open the menu" class="title">=</a><!-- <img alt="kept"> --><link rel="next" title="kept"></body>"""


@sample
def broken_html() -> str:
    return '<p>unclosed <b>bold <i>both</p> text < 5 & <weird attr="a>b">inside'


@sample
def latin1_html() -> bytes:
    return '<meta charset="iso-8859-1"><p>caf\u00e9 au lait</p>'.encode("latin-1")


@sample
def readme_md() -> str:
    return (
        "---\ntitle: kept\n---\n\n# A title\n\nSome *emphasis*, **strong words** and `code`.\n\n"
        "* an item\n* [x] a task\n\n1. first\n2. second\n\n```sh\nnot this\n```\n"
    )


@sample
def links_md() -> str:
    return 'See [the page](http://example.org "t") and [named][ref] or <http://auto.org>, ![image](a.png) too.\n\n[ref]: http://r.org\n'


@sample
def table_md() -> str:
    return "| head | other |\n|:-----|------:|\n| a cell | 12 |\n| `code` | x \\| y |\n"


@sample
def quotation_md() -> str:
    return "> quoted text\n> in two lines\n\n- item text\n  goes on\n\n      code\n"


@sample
def breaks_md() -> str:
    return "first line  \nsecond line\\\nthird line\n\nHeading\n-------\n\n***\n"


@sample
def escapes_md() -> str:
    return "a \\*star\\* &amp; snake_case &copy; ~~gone~~ text[^1]\n\n[^1]: the footnote\n"


@sample
def markup_md() -> str:
    return '<p align="center">\n  <b>bold</b> text\n</p>\n\nwith <sub>small</sub> parts<br>\n\r\n'


@sample
def crlf_md() -> str:
    return "# Windows\r\n\r\nlines of text\r\nend here\r\n"


@sample
def plain_srt() -> str:
    return "1\n00:00:01,000 --> 00:00:02,000\nHello there.\n\n2\n00:00:03,000 --> 00:00:04,500\nTwo lines\nof text.\n"


@sample
def marked_srt() -> str:
    return "\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>slanted</i> {\\an8}words\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n- Who?\r\n- Me & you.\r\n"


@sample
def numbers_srt() -> str:
    return "1\n00:00:01,000 --> 00:00:02,000 X1:0 X2:9\n1984\n\n2\n00:00:03,000 --> 00:00:04,000\n[music]"


@sample
def plain_vtt() -> str:
    return "WEBVTT - title\n\nNOTE a remark\n\nSTYLE\n::cue { color: red }\n\nintro\n00:01.000 --> 00:02.000 align:start\nHello &amp; welcome\n"


@sample
def voices_vtt() -> str:
    return "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n<v Fred>Hi, <b>all</b> of you\nand <c.yellow>others</c>\n"


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
