"""The lexical shortlist of a model: the target tokens that may translate each source token.

The projection onto the vocabulary is a large part of decoding on a CPU. With a shortlist it is computed only for the
tokens that may occur in the translation of a sentence. `learn_shortlist.py` learns it from sentence pairs.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from transduce.disk import require_file, write_atomically
from transduce.errors import ModelError
from transduce.models.card import SHORTLIST
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.tokenizer import EOS

Ids = npt.NDArray[np.int32]
_MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class Shortlist:
    """The candidates of every source token; those of the end marker are the candidates of every sentence."""

    offsets_V1: Ids
    """Token s has the candidates offsets[s] up to offsets[s + 1]."""
    candidates_N: Ids
    copies: bool = True
    """Whether source tokens may be copied: source and target have one vocabulary."""

    def is_for(self, tag: int) -> bool:
        """Whether it has frequent tokens for sentences with the tag of a language, or for all sentences."""
        return any(self.offsets_V1[token] < self.offsets_V1[token + 1] for token in (EOS, tag))

    def tokens(self, source: Sequence[int], others: Sequence[int] = ()) -> Ids:
        """The target tokens for a sentence, ascending.

        These are the candidates of its tokens, the source tokens themselves if they may be copied, the end marker, and
        `others`. They depend on nothing but the sentence and `others`.
        """
        starts = self.offsets_V1
        own = [self.candidates_N[starts[token] : starts[token + 1]] for token in {*source, EOS}]
        copied = [token for token in source if token > EOS] if self.copies else []
        return np.unique(np.concatenate([*own, np.array([EOS, *copied, *others], np.int32)]))

    def save(self, folder: Path, tokenizer: AnyTokenizer) -> None:
        """Write the file of a model folder, atomically, with the digest of its vocabulary."""
        arrays = {"offsets": self.offsets_V1, "candidates": self.candidates_N}
        write_atomically(folder / SHORTLIST, save(arrays, {"tokenizer": _digest(tokenizer)}))


def load_shortlist(folder: Path, tokenizer: AnyTokenizer) -> Shortlist | None:
    """Read the shortlist of a model folder, which is untrusted; None if it has none."""
    path = folder / SHORTLIST
    if not path.exists():
        return None
    require_file(path, _MOST_BYTES, "a shortlist may have")
    try:
        with safe_open(path, framework="np") as file:
            metadata: dict[str, str] = file.metadata() or {}
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            if kinds != {"offsets": "I32", "candidates": "I32"} or "tokenizer" not in metadata:
                raise ModelError(f"{path}: not a shortlist; make it again with: transduce shortlist")
            offsets, candidates = file.get_tensor("offsets"), file.get_tensor("candidates")
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from None
    if metadata["tokenizer"] != _digest(tokenizer):
        raise ModelError(f"{path}: made for another vocabulary; make it again with: transduce shortlist")
    if not (
        offsets.shape == (tokenizer.vocab_size + 1,)
        and candidates.ndim == 1
        and offsets[0] == 0
        and offsets[-1] == len(candidates)
        and bool((np.diff(offsets) >= 0).all())
        and bool(((candidates >= EOS) & (candidates < tokenizer.target.vocab_size)).all())
    ):
        raise ModelError(f"{path}: damaged: tokens or offsets are out of range; make it again: transduce shortlist")
    return Shortlist(offsets, candidates, copies=tokenizer.target is tokenizer)


def _digest(tokenizer: AnyTokenizer) -> str:
    return hashlib.sha256(tokenizer.model).hexdigest()
