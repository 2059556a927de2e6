"""The tokenizer: SentencePiece with one vocabulary for both languages (section 5.1), or for one side or documents."""

import io
import re
import struct
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import sentencepiece

from transduce.config import require
from transduce.disk import require_file
from transduce.errors import ConfigError, DataError, ModelError
from transduce.files.texts import one_line
from transduce.tokenizers.symbols import RESERVED, SPACE_MARK, describe, escape, is_symbol, unescape

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the special tokens; all other ids are larger."""

MAX_BYTES = 1 << 26
"""Limit for the size of a saved vocabulary: ten times the largest in use."""
_ASCII = "".join(map(chr, range(33, 127)))
_BASE_TOKENS = 4 + 256 + len(RESERVED) + len(_ASCII) + 1
"""Special tokens, bytes, symbols, ASCII and the space: the tokens of every vocabulary."""
_TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")
_LARGE_ALPHABET_COVERAGE = 0.9995
NEWLINE = "\n"
"""A token of its own in vocabularies of documents."""
_UNIT = 4096
"""Maximum number of characters that are encoded at once."""
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
NORMAL, USER_DEFINED, UNUSED = 1, 4, 5
"""Types of pieces; the others are unknown, control and byte."""
UNIGRAM, BPE = 1, 2
"""Types of models; the others are words and characters."""

_INTEGER, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types: how the content of a field is written. The tag of a field is its number and its wire type."""
_PIECE, _TRAINING = 1 << 3 | _BYTES, 2 << 3 | _BYTES
"""Tags of the fields of a model: a piece, and the settings of the training."""
_TEXT, _SCORE, _TYPE = 1 << 3 | _BYTES, 2 << 3 | _FOUR_BYTES, 3 << 3 | _INTEGER
"""Tags of the fields of a piece."""
_MODEL_TYPE, _SPACES_AS_SUFFIXES = 3 << 3 | _INTEGER, 24 << 3 | _INTEGER
"""Tags of the model's type, and of whether spaces end words, in the settings of the training."""
_NORMALIZER, _CHARACTER_MAP = 3 << 3 | _BYTES, 2 << 3 | _BYTES
"""Tags of the settings of the normalizer, and of its rules for characters."""


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Settings of the vocabulary."""

    vocab_size: int = 8000
    """Size of the joint vocabulary, or of each of two; smaller if the text does not have enough pieces. The paper has
    37,000 tokens."""
    separate: bool = False
    """Train a vocabulary for the source and another one for the target, with an embedding matrix each, instead of one
    that both share, as in the paper: for languages with different scripts."""
    type: Literal["bpe", "unigram", "char"] = "bpe"
    """Algorithm: byte-pair encoding as in the paper, SentencePiece's unigram model, or single characters."""
    sample_pairs: int = 200_000
    """Maximum number of pairs (of documents: lines), sampled from the corpus, that the vocabulary is trained on."""
    character_coverage: float | Literal["auto"] = "auto"
    """Share of the text's characters that become tokens; the others are written in bytes. auto: all, or 0.9995 for
    large alphabets (Chinese, Japanese). ASCII and the digits of the text's scripts are always tokens."""
    symbols: tuple[str, ...] = ()
    """User-defined symbols: strings that are always one token, in addition to the reserved symbols. Beside
    train.start_from, they are added to the vocabulary of that model."""
    path: str | None = None
    """An existing SentencePiece model to use instead of training one; its special tokens need the ids 0 to 3."""
    target_path: str | None = None
    """Likewise for the target, if it has a vocabulary of its own; tokenizer.path is then that of the source."""

    def __post_init__(self) -> None:
        if self.type == "char":
            least, reason = 8 + len(self.symbols), "markers, symbols, some characters"
        else:
            least, reason = _least(self.symbols), "256 bytes, ASCII, symbols, some pieces"
        require(self.vocab_size >= least, f"vocab_size must be at least {least} ({reason})")
        require(self.sample_pairs >= 1, "sample_pairs must be at least 1")
        coverage = self.character_coverage
        require(coverage == "auto" or 0.9 <= coverage <= 1, "character_coverage must be between 0.9 and 1, or auto")
        require(all(self.symbols), "symbols must not be empty strings")
        require(self.path is not None or self.target_path is None, "target_path needs path, the model of the source")
        has_target = not self.separate or self.path is None or self.target_path is not None
        require(has_target, "separate vocabularies need target_path, the model of the target, beside path")

    @property
    def has_two(self) -> bool:
        return self.separate or self.target_path is not None


