"""In what a recipe differs from the one that a run was started with: which settings keep it from being resumed."""

import re
from collections.abc import Set
from typing import Any

from transduce.config import Table, as_set, to_table
from transduce.training.recipe import Recipe

# Settings that may change when a run is resumed: they affect only its length, output and checkpoints. Training text may
# move to other files, because a run compares the digests of their content.
FREE_TO_CHANGE = {
    *("train.steps", "train.minutes", "train.adapts", "train.patience", "train.log_every", "train.valid_sentences"),
    *("train.samples", "train.save_every", "train.keep"),
    *("train.average", "train.shard", "train.device", "train.threads", "train.cooldown", "data.train", "data.valid"),
    *("data.replay", "data.back_translated", "data.by_sentence", "data.truecase", "data.src_lang", "data.tgt_lang"),
    *("search", "train.criterion", "train.bleu_tokenizer", "train.tensorboard", "train.wandb"),
}
_DIRECTION = re.compile(r"data\.directions\.[^.]+\.")


def differences(old: Recipe, new: Recipe, free: Set[str] = FREE_TO_CHANGE) -> list[str]:
    """Settings that differ, as "section.key (there ..., here ...)", unless they are free to change."""
    before, now = _flat(to_table(old)), _flat(to_table(new))
    moved = (
        {"train.start_from", "tokenizer.path", "tokenizer.target_path"} & before.keys() & now.keys()
    )  # files that were read at the start
    names = [name for name in sorted(now.keys() | before.keys()) if before.get(name) != now.get(name)]
    free = free | moved | ({old.task, new.task} if old.task != new.task else set())  # each has only its own section
    return [
        f"{name} (there {as_set(before.get(name))}, here {as_set(now.get(name))})"
        for name in names
        if _DIRECTION.sub("data.", name) not in free and name.partition(".")[0] not in free
    ]


def _flat(table: Table) -> dict[str, Any]:
    """The settings by their full names."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in _flat(value).items()}
        else:
            flat[name] = value
    return flat
