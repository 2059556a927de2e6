"""A toy language, the settings of a tiny model, and a run that was trained with them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import Finished

Pairs = list[tuple[str, str]]


def make_toy_pairs(count: int, seed: int) -> Pairs:
    """Pairs of a language of nine words, whose translation is the same words in reverse order."""
    chance = random.Random(seed)
    words = [first + second for first in ("ba", "de", "gi") for second in ("bo", "du", "go")]
    pairs = []
    for _ in range(count):
        chosen = chance.choices(words, k=chance.randint(1, 5))
        pairs.append((" ".join(chosen), " ".join(reversed(chosen))))
    return pairs


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    """Write lines to a file."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


# Small enough that training takes two seconds, large enough to have every part of the model.
TINY = {
    "tokenizer.vocab_size": 450,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.num_heads": 2,
    "train.steps": 60,
    "train.save_every": 20,
    "train.log_every": 1,
    "train.batch_tokens": 512,
    "train.warmup": 20,
    "train.learning_rate_scale": 0.6,
    "train.valid_sentences": 4,
    "search.max_extra": 8,  # before a model has learned to end its outputs, they are as long as allowed
}


def as_sets(values: dict[str, Any]) -> list[str]:
    """Settings as arguments of the command line."""
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


@dataclass(frozen=True)
class TrainedRun:
    """A finished run of the toy language. Tests must not change it: copy it first."""

    folder: Path
    """The folder in which the command ran: it holds train.src, train.tgt, valid.src, valid.tgt and the run."""
    outcome: Finished
    words: Sequence[str]
    """The arguments of the command that trained it, without --out."""

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.folder / "run"


SMALL_DEMO = "from transduce.corpora.demo import corpus; corpus.demo_corpus.__defaults__ = (1, 2000, 20, 20)\n"
"""Code that makes a command write a demo corpus of 2,000 pairs, in half a second instead of six."""
