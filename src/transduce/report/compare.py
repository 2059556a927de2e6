"""Compares runs: one table, and one page with their curves in the same charts."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from transduce.config import build, read_toml
from transduce.errors import ConfigError, RunError
from transduce.report.charts import Series, line_chart
from transduce.report.page import write_page
from transduce.report.report import all_settings, changed_settings, speeds
from transduce.training.display import clock_time
from transduce.training.metrics import Record, points_of, read_records
from transduce.training.recipe import Recipe
from transduce.training.task import TASKS

COLOURS = "abcdef"


@dataclass(frozen=True)
class ComparedRun:
    """A run with its measurements."""

    name: str
    recipe: Recipe
    records: list[Record]

    def of(self, kind: str) -> list[Record]:
        """All measurements of a kind, oldest first."""
        return [record for record in self.records if record["kind"] == kind]


def read_run(path: Path) -> ComparedRun:
    """Read the settings and measurements of a run."""
    config, metrics = path / "config.toml", path / "metrics.jsonl"
    if not config.is_file() or not metrics.is_file():
        raise RunError(f"{path} is not a run: it has no {config.name if not config.is_file() else metrics.name}")
    run = ComparedRun(path.resolve().name, build(Recipe, read_toml(config), str(config)), read_records(metrics))
    try:
        _figures(run)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        raise RunError(f"{metrics}: its measurements are not those of a run of this version") from None
    return run


def read_runs(paths: Sequence[Path]) -> list[ComparedRun]:
    """Read the runs, each with a name of its own."""
    if len(paths) > len(COLOURS):
        raise ConfigError(f"at most {len(COLOURS)} runs are compared at once, not {len(paths)}")
    runs = [read_run(path) for path in paths]
    if len({run.name for run in runs}) < len(runs):
        runs = [ComparedRun(str(path), run.recipe, run.records) for path, run in zip(paths, runs, strict=True)]
    return runs


def figures(runs: Sequence[ComparedRun]) -> list[tuple[str, list[str]]]:
    """Rows of the table: a name, and the value of each run; "-" if it has none."""
    rows: dict[str, list[str]] = {}
    for index, run in enumerate(runs):
        for name, value in _figures(run).items():
            rows.setdefault(name, ["-"] * len(runs))[index] = value
    return list(rows.items())


def different_settings(runs: Sequence[ComparedRun]) -> list[tuple[str, list[str]]]:
    """The settings in which the runs differ, with the value of each; "-" if it has none.

    A setting that only some of the runs have, such as a size of one architecture, is listed if one of them changed it.
    """
    settings = [all_settings(run.recipe) for run in runs]
    changed = {name for run in runs for name in changed_settings(run.recipe)}
    rows = []
    for name in dict.fromkeys(name for settings_of_run in settings for name in settings_of_run):
        values = [settings_of_run.get(name) for settings_of_run in settings]
        considered = values if name in changed else [value for value in values if value is not None]
        if len(set(considered)) > 1:
            rows.append((name, ["-" if value is None else value for value in values]))
    return rows


def write_comparison(path: Path, runs: Sequence[ComparedRun]) -> None:
    """Write a page with the curves of all runs, which needs no network."""
    names = [run.name for run in runs]
    body = [
        f"<h1>{escape(' and '.join(names))}</h1>",
        _table("Figures", names, figures(runs)),
        '<h2>Training</h2><div class="charts">',
        *_charts(runs),
        "</div>",
        _table("Settings that differ", names, different_settings(runs)),
    ]
    write_page(path, " and ".join(names), "".join(body))


def _figures(run: ComparedRun) -> dict[str, str]:
    train, valid, final, start = (run.of(kind) for kind in ("train", "valid", "final", "start"))
    task = TASKS[run.recipe.task]
    names = {task.score_name.lower(): task.score_name, **task.figures}
    result: dict[str, str] = {}
    for key, name in names.items():
        if key != "loss" and (points := points_of(valid, key)):  # the loss has a row of its own
            best = min if key in task.lower_is_better else max
            result[f"best {name} on the validation set"] = f"{best(y for _, y in points):.2f}"
        for record in final[-1:]:
            if f"valid_{key}" in record:
                result[f"{name} of the finished model"] = f"{record[f'valid_{key}']:.2f}"
    if points := points_of(valid, "loss"):
        result["lowest validation loss"] = f"{min(y for _, y in points):.3f}"
    if train:
        result["last training loss"] = f"{points_of(train, 'loss')[-1][1]:.3f}" if points_of(train, "loss") else "-"
        result["steps"] = f"{train[-1]['step']:,}"
        if "seconds" in train[-1]:
            result["training time"] = clock_time(train[-1]["seconds"])
        if points := speeds(train):
            result["tokens/s (median)"] = f"{sorted(y for _, y in points)[len(points) // 2]:,.0f}"
    for record in start[-1:]:
        result |= {"parameters": f"{record['parameters']:,}", "device": record["device"]}
    return result


def _charts(runs: Sequence[ComparedRun]) -> list[str]:
    def series(kind: str, key: str) -> list[Series]:
        coloured = zip(runs, COLOURS, strict=False)
        return [Series(run.name, points_of(run.of(kind), key), colour) for run, colour in coloured]

    names: dict[str, str] = {}
    for task in (TASKS[run.recipe.task] for run in runs):
        names |= {task.score_name.lower(): task.score_name, **task.figures}
    speed = [Series(run.name, speeds(run.of("train")), colour) for run, colour in zip(runs, COLOURS, strict=False)]
    return [
        line_chart("Validation loss", series("valid", "loss"), log=True),
        line_chart("Training loss", series("train", "loss"), log=True),
        *(
            line_chart(f"{name} on the validation set", series("valid", key))
            for key, name in names.items()
            if key != "loss"
        ),
        line_chart("Learning rate", series("train", "learning_rate"), "{:.3g}".format, log=True),
        line_chart("Gradient norm", series("train", "grad_norm"), "{:.3g}".format, log=True),
        line_chart("Speed, tokens/s", speed, "{:,.0f}".format),
    ]


def _table(title: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    if not rows:
        return ""
    head = "<tr><th>" + "".join(f"<th>{escape(name)}" for name in names)
    body = "".join(
        f'<tr><td class="name">{escape(name)}' + "".join(f"<td>{escape(value)}" for value in values)
        for name, values in rows
    )
    return f'<h2>{title}</h2><div class="card wide"><table>{head}{body}</table></div>'
