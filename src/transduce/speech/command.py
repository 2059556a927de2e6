"""`transduce transcribe`."""

import html
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transduce.cli.options import DeviceOption, ThreadsOption, model_option, search_options
from transduce.search.options import SearchOptions

if TYPE_CHECKING:
    from transduce.speech.transcriber import Transcript

_BEAM_OPTIONS = ("beam", "length_penalty", "max_length", "no_repeat")
SEARCH_OPTIONS = (*_BEAM_OPTIONS, "sample", "temperature", "top_k", "top_p", "min_p", "seed")
"""The search options that have an effect on speech."""
Format = Literal["text", "srt", "vtt", "json"]


@search_options(*SEARCH_OPTIONS)
def transcribe(
    sounds: Annotated[
        list[Path], typer.Argument(help="Sound files (wav, flac, ...).", metavar="SOUND...", show_default=False)
    ],
    model: Annotated[Path, model_option("A run or a model folder that reads sound.", show_default=False)],
    language: Annotated[
        str | None,
        typer.Option(help="Code of the spoken language, if the model knows several.", show_default="detected"),
    ] = None,
    translate: Annotated[
        bool, typer.Option("--translate", help="Translate the speech into English (Whisper).")
    ] = False,
    format: Annotated[
        Format,
        typer.Option(help="One line of text per file, subtitles of one file, or one JSON object per file with times."),
    ] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    condition: Annotated[
        bool, typer.Option("--condition", help="Let the model read the text of the window before (Whisper).")
    ] = False,
    no_speech: Annotated[
        float,
        typer.Option(help="Leave out unlikely text if no speech has more than this probability; 1 keeps all text."),
    ] = 0.6,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    options: SearchOptions = {},  # noqa: B006
) -> None:
    """Write down the speech of sound files, as text or subtitles.

    A long recording is read in windows. If the model tells times, each window begins where the last complete part of
    the one before ends; otherwise they are cut at the quietest moment.
    """
    from transduce.cli.messages import ended_by_signals

    with ended_by_signals():
        from transduce.cli.progress import ProgressBar
        from transduce.config import require
        from transduce.speech.sound import RATE, read_sound
        from transduce.speech.transcriber import Transcriber

    form: Format = "json" if as_json else format
    require(
        not as_json or format in ("text", "json"),
        "--json has no effect with --format srt or vtt; leave one of them out",
    )
    require(form in ("text", "json") or len(sounds) == 1, f"--format {form} writes the subtitles of one sound file")
    transcriber = Transcriber.load(model, device=device, threads=threads, **options)
    tells_times = transcriber.speech.first_time is not None
    for path in sounds:
        samples_N = read_sound(path)
        seconds, shown = len(samples_N) // RATE, 0

        def show(done: float) -> None:
            nonlocal shown
            bar.advance(int(done) - shown)
            shown = int(done)

        with ProgressBar(lambda: seconds, 0, False, "seconds of sound", "seconds") as bar:  # noqa: B023
            result = transcriber.transcript(
                samples_N, show, language=language, translate=translate, condition=condition, no_speech=no_speech,
                **{"times": True} if tells_times and form != "text" else {},
            )  # fmt: skip
        print("\n".join(formatted(result, form, path)), flush=True)


def formatted(transcript: "Transcript", form: Format, path: Path) -> Iterator[str]:
    """The lines of a transcript."""
    if form == "text":
        yield transcript.text
    elif form == "json":
        yield json.dumps({"file": str(path), **asdict(transcript)}, ensure_ascii=False)
    elif form == "vtt":
        yield "WEBVTT\n"
    for number, part in enumerate(transcript.parts if form in ("srt", "vtt") else (), start=1):
        point, text = "," if form == "srt" else ".", " ".join(part.text.split())
        if form == "srt":
            yield str(number)
        yield f"{_clock(part.start, point)} --> {_clock(part.end, point)}"
        yield (text if form == "srt" else html.escape(text, quote=False)) + "\n"


def _clock(seconds: float, point: str) -> str:
    """A time as subtitles write it: 00:01:02,345."""
    milliseconds = round(seconds * 1000)
    minutes, hours = milliseconds // 60_000, milliseconds // 3_600_000
    return f"{hours:02}:{minutes % 60:02}:{milliseconds // 1000 % 60:02}{point}{milliseconds % 1000:03}"
