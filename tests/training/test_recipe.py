"""Recipes: presets, the order of precedence, and which changes allow a run to resume."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transduce.config import apply_sets, build, to_toml
from transduce.data.prepare import DataConfig
from transduce.errors import ConfigError
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import TokenizerConfig
from transduce.training.recipe import Recipe, load_recipe, read_preset
from transduce.training.run_folder import differences
from transduce.training.train_config import TrainConfig


def test_a_set_with_an_unknown_key_is_an_error_when_the_recipe_is_built() -> None:
    with pytest.raises(ConfigError, match=r"unknown key stpes \(did you mean steps\?\)"):
        load_recipe(None, "tiny", {}, ["train.stpes=5"])


def test_a_recipe_is_restored_from_toml() -> None:
    recipe = Recipe(
        data=DataConfig(train=(("a.tsv",), ("b.src", "b.tgt")), reverse=True),
        tokenizer=TokenizerConfig(type="unigram"),
        model=EncoderDecoderConfig(d_k=7, dropout=0.25, norm="pre"),
        train=TrainConfig(epsilon=1e-9, learning_rate_scale=3.0),
        search=SearchConfig(beam=2),
    )
    assert build(Recipe, tomllib.loads(to_toml(recipe)), "x.toml") == recipe


@pytest.mark.parametrize(
    ("preset", "d_model", "num_heads", "layers"),
    [("tiny", 128, 4, 2), ("small", 256, 4, 3), ("base", 512, 8, 6), ("big", 1024, 16, 6)],
)
def test_presets_load_with_their_sizes(preset: str, d_model: int, num_heads: int, layers: int) -> None:
    model = load_recipe(None, preset, {}, []).model
    assert (model.d_model, model.num_heads, model.encoder_layers, model.decoder_layers) == (
        d_model,
        num_heads,
        layers,
        layers,
    )


def test_an_unknown_preset_suggests_the_nearest_and_lists_all() -> None:
    with pytest.raises(ConfigError) as caught:
        read_preset("smal")
    assert "no preset smal (did you mean small?); use base, big, small, tiny" in str(caught.value)


def test_a_language_model_has_options_of_sampling() -> None:
    recipe = load_recipe(None, "tiny", {}, ["task=language_model", "search.temperature=0.5"])
    assert recipe.search.temperature == 0.5


def test_the_order_of_precedence_is_preset_file_flags_sets(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('preset = "tiny"\n[train]\nwarmup = 11\nseed = 12\nsteps = 13\n[data]\ntrain = "a.tsv"\n')
    recipe = load_recipe(path, None, {"train": {"seed": 22, "steps": 23}}, ["train.steps=33"])
    assert recipe.model.d_model == 128
    assert (recipe.train.warmup, recipe.train.seed, recipe.train.steps) == (11, 22, 33)
    assert recipe.train.save_every == 500
    assert recipe.data.train == (("a.tsv",),)


def test_a_named_preset_wins_over_the_one_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('preset = "tiny"\n')
    assert load_recipe(path, "base", {}, []).model.d_model == 512


def test_an_unknown_key_in_a_recipe_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("[model]\nd_modell = 5\n")
    with pytest.raises(ConfigError) as caught:
        load_recipe(path, None, {}, [])
    assert f"{path} [model]: unknown key d_modell (did you mean d_model?)" in str(caught.value)


def test_a_preset_that_is_not_a_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("preset = 5\n")
    with pytest.raises(ConfigError, match="preset"):
        load_recipe(path, None, {}, [])


def test_a_value_instead_of_a_section_is_an_error_even_if_flags_fill_that_section(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('data = "a.tsv"\n')
    with pytest.raises(ConfigError, match="data must be a section"):
        load_recipe(path, None, {"data": {}}, [])


@pytest.mark.parametrize(
    "change",
    [
        "train.steps=7",
        "train.log_every=7",
        "train.valid_sentences=7",
        "train.criterion=chrf",
        "train.bleu_tokenizer=char",
        "train.save_every=7",
        "train.keep=7",
        "train.average=1",
        "train.device=cpu",
        'data.valid="v.tsv"',
        "search.beam=7",
    ],
)
def test_a_run_may_resume_if_only_reporting_or_saving_has_changed(change: str) -> None:
    assert differences(load_recipe(None, "tiny", {}, []), load_recipe(None, "tiny", {}, [change])) == []


@pytest.mark.parametrize(
    ("change", "there", "here"),
    [
        ("train.seed=7", "1", "7"),
        ("train.learning_rate_scale=0.5", "1.0", "0.5"),
        ("train.batch_tokens=7", "2048", "7"),
        ("train.precision=float32", "auto", "float32"),
        ("model.d_model=256", "128", "256"),
        ("model.d_k=16", "not set", "16"),
        ("tokenizer.type=unigram", "bpe", "unigram"),
        ("data.max_length=7", "256", "7"),
        ("data.reverse=true", "false", "true"),
        ('tokenizer.symbols=["<a>", "<b>"]', "[]", '["<a>", "<b>"]'),
    ],
)
def test_a_change_of_a_setting_that_affects_training_is_listed(change: str, there: str, here: str) -> None:
    name = change.partition("=")[0]
    before, after = load_recipe(None, "tiny", {}, []), load_recipe(None, "tiny", {}, [change])
    assert differences(before, after) == [f"{name} (there {there}, here {here})"]
    assert differences(after, before) == [f"{name} (there {here}, here {there})"]


def test_all_changed_settings_are_listed_at_once() -> None:
    before = Recipe()
    after = replace(before, train=replace(before.train, seed=5, steps=5), model=replace(before.model, dropout=0.5))
    assert [line.split()[0] for line in differences(before, after)] == ["model.dropout", "train.seed"]


def test_a_recipe_is_checked_together_with_its_preset(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('preset = "big"\n[train]\naverage = 10\n', encoding="utf-8")
    assert load_recipe(path, None, {}, []).train.average == 10
    path.write_text('preset = "tiny"\n[model]\nd_model = 100\n', encoding="utf-8")
    assert load_recipe(path, None, {}, []).model.head_widths == (25, 25)


# Sections with names that the user chooses


def test_directions_are_written_and_read_again() -> None:
    table = {"data": {"temperature": 5, "directions": {"en-de": {"train": "a.tsv"}, "de-pt-BR": {"train": ["b.tsv"]}}}}
    recipe = build(Recipe, table, "here")
    assert recipe.data.directions["en-de"].train == (("a.tsv",),)
    assert recipe.data.language_pairs == [("en", "de"), ("de", "pt-BR")]
    assert build(Recipe, tomllib.loads(to_toml(recipe)), "there") == recipe
    assert build(Recipe, apply_sets({}, ["data.directions.en-de.train=a.tsv"]), "here").data.parts[0].target == "de"


def test_only_the_files_of_a_direction_may_change() -> None:
    base = {"data": {"directions": {"en-de": {"train": "a.tsv"}, "en-fr": {"train": "b.tsv"}}}}
    recipe = build(Recipe, base, "here")
    moved = apply_sets(base, ["data.directions.en-de.train=c.tsv", "data.directions.en-fr.valid=v.tsv"])
    assert differences(recipe, build(Recipe, moved, "here")) == []
    for setting, name in [
        ("data.directions.en-de.reverse=true", "data.directions.en-de.reverse (there false, here true)"),
        ("data.directions.en-es.train=e.tsv", "data.directions.en-es.reverse (there not set, here false)"),
        ("data.temperature=2.0", "data.temperature (there 1.0, here 2.0)"),
    ]:
        assert differences(recipe, build(Recipe, apply_sets(base, [setting]), "here")) == [name]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"directions": 3}, "directions must be a section, not 3"),
        ({"directions": {"en-de": 3}}, r"here \[data\] \[directions\]: en-de must be a section, not 3"),
        ({"src_lang": "english"}, "src_lang must be a language code like en or pt-BR: english"),
        ({"temperature": 2.0}, r"temperature needs several directions \(data.directions\)"),
    ],
)
def test_mistakes_in_languages(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Recipe, {"data": table}, "here")
