"""`transduce score`."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.messages import log
from transduce.cli.options import DeviceOption, FromOption, ModelsOption, ReverseOption, ThreadsOption, ToOption

_WINDOW = 4096
"""Pairs that are scored, and printed, together."""


def score(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Text to score with a language model, line by line; .jsonl and .parquet: by documents."),
    ] = None,
    model: ModelsOption = None,
    src: Annotated[Path | None, typer.Option(help="Source text.")] = None,
    tgt: Annotated[Path | None, typer.Option(help="Translations, line by line.")] = None,
    test: Annotated[Path | None, typer.Option(help="Instead of --src and --tgt: both in one .tsv or .jsonl.")] = None,
    to: ToOption = None,
    from_: FromOption = None,
    reverse: ReverseOption = None,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Add a column: the log-probability divided by the number of tokens.")
    ] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Write one JSON object per pair: texts, tokens and their log-probabilities.")
    ] = False,
    document: Annotated[
        bool, typer.Option("--document", help="Language model: each file is one text, not one for each line.")
    ] = False,
    stride: Annotated[
        int | None,
        typer.Option(
            help="Language model: a text longer than the context is read in windows that begin every N tokens.",
            min=1,
            metavar="N",
            show_default="half of the context",
        ),
    ] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Print the log-probability of translations or texts.

    There is a line for each pair or, with a language model, for each text. The log-probability is the natural
    logarithm, summed over the tokens of the translation and the end marker; of a text, over its tokens. The total and
    the perplexity go to stderr.
    """
    from transduce.errors import ConfigError
    from transduce.features import HOOKS
    from transduce.files.pairs import count_pairs
    from transduce.models.folder import find_model, read_card
    from transduce.translation.commands.direction import evaluated_direction
    from transduce.translation.translator import Translator, require_translation_model

    folder = find_model(model[0] if model else None)
    facts = read_card(folder)["facts"]
    of_pairs = {"--src": src, "--tgt": tgt, "--test": test, "--to": to, "--from": from_, "--reverse": reverse}
    of_texts = {"FILES": files, "--document": document or None, "--stride": stride}
    is_language_model = facts.get("task") == "language_model"
    if not is_language_model:
        require_translation_model(facts, folder)
    for name in (name for name, value in (of_pairs if is_language_model else of_texts).items() if value is not None):
        kinds = (
            ("translation models", "language model") if is_language_model else ("language models", "translation model")
        )
        raise ConfigError(f"{name} is for {kinds[0]}, but the model is a {kinds[1]}")
    if is_language_model:
        if model is None or len(model) > 1:
            raise ConfigError("a language model is scored by itself; name one with -m")
        HOOKS["score_texts"](
            model[0], files or [], document=document, stride=stride, per_token=per_token, jsonl=jsonl, device=device,
            threads=threads,
        )  # fmt: skip
        return
    direction = evaluated_direction(facts, test, from_, to, reverse)
    pairs = _read(src, tgt, test, test is not None and direction.reverse)
    if described := direction.describe(test):
        log(described.removesuffix("; "))
    translator = Translator.load(model, device=device, engine="plain", threads=threads)
    total, tokens = 0.0, 0
    for start in range(0, len(pairs), _WINDOW):
        sources, targets = zip(*pairs[start : start + _WINDOW], strict=True)
        for source, target, scored in zip(
            sources, targets, translator.score(sources, targets, to=direction.target), strict=True
        ):
            total, tokens = total + scored.log_prob, tokens + len(scored.tokens)
            if jsonl:
                record = {"source": source, "target": target, **asdict(scored), "per_token": scored.per_token}
                print(json.dumps(record, ensure_ascii=False))
            else:
                print(f"{scored.log_prob:.4f}\t{scored.per_token:.4f}" if per_token else f"{scored.log_prob:.4f}")
    perplexity = math.exp(min(-total / tokens, 700))
    log(
        f"{count_pairs(len(pairs))}, {count_pairs(tokens, 'token')}: log-probability {total:.2f}, "
        f"perplexity {perplexity:.2f}"
    )


def _read(src: Path | None, tgt: Path | None, test: Path | None, reverse: bool) -> list[tuple[str, str]]:
    from transduce.errors import ConfigError
    from transduce.files.pairs import ReadReport, read_pairs

    if (test is None) == (src is None) or (src is None) != (tgt is None):
        raise ConfigError("give the pairs to score either with --src and --tgt, or with --test")
    files = (str(test),) if test else (str(src), str(tgt))
    report = ReadReport()
    pairs = list(read_pairs([files], report, reverse=reverse))
    if report.left_out:  # a line of output for each line of input is needed
        raise ConfigError(f"{' and '.join(files)} cannot be scored line by line: {'; '.join(report.lines())}")
    return pairs
