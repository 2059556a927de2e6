"""PDF files, written out: each page is a list of lines with their places."""

from collections.abc import Sequence

PdfLine = tuple[float, float, float, str]
"""x, y, font size and text, in Latin-1."""


def pdf_of(*pages: Sequence[PdfLine], bold_from: float = 16) -> bytes:
    """A PDF file with these lines in Helvetica, or in its bold font from this size on."""
    numbers = [5 + 2 * index for index in range(len(pages))]
    kids = " ".join(f"{number} 0 R" for number in numbers)
    fonts = ["<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica{} /Encoding /WinAnsiEncoding >>"] * 2
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} /MediaBox [0 0 595 842] >>",
        *(font.format(name) for font, name in zip(fonts, ["", "-Bold"], strict=True)),
    ]
    for number, lines in zip(numbers, pages, strict=True):
        resources = "<< /Font << /F1 3 0 R /F2 4 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /Resources {resources} /Contents {number + 1} 0 R >>")
        shown = [
            f"BT /F{1 + (size >= bold_from)} {size} Tf {x} {y} Td ({_escaped(text)}) Tj ET"
            for x, y, size, text in lines
        ]
        content = "\n".join(shown)
        objects.append(f"<< /Length {len(content.encode('latin-1'))} >>\nstream\n{content}\nendstream")
    written, places = b"%PDF-1.4\n", []
    for number, item in enumerate(objects, start=1):
        places.append(len(written))
        written += f"{number} 0 obj\n{item}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    return written + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


def text_lines(*lines: str, x: float = 70, y: float = 700, size: float = 10) -> list[PdfLine]:
    """Lines of a paragraph, one below the other."""
    return [(x, y - 1.2 * size * number, size, line) for number, line in enumerate(lines)]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
