"""The characters of a text that each of its tokens stands for."""

from collections.abc import Sequence

from transduce.tokenizers.symbols import BYTE_TOKEN, ESCAPE, ORIGINALS, SPACE_MARK

Span = tuple[int, int]
"""Start and end of a range of characters."""

_SPECIAL = frozenset({"<pad>", "<unk>", "<s>", "</s>"})
_ESCAPED = {ESCAPE + letter: character for letter, character in ORIGINALS.items()}
_SEARCH_TOKENS, _SEARCH_TEXT, _SEARCH_KEY = 40, 200, 3
"""How many characters are searched to find tokens and text in step again, and how many must match."""


def token_ranges(tokens: Sequence[str], text: str) -> list[Span]:
    """The range of characters of each token, in order; a token of only white space has an empty range.

    `tokens` are SentencePiece's pieces of this text. White space may differ, because it is lost between the parts of a
    long text. Bytes of one character all have its range. Tokens that the text does not contain, such as a symbol that
    masked a part of it, have the range between their neighbours. Capitals may differ (`truecase.py`).
    """
    letters, owners = _letters(tokens)
    places = [index for index, letter in enumerate(text) if not letter.isspace()]
    matches = _match(_small(letters), _small("".join(text[place] for place in places)))
    starts: list[int | None] = [None] * len(tokens)
    ends = [0] * len(tokens)
    for (first, last), (start, end) in zip(owners, matches, strict=True):
        if end > start:
            for token in range(first, last + 1):
                starts[token] = places[start] if starts[token] is None else starts[token]
                ends[token] = places[end - 1] + 1
    ranges, position = [], 0
    for start_or_none, end in zip(starts, ends, strict=True):
        ranges.append((position, position) if start_or_none is None else (start_or_none, end))
        position = max(position, ranges[-1][1])
    return ranges


def align_characters(
    source_ranges: Sequence[Span], tokens: Sequence[str], translation: str, alignment: Sequence[int]
) -> list[tuple[Span, Span]]:
    """Ranges of the source and of the translation that are aligned, from the source token of each output token.

    `source_ranges` are those of the source tokens.
    """
    if not alignment:
        return []
    target_ranges = token_ranges(tokens, translation)
    pairs = ((source_ranges[index], target) for index, target in zip(alignment, target_ranges, strict=True))
    return [(span, other) for span, other in pairs if span[0] < span[1] and other[0] < other[1]]


def _small(text: str) -> str:
    """The text in small letters, of the same length."""
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


def _letters(tokens: Sequence[str]) -> tuple[str, list[Span]]:
    """The characters of the tokens without white space, and the first and last token of each character."""
    content = bytearray()
    owner: list[int] = []
    for index, token in enumerate(tokens):
        byte = BYTE_TOKEN.fullmatch(token)
        piece = bytes([int(byte[1], 16)]) if byte else b"" if token in _SPECIAL else _encode(token)
        content += piece
        owner += [index] * len(piece)
    letters: list[str] = []
    owners: list[Span] = []
    position = 0
    escape: str | None = None
    for letter in content.decode(errors="surrogateescape"):  # a byte that is not UTF-8 becomes one character
        size = 1 if "\udc80" <= letter <= "\udcff" else len(_encode(letter))
        span = owner[position], owner[position + size - 1]
        position += size
        if escape is not None and (meant := _ESCAPED.get(escape + letter)):
            letters[-1], owners[-1], escape = meant, (owners[-1][0], span[1]), None
        elif letter.isspace():
            escape = None
        else:
            letters.append("\ufffd" if "\udc80" <= letter <= "\udcff" else letter)
            owners.append(span)
            escape = letter
    return "".join(letters), owners


def _encode(piece: str) -> bytes:
    return piece.replace(SPACE_MARK, " ").encode(errors="replace")


def _match(letters: str, text: str) -> list[Span]:
    """The range in the text of each letter; after a difference, the next place where both agree is searched."""
    ranges: list[Span] = []
    position = 0
    while len(ranges) < len(letters):
        start = len(ranges)
        if position < len(text) and letters[start] == text[position]:
            ranges.append((position, position + 1))
            position += 1
            continue
        for skip in range(min(_SEARCH_TOKENS, len(letters) - start)):
            key = letters[start + skip : start + skip + _SEARCH_KEY]
            found = text.find(key, position, position + _SEARCH_TEXT)
            if found >= 0:
                break
        else:
            skip = min(_SEARCH_TOKENS, len(letters) - start)
            found = position if start + skip < len(letters) else len(text)
        ranges += [(position, found)] * skip
        position = found
    return ranges
