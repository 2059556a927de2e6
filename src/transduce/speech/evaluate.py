"""`transduce evaluate` for models that transcribe speech."""

import json
from pathlib import Path
from typing import Unpack

from transduce.search.options import SearchOptions


def evaluate_speech(
    folder: Path, test: Path, device: str, threads: int | None, as_json: bool, **options: Unpack[SearchOptions]
) -> None:
    """Print the word error rate and the exact match of transcripts of the recordings that a .tsv file names."""
    from transduce.errors import ConfigError
    from transduce.files.pairs import ReadReport
    from transduce.speech.recordings import read_speech
    from transduce.speech.transcriber import Transcriber
    from transduce.speech.words import exact_match, word_error_rate

    transcriber, report = Transcriber.load(folder, device=device, threads=threads, **options), ReadReport()
    sounds, references = zip(*read_speech([(str(test),)], report), strict=True)
    if report.left_out:
        raise ConfigError(f"{test} cannot be a test set: {'; '.join(report.lines())}")
    outputs = [transcriber.transcript(sound).text for sound in sounds]
    scores = {"wer": word_error_rate(outputs, references), "exact_match": exact_match(outputs, references)}
    if as_json:
        print(json.dumps(scores | {"recordings": len(outputs)}, indent=1))
        return
    print(f"WER          {scores['wer']:6.2f}   of {len(outputs):,} recordings")
    print(f"Exact match  {scores['exact_match']:6.2f}")
