"""PO files: untranslated messages get a translation; everything else stays."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from transduce.documents.document import Document, ReadOptions, Splicer, Unit, escape_xml, has_words, tagged_text
from transduce.documents.html_text import HtmlText
from transduce.documents.mnemonics import Label, read_label
from transduce.documents.placeholders import FormatText, number_placeholders
from transduce.errors import DataError
from transduce.files.files import decode_text
from transduce.files.po import PoMessage, quote, read_messages
from transduce.translation.stages.slots import COUNT

_CHARSET = re.compile(rb"^\"Content-Type:[^\"\n]*charset=(?!CHARSET)([A-Za-z0-9_-]+)", re.MULTILINE | re.IGNORECASE)
_UNKNOWN_CHARSET = re.compile(r"(^\"Content-Type:[^\"\n]*charset=)CHARSET", re.MULTILINE)
_NO_LANGUAGE = re.compile(r"(^\"Language:) *(?=\\n\")", re.MULTILINE)
_LANGUAGE = re.compile(r"^Language: *([\w@-]+)", re.MULTILINE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_TAG_MARK = "\0"  # PO files have no such character
_ENTITY = re.compile(r"&#?\w+;")
_COUNT = re.compile(rf"(?<![^\s(>])(?:{COUNT.pattern})(?= [^\W\d_])")
"""A placeholder of the number of something."""


class _Place(NamedTuple):
    """A msgstr that gets a translation."""

    keyword: str
    text: FormatText
    original: str
    """Its source in the file."""
    line: int
    newline: str
    unmatched: set[int]
    """The lines of strings that stay as they are, because their placeholders cannot be restored."""

    def write(self, translation: str) -> str:
        """The source of the string with a translation of its text."""
        restored = self.text.restore(translation)
        if restored is None:
            self.unmatched.add(self.line)
            return self.original
        return _written(self.keyword, restored, self.newline)


def read_po(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read a PO file; plural forms are translated too, the first from the singular, the others from the plural.

    The header of a template, which has neither an encoding nor a language, gets both.
    """
    source, encoding = decode_text(data, name, _CHARSET)
    source = _UNKNOWN_CHARSET.sub(r"\1UTF-8", source, count=1)
    if options.target:
        source = _NO_LANGUAGE.sub(rf"\1 {options.target}", source, count=1)
    lines = source.split("\n")
    newline = "\r\n" if "\r\n" in source else "\n"
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    units, unmatched = [], set[int]()
    for message in read_messages(line.removesuffix("\r") for line in lines):
        if message.problem:
            raise DataError(f"{name}, line {message.line}: {message.problem} in this message")
        if not message.id:
            language = _LANGUAGE.search(message.strings["msgstr"].text) if "msgstr" in message.strings else None
            options.require_languages(name, None, language and language[1])
            continue
        flags = _flags(lines, message)
        forms = [keyword for keyword in message.strings if keyword.startswith("msgstr")]
        for keyword in forms:
            string = message.strings[keyword]
            if string.text and not options.retranslate:
                continue
            start, end = starts[string.first - 1], starts[string.end - 1] - 1
            end -= source[end - 1 : end] == "\r"
            text = number_placeholders(_source_of(message, keyword, len(forms)), flags)
            place = _Place(keyword, text, source[start:end], string.first, newline, unmatched)
            is_singular = keyword == "msgstr[0]" and len(forms) > 1
            unit = _counting_unit(text.text, "1" if is_singular else "7", place.write) or _unit(text.text, place.write)
            if unit:
                units.append((start, end, unit))

    def pack(written: dict[str, str]) -> bytes:
        document.warning = _warning(name, unmatched)
        unmatched.clear()
        return _encoded(written[""], encoding, name)

    document = Document({"": Splicer(source, units)}, pack)
    return document


def _warning(name: str, lines: Collection[int]) -> str:
    """What is said of messages of which these lines were not translated, because of their placeholders."""
    if not lines:
        return ""
    messages = "1 message stays" if len(lines) == 1 else f"{len(lines):,} messages stay"
    return (
        f"{name}: {messages} untranslated (first: line {min(lines)}): the translation lacks or repeats a placeholder, "
        "or has them in an order that the format cannot express"
    )


