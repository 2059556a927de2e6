"""The languages of a run, which recipe, files and the model that it starts from tell; warns of contradictions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from transduce.data.data_config import DataConfig
from transduce.data.prepare import Prepared
from transduce.files.languages import base_language, direction_of_entry, parse_direction
from transduce.models.folder import read_card
from transduce.training.recipe import Recipe
from transduce.training.start_from import find_start

_TRAIN_PAIRS, _VALID_PAIRS = 2000, 200
"""Numbers of pairs that are compared."""
_MARGIN = 0.3
"""By how much the exchanged sides must be more similar, of at most 2: two languages with the same words are not."""


def languages_of_run(recipe: Recipe, log: Callable[[str], None], *, is_new: bool) -> Recipe:
    """The recipe with its languages, as far as anything tells them; warns of contradictions.

    Only a new run takes them over from the model that it starts from, which may have been deleted since.
    """
    recipe = _infer_languages(recipe, log)
    recipe = _inherit_languages(recipe, log) if is_new else recipe
    _warn_of_file_names(recipe.data, log)
    return recipe


def _infer_languages(recipe: Recipe, log: Callable[[str], None]) -> Recipe:
    """The recipe with the languages that the names of the training files tell, if it does not name them."""
    data = recipe.data
    found = {pair for files in data.train if (pair := direction_of_entry(files))}
    if len(found) > 1:
        names = ", ".join(sorted("-".join(pair) for pair in found))
        log(f"warning: the names of the training files tell several directions ({names}); check their columns")
    if data.directions or len(found) != 1:
        return recipe
    source, target = found.pop() if not data.reverse else found.pop()[::-1]
    direction = (data.src_lang or source, data.tgt_lang or target)
    if direction != (source, target):
        log(
            f"warning: the model is to translate {direction[0]} to {direction[1]}, but the names of the training files "
            f"and data.reverse={str(data.reverse).lower()} tell {source} to {target}"
        )
    if data.src_lang and data.tgt_lang:
        return recipe
    log(f"data: {direction[0]} to {direction[1]}, by the names of the files (data.src_lang and data.tgt_lang set it)")
    return replace(recipe, data=replace(data, src_lang=direction[0], tgt_lang=direction[1]))


def _inherit_languages(recipe: Recipe, log: Callable[[str], None]) -> Recipe:
    """The recipe with the languages of the model that it starts from, if that has one direction and nothing tells them.

    Warns of other languages: they may be meant, but the files may also be exchanged.
    """
    start, data = recipe.train.start_from, recipe.data
    if not start or data.directions or not recipe.make_task().translates:
        return recipe
    directions = read_card(find_start(start))["facts"].get("directions", [])
    if len(directions) != 1:
        return recipe
    source, target = directions[0]
    direction = (data.src_lang or source, data.tgt_lang or target)
    if list(map(base_language, direction)) != [base_language(source), base_language(target)]:
        log(
            f"warning: this run translates {direction[0]} to {direction[1]}, but {start}, which it starts from, "
            f"{source} to {target}"
        )
    if direction == (data.src_lang, data.tgt_lang):
        return recipe
    log(f"data: {direction[0]} to {direction[1]}, as {start} (data.src_lang and data.tgt_lang set it)")
    return replace(recipe, data=replace(data, src_lang=direction[0], tgt_lang=direction[1]))


def _warn_of_file_names(data: DataConfig, log: Callable[[str], None]) -> None:
    """Warn of files whose names tell another direction than that of their text, or that are both source and target.

    `_infer_languages` does so for the training text of a model with one direction.
    """
    for part in data.parts:
        direction = parse_direction(part.name) if part.name else (data.src_lang, data.tgt_lang)
        checked = [*part.valid, *(part.train if part.name or part.is_replay else ())]
        read = [(files, part.reverse) for files in checked] + [(files, False) for files in part.back_translated]
        for files, reverse in read:
            told = direction_of_entry(files)
            if not told or None in direction:
                continue
            told = told[::-1] if reverse else told
            if list(map(base_language, told)) != list(map(base_language, direction)):
                log(
                    f"warning: {' + '.join(files)} is read as {direction[0]} to {direction[1]}, but its name tells "
                    f"{told[0]} to {told[1]}; check its sides"
                )
    for files in dict.fromkeys([*data.all_train, *data.all_valid]):
        if len(files) == 2 and files[0] == files[1]:
            log(f"warning: {files[0]} is both the source and the target")


def warn_of_exchanged_sides(data: DataConfig, prepared: Prepared, log: Callable[[str], None]) -> None:
    """Warn of validation text whose sources have the tokens of training targets, and whose targets those of sources.

    Models with several directions or separate vocabularies are not checked.
    """
    tokenizer, shards = prepared.tokenizer, prepared.train
    if data.directions or tokenizer.target is not tokenizer or not prepared.valid:
        return
    numbers = np.linspace(0, shards.distinct - 1, min(_TRAIN_PAIRS, shards.distinct)).astype(np.int64)
    train = _directions(zip(*shards.pairs(numbers), strict=True), tokenizer.vocab_size)
    for files, (start, end) in zip(data.all_valid, pairwise(accumulate(prepared.valid_sizes, initial=0)), strict=True):
        chosen = prepared.valid[start : min(end, start + _VALID_PAIRS)]
        sides = zip(*chosen, strict=True)
        valid = _directions((tokenizer.encode_all(list(side)) for side in sides), tokenizer.vocab_size)
        as_read, exchanged = (float(np.sum(train * other)) for other in (valid, valid[::-1]))
        if chosen and exchanged > as_read + _MARGIN:
            log(
                f"warning: the sources of {' + '.join(files)} look like the targets of the training text, and its "
                "targets like the sources; check their columns"
            )


def _directions(sides: Iterable[Sequence[Any]], size: int) -> Any:
    """For each side, the square roots of the frequencies of its tokens, as a vector of length 1."""
    counts = [np.bincount(np.concatenate([np.asarray(ids, int) for ids in side]), minlength=size) for side in sides]
    return np.sqrt([count / max(1, count.sum()) for count in counts])
