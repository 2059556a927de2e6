"""The arithmetic of a run before it is started: pairs, tokens, steps and hours on this machine, and a preset for them.

The numbers are estimates: text is read for a few seconds at most, and the speed is that of one small batch.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from transduce.files.pairs import Corpus, ReadReport, count_pairs
from transduce.files.readers import READERS
from transduce.models.model import Model
from transduce.models.registry import create_model
from transduce.nn.device import pick_device
from transduce.training.learner import Learner, make_optimizer
from transduce.training.measured import trial_batch
from transduce.training.recipe import Recipe
from transduce.training.task import Task

_READING_SECONDS = 3.0
_CHARACTERS_PER_TOKEN = 4
_COMPRESSION = 3
"""About how many bytes of text a byte of a compressed file stands for."""
_TRIAL_TOKENS, _USUAL_LENGTH = 512, 25
"""Tokens of the batch whose time is measured, and of its sentences."""
_LONG_STEP = 2.0
"""Seconds of a step after which no further ones are measured."""
_MOST_HOURS = 24.0
"""A preset whose run takes longer on this machine is not recommended, except for the smallest."""
PRESETS_BY_PAIRS = (("tiny", 0), ("small", 10_000), ("base", 500_000), ("big", 4_000_000))
"""The presets from small to large, and the number of pairs from which each is worth its time."""


@dataclass(frozen=True)
class TextSize:
    """The size of a training text."""

    examples: int
    tokens: int
    """About how many tokens the longer side has."""
    is_exact: bool
    noun: str = "pair"

    def __str__(self) -> str:
        about = "" if self.is_exact else "about "
        return f"{about}{count_pairs(self.examples, self.noun)}, about {readable(self.tokens)} tokens a side"


@dataclass(frozen=True)
class Cost:
    """The length of a run."""

    steps: int
    seconds_per_step: float
    epochs: float
    """The epochs of all steps."""
    device: str
    minutes: float | None = None
    """The time limit of the run (`train.minutes`)."""

    @property
    def hours(self) -> float:
        """The time of all steps, without the time limit."""
        return self.steps * self.seconds_per_step / 3600

    def __str__(self) -> str:
        digits = 0 if self.seconds_per_step >= 10 else 2
        speed = f"{self.seconds_per_step:,.{digits}f} s a step on {self.device}"
        if self.minutes is None or self.minutes >= 60 * self.hours:
            return f"{self.steps:,} steps, {self.epochs:,.1f} epochs, about {duration(self.hours)} ({speed})"
        share = self.minutes / 60 / self.hours
        fitting, epochs = max(1, int(share * self.steps)), share * self.epochs
        return f"about {fitting:,} of {self.steps:,} steps, {epochs:,.1f} epochs in {self.minutes:g} minutes ({speed})"


def readable(number: float) -> str:
    """A number in thousands or millions."""
    return f"{number / 1e6:,.1f} million" if number >= 1e6 else f"{number:,.0f}"


def duration(hours: float) -> str:
    """A time in minutes, hours or days."""
    if hours < 1:
        return f"{60 * hours:.0f} minutes" if hours >= 1.5 / 60 else "a minute"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:,.0f} days"


def require_examples(recipe: Recipe) -> None:
    """Raise an error if a file of the text has no example of the recipe's task; only its first example is read."""
    reader = READERS[recipe.make_task().reader]
    for files in dict.fromkeys([*recipe.data.all_train, *recipe.data.all_valid]):
        next(reader.pieces([files], ReadReport()) if reader.pieces else reader.read([files], ReadReport()))


def text_size(recipe: Recipe) -> TextSize:
    """The size of the training text; what is not read within a few seconds is extrapolated from the file sizes."""
    reader = READERS[recipe.make_task().reader]
    corpus = recipe.data.all_train
    began, examples, read = time.monotonic(), 0, 0
    characters = [0] * len(reader.texts(reader.streams))
    finished = True
    for example in reader.read(corpus, ReadReport()):
        examples += 1
        for side, text in enumerate(reader.texts(example)):
            characters[side] += len(text)
            read += len(text.encode())
        if examples % 1000 == 0 and time.monotonic() - began > _READING_SECONDS:
            finished = False
            break
    factor = 1.0 if finished else max(1.0, _bytes(corpus) / max(1, read))
    tokens = int(factor * max(characters, default=0) / _CHARACTERS_PER_TOKEN)
    noun = "pair" if reader.has_sides else "text"
    return TextSize(int(factor * examples), tokens, finished, noun)


def _bytes(corpus: Corpus) -> int:
    paths = [Path(name) for files in corpus for name in files]
    packed = {".gz", ".xz", ".zst"}
    return sum(path.stat().st_size * (_COMPRESSION if path.suffix in packed else 1) for path in paths)


def cost(recipe: Recipe, size: TextSize) -> Cost | None:
    """The length of a run on this machine; None if a step cannot be tried without its data."""
    task, reader, config = recipe.make_task(), READERS[recipe.make_task().reader], recipe.train
    if reader.arrays or reader.labels or config.batch_tokens == "auto" or recipe.tokenizer.path or config.start_from:
        return None
    device = pick_device(config.device)
    model = create_model(recipe.model, recipe.tokenizer.vocab_size).to(device)
    tokens = min(config.batch_tokens, _TRIAL_TOKENS)
    seconds = _step_seconds(recipe, task, model, tokens) * config.batch_tokens / tokens * config.accumulate
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "this CPU"
    epochs = config.steps * config.accumulate * config.batch_tokens / max(1, size.tokens)
    return Cost(config.steps, seconds, epochs, name, config.minutes)


def _step_seconds(recipe: Recipe, task: Task, model: Model, tokens: int) -> float:
    """About the time of a training step with this many tokens; the weights stay as they are.

    If the first of a few steps takes long, it is the only one.
    """
    learner = Learner(model, make_optimizer(model, recipe.train), task, recipe.train)
    batch, seconds = trial_batch(recipe, task, model, tokens, min(_USUAL_LENGTH, recipe.data.max_length)), math.inf
    for number in range(1, 4):
        began = time.perf_counter()
        learner.compute(batch)
        learner.update(number, 0.0, batch.count).item()
        seconds = min(seconds, time.perf_counter() - began)
        if seconds > _LONG_STEP:
            break
    return seconds


def recommend(size: TextSize, cost_of: Callable[[str], Cost | None]) -> str:
    """The largest preset that suits the number of examples and that this machine trains within a day."""
    suitable: Sequence[str] = [name for name, fewest in PRESETS_BY_PAIRS if size.examples >= fewest]
    for name in reversed(suitable[1:]):
        length = cost_of(name)
        if length is None or length.hours <= _MOST_HOURS:
            return name
    return suitable[0]
