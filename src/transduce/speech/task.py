"""Speech recognition: recordings and their texts, scored by exact match and word error rate."""

import json
import math
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from transduce.cli.evaluate import Evaluation, read_test_set
from transduce.cli.progress import ProgressBar
from transduce.config import require
from transduce.data.packing import Example, PackedBatch, PackedStream, TokenIds
from transduce.errors import ConfigError, DataError
from transduce.models.model import Model, ModelConfig
from transduce.search.options import SearchConfig
from transduce.speech.command import SEARCH_OPTIONS
from transduce.speech.sound import RATE, SILENCE, read_speech
from transduce.speech.transcriber import SpeechOptions, Transcriber
from transduce.tokenizers.tokenizer import EOS
from transduce.training.task import Task, ValidationScore
from transduce.training.train_config import TrainConfig
from transduce.training.validation import Validation
from transduce.translation.task import pack_pairs

_FRAMES = 100
"""Frames per second."""
_MORE_TOKENS = 10
"""Outputs are at most this much longer than the longest reference."""


@dataclass(frozen=True, kw_only=True)
class TranscribeConfig:
    """The task transcribe."""

    speed: float = 0.0
    """Augmentation: play each recording at a speed between 1 minus and 1 plus this, drawn anew in every epoch."""
    gain: float = 0.0
    """Augmentation: change the volume of each recording by up to this many decibels, likewise."""

    def __post_init__(self) -> None:
        require(0 <= self.speed <= 0.5, "speed must be between 0 and 0.5")
        require(0 <= self.gain <= 40, "gain must be between 0 and 40")


