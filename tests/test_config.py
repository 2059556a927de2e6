"""Settings: strict conversion, `--set`, merging and TOML."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.config import apply_sets, build, merge, read_toml, require, to_table, to_toml
from transduce.errors import ConfigError


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


def test_an_unknown_key_names_file_key_and_the_nearest_keys() -> None:
    with pytest.raises(ConfigError) as caught:
        build(Car, {"wieght": 1}, "x.toml")
    message = str(caught.value)
    assert "x.toml" in message
    assert "unknown key wieght" in message
    assert "did you mean weight?" in message
    assert message.endswith("; nearest keys: weight, seats, engine")


def test_an_unknown_key_in_a_section_names_only_the_keys_of_that_section() -> None:
    with pytest.raises(ConfigError) as caught:
        build(Car, {"engine": {"cylindres": 6}}, "x.toml")
    message = str(caught.value)
    assert "x.toml [engine]: unknown key cylindres (did you mean cylinders?)" in message
    assert "nearest keys: cylinders, fuel" in message
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
        ({"doors": True}, "doors must be a whole number, not true"),
        ({"seats": True}, "seats must be a whole number, not true"),
        ({"weight": "heavy"}, "weight must be a number, not 'heavy'"),
        ({"weight": True}, "weight must be a number, not true"),
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
