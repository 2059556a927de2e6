"""Compares runs: one table, whether the best is significantly better, and one page with all curves and translations."""

import json
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from transduce.errors import ConfigError
from transduce.report.page import table, write_page
from transduce.report.report import COLOURS, charts, marked, settings_of
from transduce.report.run import SEARCHES, Run, read_run
from transduce.report.verdict import judge
from transduce.translation.scores import compare, sentence_chrf

_SIDE_BY_SIDE = 8
"""Number of sentences whose translations are shown side by side."""
_SIGNIFICANT = 0.05
Rows = list[tuple[str, list[str]]]


Outputs = list[tuple[str, str, list[str]]]
"""Source and reference of each validation sentence, and what the finished model of each run made of it."""


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read the runs, each with a name of its own."""
    if len(paths) > len(COLOURS):
        raise ConfigError(f"at most {len(COLOURS)} runs are compared at once, not {len(paths)}")
    runs = [read_run(path) for path in paths]
    if len({run.name for run in runs}) < len(runs):
        runs = [replace(run, name=str(path)) for path, run in zip(paths, runs, strict=True)]
    return runs


def figures(runs: Sequence[Run]) -> Rows:
    """Rows of the table: a name, and the value of each run; "-" if it has none. The best of a row have a star."""
    rows: Rows = []
    for name in dict.fromkeys(name for run in runs for name in run.figures):
        found = [run.figures.get(name) for run in runs]
        ordered = sorted((figure.order, figure.text) for figure in found if figure and figure.order is not None)
        best = ordered[-1][1] if ordered and ordered[0][1] != ordered[-1][1] else None
        rows.append((name, [_cell(figure.text, best) if figure else "-" for figure in found]))
    verdicts = [judge(run) for run in runs]
    return [*rows, ("verdict", [verdict.kind if verdict else "-" for verdict in verdicts])]


def _cell(text: str, best: str | None) -> str:
    return f"{text} ★" if text == best else text


def different_settings(runs: Sequence[Run]) -> Rows:
    """The settings in which the runs differ, with the value of each; "-" if it has none.

    A setting that only some of the runs have, such as a size of one architecture, is listed if one of them changed it.
    """
    settings = [
        {"task": (run.recipe.task, False)}
        | {f"{section}.{key}": value for section, of in settings_of(run.recipe).items() for key, value in of.items()}
        for run in runs
    ]
    rows: Rows = []
    for name in dict.fromkeys(name for of_run in settings for name in of_run):
        found = [of_run.get(name) for of_run in settings]
        texts = [value[0] if value else "-" for value in found]
        changed = any(value and value[1] for value in found)
        if len(set(texts if changed else [value[0] for value in found if value])) > 1:
            rows.append((name, texts))
    return rows


def read_outputs(runs: Sequence[Run]) -> Outputs | str:
    """The outputs of the finished models, or the reason why they cannot be compared."""
    if not all(run.task.translates for run in runs):
        return "only translations can be tested"
    columns = []
    for run in runs:
        try:
            lines = (run.folder / "outputs.jsonl").read_text(encoding="utf-8").split("\n")[:-1] if run.final else []
            samples = [json.loads(line) for line in lines]
            columns.append([(str(row["source"]), str(row["reference"]), str(row["output"])) for row in samples])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            columns.append([])
        if not columns[-1]:
            return f"{run.name} has no translations of a finished model (outputs.jsonl)"
    if any([pair[:2] for pair in column] != [pair[:2] for pair in columns[0]] for column in columns):
        return "the runs have scored different validation sentences"
    return [(*row[0][:2], [output for _, _, output in row]) for row in zip(*columns, strict=True)]


def significance(runs: Sequence[Run], outputs: Outputs | str) -> str:
    """Which run has the best translations, and to which others the difference is significant; as a sentence."""
    if len(runs) < 2 or isinstance(outputs, str):
        return f"No test of significance: {outputs}." if len(runs) > 1 else ""
    tokenizers = {str(run.valid[-1].get("tokenizer", "auto")) if run.valid else "auto" for run in runs}
    alike = len(tokenizers) == 1 and "+" not in min(tokenizers)  # a mean over languages has several tokenizers
    metric, tokenizer = ("BLEU", min(tokenizers)) if alike else ("chrF2", "auto")
    order = sorted(range(len(runs)), key=lambda n: -(runs[n].final or {}).get("valid_bleu", 0.0))
    systems = {str(n): [texts[n] for _, _, texts in outputs] for n in order}  # names may be alike
    tested, _ = compare(systems, [reference for _, reference, _ in outputs], tokenize=tokenizer, only=metric)
    clauses = []
    for result in tested:
        if result.p_value is not None:
            is_significant = result.p_value < _SIGNIFICANT
            relation = f"{'significantly' if is_significant else 'not significantly'} better than"
            figures = f"{metric} {result.value:.2f}, p = {result.p_value:.3f}"
            if result.value == tested[0].value:
                relation, figures = "as good as", f"{metric} {result.value:.2f}"
            clauses.append(f"{relation} {runs[int(result.system)].name} ({figures})")
    return (
        f"{runs[order[0]].name} ({metric} {tested[0].value:.2f}) is {' and '.join(clauses)}, by paired bootstrap "
        f"resampling of {len(outputs):,} validation sentences."
    )


def write_comparison(path: Path, runs: Sequence[Run]) -> None:
    """Write a page with the curves of all runs, which needs no network."""
    names, outputs = [run.name for run in runs], read_outputs(runs)
    verdict = significance(runs, outputs)
    shown = [[escape(name), *map(escape, values)] for name, values in figures(runs)]
    settings = [[escape(name), *map(escape, values)] for name, values in different_settings(runs)]
    body = [
        f"<h1>{escape(' and '.join(names))}</h1>",
        f'<div class="card verdict calm">{escape(verdict)}</div>' if verdict else "",
        table("Figures", ["figure", *names], shown, SEARCHES),
        _side_by_side(names, outputs) if isinstance(outputs, list) and len(runs) > 1 else "",
        '<h2>Training</h2><div class="charts">',
        *charts(runs),
        "</div>",
        table("Settings that differ", ["setting", *names], settings),
    ]
    write_page(path, " and ".join(names), "".join(body))


def _side_by_side(names: Sequence[str], outputs: Outputs) -> str:
    """The sentences whose translations differ most, by their chrF."""
    references = [reference for _, reference, _ in outputs]
    of_runs = [sentence_chrf([texts[n] for _, _, texts in outputs], references) for n in range(len(names))]
    scores = list(zip(*of_runs, strict=True))
    order = sorted(range(len(scores)), key=lambda index: min(scores[index]) - max(scores[index]))
    rows = []
    for index in order[:_SIDE_BY_SIDE]:
        source, reference, texts = outputs[index]
        best = f"{max(scores[index]):.0f}" if max(scores[index]) > min(scores[index]) else None
        cells = (
            f"{marked(text, reference) or '(empty)'} <span class=score>(chrF {_cell(f'{score:.0f}', best)})</span>"
            for text, score in zip(texts, scores[index], strict=True)
        )
        rows.append([escape(source), *cells, escape(reference)])
    note = "The sentences whose chrF differs most; words that the reference does not have there are underlined."
    return table("Translations side by side", ["source", *names, "reference"], rows, note, "samples")
