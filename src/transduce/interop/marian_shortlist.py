"""Reading Marian's binary lexical shortlists, as those of Firefox Translations (`lex.50.50.enpt.s2t.bin`).

A file is a header of six 64-bit numbers: magic, checksum, the number of frequent tokens, the limit of candidates of a
source token, and the sizes of two arrays. These are the offset of the candidates of each source token (and their end)
in 64 bits, and all candidates in 32 bits. The frequent tokens, those with the lowest ids, belong to every sentence.
"""

import struct
from array import array
from pathlib import Path

import numpy as np

from transduce.errors import ModelError
from transduce.fast.native.shortlist import Shortlist
from transduce.interop.imported_tokenizers import TokenOrder
from transduce.interop.vocabulary import read_bytes
from transduce.tokenizers.tokenizer import EOS

_HEADER = struct.Struct("<6Q")
_MAGIC = 0xF11A48D5013417F5
_HASHED_FROM = 16
"""Byte from which the content is part of the checksum."""
_STEP, _WORD = 0x9E3779B9, (1 << 64) - 1


def read_marian_shortlist(folder: Path, target: TokenOrder, source: TokenOrder | None = None) -> Shortlist | None:
    """The shortlist of a folder, which is untrusted, with our ids; None if it has none.

    `source` is the order of a vocabulary of the source's own.
    """
    paths = sorted(folder.glob("lex*.bin"))
    if not paths:
        return None
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths[:4])
        raise ModelError(f"{folder}: it has several shortlists: {names}; keep one")
    content = read_bytes(paths[0])
    try:
        return _parse(content, target, source)
    except ValueError as error:
        hint = "get the file again, or remove it to import the model without a shortlist"
        raise ModelError(f"{paths[0]}: not a binary shortlist of Marian for this model: {error}; {hint}") from None


def _parse(content: bytes, target: TokenOrder, source: TokenOrder | None) -> Shortlist:
    if len(content) < _HEADER.size:
        raise ValueError(f"{len(content)} bytes are less than its header")
    magic, checksum, frequent, _, offset_count, count = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic:#x} instead of {_MAGIC:#x}")
    if len(content) != (expected := _HEADER.size + 8 * offset_count + 4 * count):
        raise ValueError(f"it has {len(content):,} bytes, but its header says {expected:,}")
    sources = source or target
    if offset_count != sources.size + 1:
        raise ValueError(f"it is for {offset_count - 1:,} source tokens, but the vocabulary has {sources.size:,}")
    offsets = np.frombuffer(content, "<u8", offset_count, _HEADER.size)
    candidates = np.frombuffer(content, "<u4", count, _HEADER.size + 8 * offset_count)
    if offsets[0] != 0 or offsets[-1] != count or bool((offsets[1:] < offsets[:-1]).any()):
        raise ValueError("its offsets are out of range")
    if frequent > target.size or bool((candidates >= target.size).any()):
        raise ValueError(f"its tokens are not among the {target.size:,} of the vocabulary")
    if checksum != _checksum(content):
        raise ValueError("its checksum is wrong")
    lengths = (offsets[1:] - offsets[:-1]).astype(np.int64)
    source_ids, target_ids = (np.array(order.ids) for order in (sources, target))
    pairs_N2 = np.concatenate([
        np.stack([np.repeat(source_ids, lengths), target_ids[candidates]], axis=1),
        np.stack([np.full(frequent, EOS), target_ids[:frequent]], axis=1),
    ])  # fmt: skip
    # An output never has other markers, and may always end.
    size = len(target.originals)
    keys = np.unique(pairs_N2[pairs_N2[:, 1] > EOS] @ [size, 1])
    starts = np.searchsorted(keys, np.arange(len(sources.originals) + 1) * size)
    own_offsets, own_candidates = (array("i", numbers.tolist()) for numbers in (starts, keys % size))
    return Shortlist(own_offsets, own_candidates, copies=source is None)


def _checksum(content: bytes) -> int:
    """Marian's hash of the 64-bit numbers of a file; what does not fill the last one is not part of it."""
    numbers = np.frombuffer(content, "<u8", (len(content) - _HASHED_FROM) // 8, _HASHED_FROM)
    value = 0
    for number in (numbers + np.uint64(_STEP)).tolist():
        value ^= (number + (value << 6) + (value >> 2)) & _WORD
    return value
