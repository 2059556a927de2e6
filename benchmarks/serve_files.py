"""What the server does with files of absurd content: each is small enough to be accepted, and as expensive as can be.

    python benchmarks/serve_files.py [--only pdf] [--seconds 20] [--out figures.json]

Each file is sent to /v1/documents. The server must refuse it with one line and a 4xx status, answer 503 with
Retry-After, or translate it; a translation that is not finished after `--seconds` is deleted. Meanwhile a light client
translates a short sentence ten times a second. Printed for each file: the status, the seconds until the response, what
the light client waited, and the highest memory of the server and its processes. The program fails on any other status,
on a light client that waits 0.5 s (median) or 2 s (once), on 1.5 GB of memory more than before, or if temporary files
are left.
"""

import asyncio
import io
import json
import os
import statistics
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from serve import server
from serve_load import LIGHT, MEDIAN, WORST, Responses, of_file
from setting import SEED, make_parser, print_setting, write_results

from transduce.models.folder import find_model

MOST_MEMORY = 1.5e9
"""Bytes that the server and its processes may need for a file."""
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
OFFICE = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)


def package(**members: bytes) -> bytes:
    """A zip archive; names are written with "__" for "/" and "_" for "."."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return written.getvalue()


def docx(body: str, **others: bytes) -> bytes:
    return package(word__document_xml=f"<w:document {WORD}><w:body>{body}</w:body></w:document>".encode(), **others)


def odt(body: str) -> bytes:
    text = f"<office:body><office:text>{body}</office:text></office:body>"
    return package(content_xml=f"<office:document-content {OFFICE}>{text}</office:document-content>".encode())


def pdf(*objects: str | bytes) -> bytes:
    written, places = b"%PDF-1.7\n", list[int]()
    for number, item in enumerate(objects, start=1):
        places.append(len(written))
        written += b"%d 0 obj\n%b\nendobj\n" % (number, item.encode() if isinstance(item, str) else item)
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    return written + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


def stream(content: bytes, *filters: str, more: str = "") -> bytes:
    for _ in filters:
        content = zlib.compress(content, 9)
    names = "".join(f"/{name} " for name in filters)
    return f"<< /Length {len(content)} /Filter [{names}] {more}>>\nstream\n".encode() + content + b"\nendstream"


CATALOG, FONT = "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
PAGES = "<< /Type /Pages /Kids [3 0 R] /Count 1 /MediaBox [0 0 595 842] >>"
PAGE = "<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F 5 0 R >> /XObject << /X 4 0 R >> >> >>"
SHOWN = b"BT /F 10 Tf 70 700 Td (A man sleeps.) Tj ET\n"
RUN = "<w:r><w:t>a </w:t></w:r>"
CUE = "1\n00:00:01,000 --> 00:00:02,000\n"

FILES: dict[str, Callable[[], bytes]] = {
    "one sentence.txt": lambda: b"A man sleeps.",
    "spaces, 1 GB.docx": lambda: package(word__document_xml=b" " * 1_000_000_000),
    "pictures, 1 GB.docx": lambda: docx("<w:p/>", **{f"word__{n}_bmp": bytes(90_000_000) for n in range(11)}),
    "many runs.docx": lambda: docx(f"<w:p>{RUN * 400_000}</w:p>"),
    "many paragraphs.docx": lambda: docx(f"<w:p>{RUN}</w:p>" * 400_000),
    "deep tables.docx": lambda: docx("<w:tbl><w:tr><w:tc>" * 200_000),
    "one word.docx": lambda: docx(f"<w:p><w:r><w:t>{'a' * 990_000}</w:t></w:r></w:p>"),
    "many members.docx": lambda: docx("<w:p/>", **{f"m{n}": b"" for n in range(60_000)}),
    "attributes.docx": lambda: docx("<w:p " + " ".join(f'w:a{n}=""' for n in range(200_000)) + "/>"),
    "many spans.odt": lambda: odt("<text:p>" + "<text:span>a </text:span>" * 300_000 + "</text:p>"),
    "many spaces.odt": lambda: odt('<text:p>a<text:s text:c="2000000000"/>b</text:p>'),
    "deep sections.odt": lambda: odt("<text:section>" * 300_000),
    "pages that contain themselves.pdf": lambda: pdf(CATALOG, "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"),
    "the same page, 100,000 times.pdf": lambda: pdf(
        CATALOG, f"<< /Type /Pages /Kids [{'3 0 R ' * 100_000}] /Count 100000 >>", PAGE, stream(SHOWN), FONT
    ),
    "nested arrays.pdf": lambda: pdf(CATALOG, "[" * 1_000_000, PAGE, stream(SHOWN), FONT),
    "a form that draws itself.pdf": lambda: pdf(
        CATALOG, PAGES, PAGE,
        stream(b"/X Do /X Do\n" * 9, "FlateDecode",
               more="/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 4 0 R >> >> "), FONT,
    ),
    "a stream of 1 GB.pdf": lambda: pdf(CATALOG, PAGES, PAGE, stream(bytes(1_000_000_000), "FlateDecode"), FONT),
    "a stream of streams.pdf": lambda: pdf(
        CATALOG, PAGES, PAGE, stream(bytes(1_000_000_000), *["FlateDecode"] * 3), FONT
    ),
    "a million operators.pdf": lambda: pdf(CATALOG, PAGES, PAGE, stream(SHOWN * 400_000, "FlateDecode"), FONT),
    "many open strings.pdf": lambda: pdf(CATALOG, PAGES, PAGE, stream(b"(" * 8_000_000), FONT),
    "objects that refer to one another.pdf": lambda: pdf("2 0 R", "1 0 R"),
    "many units.xliff": lambda: b'<xliff version="1.2"><file source-language="en"><body>'
    + b"<trans-unit id='1'><source>a</source></trans-unit>" * 180_000 + b"</body></file></xliff>",
    "one unit of tags.xliff": lambda: b'<xliff version="1.2"><file source-language="en"><body><trans-unit id="1">'
    + b"<source>" + b'<x id="1"/>a ' * 300_000 + b"</source></trans-unit></body></file></xliff>",
    "deep.xliff": lambda: b"<xliff>" + b"<g>" * 3_000_000,
    "many units.tmx": lambda: b'<tmx version="1.4"><header srclang="en"/><body>'
    + b'<tu><tuv xml:lang="en"><seg>a</seg></tuv></tu>' * 180_000 + b"</body></tmx>",
    "many messages.po": lambda: b'msgid "a"\nmsgstr ""\n\n' * 400_000,
    "one message.po": lambda: b'msgid ""\n' + b'"a %s &b"\n' * 700_000 + b'msgstr ""\n',
    "open quotes.po": lambda: b'msgid "' * 1_400_000,
    "many cues.srt": lambda: (CUE + "a\n\n").encode() * 200_000,
    "one cue.srt": lambda: CUE.encode() + b"<i>a\n" * 1_900_000,
    "many cues.vtt": lambda: b"WEBVTT\n\n" + b"00:01.000 --> 00:02.000\n<c>a\n\n" * 300_000,
    "brackets.md": lambda: b"[" * 990_000,
    "images.md": lambda: b"![" * 490_000,
    "footnotes.md": lambda: b"[^a" * 330_000,
    "quotes.md": lambda: b"> " * 490_000,
    "lists.md": lambda: b"".join(b" " * n + b"- a\n" for n in range(1_300)),
    "emphasis.md": lambda: b"*a **b " * 140_000,
    "backticks.md": lambda: b"".join(b"`" * n + b" " for n in range(1_400)),
    "definitions.md": lambda: b"[a]: b\n" * 140_000,
    "table.md": lambda: b"|a" * 1_000 + b"\n" + b"|-" * 1_000 + b"\n" + b"|a\n" * 3_000,
    "tags.md": lambda: b"<a href='" * 110_000,
    "elements.html": lambda: b"<div>" * 1_900_000,
    "inline elements.html": lambda: b"<b>a" * 2_400_000,
    "attributes.html": lambda: b"<p " + b"a=b " * 2_400_000 + b">a</p>",
    "comments.html": lambda: b"<!--" * 2_400_000,
    "angle brackets.html": lambda: b"<" * 9_900_000,
    "entities.html": lambda: b"<p>" + b"&amp" * 2_400_000,
    "lines.txt": lambda: b"a\n" * 4_900_000,
    "one line.txt": lambda: b"a" * 990_000,
    "combining marks.txt": lambda: "a\u0301".encode() * 490_000,
    "slides.pptx": lambda: package(ppt__slides__slide1_xml=b" " * 500_000_000),
    "cells.xlsx": lambda: package(xl__worksheets__sheet1_xml=b"<c>" * 100_000_000),
    "a book.epub": lambda: package(mimetype=b"application/epub+zip", a_xhtml=b"<p>" * 100_000_000),
    "a picture.png": lambda: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\xff" * 8,
    "an hour of sound.wav": lambda: b"RIFF\xff\xff\xff\xffWAVEfmt ",
}  # fmt: skip


def main() -> None:
    """Measure, print and check."""
    parser = make_parser(__doc__)
    parser.add_argument("--only", default="", help="files whose names contain this")
    parser.add_argument("--seconds", type=float, default=20, help="until a translation is deleted")
    options = parser.parse_args()
    names = [name for name in FILES if options.only in name]
    if options.smoke:
        names, options.seconds = ["one sentence.txt", "deep.xliff"], 5
    setting = print_setting(seconds=options.seconds, seed=SEED, **{"load average before": os.getloadavg()[0]})
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = None
        with server(find_model(None)) as (port, process):
            asyncio.run(send(port, process.pid, "one sentence.txt", options.seconds))  # warm-up
            results = {name: asyncio.run(send(port, process.pid, name, options.seconds)) for name in names}
        left = [str(path) for path in Path(folder).rglob("*")]
    write_results(options, setting, results)
    wrong = [
        name
        for name, facts in results.items()
        if not (facts["status"] in (202, 503) or 400 <= facts["status"] < 500)
        or facts["light, median, s"] >= MEDIAN
        or facts["light, worst, s"] >= WORST
        or facts["more memory, MB"] * 1e6 >= MOST_MEMORY
    ]
    if (wrong or left) and not options.smoke:
        sys.exit(f"not as it should be: {'; '.join([*wrong, *left])}")


async def send(port: int, process: int, name: str, seconds: float) -> dict[str, float]:
    """Send a file; returns and prints how the server copes with it."""
    request, light, answers = of_file("/v1/documents", name, FILES[name]()), Responses(), Responses()
    for number in (process, *children(process)):
        Path(f"/proc/{number}/clear_refs").write_text("5")  # resets the highest memory
    before = highest_memory(process)

    async def repeat() -> None:
        while True:
            await light.post(port, LIGHT)
            await asyncio.sleep(0.1)

    probe = asyncio.create_task(repeat())
    await asyncio.sleep(0.5)
    start = time.perf_counter()
    answer = await answers.post(port, request)
    responded = time.perf_counter() - start
    status, body = answers.statuses.most_common()[0][0], json.loads(answer)
    assert not answers.wrong, (name, answers.wrong)
    outcome = body.get("error", "")
    if status == 202:
        head = f"/v1/documents/{body['id']} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        while body["state"] == "running" and time.perf_counter() - start < seconds:
            await asyncio.sleep(0.2)
            body = json.loads(await exchange(port, f"GET {head}"))
        outcome = f"{body['state']}, {body['done']} of {body['total']}"
        await exchange(port, f"DELETE {head}")
    await asyncio.sleep(1)
    while not light.waits and not probe.done():
        await asyncio.sleep(0.05)
    probe.cancel()
    with suppress(asyncio.CancelledError):
        await probe
    assert {*light.statuses} == {200}, light.statuses
    facts = {
        "status": status, "s": responded, "light, median, s": statistics.median(light.waits),
        "light, worst, s": max(light.waits), "more memory, MB": (highest_memory(process) - before) / 1e6,
    }  # fmt: skip
    print(f"{name:40} " + "  ".join(f"{key} {value:,.2f}" for key, value in facts.items()), outcome[:120], flush=True)
    return facts


async def exchange(port: int, head: str) -> bytes:
    """Send a request without a body; returns the body of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode())
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


def highest_memory(process: int) -> float:
    """Highest resident memory of a process and its children in bytes, since it was reset."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    memory = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
    return memory + sum(map(highest_memory, children(process)))


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(number) for task in tasks for number in task.read_text().split()]


if __name__ == "__main__":
    main()
