"""`report.html`: charts, samples and settings of a run in one file that needs no network."""

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from transduce.config import to_table
from transduce.disk import write_atomically
from transduce.runs.charts import Point, Series, heat_map, line_chart
from transduce.runs.metrics import Metrics, Record
from transduce.runs.recipe import Recipe
from transduce.tasks.registry import TASKS
from transduce.tasks.task import Task

# ruff: noqa: E501
STYLE = """
:root { --ink: #1d2433; --soft: #667085; --line: #e4e7ec; --page: #fbfbfd; --card: #fff; --a: #2563c9; --b: #d9730d; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #303746; --page: #12151c; --card: #1a1f2a; --a: #7aa7f0; --b: #f0a35c; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 32px 20px 60px; color: var(--ink); background: var(--page);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 17px; margin: 36px 0 12px; } .soft { color: var(--soft); }
.facts { display: flex; flex-wrap: wrap; gap: 12px; margin-top: 18px; }
.fact, figure, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.fact b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 14px; }
figure { margin: 0; } figcaption { font-size: 14px; margin-bottom: 6px; }
svg { width: 100%; height: auto; display: block; } svg.heat { width: auto; max-width: none; }
.grid { stroke: var(--line); } .tick { fill: var(--soft); font-size: 11px; font-family: ui-monospace, monospace; }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
polyline.a { stroke: var(--a); } polyline.b { stroke: var(--b); } circle.a { fill: var(--a); } circle.b { fill: var(--b); }
.key { color: var(--soft); margin-left: 10px; } .key::before { content: "●"; margin-right: 4px; }
.key.a::before { color: var(--a); } .key.b::before { color: var(--b); } .cell { fill: var(--a); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
.samples td { white-space: pre-wrap; }
td, th { text-align: left; vertical-align: top; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } td.name { color: var(--soft); white-space: nowrap; width: 1%; }
.settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 14px; font-size: 13px; }
.settings td { word-break: break-word; }
"""
"""Style sheet of the report, and of other pages of the same look."""
_NAMES = {"bleu": "BLEU", "chrf": "chrF"}


def write_report(path: Path, recipe: Recipe, metrics: Metrics, picture: dict[str, Any] | None = None) -> None:
    """Write the report of all measurements so far."""
    train, valid, task = metrics.of("train"), metrics.of("valid"), TASKS[recipe.task]
    score, tokens = task.score_name, _tokens(task)
    final = [record for record in metrics.of("final") if record["step"] == train[-1]["step"]] if train else []
    names = {score.lower(): score, **task.figures}
    names.pop("loss", None)  # it has a chart already
    figures = {name: points for key, name in names.items() if (points := _points(valid, key)) or name == score}
    body = [
        f"<h1>{escape(path.parent.name)}</h1>",
        f'<div class="soft">Trained by transduce on {escape(_corpus(recipe))}</div>',
        _facts(train, valid, final, task),
        '<h2>Training</h2><div class="charts">',
        line_chart(
            "Loss", [Series("train", _points(train, "loss"), "a"), Series("valid", _points(valid, "loss"), "b")]
        ),
        *(
            line_chart(f"{name} on the validation set", [Series(name, points, "b")], "{:.4g}".format)
            for name, points in figures.items()
        ),
        line_chart("Learning rate", [Series("learning rate", _points(train, "learning_rate"), "a")], "{:.1e}".format),
        line_chart("Speed", [Series(tokens, _points(train, "tokens_per_second"), "a")], "{:,.0f}".format),
        "</div>",
        _files((final or valid)[-1:]),
        _samples((final or [record for record in valid if "samples" in record])[-1:], *task.samples),
        _attention(picture),
        f'<h2>Settings</h2><div class="settings">{"".join(_sections(recipe))}</div>',
    ]
    page = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(path.parent.name)} · transduce</title><style>{STYLE}</style></head>
