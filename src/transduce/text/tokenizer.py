"""Text to token ids and back, through SentencePiece: one vocabulary for both languages (section 5.1)."""

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
"""Markers; every other id is above them."""

_MOST_BYTES = 1 << 26
"""Of a saved vocabulary: ten times that of the largest in use."""

# SentencePiece writes a space as U+2581, so that character itself would come back as a space. We hide it behind an
# escape of our own: E011 (private use) starts an escape, and is itself escaped.
_SPACE_MARK, _ESCAPE = "\u2581", "\ue011"


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How the vocabulary is learnt."""

    vocab_size: int = 8000
    """Tokens in the joint vocabulary; fewer where the text has no more to give. The paper has 37,000."""
    type: Literal["bpe", "unigram"] = "bpe"
    """Byte-pair encoding as in the paper, or SentencePiece's unigram model."""
    sample_pairs: int = 200_000
    """At most this many pairs, drawn evenly from the corpus, train the vocabulary."""

    def __post_init__(self) -> None:
        require(self.vocab_size >= 300, "vocab_size must be at least 300 (256 bytes, 4 markers, some pieces)")
        require(self.sample_pairs >= 1, "sample_pairs must be at least 1")


class Tokenizer:
    """A trained vocabulary. Any text without NUL comes back from its ids exactly."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        if not model:
            raise ModelError("not a SentencePiece model: it is empty")
        try:
            self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.pieces(range(self.vocab_size))  # each must be text, or some output could not be written
        except (RuntimeError, UnicodeDecodeError) as error:
            raise ModelError(f"not a SentencePiece model: {error}") from None

    @classmethod
    def train(cls, sentences: Iterable[str], config: TokenizerConfig) -> "Tokenizer":
        """Learn a vocabulary from sentences of both languages."""
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
                required_chars=_SPACE_MARK,  # or text with few spaces would not come back
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise DataError(f"no vocabulary could be learnt from this text: {error}") from None
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a saved vocabulary."""
        require_file(path, _MOST_BYTES, "a vocabulary can have")
        try:
            return cls(path.read_bytes())
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None

    def save(self, path: Path) -> None:
        """Write the SentencePiece model."""
        path.write_bytes(self.model)

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return self._pieces.get_piece_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without markers."""
        return cast(list[int], self._pieces.encode(_escape(text)))

    def encode_all(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """The ids of many texts; -1 threads are as many as there are cores."""
        return cast(list[list[int]], self._pieces.encode([_escape(text) for text in texts], num_threads=threads))

    def encode_with_dropout(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Ids under BPE-dropout (unigram: sampling), the same for the same seed."""
        # A list is encoded on a fresh thread of SentencePiece's, whose generator starts from this seed.
        sentencepiece.set_random_generator_seed(seed % (2**32 - 1))  # 2^32 - 1 would mean: leave the seed alone
        escaped = [_escape(text) for text in texts]
        ids = self._pieces.encode(escaped, num_threads=1, enable_sampling=True, alpha=dropout, nbest_size=-1)
        return cast(list[list[int]], ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; markers are passed over."""
        return self.decode_all([ids])[0]

    def decode_all(self, many_ids: Sequence[Sequence[int]], threads: int = 1) -> list[str]:
        """The texts of many; -1 threads are as many as there are cores."""
        without_markers = [[i for i in ids if i > EOS] for ids in many_ids]
        return [_unescape(text) for text in self._pieces.decode(without_markers, num_threads=threads)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The written form of each id."""
        return [self._written[i] for i in ids]

    @cached_property
    def _written(self) -> list[str]:
        return [self._pieces.id_to_piece(i) for i in range(self.vocab_size)]

    def raw_bytes(self, token: int) -> bytes:
        """What an id adds to a text, in UTF-8; markers add nothing, what is escaped stays so."""
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
