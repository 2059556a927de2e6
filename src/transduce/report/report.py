"""`report.html`: charts, samples and settings of a run in one file that needs no network."""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from transduce.config import to_table
from transduce.files.readers import READERS
from transduce.report.charts import Point, Series, heat_map, line_chart
from transduce.report.page import write_page
from transduce.training.display import clock_time
from transduce.training.metrics import Metrics, Record, points_of
from transduce.training.recipe import Recipe
from transduce.training.task import TASKS, Task

_STEPS = 6
"""Number of steps at which the output of a sample is shown."""
_CONFUSION_CLASSES = 30
_NAMES = {"bleu": "BLEU", "chrf": "chrF"}


def settings_of(recipe: Recipe) -> str:
    """The settings as HTML."""
    changed, defaults = [], []
    for name, values, default in _sections(recipe):
        different = {key: value for key, value in values.items() if value != default.get(key)}
        rest = {key: value for key, value in values.items() if key not in different}
        changed += [_card(name, different)] if different else []
        defaults += [_card(name, rest)] if rest else []
    summary = "<summary>Settings with their default values</summary>"
    folded = f'<details>{summary}<div class="settings">{"".join(defaults)}</div></details>' if defaults else ""
    return f'<h2>Settings</h2><div class="settings">{"".join(changed)}</div>{folded}'


def all_settings(recipe: Recipe) -> dict[str, str]:
    """The task and every setting, as "section.key" and text."""
    sections = {
        f"{name}.{key}": readable(value) for name, values, _ in _sections(recipe) for key, value in values.items()
    }
    return {"task": recipe.task, **sections}


def changed_settings(recipe: Recipe) -> dict[str, str]:
    """The settings that differ from the defaults, as "section.key" and text."""
    return {
        f"{name}.{key}": readable(value)
        for name, values, default in _sections(recipe)
        for key, value in values.items()
        if value != default.get(key)
    }


