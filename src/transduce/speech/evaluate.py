"""Word error rate and exact match of transcripts; `transduce evaluate` for models of speech."""

import json
from collections.abc import Sequence

import numpy as np

from transduce.cli.evaluate import Evaluation
from transduce.errors import ConfigError
from transduce.files.pairs import ReadReport
from transduce.speech.command import SEARCH_OPTIONS
from transduce.speech.sound import read_speech
from transduce.speech.transcriber import Transcriber


def evaluate_speech(request: Evaluation) -> None:
    """Print the word error rate and the exact match of transcripts of the recordings that a .tsv file names."""
    request.require_effect(*SEARCH_OPTIONS)
    test = request.test
    if len(request.folders) != 1 or not test or request.src or request.refs or request.hyps or request.out:
        raise ConfigError("a speech model is evaluated by itself: give --test with a .tsv of sound files and texts")
    report = ReadReport()
    transcriber = Transcriber.load(request.folders[0], device=request.device, threads=request.threads, **request.search)
    sounds, references = zip(*read_speech([(str(test),)], report), strict=True)
    if report.left_out:
        raise ConfigError(f"{test} cannot be a test set: {'; '.join(report.lines())}")
    outputs = [transcriber.transcript(sound).text for sound in sounds]
    scores = {"wer": word_error_rate(outputs, references), "exact_match": exact_match(outputs, references)}
    if request.as_json:
        print(json.dumps(scores | {"recordings": len(outputs)}, indent=1))
        return
    print(f"WER          {scores['wer']:6.2f}   of {len(outputs):,} recordings")
    print(f"Exact match  {scores['exact_match']:6.2f}")


def word_error_rate(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Words to insert, delete or replace in the outputs, in percent of the words of the references."""
    pairs = [(output.split(), reference.split()) for output, reference in zip(outputs, references, strict=True)]
    return 100 * sum(edits(*pair) for pair in pairs) / max(1, sum(len(reference) for _, reference in pairs))


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Percentage of outputs that have the words of the reference."""
    same = [a.split() == b.split() for a, b in zip(outputs, references, strict=True)]
    return 100 * sum(same) / max(1, len(same))


def edits(first: Sequence[str], second: Sequence[str]) -> int:
    """The Levenshtein distance of two sequences."""
    distance = np.arange(len(second) + 1)
    for number, item in enumerate(first, start=1):
        replaced = distance[:-1] + np.array([item != other for other in second], dtype=np.int64)
        least = np.concatenate([[number], np.minimum(replaced, distance[1:] + 1)])
        places = np.arange(len(least))
        distance = np.minimum.accumulate(least - places) + places  # insertions
    return int(distance[-1])
