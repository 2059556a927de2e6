"""`transduce evaluate`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from transduce.evaluation.scores import Comparison


def evaluate(
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", "-m", help="A run or model [without --hyp: the bundled one]; several are compared."),
    ] = None,
    src: Annotated[Path | None, typer.Option(help="Text to translate with the model.")] = None,
    ref: Annotated[Path | None, typer.Option(help="The right translations, line by line.")] = None,
    test: Annotated[Path | None, typer.Option(help="Instead of --src and --ref: both in one .tsv or .jsonl.")] = None,
    hyp: Annotated[list[Path] | None, typer.Option(help="Translations to score; two or more are compared.")] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses the model keeps at each step [4].")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="More favours longer outputs [0.6].")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the model's translations here.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda ...")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score translations with BLEU, chrF and TER (sacreBLEU); say which system is better, and how surely."""
    from transduce.errors import ConfigError
    from transduce.evaluation.scores import compare, score
    from transduce.text.files import read_lines

    sources, references = _test_set(src, ref, test)
    hyp = hyp or []
    models: list[Path | None] = [*model] if model else [] if hyp else [None]  # None is the bundled model
    if len({*map(str, models), *map(str, hyp)}) < len(models) + len(hyp):
        raise ConfigError("the same model or file is given twice")
    if models and sources is None:
        raise ConfigError(
            "nothing to score: give translations with --hyp, or text for the model to translate with --src "
            "(--test has both sides)"
        )
    if save and len(models) != 1:
        raise ConfigError(f"--save is for the translations of one model, not of {len(models)}")
    search = {"device": device, "beam": beam, "length_penalty": length_penalty}
    systems = {str(path): _translate(path, sources or [], save, **search) for path in models}
    systems |= {str(path): list(read_lines(path)) for path in hyp}
    if len(systems) == 1:
        ((name, lines),) = systems.items()
        scores = score(lines, references, name)
        if as_json:
            print(json.dumps([asdict(one) for one in scores], indent=1))
        for one in [] if as_json else scores:
            print(f"{one.metric:<6}{one.value:6.2f}   {one.signature}")
        return
    comparisons, signatures = compare(systems, references)
    if as_json:
        print(json.dumps({"comparisons": [asdict(one) for one in comparisons], "signatures": signatures}, indent=1))
    else:
        _print_comparison(comparisons, signatures)


def _test_set(src: Path | None, ref: Path | None, test: Path | None) -> tuple[list[str] | None, list[str]]:
    from transduce.errors import ConfigError
    from transduce.text.files import read_lines
    from transduce.text.pairs import ReadReport, read_pairs

    if test:
        report = ReadReport()
        pairs = list(read_pairs([(str(test),)], report))
        if report.left_out:
            raise ConfigError(f"{test} cannot be a test set: {'; '.join(report.lines())}")
        return [source for source, _ in pairs], [target for _, target in pairs]
    if not ref:
        raise ConfigError("what are the right translations? Give --ref, or --test with both sides")
    sources = list(read_lines(src)) if src else None
    references = list(read_lines(ref))
    if sources is not None and len(sources) != len(references):
        raise ConfigError(f"{src} has {len(sources):,} lines, {ref} {len(references):,}; they must match line by line")
    return sources, references


def _translate(model: Path | None, sources: list[str], save: Path | None, **options: Any) -> list[str]:
    from transduce.translator import Translator

    given = {name: value for name, value in options.items() if value is not None}
    outputs = Translator.load(model, **given).translate(sources)
    if save:
        save.write_text("".join(output.replace("\n", " ") + "\n" for output in outputs), encoding="utf-8")
    return outputs


def _print_comparison(comparisons: "list[Comparison]", signatures: list[str]) -> None:
    from transduce.evaluation.scores import LOWER_IS_BETTER

    baselines = {}
    for one in comparisons:
        line = f"{one.metric:<6}{one.value:6.2f}  ({one.mean:.2f} ± {one.half_width:.2f})  {one.system}"
        if one.p_value is None:
            baselines[one.metric] = one
            print(f"{line}  (baseline)")
            continue
        gain = (one.value - baselines[one.metric].value) * (-1 if one.metric in LOWER_IS_BETTER else 1)
        surety = "significantly" if one.p_value < 0.05 else "perhaps by chance"
        verdict = f"{'better' if gain > 0 else 'worse'}, {surety} (p = {one.p_value:.4f})" if gain else "the same"
        print(f"{line}  {verdict}")
    print()
    print("paired bootstrap; ± is the 95% interval over resampled test sets")
    for signature in signatures:
        print(signature)
