"""`transduce transcribe`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import DeviceOption, ThreadsOption, model_option, search_options
from transduce.search.options import SearchOptions

_BEAM_OPTIONS = ("beam", "length_penalty", "max_length", "no_repeat")
SEARCH_OPTIONS = (*_BEAM_OPTIONS, "sample", "temperature", "top_k", "top_p", "min_p", "seed")
"""The search options that have an effect on speech."""


@search_options(*SEARCH_OPTIONS)
def transcribe(
    sounds: Annotated[
        list[Path], typer.Argument(help="Sound files (wav, flac, ...).", metavar="SOUND...", show_default=False)
    ],
    model: Annotated[Path, model_option("A run or a model folder that reads sound.", show_default=False)],
    language: Annotated[
        str | None,
        typer.Option(help="Code of the spoken language, if the model knows several.", show_default="that of the card"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per file, with the times of its parts.")
    ] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    options: SearchOptions = {},  # noqa: B006
) -> None:
    """Write down the speech of sound files, one line per file.

    A long recording is read in parts, which are cut where it is quietest.
    """
    from transduce.cli.messages import ended_by_signals

    with ended_by_signals():
        from transduce.speech.sound import read_sound
        from transduce.speech.transcriber import Transcriber

    transcriber = Transcriber.load(model, device=device, threads=threads, **options)
    for path in sounds:
        result = transcriber.transcript(read_sound(path), language=language)
        line = json.dumps({"file": str(path), **asdict(result)}, ensure_ascii=False) if as_json else result.text
        print(line, flush=True)
