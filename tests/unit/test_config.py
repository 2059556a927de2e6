"""Settings: strict conversion, `--set`, merging, TOML, presets, and which changes allow a run to resume."""

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.config import apply_sets, build, merge, read_toml, require, to_table, to_toml
from transduce.data.prepare import DataConfig
from transduce.errors import ConfigError
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.runs.recipe import Recipe, TrainConfig, differences, load_recipe, read_preset
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import TokenizerConfig


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A section."""

    cylinders: int = 4
    fuel: Literal["petrol", "diesel"] = "petrol"

    def __post_init__(self) -> None:
        require(self.cylinders >= 1, "cylinders must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Car:
    """One field of every type that settings may have."""

    name: str = "car"
    doors: int = 5
    weight: float = 1.5
    electric: bool = False
    seats: int | None = None
    colours: tuple[str, ...] = ()
    routes: tuple[tuple[str, ...], ...] = ()
    engine: Engine = field(default_factory=Engine)


def test_a_table_fills_every_type_of_field() -> None:
    table = {
        "name": "bus",
        "doors": 2,
        "weight": 9.5,
        "electric": True,
        "seats": 40,
        "colours": ["red", "blue"],
        "routes": ["a.tsv", ["b.src", "b.tgt"]],
        "engine": {"cylinders": 8, "fuel": "diesel"},
    }
    car = build(Car, table, "x.toml")
    assert car == Car(
        name="bus",
        doors=2,
        weight=9.5,
        electric=True,
        seats=40,
        colours=("red", "blue"),
        routes=(("a.tsv",), ("b.src", "b.tgt")),
        engine=Engine(cylinders=8, fuel="diesel"),
    )


def test_missing_keys_keep_their_defaults() -> None:
    assert build(Car, {}, "x.toml") == Car()


def test_an_unknown_key_names_file_key_nearest_and_all_valid_keys() -> None:
    with pytest.raises(ConfigError) as caught:
        build(Car, {"wieght": 1}, "x.toml")
    message = str(caught.value)
    assert "x.toml" in message
    assert "unknown key wieght" in message
    assert "did you mean weight?" in message
    assert "colours, doors, electric, engine, name, routes, seats, weight" in message


def test_an_unknown_key_in_a_section_names_only_the_keys_of_that_section() -> None:
    with pytest.raises(ConfigError) as caught:
        build(Car, {"engine": {"cylindres": 6}}, "x.toml")
    message = str(caught.value)
    assert "x.toml [engine]: unknown key cylindres (did you mean cylinders?)" in message
    assert "valid keys: cylinders, fuel" in message
    assert "doors" not in message


def test_a_key_unlike_all_others_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        build(Car, {"zzzz": 1}, "x.toml")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"doors": "five"}, "doors must be a whole number, not 'five'"),
        ({"doors": 5.0}, "doors must be a whole number, not 5.0"),
        ({"doors": True}, "doors must be a whole number, not True"),
        ({"seats": True}, "seats must be a whole number, not True"),
        ({"weight": "heavy"}, "weight must be a number, not 'heavy'"),
        ({"weight": True}, "weight must be a number, not True"),
        ({"weight": 10**400}, "weight must be a number below 1e308, not 1000"),
        ({"electric": 1}, "electric must be true or false, not 1"),
        ({"name": 5}, "name must be text, not 5"),
        ({"name": ["a"]}, "name must be text"),
        ({"colours": 5}, "colours must be a list, not 5"),
        ({"colours": ["red", 5]}, "colours must be text, not 5"),
        ({"colours": {"red": 1}}, "colours must be a list"),
        ({"routes": [["a", 5]]}, "routes must be text, not 5"),
        ({"engine": 5}, "engine must be a section, not 5"),
        ({"engine": {"fuel": "coal"}}, "fuel must be one of petrol, diesel, not 'coal'"),
        ({"engine": {"fuel": ["petrol"]}}, "fuel must be one of petrol, diesel"),
        ({"engine": {"cylinders": 0}}, "cylinders must be at least 1"),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error_with_file_and_key(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Car, table, "x.toml")
    assert str(caught.value).startswith("x.toml")
    assert message in str(caught.value)


def test_a_whole_number_is_converted_to_float_if_needed() -> None:
    weight = build(Car, {"weight": 2}, "x.toml").weight
    assert weight == 2.0
    assert isinstance(weight, float)


def test_a_text_is_converted_to_a_list_of_one() -> None:
    assert build(Car, {"routes": "a.tsv", "colours": "red"}, "x.toml") == Car(routes=(("a.tsv",),), colours=("red",))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("2_000", 2000),
        ("-1", -1),
        ("1e-3", 0.001),
        ("true", True),
        ("pre", "pre"),
        ('"7"', "7"),
        ("/data/a b.tsv", "/data/a b.tsv"),
        ("cuda:1", "cuda:1"),
        ("a=b", "a=b"),
        ("", ""),
        ('["a", "b"]', ["a", "b"]),
        ('[["a.src", "a.tgt"], "b.tsv"]', [["a.src", "a.tgt"], "b.tsv"]),
    ],
)
def test_set_parses_toml_values_and_takes_anything_else_as_text(text: str, value: object) -> None:
    assert apply_sets({}, [f"section.key={text}"]) == {"section": {"key": value}}


def test_set_applies_values_to_a_copy_of_the_table() -> None:
    table = {"train": {"steps": 1, "seed": 2}}
    assert apply_sets(table, ["train.steps=5", "model.norm=pre"]) == {
        "train": {"steps": 5, "seed": 2},
        "model": {"norm": "pre"},
    }
    assert table == {"train": {"steps": 1, "seed": 2}}


def test_the_last_of_two_sets_wins() -> None:
    assert apply_sets({}, ["a.b=1", "a.b=2"]) == {"a": {"b": 2}}


@pytest.mark.parametrize("assignment", ["train.steps", "=5", " =5", ""])
def test_a_malformed_set_is_shown_with_an_example(assignment: str) -> None:
    with pytest.raises(ConfigError, match=r"--set .*: write it as section\.key=value, e\.g\. train\.steps=2000"):
        apply_sets({}, [assignment])


def test_set_cannot_assign_inside_a_value() -> None:
    with pytest.raises(ConfigError, match="steps is a value, not a section"):
        apply_sets({"train": {"steps": 5}}, ["train.steps.more=1"])


def test_a_set_with_an_unknown_key_is_an_error_when_the_recipe_is_built() -> None:
    with pytest.raises(ConfigError, match=r"unknown key stpes \(did you mean steps\?\)"):
        load_recipe(None, "tiny", {}, ["train.stpes=5"])


def test_merge_updates_section_by_section_in_a_copy() -> None:
    base = {"a": {"x": 1, "y": 2}, "b": 3}
    over = {"a": {"y": 5}, "c": {"z": 6}}
    merged = merge(base, over)
    assert merged == {"a": {"x": 1, "y": 5}, "b": 3, "c": {"z": 6}}
    merged["a"]["x"] = 9
    assert base == {"a": {"x": 1, "y": 2}, "b": 3}


def test_none_is_left_out_of_a_table() -> None:
    assert "seats" not in to_table(Car())
    assert to_table(Car(seats=2))["seats"] == 2


def test_a_recipe_is_restored_from_toml() -> None:
    recipe = Recipe(
        data=DataConfig(train=(("a.tsv",), ("b.src", "b.tgt")), reverse=True),
        tokenizer=TokenizerConfig(type="unigram"),
        model=EncoderDecoderConfig(d_k=7, dropout=0.25, norm="pre"),
        train=TrainConfig(epsilon=1e-9, learning_rate_scale=3.0),
        search=SearchConfig(beam=2),
    )
    assert build(Recipe, tomllib.loads(to_toml(recipe)), "x.toml") == recipe


# TOML cannot represent a lone surrogate, which file names contain if they are not UTF-8.
texts = st.text(st.characters(exclude_categories=["Cs"]))


@example(name="a\x7fb", colours=("\u2028",), routes=((),))  # TOML wants DEL escaped, JSON does not
@given(name=texts, colours=st.lists(texts).map(tuple), routes=st.lists(st.lists(texts).map(tuple)).map(tuple))
def test_any_text_is_restored_from_toml(
    name: str, colours: tuple[str, ...], routes: tuple[tuple[str, ...], ...]
) -> None:
    car = Car(name=name, colours=colours, routes=routes)
    assert build(Car, tomllib.loads(to_toml(car)), "x.toml") == car


@given(st.floats(allow_nan=False), st.integers(min_value=-(2**63), max_value=2**63 - 1), st.booleans())
def test_any_number_is_restored_from_toml(weight: float, doors: int, electric: bool) -> None:
    car = Car(weight=weight, doors=doors, electric=electric)
    assert build(Car, tomllib.loads(to_toml(car)), "x.toml") == car


@pytest.mark.parametrize(("content", "message"), [(b"a = = 1", "not valid TOML"), (b"a = '\xff'", "not valid TOML")])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_toml(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: no such file"):
        read_toml(tmp_path / "nothing.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        read_toml(tmp_path)


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
        ("model.d_k=16", "None", "16"),
        ("tokenizer.type=unigram", "bpe", "unigram"),
        ("data.max_length=7", "256", "7"),
        ("data.reverse=true", "False", "True"),
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
        ("data.directions.en-de.reverse=true", "data.directions.en-de.reverse (there False, here True)"),
        ("data.directions.en-es.train=e.tsv", "data.directions.en-es.reverse (there None, here False)"),
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