def readable(value: Any) -> str:
    """A value as text: lists without brackets, files of a pair joined by a plus sign."""
    if isinstance(value, tuple | list):
        return ", ".join(
            " + ".join(map(readable, item)) if isinstance(item, tuple | list) else readable(item) for item in value
        )
    if isinstance(value, dict):
        return ", ".join(f"{key} = {readable(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)


def _sections(recipe: Recipe) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, values and default values of each section."""
    sections = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(recipe)}
    for name, config in (sections | dict(recipe.sections)).items():
        if dataclasses.is_dataclass(config):
            try:
                default = to_table(type(config)())  # type: ignore[misc]
            except Exception:  # a section without default values
                default = {}
            values = {key: value for key, value in to_table(config).items() if value != ()}
            yield name, values, default


def _card(name: str, values: dict[str, Any]) -> str:
    rows = "".join(f'<tr><td class="name">{escape(key)}<td>{escape(readable(value))}' for key, value in values.items())
    return f'<div class="card"><b>{escape(name)}</b><table>{rows}</table></div>'


def samples_over_time(records: Sequence[Record], title: str, columns: tuple[str, str, str]) -> str:
    """A table of samples: source, the output at several validations, the reference."""
    with_samples = [record for record in records if record.get("samples")]
    if not with_samples:
        return ""
    newest = with_samples[-1]["samples"]
    gap = max(1, -(-(len(with_samples) - 1) // (_STEPS - 1)))
    chosen = [*with_samples[:-1:gap], with_samples[-1]]
    rows = []
    for index, sample in enumerate(newest):
        outputs: dict[str, str] = {}
        for record in chosen:
            same = [shown for shown in record["samples"][index : index + 1] if shown["source"] == sample["source"]]
            for shown in same:
                name = "finished model" if record["kind"] == "final" else f"step {record['step']:,}"
                outputs[name] = shown["output"]
        lines = "".join(
            f"<div><span class=soft>{name}</span> {marked(text, sample['reference'])}</div>"
            for name, text in outputs.items()
        )
        rows.append(f"<tr><td>{escape(sample['source'])}<td>{lines}<td>{escape(sample['reference'])}")
    head = "<tr>" + "".join(f"<th>{column}" for column in columns)
    note = '<p class="soft">Words that the reference does not have, or has in another place, are underlined.</p>'
    return f'<h2>{title}</h2>{note}<div class="card wide samples"><table>{head}{"".join(rows)}</table></div>'


def worst_samples(records: Sequence[Record], columns: tuple[str, str, str]) -> str:
    """A table of the outputs of the finished model that are least like their references."""
    worst = records[-1].get("worst", []) if records else []
    rows = "".join(
        f"<tr><td>{escape(sample['source'])}<td>{marked(sample['output'], sample['reference'])}"
        f"<td>{escape(sample['reference'])}<td>{sample['chrf']:.0f}"
        for sample in worst
    )
    head = "<tr>" + "".join(f"<th>{column}" for column in (*columns, "chrF"))
    return f'<h2>Worst outputs</h2><div class="card wide samples"><table>{head}{rows}</table></div>' if rows else ""


def marked(output: str, reference: str) -> str:
    """The output as HTML, with <u> around words that differ from the reference."""
    words, other = output.split(), reference.split()
    parts = []
    for kind, start, end, _, _ in difflib.SequenceMatcher(None, words, other, autojunk=False).get_opcodes():
        text = escape(" ".join(words[start:end]))
        if text:
            parts.append(text if kind == "equal" else f"<u>{text}</u>")
    return " ".join(parts)


def write_report(path: Path, recipe: Recipe, metrics: Metrics, picture: dict[str, Any] | None = None) -> None:
    """Write the report of all measurements so far."""
    train, valid, task = metrics.of("train"), metrics.of("valid"), TASKS[recipe.task]
    final = [record for record in metrics.of("final") if record["step"] == train[-1]["step"]] if train else []
    body = [
        f"<h1>{escape(path.parent.name)}</h1>",
        f'<div class="soft">Trained by transduce on {escape(_corpus(recipe))}</div>',
        _facts(train, valid, final, task),
        _about(metrics.of("start")),
        '<h2>Training</h2><div class="charts">',
        *charts(train, valid, task),
        "</div>",
        _files((final or valid)[-1:]),
        _confusion((final or valid)[-1:]),
        samples_over_time([*valid, *final], *task.samples),
        worst_samples(final, task.samples[1]),
        _attention(picture),
        settings_of(recipe),
    ]
    write_page(path, path.parent.name, "".join(body))


def charts(train: list[Record], valid: list[Record], task: type[Task]) -> Iterator[str]:
    """The charts of a run."""
    score = task.score_name
    names = {score.lower(): score, **task.figures}
    names.pop("loss", None)  # it has a chart already
    best = next((record["best_step"] for record in valid[-1:] if "best_step" in record), None)
    losses = [Series("train", points_of(train, "loss"), "a"), Series("valid", points_of(valid, "loss"), "b")]
    yield line_chart("Loss", losses, log=True, best=best)
    for key, name in names.items():
        yield line_chart(f"{name} on the validation set", [Series(name, points_of(valid, key), "b")], best=best)
    rate = [Series("learning rate", points_of(train, "learning_rate"), "a")]
    yield line_chart("Learning rate", rate, "{:.3g}".format, log=True)
    yield line_chart("Gradient norm", [Series("norm", points_of(train, "grad_norm"), "a")], "{:.3g}".format, log=True)
    yield line_chart("Speed", [Series(_tokens(task), speeds(train), "a")], "{:,.0f}".format)
    yield line_chart("Peak memory", [Series("GB", points_of(train, "memory_gb"), "a")], "{:.3g}".format)


def speeds(train: list[Record]) -> list[Point]:
    """The speed over the steps, without intervals of few steps: what they measure is not the speed of training."""
    points = points_of(train, "tokens_per_second")
    sizes = [step - before for (before, _), (step, _) in zip([(0.0, 0.0), *points], points, strict=False)]
    usual = sorted(sizes)[len(sizes) // 2] if sizes else 0
    return [point for point, size in zip(points, sizes, strict=True) if 2 * size >= usual]


def _tokens(task: type[Task]) -> str:
    """What the speed of training counts."""
    return "target tokens/s" if READERS[task.reader].has_translations else "tokens/s"


def _facts(train: list[Record], valid: list[Record], final: list[Record], task: type[Task]) -> str:
    """The most important figures, scores first."""
    facts, score = [], task.score_name
    if final:
        digits = 1 if READERS[task.reader].has_translations else 3
        for key, name in {score.lower(): score, **task.figures}.items():
            if f"valid_{key}" in final[-1]:
                value = f"{final[-1][f'valid_{key}']:.{digits}f}"
                facts.append((f"{name} of the finished model, validation set", value))
        facts.append(("perplexity of the finished model, validation set", f"{final[-1]['valid_perplexity']:.2f}"))
    elif valid:
        facts.append(("validation perplexity", f"{valid[-1]['perplexity']:.2f}"))
    for record in valid[-1:]:
        if "criterion" in record:
            by = "lowest loss" if record["criterion"] == "loss" else f"highest {_NAMES.get(record['criterion'], score)}"
            facts.append((f"step of the best checkpoint, by the {by}", f"{record['best_step']:,}"))
    if train:
        facts.append(("steps", f"{train[-1]['step']:,}"))
        facts += [("training loss", f"{loss:.3f}") for _, loss in points_of(train, "loss")[-1:]]
        facts += [(_tokens(task), f"{speed:,.0f}") for _, speed in speeds(train)[-1:]]
        facts += [("training time", clock_time(record["seconds"])) for record in train[-1:] if "seconds" in record]
    return f'<div class="facts">{"".join(f"<div class=fact><b>{value}</b>{name}</div>" for name, value in facts)}</div>'


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
    table = "".join(f'<tr><td class="name">{name}<td>{escape(value)}' for name, value in rows.items())
    command = f"<pre>{escape(last['command'])}</pre>" if last["command"] else ""
    return f'<div class="card wide about"><table>{table}</table>{command}</div>'


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


def _confusion(records: list[Record]) -> str:
    """The confusion matrix of a classifier, unless it has too many classes for a table."""
    table = next((record["confusion"] for record in records if "confusion" in record), None)
    if table is None or len(table["labels"]) > _CONFUSION_CLASSES:
        return ""
    head = "<tr><th>class / predicted" + "".join(f"<th>{escape(label)}" for label in table["labels"])
    rows = "".join(
        f"<tr><td>{escape(label)}" + "".join(f"<td>{count:,}" for count in counts)
        for label, counts in zip(table["labels"], table["counts"], strict=True)
    )
    return f'<h2>Confusion matrix</h2><div class="card wide"><table>{head}{rows}</table></div>'


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


def _corpus(recipe: Recipe) -> str:
    return ", ".join(" + ".join(Path(name).name for name in files) for files in recipe.data.all_train)
