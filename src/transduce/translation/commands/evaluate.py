"""`transduce evaluate`."""

import json
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transduce.cli.messages import announce, describe_engine, log
from transduce.cli.options import (
    DeviceOption,
    EngineOption,
    EnsembleOption,
    FromOption,
    JsonOption,
    MbrOption,
    ReverseOption,
    ThreadsOption,
    ToOption,
    scored_together,
    search_options,
)
from transduce.search.options import SINGLE_OUTPUT_OPTIONS, SearchOptions
from transduce.translation.bleu_tokenizer import BleuTokenizer

if TYPE_CHECKING:
    from transduce.translation.scores import Comparison
    from transduce.translation.translator import Translator


@search_options(*SINGLE_OUTPUT_OPTIONS)
def evaluate(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            help="A run or a model folder; several are compared.",
            show_default="without --hyp: the bundled model",
        ),
    ] = None,
    ensemble: EnsembleOption = False,
    src: Annotated[Path | None, typer.Option(help="Text for the model to translate.")] = None,
    ref: Annotated[
        list[Path] | None,
        typer.Option(help="Reference translations, line by line; repeat it for several of each line."),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Instead of --src and --ref: both in one .tsv or .jsonl; for a parser, trees.")
    ] = None,
    hyp: Annotated[list[Path] | None, typer.Option(help="Translations to score; several are compared.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write the model's translations to.")] = None,
    tokenize: Annotated[
        BleuTokenizer,
        typer.Option(
            help="BLEU's tokenizer, one of sacreBLEU's, e.g. char; auto: by the language or script of the references.",
            metavar="NAME",
        ),
    ] = "auto",
    to: ToOption = None,
    from_: FromOption = None,
    reverse: ReverseOption = None,
    *,
    options: SearchOptions,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
    mbr: MbrOption = False,
    as_json: JsonOption = False,
) -> None:
    """Score translations with BLEU, chrF and TER (sacreBLEU), or the trees of a parser with labelled bracketing F1.

    A classifier is scored with accuracy, macro F1 and the confusion matrix; a speech model with the word error rate.

    Several systems are compared by paired bootstrap resampling. A search option that is not given has the value stored
    with the model, usually the default shown here.
    """
    with announce("loading PyTorch"):
        from transduce.classification.evaluate import evaluate_classes
        from transduce.cli.outputs import refuse_overwriting, require_line_output
        from transduce.errors import ConfigError
        from transduce.files.files import read_lines
        from transduce.files.formats import require_one_side
        from transduce.models.card import find_model, read_card
        from transduce.parsing.evaluate import evaluate_trees
        from transduce.speech.evaluate import evaluate_speech
        from transduce.translation.bleu_tokenizer import DEFAULT, choose_tokenizer, load_tokenizer
        from transduce.translation.commands.direction import evaluated_direction
        from transduce.translation.scores import compare, score
        from transduce.translation.translator import Translator, require_translation_model

    if reverse is not None and not test:
        raise ConfigError("--reverse is for --test, which has two sides; --src and --ref name the sides themselves")
    hyp = hyp or []
    if out:
        require_line_output(out)
        refuse_overwriting(out, [*([src] if src else []), *([test] if test else []), *(ref or []), *hyp])
    models: list[Path | None] = [*model] if model else [] if hyp else [None]  # None is the bundled model
    if len({*map(str, models), *map(str, hyp)}) < len(models) + len(hyp):
        raise ConfigError("the same model or file is given twice")
    folders = [find_model(path) for path in models]
    members = scored_together(folders, ensemble)
    if models and not (src or test):
        raise ConfigError(
            "there is nothing to score; give translations with --hyp, or text for the model to translate with --src "
            "(--test has both sides)"
        )
    cards = [read_card(folder) for folder in folders]
    tasks = {card["facts"].get("task", "translate") for card in cards}
    others = {"--tokenize": tokenize != "auto", "--to": to, "--from": from_, "--engine": engine != "auto"}
    for task in tasks or {None}:
        _require_effect(task, options, [name for name, given in others.items() if given])
    if "parse" in tasks:
        if not test or src or ref or hyp:
            raise ConfigError("a parser is evaluated with trees: give --test with a file of trees, and nothing else")
        if out and len(members) != 1:
            raise ConfigError(f"--out is for the trees of one model, not of {len(members)}")
        return evaluate_trees(members, test, out, device, threads, as_json, mbr, **options)
    if mbr:
        raise ConfigError("--mbr has an effect on parsers only; leave it out")
    if "transcribe" in tasks:
        if len(folders) != 1 or not test or src or ref or hyp or out:
            raise ConfigError("a speech model is evaluated by itself: give --test with a .tsv of sound files and texts")
        return evaluate_speech(folders[0], test, device, threads, as_json, **options)
    if "classify" in tasks:
        if len(folders) != 1 or hyp or out or (test is None) != (src is not None and len(ref or []) == 1):
            raise ConfigError(
                "a classifier is evaluated by itself, with labelled texts or images: give --test, or --src and --ref "
                "with images and labels as IDX files"
            )
        files = (str(test),) if test else (str(src), str((ref or [])[0]))
        return evaluate_classes(folders[0], files, device, threads, as_json)
    for card, folder in zip(cards, folders, strict=True):
        require_translation_model(card["facts"], folder)
    directions = [evaluated_direction(card["facts"], test, from_, to, reverse) for card in cards]
    if len({direction.reverse for direction in directions}) > 1:
        raise ConfigError("the models translate in opposite directions; give --reverse or --no-reverse")
    if len(targets := {direction.target for direction in directions} - {None}) > 1:
        raise ConfigError(f"the models translate to different languages: {', '.join(sorted(map(str, targets)))}")
    is_reversed = directions[0].reverse if directions else bool(reverse)
    for one_side in (*([src] if src else []), *(ref or []), *hyp):
        require_one_side(one_side)
    sources, references = _test_set(src, ref or [], test, is_reversed)
    if out and len(members) != 1:
        raise ConfigError(f"--out is for the translations of one model, not of {len(members)}")
    languages = (direction.target for direction in directions)
    tokenizer = choose_tokenizer(tokenize, next(filter(None, languages), to), chain.from_iterable(references))
    load_tokenizer(tokenizer, "--tokenize ")  # before the text is translated, which may take long
    if tokenize == "auto" and tokenizer.name != DEFAULT:
        log(f"BLEU with sacreBLEU's tokenizer {tokenizer}")
    chosen: dict[str, Any] = {"tokenize": tokenizer.name, "language": tokenizer.language}
    systems, engines = {}, {}
    names = [" + ".join(map(str, models))] if ensemble else [str(path) for path in models]
    for name, group, direction in zip(names, members, directions[: len(members)], strict=True):
        translator = Translator.load(group, device=device, engine=engine, threads=threads, **options)
        engines[name] = describe_engine(translator)
        log(f"{' + '.join(map(str, group))}: {direction.describe(test)}engine {engines[name]}")
        systems[name] = _translate(translator, sources or [], direction.target if translator.tagged else None, out)
    systems |= {str(path): list(read_lines(path)) for path in hyp}
    if len(systems) == 1:
        ((name, lines),) = systems.items()
        scores = score(lines, references, name, **chosen)
        if as_json:
            used = {"engine": engines[name]} if engines else {}
            print(json.dumps([asdict(one) | used for one in scores], indent=1))
        for one in [] if as_json else scores:
            print(f"{one.metric:<6}{one.value:6.2f}   {one.signature}")
        return
    comparisons, signatures = compare(systems, references, **chosen)
    if as_json:
        table = {"comparisons": [asdict(one) for one in comparisons], "signatures": signatures, "engines": engines}
        print(json.dumps(table, indent=1))
    else:
        _print_comparison(comparisons, signatures)


