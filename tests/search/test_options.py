"""Search options: bounds, and the type that describes them to type checkers."""

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from transduce.errors import ConfigError
from transduce.search.options import SearchConfig, SearchOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam must be between 1 and 1024"),
        ({"length_penalty": 10.5}, "length_penalty must be between -10 and 10"),
        ({"length_penalty": float("nan")}, "length_penalty must be between -10 and 10"),
        ({"max_extra": -1}, "max_extra must be between 0 and 10000"),
        ({"max_length": 0}, "max_length must be between 1 and 65536"),
        ({"min_length": -1}, "min_length must be between 0 and 65536"),
        ({"no_repeat": -1}, "no_repeat must be at least 0"),
        ({"nbest": 0}, "nbest must be between 1 and 1024"),
        ({"nbest": 5}, "nbest must be at most beam unless sample is set, but nbest is 5 and beam is 4"),
        ({"temperature": -0.1}, "temperature must be between 0 and 1000"),
        ({"temperature": float("inf")}, "temperature must be between 0 and 1000"),
        ({"top_k": -1}, "top_k must be at least 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1"),
        ({"seed": 2**31}, "seed must be between 0 and 2147483647"),
        ({"beam": "4"}, "beam must be a whole number, not '4'"),
        ({"beam": 4.0}, "beam must be a whole number, not 4.0"),
        ({"beam": True}, "beam must be a whole number, not True"),
        ({"beam": None}, "beam must be a whole number, not None"),
        ({"max_length": 2.5}, "max_length must be a whole number, not 2.5"),
        ({"length_penalty": "1"}, "length_penalty must be a number, not '1'"),
        ({"sample": "no"}, "sample must be True or False, not 'no'"),
    ],
)
def test_an_option_out_of_bounds_or_of_another_type_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        SearchConfig(**options)
    assert str(error.value) == message


def test_bounds_themselves_are_allowed() -> None:
    for option in fields(SearchConfig):
        for name, bound in option.metadata["bounds"].items():
            if name != "above":
                SearchConfig(**{"sample": True, option.name: bound})
    assert SearchConfig(sample=True, nbest=5).nbest == 5


@pytest.mark.parametrize("option", ["temperature", "top_k", "top_p", "min_p", "seed"])
def test_an_option_of_sampling_is_refused_without_sampling(option: str) -> None:
    given: Any = {option: 1}
    with pytest.raises(ConfigError, match=f"{option} needs sampling; set sample too"):
        SearchConfig().with_options(given)
    assert SearchConfig(sample=True).with_options(given) == SearchConfig(sample=True, **given)


def test_a_beam_is_refused_with_sampling() -> None:
    with pytest.raises(ConfigError, match="beam has no effect if sample is set"):
        SearchConfig().with_options({"sample": True, "beam": 3})
    assert SearchConfig(beam=8).with_options({"sample": True}).rows == 1
    assert SearchConfig().with_options({"sample": True, "beam": 1}).sample


def test_every_option_has_a_help_sentence() -> None:
    assert all(option.metadata["help"].endswith(".") for option in fields(SearchConfig))


def test_the_typed_dictionary_has_the_fields_of_the_config() -> None:
    assert get_type_hints(SearchOptions) == get_type_hints(SearchConfig)
    assert not SearchOptions.__required_keys__
