"""Reserved symbols: tokens of every new vocabulary that a user's text can never produce.

They are characters of Unicode's private use area, and language tags that are written with such characters. A *marked*
text may contain them. `escape` turns a user's text into a marked text without symbols, and `unescape` turns it back, so
that decoding restores every text exactly, even one that contains these characters.
"""

import re
from collections.abc import Sequence

from transduce.config import require
from transduce.files.languages import source_of

SPACE_MARK = "\u2581"
"""SentencePiece's representation of a space."""
ESCAPE = "\ue011"
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
"""A token of SentencePiece that is one byte of a character."""
_SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")

_SYMBOLS = [chr(code) for code in range(0xE100, 0xE110)]
SLOTS = _SYMBOLS[:10]
"""Each stands for a protected span of a sentence; see translation/stages/protect.py."""
FORMALITY = {"formal": _SYMBOLS[10], "informal": _SYMBOLS[11]}
"""The form of address that the translation uses: German "Sie" or "du"; see translation/formality.py."""
SEPARATOR = _SYMBOLS[12]
"""Between the sentence before, which a model with data.context reads as well, and the sentence that it translates."""
BACK_TRANSLATED = _SYMBOLS[13]
"""The first token of a source that is a back-translation."""
MASK = _SYMBOLS[15]
"""Takes the place of a token that a model is to predict, or of a span of tokens."""
RESERVED = _SYMBOLS
"""The symbols of every new vocabulary, besides language tags; one of them has no use yet."""
_TAG_START, _TAG_END = "\ue110", "\ue111"
SENTINELS = [f"{_TAG_START}span{number}{_TAG_END}" for number in range(1, 51)]
"""Each takes the place of a span of tokens of a text; of vocabularies that denoising in the manner of T5 needs."""

# U+FFFD is escaped as well: in a decoded text, it can then only come from bytes that are not UTF-8.
_SPECIAL = {SPACE_MARK: "s", ESCAPE: "e", "\ufffd": "f"}
_SPECIAL |= {symbol: chr(ord("A") + index) for index, symbol in enumerate([*_SYMBOLS, _TAG_START, _TAG_END])}
ORIGINALS = {letter: character for character, letter in _SPECIAL.items()}
"""The character that ESCAPE followed by a letter stands for, by that letter."""
_TO_ESCAPE = re.compile(f"[{''.join(_SPECIAL)}]")
_ESCAPED = re.compile(f"{ESCAPE}([{''.join(ORIGINALS)}])")
_SYMBOL = re.compile(f"{_TAG_START}[^{_TAG_END}]*{_TAG_END}|[{''.join(_SYMBOLS)}\ufffd]")
_LANGUAGE_TAG = re.compile(f"{_TAG_START}([^{_TAG_END}]*){_TAG_END}")
_LEADING_TAGS = re.compile(f"(?:(?:{_LANGUAGE_TAG.pattern}|[{BACK_TRANSLATED}{''.join(FORMALITY.values())}]) ?)*")


def language_tag(code: str) -> str:
    """The symbol that selects a language."""
    return f"{_TAG_START}{code}{_TAG_END}"


def tagged_language(tags: str) -> str | None:
    """The language that the tags of a source select; None if they have no tag of a language."""
    found = _LANGUAGE_TAG.search(tags)
    return found[1] if found else None


def escape(text: str) -> str:
    """A user's text as a marked text without symbols."""
    return _TO_ESCAPE.sub(lambda match: ESCAPE + _SPECIAL[match[0]], text)


def tag_prefix(target: str | None) -> str:
    """What a marked source begins with: the tag of the target language and a space, or nothing.

    The tag of the source language follows if the target tells it.
    """
    codes = [code for code in (target, source_of(target)) if code]
    return "".join(f"{language_tag(code)} " for code in codes)


def mark(text: str, target: str | None, *, back_translated: bool = False, context: bool = False) -> str:
    """A user's text as a marked source: the tag of the target language, if there is one, comes first.

    It may tell the source language, whose tag is second. A back-translation has a symbol of its own after them. With
    `context`, a line before the text is its context.
    """
    before, _, text = text.rpartition("\n") if context else ("", "", text)
    return tag_prefix(target) + (f"{BACK_TRANSLATED} " if back_translated else "") + after(before) + escape(text)


def after(before: str) -> str:
    """What a marked source has before its text, if its context is known: the sentence before, and a separator."""
    return f"{escape(before)} {SEPARATOR} " if before else ""


def unescape(marked: str) -> str:
    """The text of a marked text, without its symbols and without characters that could not be decoded."""
    without = _SYMBOL.sub("", marked)
    return _ESCAPED.sub(lambda match: ORIGINALS[match[1]], without) if ESCAPE in without else without


def has_escapes(marked: str) -> bool:
    return ESCAPE in marked


def split_languages(marked: str) -> tuple[list[str], str]:
    """The tags of languages that a marked text begins with, and the rest."""
    tags = list[str]()
    while match := _LANGUAGE_TAG.match(marked):
        tags.append(match[0])
        marked = marked[match.end() :].removeprefix(" ")
    return tags, marked


def split_tags(marked: str) -> tuple[str, str]:
    """The symbols and spaces that a marked text begins with, and the rest; slots belong to the rest."""
    tags = _LEADING_TAGS.match(marked)
    assert tags
    return tags[0], marked[tags.end() :]


def is_symbol(piece: str) -> bool:
    """Whether a piece of a vocabulary is a reserved symbol or a language tag."""
    # The first comparison is fast, since a vocabulary has thousands of pieces.
    return _SYMBOLS[0] <= piece[:1] <= _TAG_START and (piece in _SYMBOLS or piece.startswith(_TAG_START))


def describe(piece: str) -> str:
    """A piece for people: a symbol as its number or its language in ⟨⟩, any other piece as it is."""
    if not is_symbol(piece):
        return piece
    return f"⟨{piece[1:-1] or _SYMBOLS.index(piece)}⟩"


def require_user_symbols(symbols: Sequence[str]) -> None:
    """Raise a ConfigError for a symbol that could not be a token of its own; SentencePiece does not find out."""
    for number, symbol in enumerate(symbols):
        require(symbol not in symbols[:number], f"tokenizer.symbols: {symbol} is given twice")
        require(
            " " not in symbol and escape(symbol) == symbol,
            f"tokenizer.symbols: {symbol!r} has a space or a reserved character, so it cannot be one token",
        )
        require(
            symbol not in _SPECIAL_TOKENS and not BYTE_TOKEN.fullmatch(symbol),
            f"tokenizer.symbols: {symbol} is a special token of every vocabulary; choose another, e.g. <my-symbol>",
        )
