"""`report.html`: verdict, charts, samples and settings of a run in one file that needs no network."""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from transduce.config import to_table
from transduce.report.charts import Series, heat_map, line_chart, step_label
from transduce.report.page import STOPS, command_html, table, write_page
from transduce.report.run import SEARCHES, Run
from transduce.report.verdict import judge
from transduce.training.metrics import Metrics, Record, figure_text, points_of
from transduce.training.recipe import Recipe

_CONFUSION_CLASSES = 30


def write_report(path: Path, recipe: Recipe, metrics: Metrics, picture: dict[str, Any] | None = None) -> None:
    """Write the report of all measurements so far."""
    run = Run(path.parent.name, path.parent, recipe, metrics.records)
    newest = run.final or (run.valid[-1] if run.valid else {})
    body = [
        f"<h1>{escape(run.name)}</h1>",
        f'<div class="soft">Trained by transduce on {escape(_corpus(recipe))}</div>',
        _verdict(run),
        _facts(run),
        _about(run.of("start")),
        '<h2>Training</h2><div class="charts">',
        *charts([run]),
        "</div>",
        _files(run, newest.get("files", {})),
        _confusion(newest.get("confusion")),
        _samples(run),
        _worst((run.final or {}).get("worst", []), run.task.samples[1]),
        _attention(picture),
        _settings(recipe),
    ]
    write_page(path, run.name, "".join(body))


def charts(runs: Sequence[Run]) -> Iterator[str]:
    """The charts of a run, or those of several with a line for each."""
    first, compared = runs[0], len(runs) > 1
    best = next((record["best_step"] for record in first.valid[-1:] if "best_step" in record and not compared), None)

    def lines(kind: str, key: str, name: str, colour: str = "a") -> list[Series]:
        return [
            Series(run.name if compared else name, points_of(run.of(kind), key), style if compared else colour)
            for run, style in zip(runs, COLOURS, strict=False)
        ]

    if compared:
        yield line_chart("Validation loss", lines("valid", "loss", ""), "{:.3f}".format, log=True)
        yield line_chart("Training loss", lines("train", "loss", ""), "{:.3f}".format, log=True)
    else:
        losses = [*lines("train", "loss", "train"), *lines("valid", "loss", "valid", "b")]
        yield line_chart("Loss", losses, "{:.3f}".format, log=True, best=best)
    for key, name in {key: name for run in runs for key, name in run.scores.items() if key != "loss"}.items():
        by = ", greedy" if first.task.searches and key in first.scores else ""
        title = f"{name} on the validation set{by}"
        yield line_chart(title, lines("valid", key, name, "b"), "{:.2f}".format, best=best)
    yield line_chart("Learning rate", lines("train", "learning_rate", "learning rate"), "{:.3g}".format, log=True)
    yield line_chart("Gradient norm", lines("train", "grad_norm", "norm"), "{:.3g}".format, log=True)
    speeds = [
        Series(run.name if compared else run.counted_tokens, run.speeds, style)
        for run, style in zip(runs, COLOURS, strict=False)
    ]
    yield line_chart(f"Speed, {first.counted_tokens}" if compared else "Speed", speeds, "{:,.0f}".format)
    if not compared:
        yield line_chart("Peak memory", lines("train", "memory_gb", "GB"), "{:.3g}".format)


COLOURS = "abcdef"
"""Classes of lines in the style sheet."""


def _verdict(run: Run) -> str:
    verdict = judge(run)
    if verdict is None:
        return ""
    kind, _, rest = verdict.sentence.partition(":")
    mood = {"fine": "good", "not finished": "calm"}.get(verdict.kind, "bad")
    command = command_html(verdict.command) if verdict.command else ""
    return f'<div class="card verdict {mood}"><b>{kind}:</b>{escape(rest)}{command}</div>'


def _facts(run: Run) -> str:
    """The most important figures, scores first."""
    figures = {name: figure for name, figure in run.figures.items() if name not in ("parameters", "device")}
    facts = (f"<div class=fact><b>{figure.text}</b>{escape(name)}</div>" for name, figure in figures.items())
    note = f'<p class="soft">{SEARCHES}</p>' if run.final and run.valid and run.task.translates else ""
    return f'<div class="facts">{"".join(facts)}</div>{note}'


def _about(starts: list[Record]) -> str:
    """Device, model, data, versions and command of the run, as recorded when it was started or resumed."""
    if not starts:
        return ""
    last = starts[-1]
    sizes = {name: count for name, count in last["data"].items() if isinstance(count, int)}
    rows = {
        "device": last["device"],
        "parameters": f"{last['parameters']:,}",
        "data": ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sizes.items()),
        "versions": ", ".join(f"{name} {version}" for name, version in last["versions"].items()),
        "started": last["time"] + (f", resumed {len(starts) - 1} times" if len(starts) > 1 else ""),
    }
    cells = "".join(f'<tr><td class="name">{name}<td>{escape(value)}' for name, value in rows.items())
    command = command_html(last["command"]) if last["command"] else ""
    return f'<div class="card wide about"><table>{cells}</table>{command}</div>'


