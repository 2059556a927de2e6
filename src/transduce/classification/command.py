"""`transduce classify`."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transduce.cli.messages import warn_of_cut_texts
from transduce.cli.options import DeviceOption, ThreadsOption, model_option, text_argument

if TYPE_CHECKING:
    from transduce.classification.classifier import Classifier, Input

_AT_ONCE = 1024
"""Inputs that are classified, and printed, together."""


def classify(
    inputs: Annotated[
        list[str] | None,
        text_argument(
            "Text in quotes, or a file with a text on each line; for a model of images, image files.", "TEXT_OR_FILE"
        ),
    ] = None,
    model: Annotated[Path | None, model_option("A run or a model folder of the task classify.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per input, with the probabilities of all classes.")
    ] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Print the class of each text or image.

    The columns are the class, its probability, and the text or the name of the image, separated by tabs. Lines of
    standard input are texts or, for a model of images, names of image files.
    """
    from transduce.classification.classifier import Classifier
    from transduce.errors import ConfigError
    from transduce.files.texts import one_line

    if model is None:
        raise ConfigError("name a model with -m; train one with: transduce train --task classify")
    classifier = Classifier.load(model, device=device, threads=threads)
    items = _items(classifier, inputs)
    while chunk := list(islice(items, _AT_ONCE)):
        for item, found in zip(chunk, classifier.classify(chunk), strict=True):
            if as_json:
                record = {"image" if classifier.reads_images else "text": str(item), **vars(found)}
                print(json.dumps(record, ensure_ascii=False))
            else:
                print(f"{found.label}\t{found.probability:.4f}\t{one_line(str(item))}")
    warn_of_cut_texts(classifier.texts_cut, classifier.max_length)


def _items(classifier: "Classifier", inputs: Sequence[str] | None) -> "Iterator[Input]":
    from transduce.cli.inputs import STANDARD_INPUT, as_input, lines_of
    from transduce.errors import ConfigError, DataError
    from transduce.files.pair_formats import format_suffix

    if classifier.reads_images:
        for name in inputs if inputs is not None else lines_of([STANDARD_INPUT]):
            if not name:
                raise DataError("an empty line or argument names no image file; remove it")
            yield Path(name)
        return
    texts = [as_input(word, "classify") for word in inputs] if inputs is not None else [STANDARD_INPUT]
    for text in texts:
        if isinstance(text, Path) and format_suffix(text) == ".tsv":
            raise ConfigError(f"{text} has labels beside the texts; score them with: transduce evaluate --test {text}")
    yield from lines_of(texts)
