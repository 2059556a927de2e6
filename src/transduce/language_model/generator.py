"""The generator: continues texts with a language model, and scores texts."""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import torch

from transduce.config import build, require, require_count
from transduce.data.batch import Stream
from transduce.errors import ConfigError, ModelError
from transduce.fast.choose import pick_decoder, pick_engine
from transduce.files.texts import require_texts
from transduce.language_model.likelihood import text_log_probs
from transduce.models.config import TransformerConfig
from transduce.models.ensemble import open_model
from transduce.models.loaded import Loaded, remember_arguments
from transduce.models.model import Model
from transduce.nn.segments import pack_tokens
from transduce.search.decoder import Decoder
from transduce.search.engine import Engine, Job, search_all
from transduce.search.options import SAMPLING_OPTIONS, SamplingOptions, SearchConfig
from transduce.search.sampling import roll_out_steps, sampler, start_steps
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import ESCAPE, unescape
from transduce.tokenizers.tokenizer import BOS, EOS

MAX_TOKENS = 256
Stop = str | Sequence[str]
"""One or several texts before which an output ends."""
TOGETHER = 32
"""Number of outputs that are generated in one batch."""
_VALUE_BYTES = 4
"""Size of a value of a KV cache, at most."""
FinishReason = Literal["stop", "length"]


def stop_texts(stop: str | Sequence[str]) -> list[str]:
    """The texts before which an output ends, as a list; an empty one, which would end every output, is refused."""
    stops = [stop] if isinstance(stop, str) else stop
    require_texts(stops, "stop")
    require("" not in stops, "stop must not be empty: it is a text before which an output ends")
    return list(stops)


@dataclass(frozen=True)
class Generation:
    """A continuation of a prompt."""

    text: str
    """The continuation, without the prompt and without a stop string."""
    tokens: list[str]
    token_log_probs: list[float]
    """Log-probability of each token, at temperature 1."""
    finish_reason: FinishReason
    """stop: the model has ended the text, or a stop string has been found; length: max_tokens is reached."""


@dataclass(frozen=True)
class TextScore:
    """The log-probability of a given text."""

    log_prob: float
    """The sum over the tokens."""
    tokens: list[str]
    token_log_probs: list[float]

    @property
    def per_token(self) -> float:
        """`log_prob` divided by the number of tokens."""
        return self.log_prob / max(1, len(self.tokens))


@dataclass(frozen=True)
class GenerationEvent:
    """One more token of an output."""

    prompt: int
    output: int
    """Index of the output among those of the prompt."""
    text: str
    """Text that has become certain; it may be empty."""
    token: int | None
    """None if the output has ended without another token."""
    log_prob: float
    finish_reason: FinishReason | None
    """None if the output is not finished."""


