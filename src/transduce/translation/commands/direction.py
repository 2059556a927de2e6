"""The direction in which `transduce evaluate` translates a test set, and the side that is the source."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import ConfigError
from transduce.files.languages import Direction, choose_target, describe_directions, direction_of_entry

_SIDES = ("first", "second")


class EvaluatedDirection(NamedTuple):
    """How a model is tested."""

    source: str | None
    target: str | None
    """Languages, if they are known."""
    reverse: bool
    """Whether the second side of the test set is the source."""

    def describe(self, test: Path | None) -> str:
        """The direction, and the side of the test set that is the source, for the beginning of a message."""
        direction = f"{self.source or 'unknown'} to {self.target}; " if self.target else ""
        if not test:
            return direction
        sides = _SIDES[::-1] if self.reverse else _SIDES
        return f"{direction}the source is the {sides[0]} side of {test}, the reference is the {sides[1]}; "


def evaluated_direction(
    facts: dict[str, Any], test: Path | None, source: str | None, target: str | None, reverse: bool | None
) -> EvaluatedDirection:
    """The direction in which a model with these facts translates a test set.

    `source` and `target` are the languages that the user names. If `reverse` is None, the languages in the name of the
    test set tell which side is the source, or else the side that the model was trained to read.
    """
    directions: list[Direction] = [(a, b) for a, b in facts.get("directions", [])]
    if directions or source or target:
        possible = _possible(directions, direction_of_entry([str(test)]) if test else None, source, target)
        target = choose_target(possible, source, target)
        sources = {own_source for own_source, own_target in possible if own_target == target}
        source = sources.pop() if len(sources) == 1 else source
    named = direction_of_entry([str(test)]) if test else None
    if reverse is None and named and source and target:
        if {*named} != {source, target}:
            raise ConfigError(
                f"the name of {test} tells {named[0]} and {named[1]}, but the model translates "
                f"{describe_directions([(source, target)])}; give --reverse or --no-reverse if it is right nevertheless"
            )
        reverse = named != (source, target)
    return EvaluatedDirection(source, target, bool(facts.get("reverse")) if reverse is None else reverse)


def _possible(
    directions: Sequence[Direction], named: Direction | None, source: str | None, target: str | None
) -> Sequence[Direction]:
    """The directions of a model that fit to the languages in the name of a test set, if there are any."""
    fitting = [pair for pair in directions if named and {*pair} == {*named}]
    fitting = [pair for pair in fitting if source in (None, pair[0]) and target in (None, pair[1])]
    return fitting or directions