class Transcribe(Task):
    """The samples of a recording as the source, and its text as the target."""

    reader = "speech"
    score_name = "exact_match"
    searches = True
    counted = "target tokens"
    figures: ClassVar = {"exact_match": "Exact match", "wer": "Word error rate"}
    lower_is_better = frozenset({"wer"})
    samples = ("Transcripts", ("recording", "transcript", "reference"))
    defaults: ClassVar = {
        "model": {"source": "audio", "positions": "learned"},
        "train": {"batch_tokens": 64 * RATE},  # tokens of the source are samples
    }
    validation_tokens = 64 * RATE

    settings: TranscribeConfig

    def __init__(self, settings: TranscribeConfig | None = None) -> None:
        super().__init__(settings or TranscribeConfig())
        self._longest = self._longest_validated = 0

    def refusal(self, config: ModelConfig) -> str | None:
        if getattr(config, "source", None) != "audio" or config.architecture != "encoder_decoder":
            return "the task transcribe needs a model that reads sound: --style whisper, or model.source=audio"
        if getattr(config, "positions", None) != "learned":
            return "the task transcribe needs model.positions=learned, which limits the length of outputs"
        needed = math.ceil(max(self._longest / (1 - self.settings.speed), self._longest_validated) / RATE)
        if needed > self._seconds(config):
            return f"recordings have up to {needed} seconds; set model.max_frames={needed * _FRAMES} or more"
        return None

    def model_settings(self, index: Mapping[str, Any]) -> dict[str, Any]:
        """None, but the longest recording must fit."""
        self._longest = index["longest"]
        return {}

    def facts(self, config: ModelConfig) -> dict[str, Any]:
        return {"transcribe": {"seconds": self._seconds(config)}}

    @staticmethod
    def _seconds(config: ModelConfig) -> int:
        return int(getattr(config, "max_frames", 0)) // _FRAMES

    def vary(self, examples: Sequence[Example], seed: int) -> Sequence[Example]:
        if not self.settings.speed and not self.settings.gain:
            return examples
        return [(self._varied(np.asarray(samples), seed), text) for samples, text in examples]

    def _varied(self, samples_N: Any, seed: int) -> TokenIds:
        chance = random.Random(f"{seed} {zlib.crc32(samples_N.tobytes())}")
        speed = 1 + chance.uniform(-self.settings.speed, self.settings.speed)
        factor = 10 ** (chance.uniform(-self.settings.gain, self.settings.gain) / 20)
        wave_N = (samples_N.astype(np.float64) - SILENCE) * factor
        place_M = np.arange(int(len(wave_N) / speed)) * speed
        changed_M = np.interp(place_M, np.arange(len(wave_N)), wave_N)
        result: TokenIds = np.clip(np.rint(changed_M), -SILENCE, SILENCE - 1).astype(np.int64) + SILENCE
        return result

    def pack(self, examples: Sequence[Example], seed: int = 0) -> PackedBatch:
        """The stream `src` has the samples, the stream `tgt` is as in translation."""
        sounds, targets = zip(*examples, strict=True)
        offsets = np.cumsum([0, *map(len, sounds)], dtype=np.int32)
        source = PackedStream(np.concatenate(sounds, dtype=np.int64, casting="unsafe"), offsets)
        return pack_pairs(source, PackedStream.of(targets, end=EOS))

    def check_scoring(
        self, config: TrainConfig, language: str | None, examples: Sequence[tuple[Any, ...]]
    ) -> str | None:
        """`refusal` tells whether the longest recording fits."""
        self._longest_validated = max((len(samples_N) for samples_N, _ in examples), default=0)
        return None

    def validation_examples(self, validation: Validation, log: Callable[[str], None]) -> list[Example]:
        if not validation.texts:
            return []
        sounds, texts = zip(*validation.texts, strict=True)
        ids, longest = validation.tokenizer.encode_all(texts, threads=-1), validation.data.max_length
        if any(len(tokens) > longest for tokens in ids):
            raise DataError(f"a validation text has more than {longest} tokens; raise data.max_length")
        return sorted(zip(sounds, ids, strict=True), key=lambda example: len(example[0]))

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore | None:
        """Of the first recordings of each validation file."""
        chosen = [example for _, part in validation.scored for example in validation.texts[part]]
        if not chosen:
            return None
        sounds, references = zip(*chosen, strict=True)
        longest = max(map(len, validation.tokenizer.encode_all(references, threads=-1))) + _MORE_TOKENS
        speech = SpeechOptions(seconds=self._seconds(model.config))
        transcriber = Transcriber(
            model, validation.tokenizer, config=replace(options, max_length=longest), speech=speech
        )
        shared = sounds[validation.processes.share]
        validation.display.phase("transcribing", len(shared))
        done = validation.display.advance
        outputs = validation.processes.gather(
            validation.interruptible(lambda: transcriber.transcribe_samples(shared, sound_done=done))
        )
        samples = [
            {"source": f"{len(sound) / RATE:.1f} s", "output": output, "reference": reference}
            for sound, output, reference in zip(sounds, outputs, references, strict=True)
        ]
        more = {"wer": word_error_rate(outputs, references)}
        return ValidationScore(exact_match(outputs, references), samples, more)


def evaluate_speech(request: Evaluation) -> None:
    """Print the word error rate and the exact match of transcripts of the recordings that a .tsv file names."""
    request.require_effect(*SEARCH_OPTIONS)
    test = request.test
    if len(request.folders) != 1 or not test or request.src or request.refs or request.hyps or request.out:
        raise ConfigError("a speech model is evaluated by itself: give --test with a .tsv of sound files and texts")
    transcriber = Transcriber.load(request.folders[0], device=request.device, threads=request.threads, **request.search)
    sounds, references = zip(*read_test_set(read_speech, str(test)), strict=True)
    outputs, search = [], transcriber.config.name
    with ProgressBar(lambda: len(sounds), 0, False, "recordings", "recordings") as progress:
        for sound in sounds:
            outputs.append(transcriber.transcript(sound).text)
            progress.advance()
    scores = {"wer": word_error_rate(outputs, references), "exact_match": exact_match(outputs, references)}
    if request.as_json:
        print(json.dumps(scores | {"recordings": len(outputs), "search": search}, indent=1))
        return
    print(f"WER          {scores['wer']:6.2f}   of {len(outputs):,} recordings, {search}")
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
