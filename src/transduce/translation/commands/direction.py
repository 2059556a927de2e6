"""The direction in which `transduce translate` translates a text, and `transduce evaluate` a test set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.cli.inputs import Input
from transduce.cli.messages import log
from transduce.errors import ConfigError, DataError
from transduce.files.languages import (
    Direction,
    ModelLanguages,
    TargetLanguage,
    base_language,
    choose_target,
    describe_directions,
    direction_of_entry,
    language_name,
    language_of_name,
)
from transduce.files.pairs import Pair, ReadReport, read_pairs
from transduce.files.parquet import Row
from transduce.translation.detection import FEW, KNOWN, MAX_CHARACTERS, Likelihoods, detected_code

if TYPE_CHECKING:
    from transduce.translation.translator import Translator

_SIDES = ("first", "second")
_SAMPLED_LINES, _SAMPLED_CHARACTERS = 256, 20_000
"""Most lines and characters of a text by which its language is detected."""
_SHORTEST, _LONGEST = 6, 60
"""Least and most words and trigrams of a text whose language the model's own score may tell."""
_CLEAR, _SURE = 8.0, 15.0
"""Least difference of log-probabilities for that, to choose a direction and to refuse the one that is named."""
_POSSIBLE, _PROBABLE = 0.25, 0.75
"""Least probability of the model's languages for that, and of another one for a warning."""


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
    languages = ModelLanguages.of_facts(facts)
    directions, source, target = languages.directions, languages.code(source), languages.code(target)
    if directions or source or target:
        possible = _possible(directions, direction_of_entry([str(test)]) if test else None, source, target)
        target = choose_target(possible, source, target)
        sources = {own_source for own_source, own_target in possible if own_target == target}
        source = sources.pop() if len(sources) == 1 else source
        if languages.source_tags and target and source:
            target = TargetLanguage(target, source)
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


def logged_pairs(path: Path, reverse: bool) -> Iterator[Pair]:
    """The pairs of a file; after them, messages tell what is left out."""
    report = ReadReport()
    yield from read_pairs([(str(path),)], report, reverse=reverse)
    for line in report.lines():
        log(f"{path}: {line}")


def target_language(
    model: ModelLanguages,
    inputs: Sequence[Input],
    source: str | None,
    target: str | None,
    detect: Callable[[], str | None] = lambda: None,
) -> str | None:
    """The target language of a request; without one, the names of files such as news.de or the text may tell.

    `source` and `target` are the languages that the user names; `detect` is called if the source is not known. Warns of
    files whose names tell a language that the model does not translate from.
    """
    named = {path: language_of_name(path) for path in inputs if isinstance(path, Path)}
    told = {path: language for path, language in named.items() if language}
    known = {known for known, _ in model.directions if base_language(known) in told.values()}
    only = source or (known.pop() if len(known) == 1 and not target else None)
    detected = None if only else detect()
    if detected and not target:
        return _target_of_detected(model, detected)
    only = only or (detected if model.source_tags else None)
    target = model.target(target or _default_target(model, only), only)
    possible = [source_ for source_, other in model.directions if other == target]
    for path, language in told.items():
        if possible and not source and language not in map(base_language, possible):
            log(f"warning: the name of {path} tells {language}, but the text is read as {' or '.join(possible)}")
    return target


def target_of_line(translator: "Translator", text: str, named: str | None, default: str | None) -> str | None:
    """The target language of a line that is typed: `named` by the user, otherwise by its language or the default."""
    detected = detected_source(translator.languages, text, named, translator)
    return _target_of_detected(translator.languages, detected) if detected and not named else default


def _target_of_detected(model: ModelLanguages, source: str) -> str | None:
    """The target language of a text that is in another language than the model's default."""
    target = model.target(_default_target(model, source), source)
    log(f"the text seems to be in {_described(source)}: translating {source} to {target}; if it is not, use --from")
    return target


