"""The outputs of a language model, and how they grow token by token."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from transduce.config import require
from transduce.files.texts import require_texts
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import ESCAPE, unescape
from transduce.tokenizers.tokenizer import EOS

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
    return GenerationEvent(
        output.prompt, output.number, text, None if token in output.ends else token, log_prob, reason
    )


@dataclass
class Collected:
    """The events of one output."""

    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    reason: FinishReason = "length"

    def add(self, event: GenerationEvent) -> None:
        """Add the next event."""
        self.texts.append(event.text)
        if event.token is not None:
            self.ids.append(event.token)
            self.log_probs.append(event.log_prob)
        self.reason = event.finish_reason or self.reason

    def generation(self, tokenizer: AnyTokenizer) -> Generation:
        """The complete output."""
        return Generation("".join(self.texts), tokenizer.pieces(self.ids), self.log_probs, self.reason)
