"""`transduce rerank`."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.inputs import STANDARD_INPUT
from transduce.cli.options import DeviceOption, ThreadsOption, ToOption, model_option


def rerank(
    file: Annotated[
        Path, typer.Argument(help="Output of translate --jsonl --nbest N.", show_default="standard input")
    ] = STANDARD_INPUT,
    model: Annotated[
        list[Path] | None, model_option("A run or a model folder that scores the outputs; the mean of several counts.")
    ] = None,
    reverse_model: Annotated[
        Path | None, typer.Option(help="A model of the other direction, which scores the source given an output.")
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Weight of --reverse-model.  [default: 1]", min=0)] = None,
    to: ToOption = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Source language; needed if --reverse-model has several.", show_default=False),
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Write the JSON lines, with outputs in the new order and their new scores.")
    ] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Choose among n-best outputs by the scores of other models.

    An output of `translate --nbest` is scored by its log-probability per token, plus, with --reverse-model, by the
    log-probability per token of the source given the output (noisy-channel reranking). Without -m, the scores of the
    file count.
    """
    from transduce.errors import ConfigError
    from transduce.translation.reranking import read_records
    from transduce.translation.reranking import rerank as rerank_records
    from transduce.translation.translator import Translator

    if weight is not None and not reverse_model:
        raise ConfigError("--weight is the weight of --reverse-model, which is not given")
    if weight is not None and not math.isfinite(weight):
        raise ConfigError("--weight must be finite")
    if from_ is not None and not reverse_model:
        raise ConfigError("--from is the language that --reverse-model translates to, which is not given")
    if to is not None and not model:
        raise ConfigError("--to is the language that the models of -m translate to, and none is given")
    if not model and not reverse_model:
        raise ConfigError("there is no model to rerank with; give -m, --reverse-model or both")
    _require_directions(model or [], reverse_model)
    models = [Translator.load(path, device=device, engine="plain", threads=threads) for path in model or []]
    reverse = Translator.load(reverse_model, device=device, engine="plain", threads=threads) if reverse_model else None
    factor = 1.0 if weight is None else weight
    for record in rerank_records(read_records(file), models, reverse, factor, to=to, source=from_):
        text = record["translations"][0]["text"].replace("\n", " ")
        print(json.dumps(record, ensure_ascii=False) if jsonl else text)


def _require_directions(paths: list[Path], reverse: Path | None) -> None:
    """Raise an error if models without languages were trained on other sides of their text than they are used for."""
    from transduce.errors import ConfigError
    from transduce.files.languages import directions_of
    from transduce.models.folder import find_model, read_card, require_same_order

    facts = [read_card(find_model(path))["facts"] for path in paths]
    for path, other in zip(paths[1:], facts[1:], strict=True):
        require_same_order(paths[0], facts[0], path, other)
    back = read_card(find_model(reverse))["facts"] if reverse else {}
    told = directions_of(back) and facts and directions_of(facts[0])
    if facts and facts[0].get("reverse") is True and back.get("reverse") is True and not told:
        raise ConfigError(
            f"{paths[0]} and {reverse} were both trained with data.reverse, so they translate in the same direction; "
            "name a model of the other direction for --reverse-model"
        )
