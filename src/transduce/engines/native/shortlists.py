"""The lexical shortlists of sentences, with the rows of the projection for their tokens."""

import ctypes
from ctypes import byref

import numpy as np
import numpy.typing as npt

from transduce.engines.engine import Job
from transduce.engines.native import structs
from transduce.engines.native.structs import PANEL, Linear, Model
from transduce.models.shortlist import Shortlist
from transduce.text.tokenizer import EOS


class PackedTokens:
    """Some tokens and the rows of the projection for them, which the library copies."""

    def __init__(self, tokens: npt.NDArray[np.int32], full: Linear) -> None:
        panels = -(-len(tokens) // PANEL)
        sizes = {np.int8: panels * PANEL * full.padded_in, np.float32: 2 * panels * PANEL, np.int32: panels * PANEL}
        self.arrays = [tokens, *(np.empty(size, kind) for kind, size in sizes.items())]
        weight, scale, start = (array.ctypes.data for array in self.arrays[1:])
        self.struct = structs.Shortlist(
            tokens.ctypes.data,
            Linear(
                full.width_in, full.padded_in, len(tokens), panels, weight, scale, scale + 4 * panels * PANEL, start
            ),
        )


class Shortlists:
    """The tokens for sentences: those of one source token are common to many sentences, and packed once.

    It is the end marker or, if this has none, the source token with the longest list: the tag of a language.
    """

    def __init__(self, shortlist: Shortlist, model: Model, library: ctypes.CDLL) -> None:
        self._shortlist, self._model, self._library = shortlist, model, library
        self._sizes = np.diff(shortlist.offsets_V1)
        self._common: dict[int, PackedTokens] = {}

    def of(self, job: Job) -> tuple[int, PackedTokens, PackedTokens]:
        """The source token with the common tokens of a job, these, and all others."""
        marker = EOS
        if not self._sizes[EOS]:
            marker = max([*job.tokens, EOS], key=lambda token: (self._sizes[token], token))
        common = self._common.get(marker)
        if common is None:
            start, end = self._shortlist.offsets_V1[marker : marker + 2]
            tokens = np.unique(self._shortlist.candidates_N[start:end])
            packed = PackedTokens(tokens[tokens > EOS], self._model.projection)
            self._library.pack_shortlist(byref(self._model), byref(packed.struct))
            common = self._common.setdefault(marker, packed)  # another thread may have packed them too
        tokens = self._shortlist.tokens(job.tokens, [*job.prefix, *job.terms])
        own = np.setdiff1d(tokens, common.arrays[0], assume_unique=True)  # not empty: EOS is in it
        return marker, common, PackedTokens(own, self._model.projection)
