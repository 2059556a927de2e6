"""PO files: untranslated messages get a translation; everything else stays."""

import re
from collections.abc import Iterator
from itertools import accumulate

from transduce.documents.document import (
    Document,
    ReadOptions,
    Splicer,
    Unit,
    escape_xml,
    has_words,
    tagged_text,
)
from transduce.documents.html_text import HtmlText
from transduce.documents.mnemonics import Label, read_label
from transduce.errors import DataError
from transduce.files.files import decode_text
from transduce.files.po import PoMessage, quote, read_messages

_CHARSET = re.compile(rb"^\"Content-Type:[^\"\n]*charset=(?!CHARSET)([A-Za-z0-9_-]+)", re.MULTILINE | re.IGNORECASE)
_UNKNOWN_CHARSET = re.compile(r"(^\"Content-Type:[^\"\n]*charset=)CHARSET", re.MULTILINE)
_NO_LANGUAGE = re.compile(r"(^\"Language:) *(?=\\n\")", re.MULTILINE)
_LANGUAGE = re.compile(r"^Language: *([\w@-]+)", re.MULTILINE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_TAG_MARK = "\0"  # PO files have no such character
_ENTITY = re.compile(r"&#?\w+;")


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
    units = []
    for message in read_messages(line.removesuffix("\r") for line in lines):
        if message.problem:
            raise DataError(f"{name}, line {message.line}: {message.problem} in this message")
        if not message.id:
            language = _LANGUAGE.search(message.strings["msgstr"].text) if "msgstr" in message.strings else None
            options.require_languages(name, None, language and language[1])
            continue
        forms = [keyword for keyword in message.strings if keyword.startswith("msgstr")]
        for keyword in forms:
            string = message.strings[keyword]
            if string.text and not options.retranslate:
                continue
            if unit := _unit(keyword, _source_of(message, keyword, len(forms)), newline):
                end = starts[string.end - 1] - 1
                units.append((starts[string.first - 1], end - (source[end - 1 : end] == "\r"), unit))
    return Document({"": Splicer(source, units)}, lambda written: _encoded(written[""], encoding, name))


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


def _unit(keyword: str, text: str, newline: str) -> Unit | None:
    """The unit of a msgstr: the parts of the message between newlines and tabs are translated separately."""
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
    return Unit(texts, escape, lambda outputs: _written(keyword, "".join(fill(iter(outputs))), newline), copy=False)


def _read_label(html: str) -> Label:
    """Read a text with tags that has at most one mnemonic; an attribute has none."""
    tags = iter(_TAG.findall(html))
    label = read_label(_TAG.sub(_TAG_MARK, html))
    return label._replace(text=re.sub(_TAG_MARK, lambda _: next(tags), label.text))


def _written(keyword: str, text: str, newline: str) -> str:
    """The string with its keyword: in one line, or with a line for each line of the text."""
    lines = [quote(line) for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    return newline.join([f"{keyword} {lines[0]}"] if len(lines) == 1 else [f'{keyword} ""', *lines])