def _require_effect(task: str | None, options: SearchOptions, others: list[str]) -> None:
    """Raise an error for an option without effect on models of this task, or, if it is None, if no model runs.

    `others` are the given options, besides those of the search, that are for models that translate.
    """
    from transduce.errors import ConfigError
    from transduce.speech.command import OPTIONS as OF_SPEECH

    searched = {None: (), "classify": (), "transcribe": OF_SPEECH}.get(task, SINGLE_OUTPUT_OPTIONS)
    unused = [f"--{name.replace('_', '-')}" for name in options if name not in searched]
    unused += others if task in ("classify", "parse", "transcribe") else []
    if unused:
        reason = f"on a model of the task {task}" if task else "on translations that are given with --hyp"
        raise ConfigError(f"{unused[0]} has no effect {reason}; leave it out")


def _test_set(
    src: Path | None, refs: list[Path], test: Path | None, reverse: bool
) -> tuple[list[str] | None, list[list[str]]]:
    """The sources, if there are any, and the lines of each reference."""
    from transduce.errors import ConfigError
    from transduce.files.files import read_lines
    from transduce.files.formats.tsv import HEADER
    from transduce.files.pairs import ReadReport, read_pairs

    if test:
        if src or refs:
            raise ConfigError("--test has both sides; give either --test, or --src and --ref")
        report = ReadReport()
        pairs = list(read_pairs([(str(test),)], report, reverse=reverse))
        if report.left_out.keys() - {HEADER}:
            raise ConfigError(f"{test} cannot be a test set: {'; '.join(report.lines())}")
        for line in report.lines():
            log(line)
        return [source for source, _ in pairs], [[target for _, target in pairs]]
    if not refs:
        raise ConfigError("there are no reference translations; give --ref, or --test with both sides")
    sources = list(read_lines(src)) if src else None
    references = [list(read_lines(ref)) for ref in refs]
    files = [*([(src, sources)] if sources is not None else []), *zip(refs, references, strict=True)]
    (first, lines), *others = files
    for path, other in others:
        if len(other) != len(lines):
            counts = f"{first} has {len(lines):,} lines, {path} {len(other):,}"
            raise ConfigError(f"{counts}; they must match line by line")
    return sources, references


def _translate(translator: "Translator", sources: list[str], to: str | None, out: Path | None) -> list[str]:
    from transduce.cli.inputs import count_lines
    from transduce.translation.commands.translate_progress import Progress

    outputs = []
    with Progress(lambda: count_lines(sources), 0, hidden=False) as progress:
        for best in translator.stream(sources, to=to, text_done=progress.advance):
            outputs.append(best[0].text)
    if out:
        out.write_text("".join(output.replace("\n", " ") + "\n" for output in outputs), encoding="utf-8")
    return outputs


def _print_comparison(comparisons: "list[Comparison]", signatures: list[str]) -> None:
    from transduce.translation.scores import LOWER_IS_BETTER

    baselines = {}
    for one in comparisons:
        line = f"{one.metric:<6}{one.value:6.2f}  ({one.mean:.2f} ± {one.half_width:.2f})  {one.system}"
        if one.p_value is None:
            baselines[one.metric] = one
            print(f"{line}  (baseline)")
            continue
        gain = (one.value - baselines[one.metric].value) * (-1 if one.metric in LOWER_IS_BETTER else 1)
        significance = "significantly" if one.p_value < 0.05 else "not significantly"
        verdict = f"{'better' if gain > 0 else 'worse'}, {significance} (p = {one.p_value:.4f})" if gain else "equal"
        print(f"{line}  {verdict}")
    print()
    print("paired bootstrap resampling; ± is the 95% confidence interval")
    for signature in signatures:
        print(signature)