def _flags(lines: Sequence[str], message: PoMessage) -> set[str]:
    """The flags in the comments before a message, such as c-format."""
    before = (lines[number] for number in range(message.line - 2, -1, -1))
    comments = takewhile(lambda line: line.startswith("#") and not line.startswith("#~"), before)
    return {flag for line in comments if line.startswith("#,") for flag in re.split(r"[,\s]+", line[2:])}


def _encoded(text: str, encoding: str, name: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        missing = text[error.start]
        raise DataError(f"{name}: {encoding} lacks {missing!r} of a translation; convert the file to UTF-8") from None


def _source_of(message: PoMessage, keyword: str, forms: int) -> str:
    """The text that this form translates; a language with one form uses the plural."""
    plural = message.strings.get("msgid_plural")
    return plural.text if plural and (keyword != "msgstr[0]" or forms == 1) else message.id


def _unit(text: str, write: Callable[[str], str]) -> Unit | None:
    """The unit of a msgstr, whose source `write` makes.

    The parts of the message between newlines and tabs are translated separately.
    """
    parts = re.split(r"([\n\t])", text)
    if _TAG.search(text):
        has_entities = bool(_ENTITY.search(text))
        labels = [Label(part) if has_entities else _read_label(part) for part in parts]
        pages = [HtmlText(label.text) for label in labels]
        texts = [tagged for page in pages for tagged in page.texts]

        def fill(outputs: Iterator[str]) -> list[str]:
            return [
                label.write(page.fill([next(outputs) for _ in page.texts]))
                for label, page in zip(labels, pages, strict=True)
            ]

        escape = escape_xml if has_entities else str
    else:
        labels = [read_label(part) for part in parts]
        tagged_parts = [tagged_text(label.text) for label in labels]
        texts = [tagged for tagged in tagged_parts if has_words(tagged)]

        def fill(outputs: Iterator[str]) -> list[str]:
            return [
                part.replace(part.strip(), label.write(next(outputs)), 1) if has_words(tagged) else part
                for part, label, tagged in zip(parts, labels, tagged_parts, strict=True)
            ]

        escape = str
    if not any(map(has_words, texts)):
        return None
    return Unit(texts, escape, lambda outputs: write("".join(fill(iter(outputs)))), copy=False)


def _counting_unit(text: str, number: str, write: Callable[[str], str]) -> Unit | None:
    """The unit of a message that counts something, such as "%d files"; None for others.

    A model that reads a placeholder takes it for a name ("fichiers %d"), so this number stands for it. If the number is
    not once in the translation, that of the message with its placeholder is taken.
    """
    counts = list(_COUNT.finditer(text))
    if len(counts) != 1 or any(map(str.isdecimal, _COUNT.sub("", text))):
        return None
    (count,) = counts
    with_number, plain = _unit(text[: count.start()] + number + text[count.end() :], str), _unit(text, str)
    assert with_number  # a word follows the placeholder
    assert plain

    def choose(outputs: list[str]) -> str:
        size = len(with_number.texts)
        translation = with_number.write(outputs[:size])
        pieces = re.split(rf"(?<![\w.,]){number}(?![.,]?\d)", translation)
        return write(count[0].join(pieces) if len(pieces) == 2 else plain.write(outputs[size:]))

    return Unit([*with_number.texts, *plain.texts], plain.escape, choose, copy=False)


def _read_label(html: str) -> Label:
    """Read a text with tags that has at most one mnemonic; an attribute has none."""
    tags = iter(_TAG.findall(html))
    label = read_label(_TAG.sub(_TAG_MARK, html))
    return label._replace(text=re.sub(_TAG_MARK, lambda _: next(tags), label.text))


def _written(keyword: str, text: str, newline: str) -> str:
    """The string with its keyword: in one line, or with a line for each line of the text."""
    lines = [quote(line) for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    return newline.join([f"{keyword} {lines[0]}"] if len(lines) == 1 else [f'{keyword} ""', *lines])
