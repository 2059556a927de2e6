"""Lexical shortlists: what is learned from pairs, what a sentence gets, and files that are damaged or hostile."""

import random
from array import array
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from transduce.errors import ModelError
from transduce.fast.native.shortlist import Shortlist, read_shortlist
from transduce.models.folder import SHORTLIST
from transduce.tokenizers.tokenizer import EOS
from transduce.translation.learn_shortlist import Direction, learn_shortlist

V = 60
FREQUENT, TAG = 50, 59


def dictionary_pairs(number: int, marker: int | None = None) -> Direction:
    """Token s (10 to 29) is translated by s + 20, in random order, and a frequent token ends every target."""
    draw = random.Random(1)
    sources = [draw.sample(range(10, 30), draw.randint(2, 8)) for _ in range(number)]
    targets = [[*draw.sample([token + 20 for token in source], len(source)), FREQUENT] for source in sources]
    if marker is None:
        return Direction(sources, targets)
    return Direction([[marker, *source] for source in sources], targets, marker)


def candidates(shortlist: Shortlist, token: int) -> list[int]:
    return shortlist.candidates(token).tolist()


def test_the_translation_of_every_token_is_learned() -> None:
    shortlist = learn_shortlist([dictionary_pairs(60)], V, frequent=1, per_token=1)
    assert [candidates(shortlist, token) for token in range(10, 30)] == [[token + 20] for token in range(10, 30)]
    assert candidates(shortlist, EOS) == [FREQUENT]
    assert not any(candidates(shortlist, token) for token in [*range(EOS), *range(4, 10), *range(30, V)])


def test_the_source_may_have_a_vocabulary_of_its_own() -> None:
    pairs = dictionary_pairs(60)
    larger = Direction([[token + 100 for token in source] for source in pairs.sources], pairs.targets)
    shortlist = learn_shortlist([larger], V, frequent=1, per_token=1, source_vocab_size=140)
    assert [candidates(shortlist, token) for token in range(110, 130)] == [[token + 20] for token in range(10, 30)]
    assert len(shortlist.offsets) == 141
    assert shortlist.tokens([110, 111]) == {EOS, 30, 31, FREQUENT}


def test_frequent_tokens_belong_to_the_tag_of_their_language() -> None:
    other = Direction([[58, 10, 11]] * 20, [[55, 56, 56]] * 20, 58)
    shortlist = learn_shortlist([dictionary_pairs(50, TAG), other], V, frequent=1, per_token=2)
    assert (candidates(shortlist, TAG), candidates(shortlist, 58), candidates(shortlist, EOS)) == ([50], [55], [])
    assert {30, 56} <= {*candidates(shortlist, 10)}


def test_only_so_many_links_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.translation.learn_shortlist._MOST_LINKS", 900)
    shortlist = learn_shortlist([dictionary_pairs(60)], V, frequent=1, per_token=1)
    assert [candidates(shortlist, token) for token in range(10, 30)] == [[token + 20] for token in range(10, 30)]


def test_nothing_is_learned_from_nothing() -> None:
    shortlist = learn_shortlist([Direction([[], [5]], [[], []])], V)
    assert (len(shortlist.all_candidates), shortlist.offsets.tolist()) == (0, [0] * (V + 1))
    assert shortlist.tokens([5, 5, 2]) == {EOS, 5}


def test_a_sentence_has_the_candidates_of_its_tokens_the_tokens_themselves_and_others() -> None:
    lists = {EOS: 2, 10: 2, 20: 1}
    offsets = array("i", accumulate((lists.get(token, 0) for token in range(V)), initial=0))
    shortlist = Shortlist(offsets, array("i", [7, 40, 8, 40, 30]))
    assert shortlist.tokens([10, 9, 10]) == {EOS, 7, 8, 9, 10, 40}
    assert shortlist.tokens([20], [55, 7]) == {EOS, 7, 20, 30, 40, 55}
    assert shortlist.tokens([]) == {EOS, 7, 40}


def test_a_shortlist_is_read_as_it_was_saved(toy_tokenizer: Any, tmp_path: Path) -> None:
    saved = learn_shortlist([dictionary_pairs(50)], toy_tokenizer.vocab_size)
    saved.save(tmp_path, toy_tokenizer)
    read = read_shortlist(tmp_path / SHORTLIST, toy_tokenizer)
    assert read == saved


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("candidates", 0, -1),
        ("candidates", 0, EOS - 1),
        ("candidates", 0, 2**30),
        ("candidates", -1, "vocabulary"),
        ("offsets", 0, 1),
        ("offsets", 0, -(2**31)),
        ("offsets", -1, 2**31 - 1),
        ("offsets", 15, -5),
        ("offsets", 15, 2**20),
        ("offsets", None, 0),
        ("candidates", None, 0),
    ],
)
def test_numbers_out_of_range_are_refused(
    toy_tokenizer: Any, tmp_path: Path, name: str, index: int | None, value: int | str
) -> None:
    path = tmp_path / SHORTLIST
    learn_shortlist([dictionary_pairs(50)], toy_tokenizer.vocab_size).save(tmp_path, toy_tokenizer)
    digest = _metadata(path)
    arrays = load_file(path)
    if index is None:
        arrays[name] = arrays[name][:-1].copy()
    else:
        arrays[name][index] = toy_tokenizer.vocab_size if isinstance(value, str) else value
    save_file(arrays, path, digest)
    with pytest.raises(ModelError, match=f"{SHORTLIST}: damaged: tokens or offsets are out of range"):
        read_shortlist(tmp_path / SHORTLIST, toy_tokenizer)


def test_other_files_are_refused(toy_tokenizer: Any, tmp_path: Path) -> None:
    path = tmp_path / SHORTLIST
    shortlist = learn_shortlist([dictionary_pairs(50)], toy_tokenizer.vocab_size)
    shortlist.save(tmp_path, toy_tokenizer)
    metadata, arrays, content = _metadata(path), load_file(path), path.read_bytes()
    for damage, message in ((content[:-4], "cannot be read"), (b"", "cannot be read"), (b"x" * 100, "cannot be read")):
        path.write_bytes(damage)
        with pytest.raises(ModelError, match=message):
            read_shortlist(tmp_path / SHORTLIST, toy_tokenizer)
    floats = {name: array.astype(np.float32) for name, array in arrays.items()}
    square = {"offsets": arrays["offsets"], "candidates": arrays["candidates"].reshape(1, -1)}
    for others, about, message in (
        (floats, metadata, "not a shortlist"),
        ({"offsets": arrays["offsets"]}, metadata, "not a shortlist"),
        (arrays, None, "not a shortlist"),
        (arrays, {**metadata, "tokenizer": "0"}, "made for another vocabulary"),
        (square, metadata, "damaged"),
    ):
        save_file(others, path, about)
        with pytest.raises(ModelError, match=message):
            read_shortlist(tmp_path / SHORTLIST, toy_tokenizer)


def _metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        metadata: dict[str, str] = file.metadata()
        return metadata
