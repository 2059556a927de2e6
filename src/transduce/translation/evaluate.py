"""`transduce evaluate` for translation: BLEU, chrF and TER of a system, or a comparison of several."""

import json
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from transduce.cli.evaluate import Evaluation
from transduce.cli.inputs import count_lines
from transduce.cli.messages import log
from transduce.cli.progress import ProgressBar
from transduce.errors import ConfigError
from transduce.files.files import read_lines
from transduce.files.pair_formats import EMPTY, HEADER, require_one_side
from transduce.files.pairs import ReadReport, read_pairs, split_context
from transduce.search.options import SINGLE_OUTPUT_OPTIONS
from transduce.training.train_config import DEFAULT_BLEU_TOKENIZER
from transduce.translation.commands.direction import evaluated_direction
from transduce.translation.scores import LOWER_IS_BETTER, Comparison, choose_tokenizer, compare, load_tokenizer, score
from transduce.translation.translator import Translator, require_translation_model


def evaluate_translations(request: Evaluation) -> None:
    """Translate a test set with each system, and print its scores and those of the translations that are given."""
    request.require_effect(*(SINGLE_OUTPUT_OPTIONS if request.models else ()), "tokenize", "to", "from", "engine")
    for facts, folder in zip(request.facts, request.folders, strict=True):
        require_translation_model(facts, folder)
    test, systems = request.test, request.systems
    directions = [
        evaluated_direction(facts, test, request.source, request.to, request.reverse) for facts in request.facts
    ]
    if len({direction.reverse for direction in directions}) > 1:
        raise ConfigError("the models translate in opposite directions; give --reverse or --no-reverse")
    if len(targets := {direction.target for direction in directions} - {None}) > 1:
        raise ConfigError(f"the models translate to different languages: {', '.join(sorted(map(str, targets)))}")
    is_reversed = directions[0].reverse if directions else bool(request.reverse)
    for file in (*([request.src] if request.src else []), *request.refs, *request.hyps):
        require_one_side(file)
    contexts, sources, references = _test_set(request, is_reversed)
    if request.out and len(systems) != 1:
        raise ConfigError(f"--out is for the translations of one model, not of {len(systems)}")
    languages = (direction.target for direction in directions)
    language = next(filter(None, languages), request.to)
    tokenizer = choose_tokenizer(request.tokenize, language, chain.from_iterable(references))
    load_tokenizer(tokenizer, "--tokenize ")  # before the text is translated, which may take long
    if request.tokenize == "auto" and tokenizer.name != DEFAULT_BLEU_TOKENIZER:
        log(f"BLEU with sacreBLEU's tokenizer {tokenizer}")
    outputs, engines, searches = {}, {}, {}
    ensemble = len(systems) < len(request.models)
    names = [" + ".join(map(str, request.models))] if ensemble else [str(path) for path in request.models]
    for name, folders, direction in zip(names, systems, directions[: len(systems)], strict=True):
        translator = Translator.load(
            folders, device=request.device, engine=request.engine, threads=request.threads, **request.search
        )
        engines[name] = translator.describe_engine()
        searches[name] = translator.config.name
        log(f"{' + '.join(map(str, folders))}: {direction.describe(test)}{searches[name]}, engine {engines[name]}")
        target = direction.target if translator.tagged else None
        outputs[name] = _translate(translator, sources or [], contexts, target, request.out)
    outputs |= {str(path): list(read_lines(path)) for path in request.hyps}
    chosen: dict[str, Any] = {"tokenize": tokenizer.name, "language": tokenizer.language}
    if len(outputs) == 1:
        ((name, lines),) = outputs.items()
        scores = score(lines, references, name, **chosen)
        if request.as_json:
            used = {"engine": engines[name], "search": searches[name]} if engines else {}
            print(json.dumps([asdict(result) | used for result in scores], indent=1))
        for result in [] if request.as_json else scores:
            print(f"{result.metric:<6}{result.value:6.2f}   {result.signature}")
        return
    comparisons, signatures = compare(outputs, references, **chosen)
    if request.as_json:
        table: dict[str, Any] = {"comparisons": list(map(asdict, comparisons)), "signatures": signatures}
        table |= {"engines": engines, "searches": searches}
        print(json.dumps(table, indent=1))
    else:
        _print_comparison(comparisons, signatures)


def _test_set(request: Evaluation, reverse: bool) -> tuple[list[str], list[str] | None, list[list[str]]]:
    """The text before each source, the sources, if there are any, and the lines of each reference."""
    src, refs, test = request.src, request.refs, request.test
    if test:
        if src or refs:
            raise ConfigError("--test has both sides; give either --test, or --src and --ref")
        report = ReadReport()
        context = any(facts.get("context") for facts in request.facts)
        pairs = list(read_pairs([(str(test),)], report, reverse=reverse, context=context))
        if report.left_out.keys() - {HEADER, *([EMPTY] if context else [])}:
            raise ConfigError(f"{test} cannot be a test set: {'; '.join(report.lines())}")
        for line in report.lines():
            log(line)
        contexts, texts = split_context([source for source, _ in pairs])
        return contexts, texts, [[target for _, target in pairs]]
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
    return ["", *(sources or [])], sources, references


def _translate(
    translator: Translator, sources: list[str], contexts: list[str], to: str | None, out: Path | None
) -> list[str]:
    outputs = []
    with ProgressBar(lambda: count_lines(sources), 0, hidden=False) as progress:
        for best in translator.stream(sources, to=to, contexts=contexts, text_done=progress.advance):
            outputs.append(best[0].text)
    if out:
        out.write_text("".join(output.replace("\n", " ") + "\n" for output in outputs), encoding="utf-8")
    return outputs


def _print_comparison(comparisons: list[Comparison], signatures: list[str]) -> None:
    baselines = {}
    for result in comparisons:
        line = f"{result.metric:<6}{result.value:6.2f}  ({result.mean:.2f} ± {result.half_width:.2f})  {result.system}"
        if result.p_value is None:
            baselines[result.metric] = result
            print(f"{line}  (baseline)")
            continue
        gain = (result.value - baselines[result.metric].value) * (-1 if result.metric in LOWER_IS_BETTER else 1)
        significance = "significantly" if result.p_value < 0.05 else "not significantly"
        verdict = f"{'better' if gain > 0 else 'worse'}, {significance} (p = {result.p_value:.4f})" if gain else "equal"
        print(f"{line}  {verdict}")
    print()
    print("paired bootstrap resampling; ± is the 95% confidence interval")
    for signature in signatures:
        print(signature)
