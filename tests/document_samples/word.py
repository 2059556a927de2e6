"""DOCX files."""

import io
import re
import zipfile

from document_samples.registry import sample


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
