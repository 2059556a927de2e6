"""The lexical shortlists of sentences, with the rows of the projection for their tokens."""

import ctypes
from array import array
from collections.abc import Iterable
from ctypes import byref

from transduce.fast.native import structs
from transduce.fast.native.shortlist import Shortlist
from transduce.fast.native.structs import PANEL, Linear, Model
from transduce.models.arrays import Block
from transduce.search.engine import Job
from transduce.tokenizers.tokenizer import EOS


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
        own = self._shortlist.tokens(job.tokens, [*job.prefix, *job.terms]).difference(common.tokens)
        return marker, common, PackedTokens(own, self._model.projection)  # not empty: EOS is in it
