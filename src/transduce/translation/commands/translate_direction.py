"""The target language of `transduce translate`, and whether the names of the files match it."""

from collections.abc import Sequence
from pathlib import Path

from transduce.cli.inputs import Input
from transduce.cli.messages import log
from transduce.files.languages import ModelLanguages, language_of_name
from transduce.translation.rules import base_language


def target_language(
    model: ModelLanguages, inputs: Sequence[Input], source: str | None, target: str | None
) -> str | None:
    """The target language of a request; without one, the names of files such as news.de may leave no choice.

    Warns of files whose names tell a language that the model does not translate from.
    """
    named = {path: language_of_name(path) for path in inputs if isinstance(path, Path)}
    told = {path: language for path, language in named.items() if language}
    known = {own for own, _ in model.directions if base_language(own) in told.values()}
    only = source or (known.pop() if len(known) == 1 and not target else None)
    target = model.target(target or _default_target(model, only), only)
    possible = [own for own, other in model.directions if other == target]
    for path, language in told.items():
        if possible and not source and language not in map(base_language, possible):
            log(f"warning: the name of {path} tells {language}, but the text is read as {' or '.join(possible)}")
    return target


def _default_target(model: ModelLanguages, source: str | None) -> str | None:
    """The model's default target language, with a message, if it has one and the request leaves a choice."""
    possible = [one for one in model.directions if source in (None, one[0])]
    targets = list(dict.fromkeys(target for _, target in possible))
    default = model.default_to
    if default not in targets or len(targets) == 1:
        return None
    sources = " or ".join(one for one, target in possible if target == default)
    log(f"translating {sources} to {default}; for another target language, use --to ({', '.join(targets)})")
    return default
