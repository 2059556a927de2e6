"""Search options, declared once: Python, the command line, the HTTP interface and docs/settings.md derive from this."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypedDict, TypeVar

from transduce.config import require, suggestion

T = TypeVar("T")

_LEAST_TEMPERATURE = 0.001
_COMPARISONS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le}


_KINDS: dict[type, str] = {bool: "True or False", int: "a whole number", float: "a number"}


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)


def _option(default: T, help: str, **bounds: float) -> T:
    """A field with its help text and its bounds, named as in _COMPARISONS."""
    return field(default=default, metadata={"help": help, "bounds": bounds})


def describe_bounds(bounds: Mapping[str, float]) -> str:
    """Bounds as text, for example "above 0 and at most 1"; empty if there are none."""
    if bounds.keys() == {"at_least", "at_most"}:
        return f"between {bounds['at_least']} and {bounds['at_most']}"
    return " and ".join(f"{name.replace('_', ' ')} {bound}" for name, bound in bounds.items())


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How outputs are searched for; the defaults are the paper's beam search (section 6.1) without empty outputs.

    The paper's search has no minimum length: `min_length=0`.
    """

    beam: int = _option(4, "Number of hypotheses kept at each step; 1 is greedy search.", at_least=1, at_most=1024)
    length_penalty: float = _option(
        0.6, "Exponent alpha of the length penalty; higher values favour longer outputs.", at_least=-10, at_most=10
    )
    max_extra: int = _option(
        50, "Maximum number of output tokens beyond the number of input tokens.", at_least=0, at_most=10_000
    )
    max_length: int | None = _option(
        None, "Maximum number of output tokens; that relative to the input applies as well.", at_least=1, at_most=2**16
    )
    min_length: int = _option(
        1,
        "Minimum number of output tokens, if the maximum allows it; 0 allows empty outputs.",
        at_least=0,
        at_most=2**16,
    )
    shortlist: bool = _option(
        False, "Search only among the tokens that the model's lexical shortlist has for the input (engine native)."
    )
    no_repeat: int = _option(0, "Block repeated n-grams of this size; 0 disables.", at_least=0)
    nbest: int = _option(1, "Number of outputs for each input.", at_least=1, at_most=1024)
    sample: bool = _option(False, "Sample outputs at random instead of searching for the best.")
    temperature: float = _option(
        1.0,
        "Temperature for sampling; lower values favour likely tokens, and 0 takes the most likely one.",
        at_least=0,
        at_most=1000,
    )
    top_k: int = _option(0, "Sample from this many most likely tokens only; 0 disables.", at_least=0)
    top_p: float = _option(
        1.0, "Sample from the smallest set of most likely tokens with this total probability only.", above=0, at_most=1
    )
    min_p: float = _option(
        0.0,
        "Sample only from tokens with at least this share of the probability of the most likely one; 0 disables.",
        at_least=0,
        at_most=1,
    )
    seed: int = _option(1, "Random seed for sampling.", at_least=0, at_most=2**31 - 1)

    def __post_init__(self) -> None:
        for option in fields(self):
            value, bounds = getattr(self, option.name), option.metadata["bounds"]
            unset = value is None and option.default is None
            kind = int if option.default is None else type(option.default)
            accepted = unset or (isinstance(value, bool) if kind is bool else _is_number(value, kind))
            require(accepted, f"{option.name} must be {_KINDS[kind]}, not {value!r:.40}")
            within = unset or all(_COMPARISONS[name](value, bound) for name, bound in bounds.items())
            require(within, f"{option.name} must be {describe_bounds(bounds)}")
        require(
            self.temperature == 0 or self.temperature >= _LEAST_TEMPERATURE,
            f"temperature must be 0 or at least {_LEAST_TEMPERATURE}: scores divided by less are infinite",
        )
        require(
            self.sample or self.nbest <= self.beam,
            f"nbest must be at most beam unless sample is set, but nbest is {self.nbest} and beam is {self.beam}",
        )

    def with_options(self, options: "SearchOptions", function: str = "with_options") -> "SearchConfig":
        """A copy with these options; one that has no effect, because outputs are sampled or not, is refused.

        `function` is the one that the user has called with them, for the message about an unknown one.
        """
        require_names(options, [field.name for field in fields(self)], function)
        changed = replace(self, **options)
        changed.require_sampling_for(options)
        require(
            not changed.sample or options.get("beam", 1) == 1,
            "beam has no effect if sample is set; omit it, and set the number of outputs with nbest",
        )
        return changed

    def require_sampling_for(self, names: Iterable[str]) -> None:
        """Raise a ConfigError if one of these options has an effect only on sampling, and outputs are not sampled."""
        for name in names:
            require(self.sample or name not in _ONLY_SAMPLING, f"{name} needs sampling; set sample too")

    @property
    def name(self) -> str:
        """What a figure says about the search by which it was measured."""
        if self.sample:
            return "sampled"
        return "greedy" if self.beam == 1 else f"beam {self.beam}"

    @property
    def rows(self) -> int:
        """Number of hypotheses of an input at each step."""
        return self.nbest if self.sample else self.beam


def require_names(options: Iterable[str], known: Iterable[str], function: str) -> None:
    """Raise the TypeError of a function for the first option that it does not know."""
    for name in options:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{suggestion(name, [*known])}")


class SearchOptions(TypedDict, total=False):
    """The fields of SearchConfig as keyword arguments, for type checkers and editors."""

    beam: int
    length_penalty: float
    max_extra: int
    max_length: int | None
    min_length: int
    shortlist: bool
    no_repeat: int
    nbest: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int


SINGLE_OUTPUT_OPTIONS = tuple(name for name in SearchOptions.__annotations__ if name != "nbest")
"""The names of the fields for one output of each input."""


class SamplingOptions(TypedDict, total=False):
    """The fields of SearchConfig that apply to language models, as keyword arguments."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    no_repeat: int
    seed: int


SAMPLING_OPTIONS = tuple(SamplingOptions.__annotations__)
"""Their names."""
_ONLY_SAMPLING = {*SAMPLING_OPTIONS} - {"no_repeat"}
"""Options that have an effect only on sampling."""
