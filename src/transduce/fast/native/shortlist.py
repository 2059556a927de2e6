"""The lexical shortlist of a model: the target tokens that may translate each source token.

The projection onto the vocabulary is a large part of decoding on a CPU. With a shortlist it is computed only for the
tokens that may occur in the translation of a sentence. `learn_shortlist.py` learns it from sentence pairs.
"""

import ctypes
import hashlib
from array import array
from collections.abc import Iterable, Sequence
from ctypes import byref
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from transduce.disk import require_file, write_atomically
from transduce.errors import ModelError
from transduce.fast.native import structs
from transduce.fast.native.structs import PANEL, Linear, Model
from transduce.models.any_model import AnyModel
from transduce.models.folder import SHORTLIST
from transduce.models.weights_file import Block, TensorFile
from transduce.search.engine import Job
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.tokenizer import EOS

_MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class Shortlist:
    """The candidates of every source token; those of the end marker are the candidates of every sentence."""

    offsets: "array[int]"
    """Token s has the candidates offsets[s] up to offsets[s + 1]; all numbers have 32 bits."""
    all_candidates: "array[int]"
    copies: bool = True
    """Whether source tokens may be copied: source and target have one vocabulary."""

    def candidates(self, token: int) -> "array[int]":
        return self.all_candidates[self.offsets[token] : self.offsets[token + 1]]

    def is_for(self, tag: int) -> bool:
        """Whether it has frequent tokens for sentences with the tag of a language, or for all sentences."""
        return any(self.candidates(token) for token in (EOS, tag))

    def tokens(self, source: Sequence[int], others: Sequence[int] = ()) -> set[int]:
        """The target tokens for a sentence.

        These are the candidates of its tokens, the source tokens themselves if they may be copied, the end marker, and
        `others`. They depend on nothing but the sentence and `others`.
        """
        copied = [token for token in source if token > EOS] if self.copies else []
        return {EOS, *copied, *others}.union(*(self.candidates(token) for token in {*source, EOS}))

    def save(self, folder: Path, tokenizer: AnyTokenizer) -> None:
        """Write the file of a model folder, atomically, with the digest of its vocabulary."""
        import numpy as np
        from safetensors.numpy import save

        lists = {"offsets": self.offsets, "candidates": self.all_candidates}
        arrays = {name: np.array(numbers, np.int32) for name, numbers in lists.items()}
        write_atomically(folder / SHORTLIST, save(arrays, {"tokenizer": _digest(tokenizer)}))


def model_shortlist(model: AnyModel) -> Shortlist | None:
    """The shortlist of a model; None if it has none."""
    return model.side_file(SHORTLIST, read_shortlist)


def read_shortlist(path: Path, tokenizer: AnyTokenizer) -> Shortlist:
    """Read the shortlist of a model folder, which is untrusted."""
    require_file(path, _MOST_BYTES, "a shortlist may have")
    file = TensorFile(path)
    if file.types != {"offsets": "I32", "candidates": "I32"} or "tokenizer" not in file.metadata:
        raise ModelError(f"{path}: not a shortlist; make it again with: transduce shortlist")
    if file.metadata["tokenizer"] != _digest(tokenizer):
        raise ModelError(f"{path}: made for another vocabulary; make it again with: transduce shortlist")
    offsets, candidates = (array("i", bytes(file.read(name).content)) for name in ("offsets", "candidates"))
    if not (
        file.shapes == {"offsets": (tokenizer.vocab_size + 1,), "candidates": (len(candidates),)}
        and (offsets[0], offsets[-1]) == (0, len(candidates))
        and all(start <= end for start, end in pairwise(offsets))
        and all(EOS <= token < tokenizer.target.vocab_size for token in candidates)
    ):
        raise ModelError(f"{path}: damaged: tokens or offsets are out of range; make it again: transduce shortlist")
    return Shortlist(offsets, candidates, copies=tokenizer.target is tokenizer)


def _digest(tokenizer: AnyTokenizer) -> str:
    return hashlib.sha256(tokenizer.model).hexdigest()


class PackedTokens:
    """Some tokens and the rows of the projection for them, which the library copies."""

    def __init__(self, tokens: Iterable[int], full: Linear) -> None:
        self.tokens = array("i", sorted(tokens))
        panels = -(-len(self.tokens) // PANEL)
        rows = panels * PANEL
        self._blocks = [Block(size) for size in (rows * full.padded_in, 4 * rows, 4 * rows, 4 * rows)]
        weight, scale, bias, start = (block.address for block in self._blocks)
        self.struct = structs.Shortlist(
            self.tokens.buffer_info()[0],
            Linear(full.width_in, full.padded_in, len(self.tokens), panels, weight, scale, bias, start),
        )


class Shortlists:
    """The tokens for sentences: those of one source token are common to many sentences, and packed once.

    It is the end marker or, if this has none, the source token with the longest list: the tag of a language.
    """

    def __init__(self, shortlist: Shortlist, model: Model, library: ctypes.CDLL) -> None:
        self._shortlist, self._model, self._library = shortlist, model, library
        self._common: dict[int, PackedTokens] = {}

    def of(self, job: Job) -> tuple[int, PackedTokens, PackedTokens]:
        """The source token with the common tokens of a job, these, and all others."""
        candidates = self._shortlist.candidates
        marker = EOS
        if not candidates(EOS):
            marker = max([*job.tokens, EOS], key=lambda token: (len(candidates(token)), token))
        common = self._common.get(marker)
        if common is None:
            packed = PackedTokens({token for token in candidates(marker) if token > EOS}, self._model.projection)
            self._library.pack_shortlist(byref(self._model), byref(packed.struct))
            common = self._common.setdefault(marker, packed)  # another thread may have packed them too
        others = self._shortlist.tokens(job.tokens, [*job.prefix, *job.terms, *job.once]).difference(common.tokens)
        return marker, common, PackedTokens(others, self._model.projection)  # not empty: EOS is in it