class Tokenizer:
    """A trained vocabulary. Decoding restores any text without NUL characters exactly."""

    file_name: ClassVar[str] = "tokenizer.model"

    def __init__(self, model: bytes) -> None:
        self.model = model
        if not model:
            raise ModelError("not a SentencePiece model: it is empty")
        try:
            self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
            self._all_pieces  # noqa: B018  # raises an error if a piece is not valid text
        except (RuntimeError, UnicodeDecodeError) as error:
            raise ModelError(one_line(f"not a SentencePiece model: {error}")) from None

    @classmethod
    def train(cls, sentences: Iterable[str], config: TokenizerConfig) -> "Tokenizer":
        """Train a vocabulary on sentences: of both languages, or of one side."""
        escaped = [escape(sentence) for sentence in sentences]
        return cls._train(escaped, config, [*RESERVED, *config.symbols])

    @classmethod
    def train_on_documents(
        cls, lines: Iterable[str], config: TokenizerConfig, alphabet: Iterable[str] = ()
    ) -> "Tokenizer":
        """Train a vocabulary on lines of documents; the alphabet has characters that may be missing in the lines.

        A line break is a token, and the beginning of a text is encoded like its middle. If the tokens are characters
        and there is a token for each, the vocabulary has neither bytes nor reserved symbols.
        """
        escaped = [escape(line.replace(NEWLINE, "")) for line in lines]
        symbols = [NEWLINE, *config.symbols]
        escaped.append(" ".join(sorted(escape(character) for character in alphabet if character != NEWLINE)))
        known = set().union(*escaped) - {" "}
        fits = len(known) + len(symbols) + 5 <= config.vocab_size and config.character_coverage in ("auto", 1.0)
        if config.type == "char" and not fits and config.vocab_size < _least(symbols):
            raise ConfigError(
                f"tokenizer.vocab_size is {config.vocab_size}, but the text has {len(known):,} characters; set "
                f"tokenizer.vocab_size={min(len(known) + len(symbols) + 5, _least(symbols))} or more"
            )
        if config.type == "char" and fits:
            return cls._train(escaped, config, symbols, add_dummy_prefix=False, minimal=True)
        return cls._train(escaped, config, [*RESERVED, *symbols], add_dummy_prefix=False)

    @classmethod
    def _train(
        cls,
        escaped: list[str],
        config: TokenizerConfig,
        symbols: Sequence[str],
        *,
        add_dummy_prefix: bool = True,
        minimal: bool = False,
    ) -> "Tokenizer":
        """Train on escaped texts; a `minimal` vocabulary has only the characters of the text, and no bytes."""
        model = io.BytesIO()
        least = _least(config.symbols)
        require(minimal or config.vocab_size >= least, f"tokenizer.vocab_size must be at least {least} for this text")
        alphabet = set().union(*escaped) - {" "}
        required = {SPACE_MARK, *([] if minimal else _ASCII), *([] if minimal else _all_digits(alphabet))} - {*symbols}
        escaped = [*escaped, " ".join(sorted(required))]  # SentencePiece requires that each occurs
        coverage = config.character_coverage
        if minimal:
            coverage = 1.0
        elif coverage == "auto":  # at most half of the pieces are single characters
            room = (config.vocab_size - _BASE_TOKENS - len(config.symbols)) / 2
            coverage = 1.0 if len(alphabet - required) <= room else _LARGE_ALPHABET_COVERAGE
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(escaped),
                model_writer=model,
                model_type=config.type,
                vocab_size=config.vocab_size,
                hard_vocab_limit=False,
                byte_fallback=not minimal,
                normalization_rule_name="identity",
                add_dummy_prefix=add_dummy_prefix,
                remove_extra_whitespaces=False,
                max_sentence_length=100_000,
                character_coverage=coverage,
                required_chars="".join(sorted(required)),  # without the mark, text with few spaces could not be decoded
                user_defined_symbols=list(symbols),
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                minloglevel=2,
            )
        except RuntimeError as error:
            if found := _TOO_SMALL.search(str(error)):
                raise DataError(
                    f"the characters and symbols of this text need a vocabulary of {found[1]}; raise "
                    f"tokenizer.vocab_size ({config.vocab_size}), or lower tokenizer.character_coverage"
                ) from None
            raise DataError(f"no vocabulary could be learned from this text: {error}") from None
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        path = Path(path)
        require_file(path, MAX_BYTES, "a vocabulary can have")
        try:
            return cls(path.read_bytes())
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None

    @classmethod
    def load_foreign(cls, path: Path) -> "Tokenizer":
        """Read a vocabulary that was trained by other means; it must fit this package."""
        tokenizer = cls.load(path)
        pieces = tokenizer._pieces
        ids = (pieces.pad_id(), pieces.unk_id(), pieces.bos_id(), pieces.eos_id())
        options = "--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3 --byte_fallback=true"
        if ids != (PAD, UNK, BOS, EOS):
            raise ModelError(
                f"{path}: the ids of padding, unknown, begin and end are {', '.join(map(str, ids))}, but must be "
                f"0, 1, 2, 3; train it with spm_train {options}"
            )
        if not any(map(pieces.is_byte, range(tokenizer.vocab_size))):
            raise ModelError(
                f"{path}: it has no byte pieces, so characters that it does not know would be lost; train it with "
                f"spm_train {options}"
            )
        return tokenizer

    def with_symbols(self, symbols: Sequence[str]) -> "Tokenizer":
        """This vocabulary with more user-defined symbols, whose ids follow the existing ones."""
        if known := [symbol for symbol in symbols if symbol in self._all_pieces]:
            raise ConfigError(f"tokenizer.symbols: {known[0]} is a piece of the vocabulary already; choose another")
        return Tokenizer(add_user_defined_pieces(self.model, symbols))

    @property
    def names(self) -> list[str]:
        """The piece of each id as the SentencePiece model writes it; symbols are private characters."""
        return self._all_pieces

    def save(self, path: Path) -> None:
        path.write_bytes(self.model)

    @property
    def target(self) -> "Tokenizer":
        return self

    @property
    def vocab_size(self) -> int:
        return self._pieces.get_piece_size()

    @cached_property
    def symbol_ids(self) -> dict[str, int]:
        """The id of each reserved symbol and language tag; empty for vocabularies that were made without them."""
        return {piece: i for i, piece in enumerate(self._all_pieces) if is_symbol(piece)}

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str], threads: int = 1, *, marked: bool = False) -> list[list[int]]:
        escaped = list(texts) if marked else [escape(text) for text in texts]
        return cast(list[list[int]], self._pieces.encode(escaped, num_threads=threads))

    def encode_document(self, text: str) -> list[int]:
        """Encode a text of any length, line by line, without special tokens; decoding restores it exactly."""
        first, *others = list(encoding_units(text)) or [""]
        # A vocabulary of sentences adds a space before every text. It is not added after a line break.
        before, skip = (NEWLINE, len(self.encode(NEWLINE))) if self.adds_prefix else ("", 0)
        encoded = self.encode_all([first, *(before + unit for unit in others)])
        return [*encoded[0], *(token for ids in encoded[1:] for token in ids[skip:])]

    @cached_property
    def adds_prefix(self) -> bool:
        """Whether a space is added before every text, as in vocabularies of sentences."""
        return len(self.encode(NEWLINE)) > len(self.encode(2 * NEWLINE)) - len(self.encode(NEWLINE))

    def encode_with_dropout(self, marked: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Encode marked texts with BPE-dropout; the result is determined by the seed, in every process."""
        from transduce.tokenizers.bpe_dropout import bpe_dropout  # needs numpy, as only training does

        return bpe_dropout(self.model).encode(self._pieces.normalize(list(marked)), dropout, seed)

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_all([ids])[0]

    def decode_all(self, many_ids: Sequence[Sequence[int]], threads: int = 1, *, marked: bool = False) -> list[str]:
        without_special = [[i for i in ids if i > EOS] for ids in many_ids]
        texts = self._pieces.decode(without_special, num_threads=threads)
        return texts if marked else [unescape(text) for text in texts]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [describe(self._all_pieces[i]) for i in ids]

    @cached_property
    def _all_pieces(self) -> list[str]:
        return self._pieces.id_to_piece(list(range(self.vocab_size)))  # faster than one by one

    def raw_bytes(self, token: int) -> bytes:
        """The UTF-8 bytes that an id adds to a text, still escaped; none for special tokens."""
        piece = self._pieces.id_to_piece(token)
        if self._pieces.is_byte(token):
            return bytes([int(piece[3:5], 16)])  # written <0xE6>
        if token in (PAD, UNK, BOS, EOS):
            return b""
        return str(piece).replace(SPACE_MARK, " ").encode()


def _least(symbols: Sequence[str]) -> int:
    """Minimum size of a vocabulary with bytes, reserved symbols and these symbols."""
    return _BASE_TOKENS + len(symbols) + 20


def _all_digits(alphabet: set[str]) -> set[str]:
    """The digits 0 to 9 of every script that has a digit in the alphabet."""
    zeros = {ord(character) - unicodedata.decimal(character) for character in alphabet if character.isdecimal()}
    return {chr(zero + value) for zero in zeros for value in range(10)}


def encoding_units(text: str) -> Iterator[str]:
    """Cut a text into units that can be encoded one by one: lines with their line break, and parts of long lines.

    A long line is cut before a space, if it has any. As no token continues across a line break or has a space in its
    middle, the tokens of the units are those of the text.
    """
    for match in _LINES.finditer(text):
        line = match[0]
        start = 0
        while len(line) - start > _UNIT:
            end = start + _UNIT
            space = line.rfind(" ", start + 1, end)
            while space > start and line[space - 1] == " ":  # not inside a run of spaces
                space -= 1
            end = space if space > start else end
            yield line[start:end]
            start = end
        yield line[start:]


class Piece(NamedTuple):
    text: str
    score: float
    type: int


def read_pieces(model: bytes) -> tuple[list[Piece], int]:
    """The pieces of a model, and its type.

    A model that SentencePiece would not write raises a LookupError, ValueError or struct.error.
    """
    pieces, model_type = [], UNIGRAM
    for tag, content, _ in _fields(model):
        if tag == _PIECE:
            piece = _contents(content)
            (score,) = struct.unpack("<f", piece.get(_SCORE, bytes(4)))
            pieces.append(Piece(piece[_TEXT].decode(), score, piece.get(_TYPE, NORMAL)))
        elif tag == _TRAINING:
            model_type = _contents(content).get(_MODEL_TYPE, UNIGRAM)
    return pieces, model_type


def normalizes(model: bytes) -> bool:
    """Whether a model has rules that normalize characters, as a vocabulary that was trained elsewhere may have."""
    contents = _contents(model)
    normalizer = _contents(contents.get(_NORMALIZER, b""))
    suffixes = _contents(contents.get(_TRAINING, b"")).get(_SPACES_AS_SUFFIXES, 0)
    return bool(normalizer.get(_CHARACTER_MAP)) or bool(suffixes)


def rename_pieces(model: bytes, names: Mapping[str, str]) -> bytes:
    """A model with some of its pieces renamed; everything else stays byte for byte."""
    new = {old.encode(): name.encode() for old, name in names.items()}
    renamed = bytearray()
    for tag, content, field in _fields(model):
        if tag == _PIECE:
            parts = (_field(_TEXT, new.get(x, x)) if inner == _TEXT else part for inner, x, part in _fields(content))
            renamed += _field(_PIECE, b"".join(parts))
        else:
            renamed += field
    return bytes(renamed)


def add_user_defined_pieces(model: bytes, texts: Sequence[str]) -> bytes:
    """A model with more pieces, whose ids follow the existing ones."""
    for text in texts:
        # The elements of a list need not be adjacent: a piece at the end of the file is the last one.
        model += _field(_PIECE, _field(_TEXT, text.encode()) + bytes([_SCORE, 0, 0, 0, 0, _TYPE, USER_DEFINED]))
    return model


def _contents(message: bytes) -> dict[int, Any]:
    return {tag: content for tag, content, _ in _fields(message)}


def _fields(message: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """The fields of a protocol buffer: tag, content (an integer, or bytes), and the field as it is written."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        wire_type = tag & 7
        if wire_type == _INTEGER:
            content: int | bytes
            content, at = _read_varint(message, at)
        else:
            fixed = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
            length, at = _read_varint(message, at) if wire_type == _BYTES else (fixed[wire_type], at)
            content, at = message[at : at + length], at + length
        yield tag, content, message[start:at]


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """An integer, seven bits in each byte, and the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def _field(tag: int, content: bytes) -> bytes:
    """A field that holds bytes: its tag, their number as seven bits in each byte, and the bytes."""
    length, count = bytearray(), len(content)
    while count > 127:
        length.append(count & 127 | 128)
        count >>= 7
    return bytes([tag, *length, count]) + content
