"""Writes binary shortlists in the format of Marian and Firefox Translations."""

import struct
from collections.abc import Sequence

MAGIC = 0xF11A48D5013417F5


def marian_shortlist(lists: Sequence[Sequence[int]], frequent: int) -> bytes:
    """A file with the candidates of every source token, and this number of frequent tokens."""
    ends = [sum(map(len, lists[:n])) for n in range(len(lists) + 1)]
    content = struct.pack(f"<4Q{len(ends)}Q", frequent, max(map(len, lists)), len(ends), ends[-1], *ends)
    return with_checksum(content + b"".join(struct.pack(f"<{len(one)}I", *one) for one in lists))


def with_checksum(content: bytes) -> bytes:
    """A file with this content after magic and checksum."""
    value = 0
    for (number,) in struct.iter_unpack("<Q", content[: len(content) // 8 * 8]):
        value = value ^ (number + 0x9E3779B9 + (value << 6) % 2**64 + value // 4) % 2**64
    return struct.pack("<QQ", MAGIC, value) + content