def _files(run: Run, files: dict[str, dict[str, float]]) -> str:
    """A table of the scores of each validation file, if there are several."""
    metrics = list(next(iter(files.values()), {}))
    rows = ([escape(name), *(figure_text(key, scores[key]) for key in metrics)] for name, scores in files.items())
    return table("Validation files", ["file", *(run.scores.get(key, key) for key in metrics)], rows)


def _confusion(confusion: dict[str, Any] | None) -> str:
    """The confusion matrix of a classifier, unless it has too many classes for a table."""
    if confusion is None or len(confusion["labels"]) > _CONFUSION_CLASSES:
        return ""
    labels = confusion["labels"]
    counts = zip(labels, confusion["counts"], strict=True)
    rows = ([escape(label), *(f"{count:,}" for count in row)] for label, row in counts)
    return table("Confusion matrix", ["class / predicted", *labels], rows)


def _samples(run: Run) -> str:
    """Source, output and reference of the samples, with a slider over the validations; the last is shown first."""
    records = [record for record in (*run.valid, *([run.final] if run.final else [])) if record.get("samples")]
    if not records:
        return ""
    count = min(STOPS, len(records))
    chosen = [records[round(n * (len(records) - 1) / max(1, count - 1))] for n in range(count)]
    names = ["finished model" if record["kind"] == "final" else f"step {record['step']:,}" for record in chosen]
    stops = "".join(
        f'<label><input type="radio" name="stop" class="s{n}"{" checked" if n == len(chosen) else ""}>'
        f"<span>{'end' if record['kind'] == 'final' else step_label(record['step'])}</span></label>"
        for n, record in enumerate(chosen, 1)
    )
    rows = []
    for index, sample in enumerate(records[-1]["samples"]):
        outputs = "".join(
            f'<div class="s{n}"><span class=soft>{name} </span>{marked(shown["output"], sample["reference"])}</div>'
            for n, (name, record) in enumerate(zip(names, chosen, strict=True), 1)
            for shown in record["samples"][index : index + 1]
            if shown["source"] == sample["source"]
        )
        rows.append([escape(sample["source"]), outputs, escape(sample["reference"])])
    note = "Words that the reference does not have, or has in another place, are underlined."
    slider = f'<fieldset class="stops"><legend class="soft">step</legend>{stops}</fieldset>' if len(chosen) > 1 else ""
    title, columns = run.task.samples
    return f'<div class="slider">{table(title, columns, rows, note + slider, "samples")}</div>'


def _worst(samples: list[dict[str, Any]], columns: tuple[str, str, str]) -> str:
    """A table of the outputs of the finished model that are least like their references."""
    rows = (
        [escape(row["source"]), marked(row["output"], row["reference"]), escape(row["reference"]), f"{row['chrf']:.0f}"]
        for row in samples
    )
    return table("Worst outputs", (*columns, "chrF"), rows, kind="samples")


def marked(output: str, reference: str) -> str:
    """The output as HTML, with <u> around words that differ from the reference."""
    words, other = output.split(), reference.split()
    parts = []
    for kind, start, end, _, _ in difflib.SequenceMatcher(None, words, other, autojunk=False).get_opcodes():
        text = escape(" ".join(words[start:end]))
        if text:
            parts.append(text if kind == "equal" else f"<u>{text}</u>")
    return " ".join(parts)


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


def _settings(recipe: Recipe) -> str:
    """The settings, those with their default values folded."""
    changed, folded = (
        "".join(
            f'<div class="card"><b>{escape(section)}</b><table>{"".join(rows)}</table></div>'
            for section, values in settings_of(recipe).items()
            if (
                rows := [
                    f'<tr><td class="name">{escape(key)}<td>{escape(text)}'
                    for key, (text, differs) in values.items()
                    if differs is shown
                ]
            )
        )
        for shown in (True, False)
    )
    summary = "<summary>Settings with their default values</summary>"
    folded = f'<details>{summary}<div class="settings">{folded}</div></details>' if folded else ""
    return f'<h2>Settings</h2><div class="settings">{changed}</div>{folded}'


def settings_of(recipe: Recipe) -> dict[str, dict[str, tuple[str, bool]]]:
    """The settings of each section: the value as text, and whether it differs from the default."""
    result = {}
    sections = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(recipe)}
    for name, config in (sections | dict(recipe.sections)).items():
        if dataclasses.is_dataclass(config):
            try:
                default = to_table(type(config)())  # type: ignore[misc]
            except Exception:  # a section without default values
                default = {}
            values = {key: value for key, value in to_table(config).items() if value != ()}
            result[name] = {key: (_readable(value), value != default.get(key)) for key, value in values.items()}
    return result


def _readable(value: Any) -> str:
    """A value as text: lists without brackets, files of a pair joined by a plus sign."""
    if isinstance(value, tuple | list):
        return ", ".join(
            " + ".join(map(_readable, item)) if isinstance(item, tuple | list) else _readable(item) for item in value
        )
    if isinstance(value, dict):
        return ", ".join(f"{key} = {_readable(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)


def _corpus(recipe: Recipe) -> str:
    return ", ".join(" + ".join(Path(name).name for name in files) for files in recipe.data.all_train)