class TextStream:
    """Turns tokens into text as they arrive.

    A character whose bytes are several tokens appears when it is complete. Text that may be the beginning of a stop
    string is held back; after a stop string, which is not part of the text, nothing more appears.
    """

    def __init__(self, tokenizer: AnyTokenizer, stop: Sequence[str] = (), *, at_start: bool = False) -> None:
        self._tokenizer, self._stop = tokenizer, [text for text in stop if text]
        self._strips_space = at_start and tokenizer.adds_prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._escaped, self._held = "", ""
        self.text = ""
        """The text so far, without what is held back."""
        self.stopped = False
        """Whether a stop string has been found."""

    def add(self, token: int) -> str:
        """The text that becomes certain with this token; empty if there is none."""
        raw = self._tokenizer.raw_bytes(token)
        if self._strips_space and raw:  # the space that the tokenizer adds before every text
            raw, self._strips_space = raw.removeprefix(b" "), False
        return self._add(self._decoder.decode(raw))

    def finish(self) -> str:
        """The text that was held back, after the last token."""
        last = self._add(self._decoder.decode(b"", final=True), final=True)
        return last + self._emit("" if self.stopped else self._held)

    def _add(self, decoded: str, final: bool = False) -> str:
        if self.stopped:
            return ""
        self._escaped += decoded
        whole = len(self._escaped) - (self._escaped.endswith(ESCAPE) and not final)  # an escape has two characters
        self._held += unescape(self._escaped[:whole])
        self._escaped = self._escaped[whole:]
        ends = [place for place in map(self._held.find, self._stop) if place >= 0]
        if ends:
            self.stopped = True
            return self._emit(self._held[: min(ends)])
        return self._emit(self._held[: len(self._held) - self._possible_stop()])

    def _possible_stop(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        lengths = (
            length
            for stop in self._stop
            for length in range(min(len(stop) - 1, len(self._held)), 0, -1)
            if self._held.endswith(stop[:length])
        )
        return max(lengths, default=0)

    def _emit(self, text: str) -> str:
        self._held = self._held[len(text) :]
        self.text += text
        return text


@dataclass
class Continuation:
    """An output that is being generated."""

    prompt: int
    number: int
    ids: list[int]
    """BOS, the prompt and the tokens so far."""
    stream: TextStream
    left: int
    """Number of tokens that may still be generated."""
    ends: frozenset[int] = frozenset({EOS})
    """The tokens that end the output."""
    finished: bool = False


def visible(ids: list[int], left: int, context: int) -> list[int]:
    """The end of the ids that the model reads; it leaves room for up to half a context of new tokens."""
    if len(ids) + left - 1 <= context:
        return ids
    return ids[-max(1, context - min(left, context // 2)) :]


def advance(output: Continuation, token: int, log_prob: float) -> GenerationEvent:
    """Add a token to an output."""
    reason: FinishReason | None = None
    if token in output.ends:
        text, reason = output.stream.finish(), "stop"
    else:
        output.ids.append(token)
        output.left -= 1
        text = output.stream.add(token)
        if output.stream.stopped:
            reason = "stop"
        elif output.left == 0:
            text, reason = text + output.stream.finish(), "length"
    output.finished = reason is not None
    shown = None if token in output.ends else token
    return GenerationEvent(output.prompt, output.number, text, shown, log_prob, reason)


class Generator(Loaded):
    """A language model, ready to continue and to score texts."""

    def __init__(
        self,
        model: Model,
        tokenizer: AnyTokenizer,
        *,
        context: int = 1024,
        config: SearchConfig | None = None,
        engine: str = "plain",
        threads: int | None = None,
        ends: Sequence[int] = (),
    ) -> None:
        if not isinstance(model, Decoder):
            raise ModelError(f"{model.config.architecture} models do not generate text")
        self.model, self.tokenizer = model, tokenizer
        self.config = replace(config or SearchConfig(), sample=True, beam=1, nbest=1)
        self.context = context if model.longest is None else min(context, model.longest)
        """Number of tokens that the model reads at once; of a longer text, it reads the end."""
        if not isinstance(ends, list | tuple) or not all(
            isinstance(token, int) and EOS < token < tokenizer.vocab_size for token in ends
        ):
            raise ModelError("facts.ends has tokens that the vocabulary does not have")
        self.ends = frozenset({EOS, *ends})
        """The tokens that end an output: imported models may have several."""
        self._engine_name, self._threads = engine, threads

    def _facts(self) -> Iterator[str]:
        yield f"context {self.context:,}"
        yield f"engine {self._engine_name}"
        yield f"device {self.model.device}"

    @classmethod
    @remember_arguments
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        engine: str = "auto",
        threads: int | None = None,
        **options: Unpack[SamplingOptions],
    ) -> "Generator":
        """Load a model folder or a run (its finished model, otherwise its newest checkpoint).

        `engine` generates: `native` on a CPU, with 8-bit integers; `gpu` for greedy outputs on a GPU; `plain` is the
        model itself; `auto` is the fastest of these. Scores of texts are always those of the model itself.

        `options` are the fields of SearchConfig for sampling; they become the defaults of every generation.
        """
        folder, saved = open_model(path, device=device, threads=threads)
        if (task := saved.facts.get("task", "translate")) != "language_model":
            raise ModelError(f"{folder} was trained for the task {task}; it is not a language model")
        config = build(SearchConfig, saved.facts.get("search", {}), str(folder))
        context, ends = saved.facts.get("max_length", 1024), saved.facts.get("ends", [])
        generator = cls(
            saved.model, saved.tokenizer, context=context, config=config, engine=engine, threads=threads, ends=ends
        )
        generator.config = generator.with_options(options)
        if engine != "auto":  # refuse one that cannot run before the first prompt
            _ = generator.decoder, generator._engine
        return generator

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: str, *, max_tokens: int = MAX_TOKENS, stop: Stop = (), **options: Unpack[SamplingOptions]
    ) -> str: ...
    @overload
    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int = MAX_TOKENS,
        stop: Stop = (),
        **options: Unpack[SamplingOptions],
    ) -> list[str]: ...
    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        max_tokens: int = MAX_TOKENS,
        stop: Stop = (),
        **options: Unpack[SamplingOptions],
    ) -> str | list[str]:
        """Continue one prompt, or each prompt of a list; returns the continuations without the prompts.

        A continuation ends when the model ends the text, before the first of the `stop` strings, or after `max_tokens`
        tokens. `options` are fields of SearchConfig for sampling; temperature=0 is greedy.
        """
        require_count(max_tokens, "max_tokens")
        texts = [prompts] if isinstance(prompts, str) else prompts
        require_texts(texts, "prompts")
        if not stop_texts(stop) and (fast := self._search(texts, max_tokens, self.with_options(options))) is not None:
            return fast[0] if isinstance(prompts, str) else fast
        outputs = [best[0].text for best in self.generations(texts, max_tokens=max_tokens, stop=stop, **options)]
        return outputs[0] if isinstance(prompts, str) else outputs

    def generations(
        self,
        prompts: Sequence[str],
        *,
        num: int = 1,
        max_tokens: int = MAX_TOKENS,
        stop: Stop = (),
        **options: Unpack[SamplingOptions],
    ) -> list[list[Generation]]:
        """`num` continuations of each prompt, with tokens and log-probabilities; see `generate`."""
        require_texts(prompts, "prompts")
        require_count(num, "num")
        outputs: list[list[list[GenerationEvent]]] = [[[] for _ in range(num)] for _ in prompts]
        for event in self.events(prompts, num=num, max_tokens=max_tokens, stop=stop, **options):
            outputs[event.prompt][event.output].append(event)
        return [[self._generation(events) for events in of_prompt] for of_prompt in outputs]

    def _generation(self, events: Sequence[GenerationEvent]) -> Generation:
        """The complete output of all its events."""
        tokens = [(event.token, event.log_prob) for event in events if event.token is not None]
        reason = events[-1].finish_reason
        assert reason
        pieces = self.tokenizer.pieces([token for token, _ in tokens])
        return Generation("".join(event.text for event in events), pieces, [log_prob for _, log_prob in tokens], reason)

    def stream(
        self, prompt: str, *, max_tokens: int = MAX_TOKENS, stop: Stop = (), **options: Unpack[SamplingOptions]
    ) -> Iterator[str]:
        """Yield the continuation of a prompt as it is generated, in complete characters; see `generate`."""
        for event in self.events([prompt], max_tokens=max_tokens, stop=stop, **options):
            if event.text:
                yield event.text

    def events(
        self,
        prompts: Sequence[str],
        *,
        num: int = 1,
        max_tokens: int = MAX_TOKENS,
        stop: Stop = (),
        **options: Unpack[SamplingOptions],
    ) -> Iterator[GenerationEvent]:
        """Yield every token of `num` continuations of each prompt when it is generated; see `generate`."""
        steps = self.event_steps(prompts, num=num, max_tokens=max_tokens, stop=stop, **options)
        yield from (event for event in steps if event)

    def event_steps(
        self,
        prompts: Sequence[str],
        *,
        num: int,
        max_tokens: int,
        stop: Stop,
        at_once: int = TOGETHER,
        **options: Unpack[SamplingOptions],
    ) -> Iterator[GenerationEvent | None]:
        """Like `events`; None is a step in which a part of the prompts is read.

        `at_once` is the number of outputs that are generated in one batch.
        """
        require_texts(prompts, "prompts")
        config = self.with_options(options)
        require_count(max_tokens, "max_tokens")
        require_count(num, "num")
        stops = stop_texts(stop)
        choose = sampler(
            config.temperature, config.top_k, config.top_p, config.seed, self.model.device, min_p=config.min_p
        )
        groups = [
            [
                Continuation(
                    prompt,
                    number,
                    [BOS, *self.tokenizer.encode_document(text)],
                    TextStream(self.tokenizer, stops, at_start=not text),
                    max_tokens,
                    self.ends,
                )
                for number in range(first, min(first + at_once, num))
            ]
            for prompt, text in enumerate(prompts)
            for first in range(0, num, at_once)
        ]
        groups_at_once = max(1, at_once // num)
        for start in range(0, len(groups), groups_at_once):
            together = groups[start : start + groups_at_once]
            while together:  # until no output is left whose context has become full
                yield from self._round(together, choose, config)
                together = [[output] for group in together for output in group if not output.finished]

    def score(self, texts: Sequence[str], *, stride: int | None = None) -> list[TextScore]:
        """The log-probability of each text.

        A text with more tokens than the context is read in windows that begin every `stride` tokens (default: half of
        the context); each token is scored in the first window that has it. A small stride gives tokens more context.
        """
        require_texts(texts, "texts")
        if stride is not None and not (isinstance(stride, int) and 1 <= stride <= self.context):
            raise ConfigError(f"stride must be an integer between 1 and {self.context}, the context of the model")
        *_, scores = self.score_steps(texts, stride=stride)
        assert scores is not None
        return scores

    def score_steps(self, texts: Sequence[str], **options: Any) -> Iterator[list[TextScore] | None]:
        """Like `score`, in steps: yields None after each of them, and at last the scores.

        `options` are those of `text_log_probs`.
        """
        encoded = [self.tokenizer.encode_document(text) for text in texts]
        log_probs = yield from text_log_probs(self.model, encoded, self.context, **options)
        yield [
            TextScore(sum(values), self.tokenizer.pieces(ids), values)
            for ids, values in zip(encoded, log_probs, strict=True)
        ]

    @cached_property
    def cache_bytes(self) -> int:
        """Upper bound on the size of the KV cache of a token."""
        config = self.model.config
        values = 2 * config.d_model
        if isinstance(config, TransformerConfig):
            values = config.heads.kv_heads * (config.heads.d_k + config.heads.d_v)
        return _VALUE_BYTES * values * len(list(self.model.layers()))

    def unread_tokens(self, prompt: str, max_tokens: int) -> int:
        """The number of tokens at the start of a prompt that do not fit in the context, so the model ignores them."""
        ids = [BOS, *self.tokenizer.encode_document(prompt)]
        return len(ids) - len(visible(ids, max_tokens, self.context))

    def with_options(self, options: SamplingOptions) -> SearchConfig:
        """The search options of a generation with these options; raises a ConfigError if one is not allowed."""
        for name in options:
            if name not in SAMPLING_OPTIONS:
                raise ConfigError(f"a language model has no search option {name}; use {', '.join(SAMPLING_OPTIONS)}")
        return replace(self.config, **options)

    @cached_property
    def decoder(self) -> Decoder:
        """What computes the next tokens: the model itself, or its version in the native engine."""
        return pick_decoder(self._engine_name, self.model, self._threads)

    @cached_property
    def _engine(self) -> Engine:
        """The engine that runs the entire search if it is greedy, unless it is `plain`."""
        return pick_engine("plain" if self._engine_name == "native" else self._engine_name, self.model)

    def _search(self, prompts: Sequence[str], max_tokens: int, config: SearchConfig) -> list[str] | None:
        """The greedy continuations by a fast engine; None if no such engine can generate them."""
        if config.temperature or config.no_repeat or len(self.ends) > 1 or self._engine.name == "plain":
            return None
        encoded = [self.tokenizer.encode_document(text) for text in prompts]
        greedy = SearchConfig(beam=1, length_penalty=0.0, min_length=0, max_extra=max_tokens)
        longest = max(map(len, encoded), default=0)
        if longest + 1 + max_tokens > self.context or self._engine.supports(self.model, greedy):
            return None
        found = search_all(self._engine, [Job(ids, ids) for ids in encoded], greedy)
        texts = []
        for ids, text, (best, *_) in zip(encoded, prompts, found, strict=True):
            stream = TextStream(self.tokenizer, [], at_start=not text)
            new = "".join([stream.add(token) for token in best.tokens[len(ids) :]])
            texts.append(new + stream.finish())
        return texts

    def _round(
        self, groups: list[list[Continuation]], choose: Any, config: SearchConfig
    ) -> Iterator[GenerationEvent | None]:
        """Generate until every output is finished or its context is full. The outputs of a group share their ids."""
        contexts = [visible(group[0].ids, group[0].left, self.context) for group in groups]
        rooms = [self.context - len(context) + 1 for context in contexts]
        source = Stream(*pack_tokens([context[:-1] for context in contexts], self.model.device))
        for state in start_steps(self.decoder, source):  # noqa: B007
            yield None
        steps = roll_out_steps(
            self.decoder,
            source,
            rooms,
            choose,
            rows=len(groups[0]),
            no_repeat=config.no_repeat,
            first=[context[-1] for context in contexts],
            state=state,
            device=self.model.device,
        )
        for number, step in enumerate(steps, start=1):
            tokens, log_probs = step.token_BW.tolist(), step.log_prob_BW.tolist()
            ended = []
            for row, sentence in enumerate(step.sentences):
                for column, output in enumerate(groups[sentence]):
                    if output.finished:
                        continue
                    event = advance(output, tokens[row][column], log_probs[row][column])
                    if output.finished or number == rooms[sentence]:
                        ended.append((row, column))
                    yield event
            with torch.inference_mode():
                for row, column in ended:
                    step.finished_BW[row, column] = True
