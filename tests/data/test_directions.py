"""Corpora of several directions: tags, temperature sampling and the cache."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from transduce.data.augment import AugmentConfig
from transduce.data.data_config import DirectionConfig, repetitions
from transduce.data.plan import BatchPlan
from transduce.data.prepare import DataConfig, Prepared, prepare
from transduce.data.variation import Variation
from transduce.errors import ConfigError, DataError
from transduce.tokenizers.symbols import language_tag
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig

TOKENIZER = TokenizerConfig(vocab_size=450)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))


def direction(path: Path, count: int, target: str, *, reverse: bool = False) -> DirectionConfig:
    rows = [f"word {n} here\t{target} {n}\n" for n in range(count)]
    path.write_text("".join(rows), encoding="utf-8")
    return DirectionConfig(train=((str(path),),), valid=((str(path),),), reverse=reverse)


@pytest.fixture
def data(tmp_path: Path) -> DataConfig:
    """90 pairs to German and 10 to English, whose source is the second side."""
    directions = {
        "en-de": direction(tmp_path / "de.tsv", 90, "wort"),
        "fr-en": direction(tmp_path / "fr.tsv", 10, "mot", reverse=True),
    }
    return DataConfig(directions=directions)


def run(data: DataConfig, vocabulary: TokenizerConfig | Tokenizer = TOKENIZER) -> Prepared:
    return prepare(data, vocabulary, lambda _: None)


def occurrences(prepared: Prepared) -> list[int]:
    """How often each pair of the corpus occurs in an epoch."""
    shards = prepared.train
    return np.bincount(shards.sorted_pairs(np.arange(len(shards))), minlength=shards.distinct).tolist()


def test_every_source_begins_with_the_tag_of_its_target(data: DataConfig) -> None:
    prepared = run(data)
    numbers = np.arange(100)
    sources, targets = zip(*prepared.train.pairs(numbers), strict=True)
    texts = prepared.tokenizer.decode_all([ids.tolist() for ids in sources], marked=True)
    assert texts[0] == f"{language_tag('de')} word 0 here"
    assert texts[89] == f"{language_tag('de')} word 89 here"
    assert texts[90] == f"{language_tag('en')} mot 0"
    assert prepared.tokenizer.decode_all([targets[90].tolist()], marked=True) == ["word 0 here"]
    assert prepared.valid[90] == ("mot 0", "word 0 here")
    assert prepared.valid_targets == ["de"] * 90 + ["en"] * 10
    assert prepared.valid_sizes == [90, 10]
    assert {language_tag("de"), language_tag("en")} <= prepared.tokenizer.symbol_ids.keys()
    for ids, text in zip(sources, texts, strict=True):  # the text can be encoded anew
        assert prepared.tokenizer.encode_all([text], marked=True) == [ids.tolist()]


@pytest.mark.parametrize(("dropout", "augment"), [(0.5, AugmentConfig()), (0.0, AugmentConfig(upper=1, typos=1))])
def test_variation_keeps_the_tag(data: DataConfig, dropout: float, augment: AugmentConfig) -> None:
    prepared = run(replace(data, temperature=3.0))
    variation = Variation(prepared.tokenizer, dropout, augment)
    plan = BatchPlan(prepared.train, 400, seed=1, growth=variation.growth(prepared.train))
    tags = {prepared.tokenizer.symbol_ids[language_tag(code)] for code in ("de", "en")}
    changed = 0
    for number in range(plan.batches_per_epoch):
        plain = prepared.train.pairs(plan.batch(number))
        for (old, _), (new, _) in zip(plain, variation.examples(plan, number), strict=True):
            assert [token for token in new if token in tags] == [old[1]]
            assert new[1] == old[1]
            changed += list(new) != list(old)
    assert changed > 50


def test_temperature_samples_in_proportion_to_a_power_of_the_share() -> None:
    counts, temperature = [900, 90, 10], 5.0
    repeated = [count * times for count, times in zip(counts, repetitions(counts, temperature), strict=True)]
    shares = [(count / 1000) ** (1 / temperature) for count in counts]
    np.testing.assert_allclose(np.array(repeated) / sum(repeated), np.array(shares) / sum(shares))
    assert repetitions(counts, temperature)[0] == 1
    assert repetitions(counts, 1.0) == [1, 1, 1]
    assert repetitions([10, 0], 5.0) == [1, 1]


def test_repetitions_are_whole_and_the_rest_is_a_subset(data: DataConfig) -> None:
    assert occurrences(run(data)) == [1] * 100
    prepared = run(replace(data, temperature=2.0))  # 90 to 10 becomes 3 to 1
    assert occurrences(prepared) == [1] * 90 + [3] * 10
    assert len(prepared.train) == 120
    fractional = run(replace(data, temperature=1.5))  # 9 ** (1 / 3) = 2.08
    times = occurrences(fractional)
    assert times[:90] == [1] * 90
    assert sorted(times[90:]) == [2] * 9 + [3]
    shards = fractional.train
    lengths = shards.sorted_lengths(np.arange(len(shards)))
    assert lengths.sum(axis=0).tolist() == shards.index["tokens"]
    assert (np.diff(lengths.max(axis=1)) >= 0).all()


def test_the_cache_depends_on_directions_and_temperature(data: DataConfig, tmp_path: Path) -> None:
    other_tag = replace(data, directions={**data.directions, "fr-es": data.directions["fr-en"]})
    swapped = {"en-de": replace(data.directions["en-de"], reverse=True), "fr-en": data.directions["fr-en"]}
    variants = [data, replace(data, temperature=2.0), other_tag, replace(data, directions=swapped)]
    folders = {run(variant).train.folder for variant in variants}
    assert len(folders) == len(variants)
    in_other_order = replace(data, directions=dict(reversed(data.directions.items())))
    assert run(in_other_order).train.folder == run(data).train.folder


def test_a_finished_vocabulary_must_have_the_tags(data: DataConfig) -> None:
    tokenizer = run(data).tokenizer
    assert run(data, tokenizer).tokenizer.model == tokenizer.model
    with pytest.raises(ConfigError, match="no tag for es"):
        run(replace(data, directions={**data.directions, "en-es": data.directions["en-de"]}), tokenizer)


def test_a_direction_without_a_usable_pair_is_refused(data: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("no tab\n", encoding="utf-8")
    bad = DirectionConfig(train=((str(tmp_path / "bad.tsv"),),))
    with pytest.raises(DataError, match="no usable sentence pair"):
        run(replace(data, directions={**data.directions, "en-fr": bad}))
