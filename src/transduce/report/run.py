"""A run: its measurements by kind, and its figures, which have the same names and digits on every page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

from transduce.config import build, read_toml
from transduce.errors import RunError
from transduce.report.charts import Point
from transduce.training.display import clock_time
from transduce.training.metrics import Record, figure_text, points_of, read_records
from transduce.training.recipe import Recipe
from transduce.training.task import TASKS, Task

SEARCHES = "Checkpoints are scored with greedy search, the finished model with the search of its recipe."
"""Why the scores of a checkpoint and of the finished model differ."""


@dataclass(frozen=True)
class Figure:
    """A figure of a run as text, and the number by which the best of several runs has the highest one, if any."""

    text: str
    order: float | None = None


@dataclass(frozen=True)
class Run:
    """A run with its measurements."""

    name: str
    folder: Path
    recipe: Recipe
    records: Sequence[Record]

    def of(self, kind: str) -> list[Record]:
        """All measurements of a kind, oldest first."""
        return [record for record in self.records if record["kind"] == kind]

    @cached_property
    def train(self) -> list[Record]:
        return self.of("train")

    @cached_property
    def valid(self) -> list[Record]:
        return self.of("valid")

    @cached_property
    def final(self) -> Record | None:
        """The measurements of the finished model, unless the run was trained further since."""
        last = self.train[-1]["step"] if self.train else None
        return next((record for record in reversed(self.of("final")) if record["step"] == last), None)

    @property
    def task(self) -> type[Task]:
        return TASKS[self.recipe.task]

    @property
    def scores(self) -> dict[str, str]:
        """The names of the scores of the task, by their keys in the measurements, the most important first."""
        return {self.task.score_name.lower(): self.task.score_name, **self.task.figures}

    @property
    def counted_tokens(self) -> str:
        """What the speed of training counts."""
        return f"{self.task.of(self.recipe).counted}/s"

    @cached_property
    def speeds(self) -> list[Point]:
        """The speed over the steps, without intervals of few steps: what they measure is not the speed of training."""
        points = points_of(self.train, "tokens_per_second")
        sizes = [step - before for (before, _), (step, _) in zip([(0.0, 0.0), *points], points, strict=False)]
        usual = sorted(sizes)[len(sizes) // 2] if sizes else 0
        return [point for point, size in zip(points, sizes, strict=True) if 2 * size >= usual]

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The figures by name."""
        result: dict[str, Figure] = {}

        def by(key: str, records: Sequence[Record], otherwise: str) -> str:
            search = next((record["search"] for record in records if "search" in record), otherwise)
            return f", {search}" if self.task.searches and key in self.scores else ""

        def add(name: str, key: str, values: Sequence[float]) -> None:
            lowest = key in ("loss", "perplexity") or key in self.task.lower_is_better
            for value in (min(values) if lowest else max(values),) if values else ():
                result[name] = Figure(figure_text(key, value), -value if lowest else value)

        final, finished = [self.final] if self.final else [], "{} of the finished model, validation set"
        for key, name in {**self.scores, "perplexity": "perplexity"}.items():
            name = finished.format(name) + by(key, final, self.recipe.search.name)
            add(name, key, [y for _, y in points_of(final, f"valid_{key}")])
        checkpoints = [record for record in self.valid if record["step"]]  # at step 0 there is none
        scored = checkpoints[-1].get("scored") if checkpoints else None  # scores of others are not comparable
        for key, name in {**self.scores, "loss": "loss"}.items():
            name = f"best {name} of a checkpoint, validation set" + by(key, checkpoints, "greedy")
            same = [record for record in checkpoints if key == "loss" or record.get("scored") == scored]
            add(name, key, [y for _, y in points_of(same, key)])
        for record in self.valid[-1:]:
            if "criterion" in record:
                criterion = self.scores.get(record["criterion"], "loss")
                result[f"step of the best checkpoint, by {criterion}"] = Figure(f"{record['best_step']:,}")
        for _, loss in points_of(self.train, "loss")[-1:]:
            result["training loss"] = Figure(figure_text("loss", loss))
        for record in self.train[-1:]:
            result["steps"] = Figure(f"{record['step']:,}")
            if self.speeds:
                speed = median(speed for _, speed in self.speeds)
                result[f"{self.counted_tokens}, median"] = Figure(f"{speed:,.0f}", speed)
            if "seconds" in record:
                result["training time"] = Figure(clock_time(record["seconds"]))
        for record in self.of("start")[-1:]:
            result |= {"parameters": Figure(f"{record['parameters']:,}"), "device": Figure(record["device"])}
        return result


def read_run(path: Path) -> Run:
    """Read the settings and measurements of a run."""
    config, metrics = path / "config.toml", path / "metrics.jsonl"
    if not config.is_file() or not metrics.is_file():
        raise RunError(f"{path} is not a run: it has no {config.name if not config.is_file() else metrics.name}")
    run = Run(path.resolve().name, path, build(Recipe, read_toml(config), str(config)), read_records(metrics))
    try:
        run.figures  # noqa: B018  # computed once, here, where the file can be named
    except (KeyError, TypeError, ValueError, ArithmeticError):
        raise RunError(f"{metrics}: its measurements are not those of a run of this version") from None
    return run
