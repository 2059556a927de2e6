from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.data.augment import AugmentConfig
from transduce.data.data_config import DataConfig
from transduce.data.plan import BatchPlan
from transduce.data.prepare import cache_key
from transduce.data.shards import TokenShards, write_index, write_shard
from transduce.data.variation import Variation
from transduce.errors import ModelError
from transduce.tokenizers.any_tokenizer import TokenizerPair, load_tokenizer, tokenizer_of_stream
from transduce.tokenizers.symbols import SLOTS
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig

GREEK, CYRILLIC = ["αβγ δεζ 42", "ηθι κλμ"] * 20, ["где абв 42", "клм жзи"] * 20


@pytest.fixture(scope="module")
def pair() -> TokenizerPair:
    sides = zip((400, 410), (GREEK, CYRILLIC), strict=True)
    return TokenizerPair(*(Tokenizer.train(lines, TokenizerConfig(vocab_size=size)) for size, lines in sides))


def test_a_pair_is_saved_and_loaded(pair: TokenizerPair, tmp_path: Path) -> None:
    (tmp_path / pair.file_name).write_bytes(pair.model)
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, TokenizerPair)
    assert loaded.model == pair.model
    assert (loaded.vocab_size, loaded.target.vocab_size) == (400, 410)
    for text in ("αβγ", "где", "汉"):  # what a side does not know is written in bytes
        assert loaded.decode(loaded.encode(text)) == text
        assert loaded.target.decode(loaded.target.encode(text)) == text
    assert len(loaded.encode("αβγ")) < len(loaded.target.encode("αβγ"))
    assert tokenizer_of_stream(loaded, "tgt") is loaded.target
    assert tokenizer_of_stream(loaded, "src") is loaded


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"source": 1, "target": 2}',
        b'{"source": {"file": "x", "content": ""}, "target": {}}',
        b'{"source": {"file": "tokenizer.model", "content": "%"}, "target": {}}',
        b'{"source": {"file": "tokenizer.model", "content": "AAAA"}, "target": {}}',
        b'{"source": {"file": "tokenizer.json", "content": "e30="}, "target": {}}',
        b"[" * 100_000,
    ],
)
def test_damaged_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / TokenizerPair.file_name
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"tokenizers\.json: "):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "settings", [{"bpe_dropout": 0.5}, {"augment": AugmentConfig(spans=1.0)}, {"augment": AugmentConfig(upper=1.0)}]
)
def test_examples_are_varied_with_the_vocabulary_of_each_side(
    settings: dict[str, Any], pair: TokenizerPair, tmp_path: Path
) -> None:
    sides = pair.encode_all(GREEK), pair.target.encode_all(CYRILLIC)
    write_shard(tmp_path, 0, sides, 410)
    write_index(tmp_path, {"vocab_size": 410, "max_length": 64, "report": []})
    plan = BatchPlan(TokenShards(tmp_path), 128, 0, growth=4.0)
    varied = Variation(pair, **settings).examples(plan, 0)
    before = plan.examples(0)
    assert any(
        len(new[0]) != len(old[0]) or list(new[0]) != list(old[0]) for new, old in zip(varied, before, strict=True)
    )
    texts = {text.upper() for text in GREEK}, {text.upper() for text in CYRILLIC}
    for example in varied:
        for side, ids, known in zip((pair.source, pair.target), example, texts, strict=True):
            (marked,) = side.decode_all([np.asarray(ids).tolist()], marked=True)
            for slot in SLOTS:
                marked = marked.removeprefix(f"{slot} ").removesuffix(f" {slot}").replace(slot, "42")
            assert marked.upper() in known | {f"{text} 42" for text in known} | {f"42 {text}" for text in known}


def test_the_cache_key_of_one_vocabulary_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corpora that versions without these settings prepared are found, so their runs resume."""

    def key(**settings: Any) -> str:
        return cache_key(DataConfig(train=(("a", "b"),)), TokenizerConfig(**settings), {"a": "1", "b": "2"}, "pairs")

    now = key()
    assert key(separate=True) != now
    fields = asdict(TokenizerConfig())
    del fields["separate"], fields["target_path"]
    monkeypatch.setattr("transduce.data.prepare.asdict", lambda _: fields)
    assert key() == now
