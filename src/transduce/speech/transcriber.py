"""The transcriber: speech in, text out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard, Unpack, overload

import numpy as np
import torch

from transduce.config import build
from transduce.data.batch import Stream
from transduce.errors import ConfigError, DataError, ModelError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.ensemble import open_model
from transduce.models.loaded import Loaded, remember_arguments
from transduce.models.model import Model
from transduce.nn.segments import Segments
from transduce.search.options import SearchConfig, SearchOptions
from transduce.search.search import search
from transduce.speech.sound import RATE, SILENCE, WINDOW, Samples, read_sound, require_samples, split_sound
from transduce.tokenizers.any_tokenizer import AnyTokenizer

_TOGETHER = 8
"""Number of parts of recordings in one batch."""
_SHORT_TOGETHER = 64
"""Number of short recordings in one batch."""
_NEVER = -1e4
"""Bias of a token that must not be generated."""


@dataclass(frozen=True)
class SpokenPart:
    """The text of a part of a recording."""

    start: float
    """In seconds."""
    end: float
    text: str
    log_prob: float


@dataclass(frozen=True)
class Transcript:
    """The text of a recording."""

    text: str
    parts: list[SpokenPart]


@dataclass(frozen=True, kw_only=True)
class SpeechOptions:
    """What a speech model needs besides its weights; the field `transcribe` of its card."""

    prefix: tuple[int, ...] = ()
    """The tokens that every output begins with."""
    languages: tuple[str, ...] = ()
    """The codes of the languages that the model knows."""
    language_tokens: tuple[int, ...] = ()
    """The token of each language, which takes the place of the first token of the prefix."""
    suppressed: tuple[int, ...] = ()
    """Tokens that are never generated."""
    seconds: int = 30
    """Longest part of a recording that the model reads at once."""
    pad: bool = False
    """Whether shorter parts are filled with silence, as Whisper was trained."""


class Transcriber(Loaded):
    """A speech recognition model, ready to transcribe."""

    def __init__(
        self,
        model: Model,
        tokenizer: AnyTokenizer,
        *,
        config: SearchConfig | None = None,
        speech: SpeechOptions | None = None,
    ) -> None:
        if not _reads_sound(model):
            raise ModelError("this model does not read sound")
        self.model, self.tokenizer = model, tokenizer
        self.config = config or SearchConfig()
        self.speech = speech or SpeechOptions()
        if self.speech.suppressed and model.output_bias_V is None:
            raise ModelError("the model has no bias of its logits (model.output_bias), by which tokens are suppressed")
        if self.speech.suppressed and model.output_bias_V is not None:
            with torch.no_grad():
                model.output_bias_V[list(self.speech.suppressed)] = _NEVER

    def _facts(self) -> Iterator[str]:
        yield self.model.config.architecture
        yield f"device {self.model.device}"

    @classmethod
    @remember_arguments
    def load(
        cls, path: str | Path, *, device: str = "auto", threads: int | None = None, **options: Unpack[SearchOptions]
    ) -> "Transcriber":
        """Load a model folder or a run; `options` are the fields of SearchConfig, and become the defaults."""
        folder, saved = open_model(path, device=device, threads=threads)
        if not _reads_sound(saved.model):
            raise ModelError(f"{folder} does not read sound; name a model that does, such as an imported Whisper")
        config = build(SearchConfig, saved.facts.get("search", {}), str(folder)).with_options(options, "load")
        speech = _read_options(saved.facts.get("transcribe", {}), saved.model, str(folder))
        return cls(saved.model, saved.tokenizer, config=config, speech=speech)

    @overload
    def transcribe(  # type: ignore[overload-overlap]
        self, sounds: str | Path, *, language: str | None = None, **options: Unpack[SearchOptions]
    ) -> str: ...
    @overload
    def transcribe(
        self, sounds: Sequence[str | Path], *, language: str | None = None, **options: Unpack[SearchOptions]
    ) -> list[str]: ...
    def transcribe(
        self,
        sounds: str | Path | Sequence[str | Path],
        *,
        language: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> str | list[str]:
        """The text of one sound file, or of each file of a list.

        `language` is the code of the spoken language, if the model knows several. `options` are the fields of
        SearchConfig (beam=1 is greedy).
        """
        paths = [sounds] if isinstance(sounds, str | Path) else sounds
        if not isinstance(paths, Sequence) or not all(isinstance(path, str | Path) for path in paths):
            raise DataError("sounds must be the path of a sound file, or a list of paths; for samples, use transcript")
        texts = [self.transcript(read_sound(Path(path)), language=language, **options).text for path in paths]
        return texts[0] if isinstance(sounds, str | Path) else texts

    def transcript(
        self, samples_N: Samples, *, language: str | None = None, **options: Unpack[SearchOptions]
    ) -> Transcript:
        """The text of samples (`read_sound`), with the parts in which a long recording is read."""
        parts = list(self.stream(samples_N, language=language, **options))
        return Transcript(" ".join(part.text for part in parts if part.text), parts)

    def transcribe_samples(self, sounds: Sequence[Samples], **options: Unpack[SearchOptions]) -> list[str]:
        """The texts of recordings as samples (`read_sound`), none longer than the model reads at once."""
        config = self.config.with_options(options, "transcribe_samples")
        for number, samples_N in enumerate(sounds):
            require_samples(samples_N)
            if len(samples_N) > self.speech.seconds * RATE:
                raise DataError(
                    f"sounds[{number}] has {len(samples_N) / RATE:.1f} seconds, more than the {self.speech.seconds} "
                    "that the model reads at once; use transcript"
                )
        texts: dict[int, str] = {}
        order = sorted(range(len(sounds)), key=lambda number: len(sounds[number]))
        for first in range(0, len(order), _SHORT_TOGETHER):
            chosen = order[first : first + _SHORT_TOGETHER]
            results = self._search([sounds[number] for number in chosen], config, self._prefix(None))
            texts |= {number: text for number, (text, _) in zip(chosen, results, strict=True)}
        return [texts[number] for number in range(len(sounds))]

    def stream(
        self, samples_N: Samples, *, language: str | None = None, **options: Unpack[SearchOptions]
    ) -> Iterator[SpokenPart]:
        """Like `transcript`, but yield the parts as they are transcribed."""
        require_samples(samples_N)
        config, prefix = self.config.with_options(options, "transcribe"), self._prefix(language)
        ranges = split_sound(samples_N, self.speech.seconds)
        for first in range(0, len(ranges), _TOGETHER):
            chosen = ranges[first : first + _TOGETHER]
            results = self._search([samples_N[start:end] for start, end in chosen], config, prefix)
            for (start, end), (text, log_prob) in zip(chosen, results, strict=True):
                yield SpokenPart(start / RATE, end / RATE, text, log_prob)

    def _search(
        self, sounds: Sequence[Samples], config: SearchConfig, prefix: list[int]
    ) -> Iterator[tuple[str, float]]:
        """The text of each recording, which the model reads at once, and its log-probability."""
        longest = self.model.longest
        assert longest is not None  # a model that reads sound has learned positions
        results = search(
            self.model,
            self._stream(sounds),
            [min(longest, config.max_length or longest)] * len(sounds),
            replace(config, min_length=max(config.min_length, len(prefix))),
            prefixes=[prefix] * len(sounds),
            device=self.model.device,
        )
        for best in results:
            if not best:
                raise ModelError("the model's scores are not finite numbers")
            yield self.tokenizer.decode(best[0].tokens[len(prefix) :]).strip(), best[0].log_prob

    def _prefix(self, language: str | None) -> list[int]:
        prefix = list(self.speech.prefix)
        languages = dict(zip(self.speech.languages, self.speech.language_tokens, strict=True))
        if language is None:
            return prefix
        if language not in languages:
            known = f"use one of {', '.join(sorted(languages))}" if languages else "it has only one"
            raise ConfigError(f"the model has no language {language!r:.20}; {known}")
        return [languages[language], *prefix[1:]]

    def _stream(self, sounds: Sequence[Samples]) -> Stream:
        """Packed samples of parts, with silence up to the required length."""
        least = self.speech.seconds * RATE if self.speech.pad else WINDOW
        padded = [np.pad(sound, (0, max(0, least - len(sound))), constant_values=SILENCE) for sound in sounds]
        device = self.model.device
        segments = Segments.of_lengths([len(sound) for sound in padded], device)
        return Stream(torch.from_numpy(np.concatenate(padded)).to(device), segments)


def _reads_sound(model: Model) -> TypeGuard[EncoderDecoder]:
    return isinstance(model, EncoderDecoder) and model.config.source == "audio"


def _read_options(table: dict[str, Any], model: EncoderDecoder, where: str) -> SpeechOptions:
    """Check the field `transcribe` of a card, which is untrusted."""
    options = build(SpeechOptions, table, f"{where}: facts.transcribe")
    tokens = [*options.prefix, *options.suppressed, *options.language_tokens]
    if not all(0 <= token < model.vocab_size for token in tokens):
        raise ModelError(f"{where}: facts.transcribe has tokens that the vocabulary does not have")
    if model.longest is None:
        raise ModelError(f"{where}: a model that reads sound needs learned positions, not {model.config.positions}")
    if len(options.prefix) >= model.longest:
        raise ModelError(f"{where}: facts.transcribe.prefix has {len(options.prefix):,} tokens; no output is that long")
    if len(options.languages) != len(options.language_tokens):
        raise ModelError(f"{where}: facts.transcribe needs one token for each language")
    most = getattr(model.config, "max_frames", 0) // 100
    if not 1 <= options.seconds <= most:
        raise ModelError(f"{where}: facts.transcribe.seconds must be between 1 and {most}")
    return options
