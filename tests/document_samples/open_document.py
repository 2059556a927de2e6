"""ODT files."""

import io
import zipfile

from document_samples.registry import sample

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
