"""Binary shortlists of Marian: their tokens with our ids, and files that are damaged or hostile."""

import random
import struct
from pathlib import Path

import pytest
from marian_shortlists import marian_shortlist, with_checksum

from transduce.errors import ModelError
from transduce.fast.native.shortlist import Shortlist
from transduce.interop.imported_tokenizers import TokenOrder
from transduce.interop.marian_shortlist import read_marian_shortlist
from transduce.tokenizers.tokenizer import EOS

V, FREQUENT = 30, 5
ORDER = TokenOrder((0, 1, 0, 0), V)
"""As in the models of Firefox: the end marker is the token 0, unknown is 1, and there are no others."""
LISTS = [random.Random(n).sample(range(V), n % 4) for n in range(V)]


def read(folder: Path, content: bytes, source: TokenOrder | None = None) -> Shortlist:
    (folder / "lex.50.50.enpt.s2t.bin").write_bytes(content)
    shortlist = read_marian_shortlist(folder, ORDER, source)
    assert shortlist
    return shortlist


def test_a_folder_may_have_no_shortlist(tmp_path: Path) -> None:
    assert read_marian_shortlist(tmp_path, ORDER) is None


@pytest.mark.parametrize("lists", [LISTS, [[], *LISTS[1:]], [*LISTS[:-1], [7, 7, 3]]])  # of odd and even length
def test_a_sentence_has_its_candidates_copies_and_the_frequent_tokens(lists: list[list[int]], tmp_path: Path) -> None:
    shortlist = read(tmp_path, marian_shortlist(lists, FREQUENT))
    for sentence in ([], [9], [2, 3, 2, 29], [1, 6, 7], list(range(1, V))):
        theirs = {token for source in (0, *sentence) for token in (source, *lists[source])} | {*range(FREQUENT)}
        expected = {ORDER.ids[token] for token in theirs if token > 1} | {EOS}  # never unknown
        assert shortlist.tokens([ORDER.ids[token] for token in sentence]) == expected
    assert len(shortlist.offsets) == len(ORDER.originals) + 1
    assert min(shortlist.all_candidates) > EOS


def test_the_source_may_have_a_vocabulary_of_its_own(tmp_path: Path) -> None:
    source = TokenOrder((2, 3, 4, 5), 40)
    lists = [[n % V, (n + 9) % V] for n in range(40)]
    shortlist = read(tmp_path, marian_shortlist(lists, FREQUENT), source)
    sentence = [10, 39, 0]
    theirs = {token for own in (5, *sentence) for token in lists[own]} | {*range(FREQUENT)}  # without copies
    expected = {ORDER.ids[token] for token in theirs if token > 1} | {EOS}
    assert shortlist.tokens([source.ids[token] for token in sentence]) == expected


def changed(place: int, value: int, code: str = "Q") -> bytes:
    """A file with another number at this byte, and the checksum that belongs to it."""
    content = bytearray(marian_shortlist(LISTS, FREQUENT))
    struct.pack_into(f"<{code}", content, place, value)
    return with_checksum(bytes(content[16:]))


WHOLE = marian_shortlist(LISTS, FREQUENT)
OFFSETS, LAST = 48, len(WHOLE) - 4
DAMAGED = {
    "empty": (b"", "0 bytes are less than its header"),
    "cut in the header": (WHOLE[:47], "47 bytes are less than its header"),
    "cut in the offsets": (WHOLE[:100], "it has 100 bytes, but its header says"),
    "cut at the end": (WHOLE[:-1], "but its header says"),
    "longer": (WHOLE + bytes(8), "but its header says"),
    "another magic": (bytes(8) + WHOLE[8:], "it begins with 0x0 instead of"),
    "another checksum": (WHOLE[:8] + bytes(8) + WHOLE[16:], "its checksum is wrong"),
    "one bit": (WHOLE[:OFFSETS + 8 * (V + 1)] + bytes([WHOLE[OFFSETS + 8 * (V + 1)] ^ 1])
                + WHOLE[OFFSETS + 8 * (V + 1) + 1 :], "its checksum is wrong"),
    "2^63 frequent tokens": (changed(16, 2**63), "its tokens are not among the 30"),
    "2^61 offsets": (changed(32, 2**61), "but its header says"),
    "2^62 candidates": (changed(40, 2**62), "but its header says"),
    "an offset that decreases": (changed(OFFSETS + 80, 2**63), "its offsets are out of range"),
    "offsets beyond the candidates": (changed(OFFSETS + 8 * V, 2**40), "its offsets are out of range"),
    "a first offset that is not 0": (changed(OFFSETS, 1), "its offsets are out of range"),
    "a token that does not exist": (changed(LAST, V, "I"), "its tokens are not among the 30"),
    "for a larger vocabulary": (marian_shortlist([*LISTS, []], 5), "for 31 source tokens, but the vocabulary has 30"),
    "no offsets": (with_checksum(struct.pack("<4Q", 5, 5, 0, 0)), "for -1 source tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    content, reason = DAMAGED[name]
    with pytest.raises(ModelError) as caught:
        read(tmp_path, content)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'lex.50.50.enpt.s2t.bin'}: not a binary shortlist of Marian for this model")
    assert reason in message
    assert message.endswith("; get the file again, or remove it to import the model without a shortlist")


def test_of_several_files_one_must_be_kept(tmp_path: Path) -> None:
    (tmp_path / "lex.a.bin").write_bytes(WHOLE)
    with pytest.raises(ModelError, match=r"several shortlists: lex\.50\.50\.enpt\.s2t\.bin, lex\.a\.bin; keep one"):
        read(tmp_path, WHOLE)
