"""The tokenizer: SentencePiece with one vocabulary for both languages (section 5.1)."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, cast

import sentencepiece

from transduce.config import require
from transduce.disk import require_file
from transduce.errors import DataError, ModelError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the special tokens; all other ids are larger."""

_MAX_BYTES = 1 << 26
"""Limit for the size of a saved vocabulary: ten times the largest in use."""

# SentencePiece represents a space by U+2581, so that character itself would be decoded to a space. It is escaped:
# U+E011 (private use) starts an escape sequence, and is itself escaped.
_SPACE_MARK, _ESCAPE = "\u2581", "\ue011"


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Settings of the vocabulary."""

    vocab_size: int = 8000
    """Size of the joint vocabulary; smaller if the text does not have enough pieces. The paper has 37,000 tokens."""
    type: Literal["bpe", "unigram"] = "bpe"
    """Algorithm: byte-pair encoding as in the paper, or SentencePiece's unigram model."""
    sample_pairs: int = 200_000
    """Maximum number of pairs, sampled from the corpus, that the vocabulary is trained on."""

    def __post_init__(self) -> None:
        require(self.vocab_size >= 300, "vocab_size must be at least 300 (256 bytes, 4 special tokens, some pieces)")
        require(self.sample_pairs >= 1, "sample_pairs must be at least 1")


class Tokenizer:
    """A trained vocabulary. Decoding restores any text without NUL characters exactly."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        if not model:
            raise ModelError("not a SentencePiece model: it is empty")
        try:
            self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.pieces(range(self.vocab_size))  # raises an error if a piece is not valid text
        except (RuntimeError, UnicodeDecodeError) as error:
            raise ModelError(f"not a SentencePiece model: {error}") from None

    @classmethod
    def train(cls, sentences: Iterable[str], config: TokenizerConfig) -> "Tokenizer":
        """Train a vocabulary on sentences of both languages."""
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(_escape, sentences),
                model_writer=model,
                model_type=config.type,
                vocab_size=config.vocab_size,
                hard_vocab_limit=False,
                byte_fallback=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                max_sentence_length=100_000,
                required_chars=_SPACE_MARK,  # without it, text with few spaces could not be decoded
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise DataError(f"no vocabulary could be learned from this text: {error}") from None
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a saved vocabulary."""
        require_file(path, _MAX_BYTES, "a vocabulary can have")
        try:
            return cls(path.read_bytes())
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None

    def save(self, path: Path) -> None:
        """Write the SentencePiece model."""
        path.write_bytes(self.model)

    @property
    def vocab_size(self) -> int:
        """Number of ids, including special tokens."""
        return self._pieces.get_piece_size()

    def encode(self, text: str) -> list[int]:
        """Encode a text, without special tokens."""
        return cast(list[int], self._pieces.encode(_escape(text)))

    def encode_all(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Encode many texts; -1 threads: one for each core."""
        return cast(list[list[int]], self._pieces.encode([_escape(text) for text in texts], num_threads=threads))

    def encode_with_dropout(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Encode with BPE-dropout (unigram: sampling); the result is determined by the seed."""
        # SentencePiece encodes a list in a new thread, whose random generator starts from this seed.
        sentencepiece.set_random_generator_seed(seed % (2**32 - 1))  # 2^32 - 1 would keep the old seed
        escaped = [_escape(text) for text in texts]
        ids = self._pieces.encode(escaped, num_threads=1, enable_sampling=True, alpha=dropout, nbest_size=-1)
        return cast(list[list[int]], ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text; special tokens are ignored."""
        return self.decode_all([ids])[0]

    def decode_all(self, many_ids: Sequence[Sequence[int]], threads: int = 1) -> list[str]:
        """Decode many texts; -1 threads: one for each core."""
        without_special = [[i for i in ids if i > EOS] for ids in many_ids]
        return [_unescape(text) for text in self._pieces.decode(without_special, num_threads=threads)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece, as SentencePiece writes it, of each id."""
        return [self._all_pieces[i] for i in ids]

    @cached_property
    def _all_pieces(self) -> list[str]:
        return [self._pieces.id_to_piece(i) for i in range(self.vocab_size)]

    def raw_bytes(self, token: int) -> bytes:
        """The UTF-8 bytes that an id adds to a text, still escaped; none for special tokens."""
        piece = self._pieces.id_to_piece(token)
        if self._pieces.is_byte(token):
            return bytes([int(piece[3:5], 16)])  # written <0xE6>
        if token in (PAD, UNK, BOS, EOS):
            return b""
        return str(piece).replace(_SPACE_MARK, " ").encode()


def _escape(text: str) -> str:
    if _SPACE_MARK not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, _ESCAPE + "e").replace(_SPACE_MARK, _ESCAPE + "s")


def _unescape(text: str) -> str:
    if _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE + "s", _SPACE_MARK).replace(_ESCAPE + "e", _ESCAPE)
