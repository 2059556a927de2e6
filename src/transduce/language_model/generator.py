"""The generator: continues texts with a language model, and scores texts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, overload

import torch

from transduce.config import build, require_count
from transduce.data.batch import Stream
from transduce.errors import ConfigError, ModelError
from transduce.fast.choose import pick_decoder, pick_engine
from transduce.files.texts import require_texts
from transduce.language_model.generation import (
    Collected,
    Continuation,
    Generation,
    GenerationEvent,
    TextScore,
    TextStream,
    advance,
    stop_texts,
    visible,
)
from transduce.models.folder import find_model, load_model
from transduce.models.likelihood import text_log_probs
from transduce.models.loaded import Loaded, remember_arguments
from transduce.models.model import Model
from transduce.nn.device import pick_device
from transduce.nn.segments import Segments
from transduce.search.decoder import Decoder
from transduce.search.engine import Engine, Job, search_all
from transduce.search.options import SAMPLING_OPTIONS, SamplingOptions, SearchConfig
from transduce.search.sampling import roll_out_steps, sampler
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.tokenizer import BOS, EOS

MAX_TOKENS = 256
Stop = str | Sequence[str]
"""One or several texts before which an output ends."""
_TOGETHER = 32
"""Number of outputs that are generated in one batch."""


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
        if not all(isinstance(token, int) and EOS < token < tokenizer.vocab_size for token in ends):
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
        folder = find_model(Path(path))
        if threads:
            torch.set_num_threads(threads)
        saved = load_model(folder, pick_device(device))
        require_language_model(saved.facts, folder)
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
        outputs: list[list[Collected]] = [[Collected() for _ in range(num)] for _ in prompts]
        for event in self.events(prompts, num=num, max_tokens=max_tokens, stop=stop, **options):
            outputs[event.prompt][event.output].add(event)
        return [[collected.generation(self.tokenizer) for collected in of_prompt] for of_prompt in outputs]

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
                for number in range(num)
            ]
            for prompt, text in enumerate(prompts)
        ]
        at_once = max(1, _TOGETHER // num)
        for start in range(0, len(groups), at_once):
            together = groups[start : start + at_once]
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
        encoded = [self.tokenizer.encode_document(text) for text in texts]
        return [
            TextScore(sum(log_probs), self.tokenizer.pieces(ids), log_probs)
            for ids, log_probs in zip(encoded, text_log_probs(self.model, encoded, self.context, stride), strict=True)
        ]

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

    def _round(self, groups: list[list[Continuation]], choose: Any, config: SearchConfig) -> Iterator[GenerationEvent]:
        """Generate until every output is finished or its context is full. The outputs of a group share their ids."""
        contexts = [visible(group[0].ids, group[0].left, self.context) for group in groups]
        rooms = [self.context - len(context) + 1 for context in contexts]
        steps = roll_out_steps(
            self.decoder,
            self._stream([context[:-1] for context in contexts]),
            rooms,
            choose,
            rows=len(groups[0]),
            no_repeat=config.no_repeat,
            first=[context[-1] for context in contexts],
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

    def _stream(self, sequences: list[list[int]]) -> Stream:
        """Packed sequences, some or all of which may be empty."""
        device = self.model.device
        ids_N = torch.tensor([token for ids in sequences for token in ids], dtype=torch.int64, device=device)
        return Stream(ids_N, Segments.of_lengths([len(ids) for ids in sequences], device))


def require_language_model(facts: dict[str, Any], folder: Path) -> None:
    """Raise an error if the facts of a model tell that it was trained for another task."""
    task = facts.get("task", "translate")
    if task != "language_model":
        raise ModelError(f"{folder} was trained for the task {task}; it is not a language model")