<body>{"".join(body)}</body>
</html>
"""
    write_atomically(path, page.encode())


def _tokens(task: type[Task]) -> str:
    """What the speed of training counts."""
    return "target tokens/s" if task.reader == "pairs" else "tokens/s"


def _facts(train: list[Record], valid: list[Record], final: list[Record], task: type[Task]) -> str:
    facts, score = [], task.score_name
    if train:
        facts.append(("steps", f"{train[-1]['step']:,}"))
        facts += [("training loss", f"{loss:.3f}") for _, loss in _points(train, "loss")[-1:]]
        facts.append((_tokens(task), f"{train[-1]['tokens_per_second']:,.0f}"))
    if final:
        facts.append(("perplexity of the finished model, validation set", f"{final[-1]['valid_perplexity']:.2f}"))
        digits = 1 if task.reader == "pairs" else 3
        for key, name in {score.lower(): score, **task.figures}.items():
            if f"valid_{key}" in final[-1]:
                value = f"{final[-1][f'valid_{key}']:.{digits}f}"
                facts.append((f"{name} of the finished model, validation set", value))
    elif valid:
        facts.append(("validation perplexity", f"{valid[-1]['perplexity']:.2f}"))
    for record in valid[-1:]:
        if "criterion" in record:
            by = "lowest loss" if record["criterion"] == "loss" else f"highest {_NAMES.get(record['criterion'], score)}"
            facts.append((f"step of the best checkpoint, by the {by}", f"{record['best_step']:,}"))
    return f'<div class="facts">{"".join(f"<div class=fact><b>{value}</b>{name}</div>" for name, value in facts)}</div>'


def _files(records: list[Record]) -> str:
    """A table of the scores of each validation file, if there are several."""
    files = {name: scores for record in records for name, scores in record.get("files", {}).items()}
    metrics = list(next(iter(files.values()), {}))
    rows = "".join(
        f"<tr><td>{escape(name)}" + "".join(f"<td>{scores[metric]:.1f}" for metric in metrics)
        for name, scores in files.items()
    )
    head = "<tr><th>file" + "".join(f"<th>{_NAMES.get(metric, metric)}" for metric in metrics)
    return f'<h2>Validation files</h2><div class="card wide"><table>{head}{rows}</table></div>' if rows else ""


def _samples(records: list[Record], title: str, columns: tuple[str, str, str]) -> str:
    rows = "".join(
        f"<tr><td>{escape(sample['source'])}<td>{escape(sample['output'])}<td>{escape(sample['reference'])}"
        for record in records
        for sample in record.get("samples", [])
    )
    head = "<tr>" + "".join(f"<th>{column}" for column in columns)
    return f'<h2>{title}</h2><div class="card wide samples"><table>{head}{rows}</table></div>' if rows else ""


def _attention(picture: dict[str, Any] | None) -> str:
    if not picture:
        return ""
    drawing = heat_map(picture["source"], picture["output"], picture["weights"])
    return (
        "<h2>Cross-attention of the decoder</h2>"
        '<p class="soft">Each row is a token of the translation, each column a token of the source; darker cells have '
        "more cross-attention (mean of the heads). Attention weights do not explain why a token was chosen.</p>"
        f'<div class="card wide">{drawing}</div>'
    )


def _sections(recipe: Recipe) -> Iterator[str]:
    for name, values in to_table(recipe).items():
        if isinstance(values, dict):
            rows = "".join(
                f'<tr><td class="name">{escape(key)}<td>{escape(str(value))}'
                for key, value in values.items()
                if value != ()
            )
            yield f'<div class="card"><b>{escape(name)}</b><table>{rows}</table></div>'


def _corpus(recipe: Recipe) -> str:
    return ", ".join(" + ".join(Path(name).name for name in files) for files in recipe.data.all_train)


def _points(records: list[Record], key: str) -> list[Point]:
    return [(record["step"], record[key]) for record in records if key in record and math.isfinite(record[key])]
