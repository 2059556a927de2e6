"""Tokenizers of imported models: of the `tokenizers` library, which is optional, and pairs of SentencePiece models.

Their file, `tokenizer.json`, has the original vocabulary and the order of ids.
"""

import base64
import binascii
import copy
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, cast

import sentencepiece

from transduce.errors import ModelError
from transduce.files.languages import is_language_code
from transduce.files.texts import one_line
from transduce.tokenizers.any_tokenizer import IMPORTED
from transduce.tokenizers.symbols import BYTE_TOKEN, SPACE_MARK, escape, language_tag, split_languages, unescape
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK

MARKERS = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}
_MAX_TOKENS = 1 << 21
"""Limit for the size of a vocabulary: several times the largest in use."""
_OWNERS = (EOS, UNK, PAD, BOS)
"""Which marker keeps an original token that plays several roles; the others get copies."""
_LANGUAGE_CODE = re.compile(r">>[^<]*<<")


@dataclass(frozen=True)
class TokenOrder:
    """Maps the ids of an original vocabulary to ours. A token that plays the role of several markers is copied."""

    markers: tuple[int, int, int, int]
    """The original ids that play the roles of PAD, UNK, BOS and EOS."""
    size: int
    """Number of tokens of the original."""

    def __post_init__(self) -> None:
        if not 4 <= self.size <= _MAX_TOKENS:
            raise ModelError(f"a vocabulary of {self.size} tokens; it must have between 4 and {_MAX_TOKENS:,}")
        if outside := [marker for marker in self.markers if not 0 <= marker < self.size]:
            raise ModelError(f"the marker {outside[0]} is not one of the {self.size:,} tokens of the vocabulary")

    @cached_property
    def originals(self) -> list[int]:
        """The original id of each of our ids."""
        first = set(self.markers)
        return [*self.markers, *(token for token in range(self.size) if token not in first)]

    @cached_property
    def copies(self) -> list[int]:
        """Those of our ids that are copies of a token that has another id as well."""
        owners = {self.markers[marker]: marker for marker in reversed(_OWNERS)}
        return [marker for marker in range(4) if owners[self.markers[marker]] != marker]

    @cached_property
    def ids(self) -> list[int]:
        """Our id of each original id."""
        ours = [0] * self.size
        for token, original in enumerate(self.originals):
            if token not in self.copies:
                ours[original] = token
        return ours


class ImportedTokenizer(ABC):
    """A vocabulary that was made by other means, with our ids. It has no reserved symbols but tags of languages.

    Texts are normalized as the original prescribes, so decoding may restore them only in part.
    """

    file_name: ClassVar[str] = IMPORTED

    def __init__(self, order: TokenOrder, before: Sequence[int] = ()) -> None:
        self.order = order
        self.symbol_ids: Mapping[str, int] = {}
        self.languages: Mapping[str, str] = {}
        """The model's codes of the languages that it has tags for, by our codes."""
        self._tag_names: Mapping[int, str] = {}
        self.before = list(before)
        """Tokens that begin every source, as our ids (<s> of BART)."""

    @property
    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """The original files."""

    @abstractmethod
    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        """The original ids of texts."""

    @abstractmethod
    def _decode(self, originals: Sequence[int]) -> str:
        """The text of original ids, none of which is a marker."""

    @abstractmethod
    def _raw_bytes(self, original: int) -> bytes:
        """The bytes that an original id adds to a text."""

    @abstractmethod
    def _name(self, original: int) -> str:
        """The piece of an original id that adds nothing to a text."""

    @property
    @abstractmethod
    def target(self) -> "ImportedTokenizer": ...

    def set_languages(self, ids: Mapping[str, int], names: Mapping[str, str]) -> None:
        """Set the tags of languages: our ids and the model's codes, by our codes."""
        if not all(is_language_code(code) and EOS < token < len(self.order.originals) for code, token in ids.items()):
            raise ModelError("a tag of a language is not a token of the vocabulary")
        self.symbol_ids = {language_tag(code): token for code, token in ids.items()}
        self.languages, self._tag_names = names, {token: names[code] for code, token in ids.items()}

    def _copy(self) -> Self:
        """The same vocabulary, which is not read again, without tokens before every text."""
        other = copy.copy(self)
        for name in ("model", "target", "adds_prefix"):  # computed from what a copy changes
            other.__dict__.pop(name, None)
        other.before = []
        return other

    @cached_property
    def model(self) -> bytes:
        order: dict[str, Any] = {"markers": self.order.markers, "size": self.order.size, "before": self.before}
        if self.languages:
            order["languages"] = {
                code: [self.symbol_ids[language_tag(code)], self.languages[code]] for code in self.languages
            }
        return json.dumps(order | self._content, ensure_ascii=False).encode()

    @property
    def vocab_size(self) -> int:
        return len(self.order.originals)

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str], threads: int = 1, *, marked: bool = False) -> list[list[int]]:
        """Encode many texts; other symbols of `marked` texts than tags of languages are left out."""
        ids, size = self.order.ids, self.order.size
        tags, plain = list[list[int]]([] for _ in texts), list(texts)
        if marked:
            split = [split_languages(text) for text in texts]
            tags = [[self.symbol_ids[tag] for tag in first if tag in self.symbol_ids] for first, _ in split]
            plain = [unescape(rest) for _, rest in split]
        return [
            [*first, *self.before, *(ids[token] if token < size else UNK for token in text)]
            for first, text in zip(tags, self._encode(plain, threads), strict=True)
        ]

    def encode_document(self, text: str) -> list[int]:
        return self.encode(text)

    @cached_property
    def adds_prefix(self) -> bool:
        return b"".join(map(self.raw_bytes, self.encode("a"))).startswith(b" ")

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_all([ids])[0]

    def decode_all(self, many_ids: Sequence[Sequence[int]], threads: int = 1, *, marked: bool = False) -> list[str]:
        originals = self.order.originals
        never = self._tag_names
        texts = [
            self._decode([originals[token] for token in ids if token > EOS and token not in never]) for ids in many_ids
        ]
        return [escape(text) for text in texts] if marked else texts

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id in SentencePiece's notation, in which ▁ is a space."""
        return [self._tag_names.get(token) or self._all_pieces[token] for token in ids]

    @cached_property
    def _all_pieces(self) -> list[str]:
        pieces = list(MARKERS.values())
        for original in self.order.originals[len(pieces) :]:
            raw = self._raw_bytes(original)
            text = raw.decode(errors="backslashreplace").replace(" ", SPACE_MARK) if raw else self._name(original)
            pieces.append(f"<0x{raw[0]:02X}>" if len(raw) == 1 and raw[0] >= 128 else text)
        return pieces

    def raw_bytes(self, token: int) -> bytes:
        return b"" if token <= EOS or token in self._tag_names else self._raw_bytes(self.order.originals[token])


