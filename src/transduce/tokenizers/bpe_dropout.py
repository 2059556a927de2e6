"""BPE-dropout: byte-pair encoding in which each merge is skipped with a probability (Provilkov et al., 2020).

SentencePiece has it too, but some of its versions draw differently in every process. Here all draws come from one
generator, so that an encoding is a function of the texts and the seed.
"""

import re
import struct
import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.errors import ConfigError, ModelError
from transduce.tokenizers.symbols import SPACE_MARK
from transduce.tokenizers.tokenizer import BPE, NORMAL, UNUSED, USER_DEFINED, read_pieces

_MAX_PIECE = 1000
_POSITION_BITS = 40
_NEVER = 1 << 62
"""The priority of a pair that is not merged, or more. Others: the rank of the piece, then the left part's position."""
_EMPTY = np.uint64(2**64 - 1)

Array = NDArray[Any]


@lru_cache(maxsize=8)
def bpe_dropout(model: bytes) -> "BpeDropout":
    """The merges of a SentencePiece model, which are read once."""
    return BpeDropout(model)


class BpeDropout:
    """The merges of a SentencePiece model of type BPE.

    The pair of neighbours whose piece has the highest score is merged first, and the leftmost of equal ones. As pieces
    do not extend over spaces, words are independent of each other: every step tries one merge of each word.
    """

    def __init__(self, model: bytes) -> None:
        try:
            pieces, model_type = read_pieces(model)
            special = {piece: i for i, (piece, _, kind) in enumerate(pieces) if kind not in (NORMAL, USER_DEFINED)}
            self._byte_ids = np.array([special[f"<0x{byte:02X}>"] for byte in range(256)], dtype=np.int32)
        except (LookupError, TypeError, ValueError, struct.error):  # what SentencePiece accepts, but never writes
            raise ModelError(
                "train.bpe_dropout cannot read this vocabulary; train one without tokenizer.path"
            ) from None
        if model_type != BPE:
            raise ConfigError("train.bpe_dropout needs a vocabulary of type BPE, but this one is of another type")
        if max(len(piece) for piece, _, _ in pieces) > _MAX_PIECE:
            raise ConfigError(f"train.bpe_dropout does not support pieces of more than {_MAX_PIECE} characters")
        if any(kind == UNUSED for _, _, kind in pieces):
            raise ConfigError("train.bpe_dropout does not support vocabularies with unused pieces")
        self._vocab_size = len(pieces)
        ids = {piece: i for i, (piece, _, kind) in enumerate(pieces) if kind in (NORMAL, USER_DEFINED)}
        # Characters that are no pieces get ids beyond the vocabulary: they can be merged, or are written in bytes.
        others = sorted(set().union(*ids) - ids.keys())
        atoms = {character: len(pieces) + i for i, character in enumerate(others)}
        atoms |= {piece: i for piece, i in ids.items() if len(piece) == 1}
        self._nothing = len(pieces) + len(others)
        """The id of all other characters, which are never merged."""
        self._character_ids = np.full(sys.maxunicode + 1, self._nothing, dtype=np.int32)
        self._character_ids[[*map(ord, atoms)]] = [*atoms.values()]
        # User-defined symbols take part in no merge; the longest one at a position is used.
        self._symbols = {piece: i for piece, i in ids.items() if pieces[i].type == USER_DEFINED}
        longest_first = sorted(self._symbols, key=len, reverse=True)
        long = longest_first and len(longest_first[0]) > 1  # otherwise, they are found as characters are
        self._symbol = re.compile("|".join(map(re.escape, longest_first))) if long else None
        self._within_words = not any(SPACE_MARK in piece[1:] for piece in ids)
        parts = {part: i for part, i in (ids | atoms).items() if part not in self._symbols}
        ranks = np.unique([-score for _, score, _ in pieces], return_inverse=True)[1]
        pairs = {
            parts[piece[:cut]] << 32 | parts[piece[cut:]]: i
            for piece, i in ids.items()
            for cut in range(1, len(piece))
            if piece[:cut] in parts and piece[cut:] in parts
        }
        self._merges = _Merges(pairs, ranks)

    def encode(self, normalized: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Encode texts that SentencePiece has normalized; each merge is skipped with the probability `dropout`."""
        codes, ids, offsets, word_starts = self._split(normalized)
        kept = self._merge(ids, word_starts, dropout, np.random.Generator(np.random.PCG64(seed)))
        in_bytes = kept & (ids >= self._vocab_size)
        utf8_lengths = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
        counts = np.where(in_bytes, utf8_lengths, kept)
        result = np.repeat(ids, counts)
        utf8 = codes[in_bytes].tobytes().decode("utf-32-le").encode()
        result[result >= self._vocab_size] = self._byte_ids[np.frombuffer(utf8, dtype=np.uint8)]
        flat = result.tolist()
        ends = np.append(0, np.cumsum(counts))[offsets].tolist()
        return [flat[start:end] for start, end in pairwise(ends)]

    def _split(self, normalized: Sequence[str]) -> tuple[Array, Array, Array, Array]:
        """The parts before any merge, one character or symbol each.

        Returns the code point of each (of a symbol: the first one), the id of each, the offsets of the texts, and where
        words start.
        """
        joined = "\0".join(normalized)  # no symbol extends over two texts
        codes = np.frombuffer(joined.encode("utf-32-le"), dtype="<u4")
        ids = self._character_ids[codes]
        starts = np.cumsum([0, *(len(text) + 1 for text in normalized)])
        used = np.ones(len(codes), dtype=bool)
        used[starts[1:-1] - 1] = False
        for match in self._symbol.finditer(joined) if self._symbol else ():
            ids[match.start()] = self._symbols[match[0]]
            used[match.start() + 1 : match.end()] = False
        offsets = np.append(0, np.cumsum(used))[np.minimum(starts, len(codes))]
        codes, ids = codes[used], ids[used]
        starts_word = (codes == ord(SPACE_MARK)) & self._within_words
        starts_word[offsets[offsets < len(codes)]] = True
        return codes, ids, offsets, np.flatnonzero(starts_word)

    def _merge(self, ids: Array, word_starts: Array, dropout: float, generator: np.random.Generator) -> Array:
        """Merge parts in place; returns which of them are left. A merged pair has the place of its left part."""
        end = len(ids)
        kept = np.ones(end, dtype=bool)
        if not end:
            return kept
        following, preceding = np.arange(1, end + 2), np.arange(-1, end)  # the one at `end` is no part
        following[np.append(word_starts[1:], end) - 1] = end
        preceding[word_starts] = end
        parts = np.append(ids, self._nothing)
        priority, piece = self._merges.find(parts[:-1], parts[following[:-1]], np.arange(end))
        starts = offsets = word_starts  # where words start in all arrays, and in `priority`: only unfinished words
        while True:
            best = np.minimum.reduceat(priority, offsets)
            active = best < _NEVER
            count = np.count_nonzero(active)
            if not count:
                break
            if count < 0.7 * len(starts):
                lengths = np.diff(offsets, append=len(priority))
                priority = priority[np.repeat(active, lengths)]
                starts, offsets, best = starts[active], np.cumsum(lengths[active]) - lengths[active], best[active]
                active = active[active]
            left, shift = best[active] & (1 << _POSITION_BITS) - 1, (offsets - starts)[active]
            if dropout:
                skipped = generator.random(len(left)) < dropout
                priority[(left + shift)[skipped]] = _NEVER  # until one of the two parts changes
                left, shift = left[~skipped], shift[~skipped]
            right = following[left]
            parts[left] = piece[left]
            kept[right] = False
            priority[right + shift] = _NEVER
            after, before = following[right], preceding[left]
            following[left], preceding[after] = after, left
            priority[left + shift], piece[left] = self._merges.find(parts[left], parts[after], left)
            inside = before < end
            before, left, shift = before[inside], left[inside], shift[inside]
            priority[before + shift], piece[before] = self._merges.find(parts[before], parts[left], before)
        ids[:] = parts[:-1]
        return kept


class _Merges:
    """The pairs of parts that can be merged, in a hash table with open addressing."""

    def __init__(self, pairs: dict[int, int], ranks: Array) -> None:
        keys = np.array([*pairs], dtype=np.uint64)
        pieces = np.array([*pairs.values()], dtype=np.int32)
        bits = max(len(keys) * 4, 2).bit_length()
        self._shift = np.uint64(64 - bits)
        self._keys = np.full(1 << bits, _EMPTY, dtype=np.uint64)
        self._pieces = np.zeros(1 << bits, dtype=np.int32)
        self._priorities = np.full(1 << bits, _NEVER, dtype=np.int64)
        slots = self._slots(keys)
        waiting = np.arange(len(keys))
        while len(waiting):
            free = waiting[self._keys[slots[waiting]] == _EMPTY]
            self._keys[slots[free]] = keys[free]  # one of several that have the same slot gets it
            waiting = waiting[self._keys[slots[waiting]] != keys[waiting]]
            slots[waiting] = (slots[waiting] + 1) % len(self._keys)
        self._pieces[slots] = pieces
        self._priorities[slots] = ranks[pieces].astype(np.int64) << _POSITION_BITS

    def find(self, left: Array, right: Array, positions: Array) -> tuple[Array, Array]:
        """The priority with which each pair is merged, and the piece that it becomes."""
        keys = left.astype(np.uint64) << np.uint64(32) | right.astype(np.uint64)
        slots = self._slots(keys)
        found = self._keys[slots]
        other = np.flatnonzero((found != keys) & (found != _EMPTY))
        while len(other):
            slots[other] = (slots[other] + 1) % len(self._keys)
            found = self._keys[slots[other]]
            other = other[(found != keys[other]) & (found != _EMPTY)]
        return self._priorities[slots] | positions, self._pieces[slots]

    def _slots(self, keys: Array) -> Array:
        return (keys * np.uint64(0x9E3779B97F4A7C15) >> self._shift).astype(np.int64)
