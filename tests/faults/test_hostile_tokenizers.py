"""Mutated tokenizers: each is refused with a ModelError, or it encodes and decodes without another error."""

# ruff: noqa: PT017  (an error is one of the valid results, and its message is checked)

import json
import random
from pathlib import Path
from typing import Any

import pytest
from fault_injection import repetitions
from hostile import places

from transduce.errors import ModelError
from transduce.interop.imported_tokenizers import LibraryTokenizer, SentencePiecePair, TokenOrder
from transduce.tokenizers.any_tokenizer import AnyTokenizer, load_tokenizer
from transduce.tokenizers.tokenizer import Tokenizer

EACH = repetitions(30, 5000)
"""Mutations of each tokenizer: 20,000 in `make faults`."""
TEXTS = ["ba bo", "", "▁ x \N{GRINNING FACE}é", "a </s> [UNK] <0x41>"]
STRANGE: list[Any] = [None, True, -1, 0, 2**31, 2**64, 1e308, "", "\ud800", "\0", "x" * 999, [], {}, [[]], "ByteLevel"]


def library(kind: str) -> LibraryTokenizer:
    tokenizers: Any = pytest.importorskip("tokenizers")
    models, vocabulary = tokenizers.models, {"a": 0, "b": 1, "<unk>": 2, "<s>": 3, "</s>": 4, "ab": 5, "##b": 6}
    model = {
        "words": lambda: models.WordLevel(vocabulary, unk_token="<unk>"),
        "word pieces": lambda: models.WordPiece(vocabulary, unk_token="<unk>"),
        "bpe": lambda: models.BPE(vocabulary, [("a", "b")], unk_token="<unk>", byte_fallback=True),
        "unigram": lambda: models.Unigram([("<unk>", 0.0), *((piece, -1.0) for piece in "ab▁")], unk_id=0),
    }[kind]()
    tokenizer = tokenizers.Tokenizer(model)
    parts = tokenizers.pre_tokenizers, tokenizers.decoders
    if kind == "bpe":
        tokenizer.pre_tokenizer, tokenizer.decoder = parts[0].ByteLevel(), parts[1].ByteLevel()
    elif kind == "unigram":
        tokenizer.pre_tokenizer, tokenizer.decoder = parts[0].Metaspace(), parts[1].Metaspace()
    else:
        tokenizer.pre_tokenizer, tokenizer.decoder = parts[0].Whitespace(), parts[1].WordPiece()
    tokenizer.add_special_tokens(["<extra>"])
    return LibraryTokenizer(tokenizer.to_str(), TokenOrder((0, 1, 2, 3), 8))


def mutate_tree(tree: Any, draw: random.Random) -> None:
    """Replace, remove or rename one value."""
    *way, key = draw.choice(list(places(tree)))
    for step in way:
        tree = tree[step]
    change = draw.random()
    if change < 0.2:
        del tree[key]
    elif change < 0.3 and isinstance(tree, dict):
        tree[draw.choice(["type", "x", "", "vocab"])] = tree.pop(key)
    elif change < 0.4 and isinstance(tree, list):
        tree.append(tree[key])
    else:
        tree[key] = draw.choice(STRANGE)


def mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(changed))
        changed[start : start + draw.choice([0, 1, 1, 4])] = draw.randbytes(draw.choice([0, 1, 1, 4]))
    return bytes(changed[: draw.randint(0, len(changed))] if draw.random() < 0.1 else changed)


def use(tokenizer: AnyTokenizer) -> None:
    for one in (tokenizer, tokenizer.target):
        for ids in one.encode_all(TEXTS):
            one.decode(ids)
    size = min(tokenizer.vocab_size, 500)
    tokenizer.pieces(range(size))
    for token in range(size):
        tokenizer.raw_bytes(token)
    tokenizer.decode(list(range(size)))


def check(folder: Path, what: object) -> None:
    try:
        use(load_tokenizer(folder))
    except ModelError as error:
        assert "\n" not in str(error), what
        assert str(folder) in str(error) or "this vocabulary: " in str(error), what
    except BaseException as error:
        raise AssertionError(f"{what}: {error!r}") from error


@pytest.mark.parametrize("kind", ["words", "word pieces", "bpe", "unigram"])
def test_a_mutated_tokenizer_json_is_refused_or_works(kind: str, tmp_path: Path) -> None:
    original = library(kind)
    use(original)
    for number in range(EACH // 2):
        draw = random.Random(f"{kind} {number}")
        content = json.loads(original.model)
        if draw.random() < 0.3:
            mutate_tree(content, draw)
        else:
            tree = json.loads(content["tokenizer"])
            mutate_tree(tree, draw)
            content["tokenizer"] = json.dumps(tree)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        check(tmp_path, (kind, number))


def test_a_mutated_pair_of_sentencepiece_models_is_refused_or_works(toy_tokenizer: Tokenizer, tmp_path: Path) -> None:
    pieces, spm = toy_tokenizer.pieces(range(toy_tokenizer.vocab_size)), toy_tokenizer.model
    order = TokenOrder((0, 1, 2, 3), len(pieces))
    content = json.loads(SentencePiecePair(spm, spm, pieces, order).model)
    for number in range(EACH):
        draw = random.Random(f"pair {number}")
        changed = json.loads(json.dumps(content))
        mutate_tree(changed, draw)
        (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
        check(tmp_path, number)


def test_a_mutated_sentencepiece_model_is_refused_or_works(toy_tokenizer: Tokenizer, tmp_path: Path) -> None:
    for number in range(EACH):
        (tmp_path / "tokenizer.model").write_bytes(mutate_bytes(toy_tokenizer.model, random.Random(f"spm {number}")))
        check(tmp_path, number)
