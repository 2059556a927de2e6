"""The transcriber: speech in, text out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard, Unpack, cast, overload

import numpy as np
import torch

from transduce.config import build, require
from transduce.data.batch import Stream
from transduce.errors import ConfigError, DataError, ModelError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.ensemble import open_model
from transduce.models.loaded import Loaded, remember_arguments
from transduce.models.model import Model
from transduce.nn.segments import Segments
from transduce.search.options import SearchConfig, SearchOptions
from transduce.search.search import search
from transduce.speech.decoding import Rules, SpeechDecoder, split_by_times
from transduce.speech.sound import HOP, RATE, SILENCE, WINDOW, Samples, read_sound, require_samples, split_sound
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.tokenizer import EOS

_TOGETHER = 8
"""Number of parts of recordings in one batch."""
_SHORT_TOGETHER = 64
"""Number of short recordings in one batch."""
NO_SPEECH, _UNLIKELY = 0.6, -1.0
"""No speech: it has more than this probability, and the tokens have a lower mean log-probability than this."""


@dataclass(frozen=True)
class SpokenPart:
    """The text of a part of a recording."""

    start: float
    """In seconds."""
    end: float
    text: str
    log_prob: float
    """Log-probability of the output that the part comes from: parts that are read at once share it."""


@dataclass(frozen=True)
class Transcript:
    """The text of a recording."""

    text: str
    parts: list[SpokenPart]
    language: str | None = None
    """Code of the spoken language, if the model knows several."""


@dataclass(frozen=True, kw_only=True)
class SpeechOptions:
    """What a speech model needs besides its weights; the field `transcribe` of its card."""

    prefix: tuple[int, ...] = ()
    """The tokens that every output begins with: language, task and the token for no times, as far as there are any."""
    languages: tuple[str, ...] = ()
    """The codes of the languages that the model knows."""
    language_tokens: tuple[int, ...] = ()
    """The token of each language, which takes the place of the first token of the prefix."""
    translate: int | None = None
    """The token of translation into English, which takes the place of the second token of the prefix."""
    first_time: int | None = None
    """The token of the time 0, from which on all tokens are times; None if the model has none."""
    no_speech: int | None = None
    """The token that stands for a recording without speech."""
    previous: int | None = None
    """The token before the text of what was said before."""
    suppressed: tuple[int, ...] = ()
    """Tokens that are never generated."""
    begin_suppressed: tuple[int, ...] = ()
    """Tokens that are not generated first."""
    seconds: int = 30
    """Longest part of a recording that the model reads at once."""
    pad: bool = False
    """Whether shorter parts are filled with silence, as Whisper was trained."""


class TranscribeOptions(SearchOptions, total=False):
    """Options of a transcript, besides those of the search."""

    language: str | None
    """Code of the spoken language, if the model knows several; by default it is detected."""
    translate: bool
    """Translate into English instead of writing down what is said."""
    times: bool
    """Let the model tell the times of parts; by default for recordings that are longer than it reads at once."""
    condition: bool
    """Let the model read the text of the window before."""
    no_speech: float
    """Probability above which a recording has no speech, if its text is unlikely as well; 1 keeps all text."""


@dataclass(frozen=True)
class _Request:
    """A transcript to be made."""

    search: SearchConfig
    language: str | None = None
    translate: bool = False
    times: bool | None = None
    condition: bool = False
    no_speech: float = NO_SPEECH


@dataclass(frozen=True)
class _Output:
    """What the model says about a recording that it reads at once."""

    tokens: list[int]
    log_prob: float
    language: int


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
        self, sounds: str | Path, **options: Unpack[TranscribeOptions]
    ) -> str: ...
    @overload
    def transcribe(self, sounds: Sequence[str | Path], **options: Unpack[TranscribeOptions]) -> list[str]: ...
    def transcribe(
        self, sounds: str | Path | Sequence[str | Path], **options: Unpack[TranscribeOptions]
    ) -> str | list[str]:
        """The text of one sound file, or of each file of a list.

        `options` are those of TranscribeOptions, and the fields of SearchConfig (beam=1 is greedy).
        """
        paths = [sounds] if isinstance(sounds, str | Path) else sounds
        if not isinstance(paths, Sequence) or not all(isinstance(path, str | Path) for path in paths):
            raise DataError("sounds must be the path of a sound file, or a list of paths; for samples, use transcript")
        texts = [self.transcript(read_sound(Path(path)), **options).text for path in paths]
        return texts[0] if isinstance(sounds, str | Path) else texts

    def transcript(
        self,
        samples_N: Samples,
        on_progress: Callable[[float], object] | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> Transcript:
        """The text of samples (`read_sound`), with its parts.

        `on_progress` is called with the number of seconds that are done.
        """
        parts: list[SpokenPart] = []
        language = None
        for found, code, done in self._steps(samples_N, options):
            parts, language = [*parts, *found], language or code
            if on_progress:
                on_progress(done)
        return Transcript(" ".join(part.text for part in parts if part.text), parts, language)

    def stream(self, samples_N: Samples, **options: Unpack[TranscribeOptions]) -> Iterator[SpokenPart]:
        """Like `transcript`, but yield the parts as they are transcribed."""
        for parts, _, _ in self._steps(samples_N, options):
            yield from parts

    def transcribe_samples(
        self,
        sounds: Sequence[Samples],
        sound_done: Callable[[], object] | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> list[str]:
        """The texts of recordings as samples (`read_sound`), none longer than the model reads at once.

        `sound_done` is called after each recording.
        """
        request = self._request(options)
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
            results = self._search([sounds[number] for number in chosen], request)
            for number, output in zip(chosen, results, strict=True):
                texts[number] = self._text(output)
                if sound_done:
                    sound_done()
        return [texts[number] for number in range(len(sounds))]

    def _request(self, options: Mapping[str, Any]) -> _Request:
        """Check options, which come from Python or the command line."""
        names = TranscribeOptions.__annotations__.keys() - SearchOptions.__annotations__.keys()
        others = {name: value for name, value in options.items() if name in names}
        search = {name: value for name, value in options.items() if name not in names}
        request = _Request(self.config.with_options(cast(SearchOptions, search), "transcribe"), **others)
        speech, languages = self.speech, dict(zip(self.speech.languages, self.speech.language_tokens, strict=True))
        if request.language is not None and request.language not in languages:
            known = f"use one of {', '.join(sorted(languages))}" if languages else "it has only one"
            raise ConfigError(f"the model has no language {request.language!r:.20}; {known}")
        require(not request.translate or speech.translate is not None, "the model does not translate")
        has_times = speech.first_time is not None
        require(not request.times or has_times, "the model does not tell times; leave them out")
        require(not request.condition or (has_times and speech.previous is not None), "the model reads no earlier text")
        require(0 <= request.no_speech <= 1, "no_speech must be between 0 and 1")
        return request

    def _steps(
        self, samples_N: Samples, options: Mapping[str, Any]
    ) -> Iterator[tuple[list[SpokenPart], str | None, float]]:
        """Parts, language, and the seconds that are done, after each step."""
        request, codes = (
            self._request(options),
            dict(zip(self.speech.language_tokens, self.speech.languages, strict=True)),
        )
        require_samples(samples_N)
        times = request.times
        if times is None:
            times = self.speech.first_time is not None and len(samples_N) > self.speech.seconds * RATE
        steps = self._timed_windows(samples_N, request) if times else self._quiet_parts(samples_N, request)
        for parts, output, end in steps:
            yield parts, codes.get(output.language), end / RATE

    def _quiet_parts(self, samples_N: Samples, request: _Request) -> Iterator[tuple[list[SpokenPart], _Output, int]]:
        """Transcribe parts that are cut at the quietest moment, several at once."""
        ranges = split_sound(samples_N, self.speech.seconds)
        for first in range(0, len(ranges), _TOGETHER):
            chosen = ranges[first : first + _TOGETHER]
            outputs = self._search([samples_N[start:end] for start, end in chosen], request)
            for (start, end), output in zip(chosen, outputs, strict=True):
                part = SpokenPart(start / RATE, end / RATE, self._text(output), output.log_prob)
                yield [part], output, end

    def _timed_windows(self, samples_N: Samples, request: _Request) -> Iterator[tuple[list[SpokenPart], _Output, int]]:
        """Transcribe windows with times, each of which begins where the last complete part of the one before ends."""
        speech, start, said = self.speech, 0, list[int]()
        first_time, codes = speech.first_time, dict(zip(speech.language_tokens, speech.languages, strict=True))
        assert first_time is not None
        while len(samples_N) - start >= HOP:
            window_N = samples_N[start : start + speech.seconds * RATE]
            (output,) = self._search([window_N], replace(request, times=True), said if request.condition else ())
            request = replace(request, language=codes.get(output.language))
            timed, advance = split_by_times(output.tokens, first_time, len(window_N) / RATE)
            if not output.tokens:
                timed, advance = [], len(window_N) / RATE
            said += [token for part in timed for token in part.tokens]
            parts = []
            for part in timed:
                text = self._text(replace(output, tokens=[token for token in part.tokens if token < first_time]))
                if text:
                    begins, ends = (start / RATE + second for second in (part.start, part.end))
                    parts.append(SpokenPart(round(begins, 2), round(ends, 2), text, output.log_prob))
            start += max(HOP, round(advance * RATE))
            yield parts, output, min(start, len(samples_N))

    def _search(self, sounds: Sequence[Samples], request: _Request, said: Sequence[int] = ()) -> list[_Output]:
        """What the model says about recordings that it reads at once; without speech, it has no tokens."""
        longest, speech = self.model.longest, self.speech
        assert longest is not None  # a model that reads sound has learned positions
        prefix, times = list(speech.prefix), None
        if request.times:
            prefix, times = prefix[:-1], speech.first_time
        if request.translate and speech.translate is not None:
            prefix[1] = speech.translate
        if request.language is not None:
            prefix[0] = speech.language_tokens[speech.languages.index(request.language)]
        unused = (
            () if speech.first_time is None or times is not None else range(speech.first_time, self.model.vocab_size)
        )
        prompt = [speech.previous, *said[-((longest + 1) // 2 - 1) :]] if said and speech.previous is not None else []
        rules = Rules(
            prefixes=[prefix] * len(sounds), prompt=prompt, first_time=times, no_speech=speech.no_speech,
            languages=speech.language_tokens if request.language is None else (),
            suppressed=[*speech.suppressed, *unused, *(speech.prefix[-1:] if times is not None else ())],
            begin_suppressed=speech.begin_suppressed,
        )  # fmt: skip
        decoder = SpeechDecoder(self.model, rules)
        limit = max(1, min(longest - len(prefix) - len(prompt), request.search.max_length or longest))
        results = search(
            decoder,
            self._stream(sounds),
            [limit] * len(sounds),
            replace(request.search, min_length=0) if speech.prefix else request.search,
            device=self.model.device,
        )
        outputs = []
        for number, best in enumerate(results):
            if not best:
                raise ModelError("the model's scores are not finite numbers")
            tokens, log_prob = best[0].tokens, best[0].log_prob
            silent = float(decoder.no_speech_B[number]) > request.no_speech
            if silent and log_prob / (len(tokens) + 1) < _UNLIKELY:
                tokens = []
            outputs.append(_Output(tokens, log_prob, int(decoder.language_B[number])))
        return outputs

    def _text(self, output: _Output) -> str:
        return self.tokenizer.decode(output.tokens).strip()

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
    single = (options.translate, options.first_time, options.no_speech, options.previous)
    tokens = [*options.prefix, *options.suppressed, *options.begin_suppressed, *options.language_tokens]
    tokens += [token for token in single if token is not None]
    if not all(0 <= token < model.vocab_size for token in tokens):
        raise ModelError(f"{where}: facts.transcribe has tokens that the vocabulary does not have")
    if model.longest is None:
        raise ModelError(f"{where}: a model that reads sound needs learned positions, not {model.config.positions}")
    if len(options.prefix) >= model.longest:
        raise ModelError(f"{where}: facts.transcribe.prefix has {len(options.prefix):,} tokens; no output is that long")
    if len(options.languages) != len(options.language_tokens):
        raise ModelError(f"{where}: facts.transcribe needs one token for each language")
    if (options.languages and not options.prefix) or (options.translate is not None and len(options.prefix) < 2):
        raise ModelError(f"{where}: facts.transcribe.prefix has no place for the language or the task")
    if options.first_time is not None and (not options.prefix or options.first_time <= max(EOS, *options.prefix)):
        raise ModelError(f"{where}: facts.transcribe.first_time must be above the tokens of facts.transcribe.prefix")
    most = getattr(model.config, "max_frames", 0) // 100
    if not 1 <= options.seconds <= most:
        raise ModelError(f"{where}: facts.transcribe.seconds must be between 1 and {most}")
    return options