def raw_piece(piece: str) -> bytes:
    """The bytes of a piece in SentencePiece's notation."""
    byte = BYTE_TOKEN.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE_MARK, " ").encode()


class LibraryTokenizer(ImportedTokenizer):
    """A tokenizer of the `tokenizers` library, as in the file `tokenizer.json` of Hugging Face."""

    def __init__(self, text: str, order: TokenOrder, before: Sequence[int] = ()) -> None:
        super().__init__(order, before)
        self.text = text
        """The content of the original file."""
        self._tokenizer = parse_tokenizer(text)
        decoder = str(json.loads(text).get("decoder"))
        self._is_byte_level, self._is_word_piece = "'ByteLevel'" in decoder, "'WordPiece'" in decoder
        added = self._tokenizer.get_added_tokens_decoder()
        self._added = {token: piece.content for token, piece in added.items()}
        self._special = {token for token, piece in added.items() if piece.special}

    @property
    def _content(self) -> dict[str, Any]:
        return {"tokenizer": self.text}

    @cached_property
    def target(self) -> "LibraryTokenizer":
        return self._copy() if self.before else self

    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        with _library_errors("encode a text with this vocabulary"):
            if threads == 1 or len(texts) == 1:
                return [self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
            return [text.ids for text in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def _decode(self, originals: Sequence[int]) -> str:
        with _library_errors("decode tokens of this vocabulary"):
            return cast(str, self._tokenizer.decode(originals, skip_special_tokens=True))

    def _raw_bytes(self, original: int) -> bytes:
        piece = self._tokenizer.id_to_token(original)
        if piece is None or original in self._special:
            return b""
        if original in self._added and (self._is_byte_level or self._is_word_piece):
            return self._added[original].encode()
        if self._is_byte_level:
            return bytes(BYTE_OF[character] for character in piece if character in BYTE_OF)
        if self._is_word_piece:
            return piece.removeprefix("##").encode() if piece.startswith("##") else f" {piece}".encode()
        return raw_piece(piece)

    def _name(self, original: int) -> str:
        return self._added.get(original, f"<unused{original}>")


def import_tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ModelError("imported vocabularies need the package tokenizers: pip install 'transduce[import]'") from None
    return tokenizers


def parse_tokenizer(text: str) -> Any:
    """The object of the `tokenizers` library that a `tokenizer.json` describes; it neither truncates nor pads."""
    library = import_tokenizers()
    with _library_errors("read it", ValueError):
        tokenizer = library.Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@contextmanager
def _library_errors(action: str, kind: type[Exception] = ModelError) -> Iterator[None]:
    """Turn any error of the `tokenizers` library into one of this kind."""
    try:
        yield
    except BaseException as error:  # a panic of the library, which is written in Rust, is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise kind(one_line(f"the tokenizers library cannot {action}: {error}")) from None


def _byte_characters() -> dict[str, int]:
    """The byte that each character of a byte-level piece stands for: itself if it is printable, otherwise from 256."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF = _byte_characters()


class SentencePiecePair(ImportedTokenizer):
    """SentencePiece models of source and target with one list of pieces, whose indices are the ids (Marian)."""

    def __init__(
        self, source: bytes, target: bytes, pieces: Sequence[str], order: TokenOrder, before: Sequence[int] = ()
    ) -> None:
        super().__init__(order, before)
        if not all(isinstance(piece, str) for piece in pieces):
            raise ModelError("its pieces are not texts")
        "".join(pieces).encode()  # raises UnicodeEncodeError, a ValueError, for lone surrogates
        self.models = (source, target)
        """The SentencePiece models of source and target."""
        self.original_pieces = list(pieces)
        """The piece of each original id."""
        self._source, self._target = _processor(source), _processor(target)
        self._id = {piece: token for token, piece in enumerate(self.original_pieces)}

    @property
    def _content(self) -> dict[str, Any]:
        source, target = (base64.b64encode(model).decode() for model in self.models)
        return {"source": source, "target": target, "pieces": self.original_pieces}

    @property
    def names(self) -> list[str]:
        """The piece of each id as its files write it; markers have our names, and no two ids the same one."""
        names = list(MARKERS.values())
        for original in self.order.originals[len(names) :]:
            piece = self.original_pieces[original] if original < len(self.original_pieces) else self._name(original)
            names.append(self._name(original) if piece in MARKERS.values() else piece)
        return names

    @cached_property
    def target(self) -> "SentencePiecePair":
        """It encodes with the SentencePiece model of the target."""
        other = self._copy()
        other.models, other._source = (self.models[1], self.models[1]), self._target
        return other

    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        # Models with several target languages expect a code such as >>fra<<, which is one token, before the text.
        codes = [_LANGUAGE_CODE.match(text) for text in texts]
        rests = [text[code.end() :] if code else text for text, code in zip(texts, codes, strict=True)]
        encoded = self._source.encode(rests, out_type=str, num_threads=threads)
        unknown = self.order.markers[UNK]
        return [
            [self._id.get(piece, unknown) for piece in ([code[0], *pieces] if code else pieces)]
            for code, pieces in zip(codes, encoded, strict=True)
        ]

    def _decode(self, originals: Sequence[int]) -> str:
        pieces = [self.original_pieces[token] for token in originals if token < len(self.original_pieces)]
        return str(self._target.decode_pieces(pieces)).replace(SPACE_MARK, " ").strip()

    def _raw_bytes(self, original: int) -> bytes:
        return raw_piece(self.original_pieces[original]) if original < len(self.original_pieces) else b""

    def _name(self, original: int) -> str:
        return f"<unused{original}>"


def _processor(model: bytes) -> Any:
    try:
        if not model:
            raise RuntimeError("it is empty")
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ModelError(one_line(f"not a SentencePiece model: {error}")) from None


def parse_imported_tokenizer(file: bytes) -> ImportedTokenizer:
    """The vocabulary of a saved file with this content: the inverse of `ImportedTokenizer.model`."""
    try:
        content = json.loads(file)
        order = TokenOrder(tuple(map(_integer, content["markers"])), _integer(content["size"]))  # type: ignore[arg-type]
        before = [_integer(token) for token in content.get("before", [])]
        if len(order.markers) != len(MARKERS) or not all(0 <= token < len(order.originals) for token in before):
            raise ValueError("its markers do not fit")
        tokenizer: ImportedTokenizer
        if "tokenizer" in content:
            tokenizer = LibraryTokenizer(content["tokenizer"], order, before)
        else:
            source, target = (base64.b64decode(content[side], validate=True) for side in ("source", "target"))
            tokenizer = SentencePiecePair(source, target, content["pieces"], order, before)
        languages = content.get("languages", {})
        ids = {code: _integer(token) for code, (token, _) in languages.items()}
        tokenizer.set_languages(ids, {code: str(name) for code, (_, name) in languages.items()})
        return tokenizer
    except RecursionError:
        raise ModelError("nested too deeply") from None
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise ModelError(f"not the vocabulary of an imported model: {error}") from None


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("a token is not a number")
    return value