def _default_target(model: ModelLanguages, source: str | None) -> str | None:
    """The model's default target language, with a message, if it has one and the request leaves a choice."""
    possible = [direction for direction in model.directions if source in (None, direction[0])]
    targets = list(dict.fromkeys(target for _, target in possible))
    default = model.default_to
    if default not in targets or len(targets) == 1:
        return None
    sources = " or ".join(source_ for source_, target in possible if target == default)
    log(f"translating {sources} to {default}; for another target language, use --to ({', '.join(targets)})")
    return default


def sampled(rows: Iterator[tuple[str, Row]]) -> tuple[str, Iterator[tuple[str, Row]]]:
    """Lines from all of the first rows, by which the language of the text is detected, and all rows."""
    first: list[tuple[str, Row]] = []
    for row in rows:
        first.append(row)
        if len(first) >= _SAMPLED_LINES or sum(len(text) for text, _ in first) >= _SAMPLED_CHARACTERS:
            break
    step = 1 + sum(len(text) for text, _ in first) // MAX_CHARACTERS
    return "\n".join(text for text, _ in first[::step]), chain(first, rows)


def detected_source(
    model: ModelLanguages, text: str, target: str | None, translator: "Translator | None" = None
) -> str | None:
    """The language of a text if it certainly is not the one that is expected, and is translated.

    Without a target language, the text is expected to be in the source language of the model's default direction.
    Raises a DataError if the text certainly is in a language that the model does not translate (to the target), and
    warns if it probably is, or if the model reads one language only: its text may be of a kind of its own. The score of
    the `translator` decides about short texts.
    """
    if model.source_tags and translator:
        return translator.detect(text).language
    directions, default = model.directions, target or model.default_to
    expected = {source: detected_code(source) for source, other in directions if default in (None, other)}
    codes = {detected_code(source): source for source, _ in reversed(directions)}
    found = Likelihoods(text)
    if not found.of or not expected or not codes.keys() <= KNOWN or found.best in expected.values():
        return None
    best = (
        found.best
        if all(map(found.excludes, expected.values()))
        else translator and _by_model_score(translator, text, found, expected, _SURE if target else _CLEAR)
    )
    if not best or len(codes) == 1:
        probabilities = found.probabilities(found.of)
        if found.best not in codes and probabilities[found.best] >= _PROBABLE and found.size >= FEW:
            log(f"warning: the text may be in {_described(found.best)}, which this model does not translate")
        return None
    targets = {other for source, other in directions if detected_code(source) == best}
    if targets and (not target or target in targets):
        return codes[best]
    if target and detected_code(target) == best:
        raise DataError(f"the text seems to be in {_described(best)} already; if it is not, use --from")
    to = f" to {_described(target)}" if target and targets else ""
    raise DataError(
        f"the text seems to be in {_described(best)}, which this model does not translate{to}; it translates "
        f"{describe_directions(directions)}; if the text is in one of these languages, use --from"
    )


def _by_model_score(
    translator: "Translator", text: str, found: Likelihoods, expected: Mapping[str, str], clear: float
) -> str | None:
    """The language of a short text if the model clearly finds it likelier in that one than in those expected.

    The probability of a text, given itself, is high with the tag of its own language: the decoder of a multilingual
    model is a language model of each target language.
    """
    codes = {source: detected_code(source) for source, _ in translator.directions}
    tags = {target for _, target in translator.directions}
    probabilities = found.probabilities(found.of)
    of_model = sum(probabilities.get(code, 0.0) for code in codes.values())
    is_short = _SHORTEST <= found.size <= _LONGEST and len(text) <= 2 * _LONGEST
    if not is_short or of_model < _POSSIBLE or not translator.tagged or not tags.issuperset(codes):
        return None
    texts = [text] * len(codes)
    scored = zip(codes, translator.score(texts, texts, to=[*codes]), strict=True)
    scores = {code: score.log_prob + found.tempered(codes[code]) for code, score in scored}
    best = max(scores, key=scores.__getitem__)
    is_clear = scores[best] - max(scores[code] for code in expected) >= clear
    return codes[best] if is_clear else None


def _described(language: str) -> str:
    return f"{language_name(language)} ({language})"
