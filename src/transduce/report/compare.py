"""Compares runs: one table, whether the best is significantly better, and one page with all curves and translations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from transduce.errors import ConfigError
from transduce.report.page import table, write_page
from transduce.report.report import COLOURS, charts, marked, settings_of
from transduce.report.run import Run, read_run
from transduce.report.verdict import judge
from transduce.translation.scores import compare, sentence_chrf

_SIDE_BY_SIDE = 8
"""Number of sentences whose translations are shown side by side."""
_SIGNIFICANT = 0.05
Rows = list[tuple[str, list[str]]]


@dataclass(frozen=True)
class Outputs:
    """What the finished models of all runs made of the same validation sentences."""

    sources: list[str]
    references: list[str]
    by_run: dict[str, list[str]]


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
        ordered = sorted((figure for figure in found if figure and figure.best), key=lambda figure: figure.order)
        best = ordered[-1].text if ordered and ordered[0].text != ordered[-1].text else None
        rows.append((name, [_cell(figure.text, best) if figure else "-" for figure in found]))
    verdicts = [judge(run) for run in runs]
    return [*rows, ("verdict", [verdict.kind if verdict else "-" for verdict in verdicts])]


def _cell(text: str, best: str | None) -> str:
    return f"{text} ★" if text == best else text


def different_settings(runs: Sequence[Run]) -> Rows:
    """The settings in which the runs differ, with the value of each; "-" if it has none.

    A setting that only some of the runs have, such as a size of one architecture, is listed if one of them changed it.
    """
    settings = [{name: value for name, value, _ in settings_of(run.recipe)} for run in runs]
    changed = {name for run in runs for name, _, differs in settings_of(run.recipe) if differs}
    rows = []
    for name in dict.fromkeys(name for settings_of_run in settings for name in settings_of_run):
        values = [settings_of_run.get(name) for settings_of_run in settings]
        considered = values if name in changed else [value for value in values if value is not None]
        if len(set(considered)) > 1:
            rows.append((name, ["-" if value is None else value for value in values]))
    return rows


def read_outputs(runs: Sequence[Run]) -> Outputs | str:
    """The outputs of the finished models, or the reason why they cannot be compared."""
    if not all(run.task.translates for run in runs):
        return "only translations are compared with one another"
    read = []
    for run in runs:
        try:
            lines = (run.folder / "outputs.jsonl").read_text(encoding="utf-8").splitlines()
            samples = [json.loads(line) for line in lines] if run.final else []
            read.append([(sample["source"], sample["reference"], sample["output"]) for sample in samples])
        except (OSError, ValueError, KeyError, TypeError):
            read.append([])
    if missing := [run.name for run, samples in zip(runs, read, strict=True) if not samples]:
        return f"{missing[0]} has no translations of a finished model (outputs.jsonl)"
    pairs = [[sample[:2] for sample in samples] for samples in read]
    if any(other != pairs[0] for other in pairs):
        return "the runs have scored different validation sentences"
    sources, references = map(list, zip(*pairs[0], strict=True))
    outputs = {run.name: [sample[2] for sample in samples] for run, samples in zip(runs, read, strict=True)}
    return Outputs(sources, references, outputs)


def significance(runs: Sequence[Run], outputs: Outputs | str) -> str:
    """Which run has the best translations, and to which others the difference is significant; as a sentence."""
    if len(runs) < 2:
        return ""
    if isinstance(outputs, str):
        return f"No test of significance: {outputs}."
    tokenizers = {str(run.valid[-1].get("tokenizer", "auto")) if run.valid else "auto" for run in runs}
    alike = len(tokenizers) == 1 and "+" not in min(tokenizers)  # a mean over languages has several tokenizers
    metric, chosen = ("BLEU", min(tokenizers)) if alike else ("chrF2", "auto")

    score = f"valid_{next(iter(runs[0].scores))}"
    best, *others = sorted(runs, key=lambda run: -(run.final or {}).get(score, 0.0))
    systems = {run.name: outputs.by_run[run.name] for run in (best, *others)}
    tested, _ = compare(systems, outputs.references, tokenize=chosen, only=metric)
    clauses = [
        f"{'significantly' if result.p_value < _SIGNIFICANT else 'not significantly'} better than {result.system} "
        f"({metric} {result.value:.2f}, p = {result.p_value:.3f})"
        for result in tested
        if result.p_value is not None
    ]
    return (
        f"{best.name} ({metric} {tested[0].value:.2f}) is {' and '.join(clauses)}, by paired bootstrap resampling of "
        f"{len(outputs.references):,} validation sentences."
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
        table("Figures", ["", *names], shown),
        _side_by_side(outputs) if isinstance(outputs, Outputs) and len(runs) > 1 else "",
        '<h2>Training</h2><div class="charts">',
        *charts(runs),
        "</div>",
        table("Settings that differ", ["", *names], settings),
    ]
    write_page(path, " and ".join(names), "".join(body))


def _side_by_side(outputs: Outputs) -> str:
    """The sentences whose translations differ most, by their chrF."""
    systems, references = list(outputs.by_run.values()), outputs.references
    scores = [sentence_chrf(texts, references) for texts in systems]
    spread = [max(column) - min(column) for column in zip(*scores, strict=True)]
    order = sorted((index for index in range(len(spread)) if spread[index]), key=lambda index: -spread[index])
    rows = []
    for index in order[:_SIDE_BY_SIDE]:
        values = [f"{of_run[index]:.0f}" for of_run in scores]
        best = f"{max(of_run[index] for of_run in scores):.0f}"
        cells = (
            f"{marked(texts[index], references[index])} <span class=soft>(chrF {_cell(value, best)})</span>"
            for texts, value in zip(systems, values, strict=True)
        )
        rows.append([escape(outputs.sources[index]), *cells, escape(references[index])])
    note = "The sentences whose chrF differs most; words that the reference does not have there are underlined."
    return table("Translations side by side", ["source", *outputs.by_run, "reference"], rows, note, "samples")
