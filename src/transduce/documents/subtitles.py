"""Subtitles, SRT and WebVTT: the text of each cue. Numbers, times, settings, styles and notes stay as they are."""

import html
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, pairwise

from transduce.deadline import check_deadline
from transduce.documents.document import (
    Document,
    PlacedUnit,
    ReadOptions,
    Splicer,
    Unit,
    escape_xml,
    has_words,
    text_document,
)
from transduce.errors import DataError
from transduce.files.files import decode_text
from transduce.translation.markup import TaggedText, TaggedTextBuilder

_TIMES = re.compile(r"[ \t]*(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}[ \t]*-->[ \t]*(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}.*")
_NEXT = rf"(?:[ \t]*\d+[ \t]*\r?\n)?{_TIMES.pattern}"  # without an empty line before it
_CUE = re.compile(rf"^{_TIMES.pattern}\r?\n(?P<text>(?:(?!{_NEXT})[^\r\n]*\S[^\r\n]*(?:\r?\n|\Z))+)", re.MULTILINE)
_LANGUAGE = re.compile(r"\A(\ufeff?WEBVTT[^\r\n]*(?:\r?\n[^\r\n]+)*?\r?\nLanguage:[ \t]*)[\w-]+")
_SPEAKER = re.compile(r"(?:<[^<>]*>|\{[^{}]*\})*[-–—]\s*")
_TAG = re.compile(r"<(?P<closing>/?)(?P<name>[a-zA-Z]*)[^<>\n]*>|\{\\[^{}\n]*\}")


def read_srt(data: bytes, name: str, _: ReadOptions) -> Document:
    return _read(data, name, str, str)


def read_vtt(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read a file of WebVTT subtitles; the language in its header becomes the target language."""
    if not data.removeprefix(b"\xef\xbb\xbf").startswith(b"WEBVTT"):
        raise DataError(f"{name}: not a WebVTT file: it does not start with WEBVTT")
    return _read(data, name, html.unescape, escape_xml, options.target)


def _read(
    data: bytes,
    name: str,
    unescape: Callable[[str], str],
    escape: Callable[[str], str],
    target: str | None = None,
) -> Document:
    source, encoding = decode_text(data, name)
    if target:
        source = _LANGUAGE.sub(rf"\g<1>{target}", source, count=1)
    cues = list(_CUE.finditer(source))
    if not cues and source.strip() and not source.lstrip("\ufeff").startswith("WEBVTT"):
        raise DataError(f"{name}: no subtitle found; a cue begins with a line such as 00:00:01,000 --> 00:00:02,500")
    units = [
        (cue.start("text") + start, cue.start("text") + end, unit)
        for cue in cues
        for start, end, unit in _units(cue["text"].rstrip("\r\n"), unescape, escape)
    ]
    return text_document(Splicer(source, units), encoding)


def _units(text: str, unescape: Callable[[str], str], escape: Callable[[str], str]) -> Iterator[PlacedUnit]:
    """The lines of several speakers are separate; otherwise, the lines of a cue are one text."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(newline)
    starts = [0, *accumulate(len(line) + len(newline) for line in lines)]
    marks = {number: mark for number, line in enumerate(lines) if (mark := _SPEAKER.match(line))}
    if len(marks) == 1:  # a dash that may belong to the sentence
        marks = {}
    for first, following in pairwise([*sorted({0, *marks}), len(lines)]):
        start = starts[first] + (marks[first].end() if first in marks else 0)
        end = starts[following] - len(newline)
        tagged = _tagged(text[start:end], unescape)
        if has_words(tagged):
            layout = partial(_balance, lines=text[start:end].count("\n") + 1)
            yield start, end, Unit([tagged], escape, lambda outputs: outputs[0].replace("\n", newline), layout=layout)


def _tagged(text: str, unescape: Callable[[str], str]) -> TaggedText:
    builder, at = TaggedTextBuilder("\xa0"), 0
    for tag in _TAG.finditer(text):
        builder.add_text(unescape(text[at : tag.start()]))
        if not tag["name"]:
            builder.add_empty(tag[0])
        elif tag["closing"]:
            builder.close(tag["name"].lower(), tag[0])
        else:
            builder.open(tag["name"].lower(), tag[0])
        at = tag.end()
    builder.add_text(unescape(text[at:]))
    return builder.finish()


def _balance(text: str, lines: int) -> str:
    """The text in this number of lines of about the same length."""
    start, parts = 0, list[str]()
    for left in range(lines, 1, -1):
        check_deadline()
        ideal = start + (len(text) - start) / left
        last = min(int(ideal) + 1, len(text) - 1)
        nearest = text.rfind(" ", start + 1, last), text.find(" ", max(start + 1, last), len(text) - 1)
        if max(nearest) < 0:
            break
        place = min((place for place in nearest if place >= 0), key=lambda place: abs(place - ideal))
        parts.append(text[start:place])
        start = place + 1
    return "\n".join([*parts, text[start:]])
