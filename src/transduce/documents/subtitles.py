"""Subtitles, SRT and WebVTT: the text of each cue. Numbers, times, settings, styles and notes stay as they are."""

import html
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
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
_CUE = re.compile(
    rf"^{_TIMES.pattern}\r?\n(?P<text>(?:(?!{_NEXT})[^\r\n]*\r?\n)*+(?:(?!{_NEXT})[^\r\n]+)?)", re.MULTILINE
)
_BLOCK = re.compile(r"^(?:[^\S\r\n]*+\S[^\r\n]*(?:\r?\n|\Z))+", re.MULTILINE)
"""Lines without an empty line between them."""
_LANGUAGE = re.compile(r"\A(\ufeff?WEBVTT[^\r\n]*(?:\r?\n[^\r\n]+)*?\r?\nLanguage:[ \t]*)[\w-]+")
_SPEAKER = re.compile(r"(?:<[^<>]*>|\{[^{}]*\})*[-–—]\s*")
_SENTENCE_END = re.compile(r"[.!?…:。！？][\"'”’»)\]]*(?:<[^<>]*>|\s)*\Z")
_SPACE = re.compile(r"(?<![-–—]) |(?<=[^ ][-–—]) ")
"""A space at which a line may end: not after a dash by itself, which begins what follows."""
_TAG = re.compile(r"<(?P<closing>/?)(?P<name>[a-zA-Z]*)[^<>\n]*>|\{\\[^{}\n]*\}")


def read_srt(data: bytes, name: str, _: ReadOptions) -> Document:
    return _read(data, name, str, str)


def read_vtt(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read a file of WebVTT subtitles; the language in its header becomes the target language."""
    if not data.removeprefix(b"\xef\xbb\xbf").startswith(b"WEBVTT"):
        raise DataError(f"{name}: not a WebVTT file: it does not start with WEBVTT")
    return _read(data, name, html.unescape, escape_xml, options.target)


def _read(
    data: bytes, name: str, unescape: Callable[[str], str], escape: Callable[[str], str], target: str | None = None
) -> Document:
    source, encoding = decode_text(data, name)
    if target:
        source = _LANGUAGE.sub(rf"\g<1>{target}", source, count=1)
    is_webvtt = source.lstrip("\ufeff").startswith("WEBVTT")
    cues = list(_CUE.finditer(source))
    if not cues and source.strip() and not is_webvtt:
        raise DataError(f"{name}: no subtitle found; a cue begins with a line such as 00:00:01,000 --> 00:00:02,500")
    units = [
        (start, end, unit)
        for cue in cues
        for block in _blocks(cue, is_webvtt)
        for start, end, unit in _units(block, unescape, escape)
    ]
    return text_document(Splicer(source, units), encoding)


def _blocks(cue: re.Match[str], is_webvtt: bool) -> Iterator[re.Match[str]]:
    """The lines of a cue; an empty line ends a cue of WebVTT, but in SRT, only the next cue does."""
    blocks = _BLOCK.finditer(cue.string, *cue.span("text"))
    return (block for block in blocks if not is_webvtt or block.start() == cue.start("text"))


def _units(block: re.Match[str], unescape: Callable[[str], str], escape: Callable[[str], str]) -> Iterator[PlacedUnit]:
    """The lines of several speakers are separate; otherwise, the lines of a block are one text."""
    text = block[0].rstrip("\r\n")
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(newline)
    starts = [0, *accumulate(len(line) + len(newline) for line in lines)]
    marks = _speakers(lines)
    for first, following in pairwise([*sorted({0, *marks}), len(lines)]):
        start = starts[first] + marks.get(first, 0)
        end = starts[following] - len(newline)
        tagged = _tagged(text[start:end], unescape)
        if has_words(tagged):
            layout = partial(_balance, lines=text[start:end].count("\n") + 1)
            unit = Unit([tagged], escape, lambda outputs: outputs[0].replace("\n", newline), layout=layout)
            yield block.start() + start, block.start() + end, unit


def _speakers(lines: Sequence[str]) -> dict[int, int]:
    """The lines that begin with the dash of a speaker, with the length of what is before the words.

    A single dash after a line in which no sentence ends may belong to the sentence.
    """
    marks = {number: mark.end() for number, line in enumerate(lines) if (mark := _SPEAKER.match(line))}
    if len(marks) == 1 and (number := min(marks)) and not _SENTENCE_END.search(lines[number - 1]):
        return {}
    return marks


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
    spaces = [space.start() for space in _SPACE.finditer(text, 1, max(1, len(text) - 1))] if lines > 1 else []
    start, first, parts = 0, 0, list[str]()
    for left in range(lines, 1, -1):
        check_deadline()
        if first == len(spaces):
            break
        ideal = start + (len(text) - start) / left
        last = max(first, len(spaces) - left + 1)  # leaves a space for each of the other lines
        after = min(max(first, bisect_left(spaces, ideal)), last)
        index = min(range(max(first, after - 1), after + 1), key=lambda index: abs(spaces[index] - ideal))
        parts.append(text[start : spaces[index]])
        start, first = spaces[index] + 1, index + 1
    return "\n".join([*parts, text[start:]])
