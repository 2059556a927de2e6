"""How Whisper's outputs are decoded: what they begin with, which tokens may follow, and the parts that times delimit.

An output begins with `<|startoftranscript|>` (our BOS), the language, the task, and `<|notimestamps|>` unless times are
wanted. Times are the last tokens of the vocabulary, 20 ms apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.data.batch import Stream
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.tokenizers.tokenizer import BOS, EOS

TIME_STEP = 0.02
"""Seconds from one time token to the next."""
MAX_FIRST_TIME = 50
"""The first time of an output is at most one second."""


def restrict_times(logits_RV: Tensor, generated_RT: Tensor, first_time: int) -> Tensor:
    """The logits of the next token, -inf for those that the rules of times forbid.

    An output begins with a time of at most one second. Times come in pairs: the end of a part and the start of the
    next one; only at the end of an output there may be a single one. They never decrease, and a part does not end where
    it starts. A time follows if all times together are more likely than any other token.
    """
    generated, R = generated_RT.shape[1], len(generated_RT)
    forbidden_RV = torch.zeros_like(logits_RV, dtype=torch.bool)
    if generated == 0:
        forbidden_RV[:, :first_time] = forbidden_RV[:, first_time + MAX_FIRST_TIME + 1 :] = True
    else:
        time_RT = generated_RT >= first_time
        last_R = time_RT[:, -1]
        before_R = time_RT[:, -2] if generated > 1 else torch.ones_like(last_R)
        forbidden_RV[:, first_time:] = (last_R & before_R)[:, None]
        ends_R = last_R & ~before_R
        end_RV = forbidden_RV[:, EOS].clone()
        forbidden_RV[:, :first_time] |= ends_R[:, None]
        forbidden_RV[:, EOS] = end_RV
        latest_R = generated_RT.where(time_RT, first_time - 1).amax(dim=1)
        least_R = torch.where(ends_R, latest_R, latest_R + 1)
        token_V = torch.arange(first_time, logits_RV.shape[1], device=logits_RV.device)
        forbidden_RV[:, first_time:] |= token_V < least_R[:, None]
    log_prob_RV = logits_RV.masked_fill(forbidden_RV, -torch.inf).float().log_softmax(-1)
    times_R = log_prob_RV[:, first_time:].logsumexp(-1)
    forbidden_RV[:, :first_time] |= (times_R > log_prob_RV[:, :first_time].amax(-1)).view(R, 1)
    return logits_RV.masked_fill(forbidden_RV, -torch.inf)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What outputs begin with, and which tokens they contain."""

    prefixes: Sequence[Sequence[int]]
    """The tokens that the output of each recording begins with, all of the same number."""
    prompt: Sequence[int] = ()
    """Tokens before the output: the end of what was said before."""
    languages: Sequence[int] = ()
    """The tokens of languages, if the first token of a prefix is to be the most likely of them."""
    suppressed: Sequence[int] = ()
    """Tokens that are never generated."""
    begin_suppressed: Sequence[int] = ()
    """Tokens that are not generated first."""
    first_time: int | None = None
    """The token of the time 0, if outputs have times."""
    no_speech: int | None = None
    """The token whose probability after BOS is that of no speech."""


@dataclass
class SpeechState:
    """The state of the model, and the tokens so far."""

    inner: Any
    pending_R: Tensor | None
    """The last token of the prefix, which the first step processes in place of BOS."""
    generated_RT: Tensor


class SpeechDecoder:
    """A `Decoder`: a speech model whose outputs follow rules. The search sees what comes after the prefix."""

    def __init__(self, model: EncoderDecoder, rules: Rules) -> None:
        self._model, self._rules = model, rules
        self.language_B = torch.tensor([prefix[0] if prefix else BOS for prefix in rules.prefixes])
        """The token of the language of each output."""
        self.no_speech_B = torch.zeros(len(rules.prefixes))
        """The probability that a recording has no speech."""

    def start(self, source: Stream) -> SpeechState:
        device, rules = self._model.device, self._rules
        state: Any = self._model.start(source)
        prefix_BP = torch.tensor(rules.prefixes, device=device, dtype=torch.int64)
        for token in rules.prompt:
            _, state = self._model.step(torch.full((len(prefix_BP),), token, device=device), state)
        pending_B = torch.full((len(prefix_BP),), BOS, device=device)
        for column, token_B in enumerate(prefix_BP.T):
            logits_BV, state = self._model.step(pending_B, state)
            pending_B = token_B
            if column == 0:
                self._read_start(logits_BV)
                if rules.languages:
                    languages = torch.tensor(rules.languages, device=device)
                    pending_B = languages[logits_BV[:, languages].argmax(-1)]
                    self.language_B = pending_B.cpu()
        return SpeechState(state, pending_B, prefix_BP.new_empty(len(prefix_BP), 0))

    def step(self, token_R: Tensor, state: SpeechState) -> tuple[Tensor, SpeechState]:
        generated_RT, rules = state.generated_RT, self._rules
        if state.pending_R is None:
            generated_RT = torch.cat([generated_RT, token_R[:, None]], dim=1)
            logits_RV, inner = self._model.step(token_R, state.inner)
        else:
            logits_RV, inner = self._model.step(state.pending_R, state.inner)
            if not rules.prefixes[0]:  # this is the step after BOS
                self._read_start(logits_RV[:: len(logits_RV) // len(rules.prefixes)])
        forbidden = [*rules.suppressed, *(() if generated_RT.shape[1] else rules.begin_suppressed)]
        logits_RV = logits_RV.index_fill(1, torch.tensor(forbidden, device=logits_RV.device).long(), -torch.inf)
        if rules.first_time is not None:
            logits_RV = restrict_times(logits_RV, generated_RT, rules.first_time)
        return logits_RV, SpeechState(inner, None, generated_RT)

    def reorder(self, state: SpeechState, index_BW: Tensor) -> SpeechState:
        row_R = index_BW.flatten()
        pending_R = None if state.pending_R is None else state.pending_R[row_R]
        return SpeechState(self._model.reorder(state.inner, index_BW), pending_R, state.generated_RT[row_R])

    def _read_start(self, logits_BV: Tensor) -> None:
        """The probability of no speech, which the model tells after BOS."""
        if self._rules.no_speech is not None:
            self.no_speech_B = logits_BV.float().softmax(-1)[:, self._rules.no_speech].cpu()


@dataclass(frozen=True)
class TimedTokens:
    """The tokens of a part of a window, between its times in seconds from the start of the window."""

    start: float
    end: float
    tokens: list[int]
    """With the tokens of the times."""


def split_by_times(tokens: Sequence[int], first_time: int, seconds: float) -> tuple[list[TimedTokens], float]:
    """The parts of the output of a window of this length, and where the next window begins.

    Text after the last pair of times is incomplete, so the next window begins there; a single time at the end says that
    nothing follows in this window.
    """
    times = [token >= first_time for token in tokens]
    cuts = [place for place in range(1, len(tokens)) if times[place - 1] and times[place]]

    def at(place: int) -> float:
        return (tokens[place] - first_time) * TIME_STEP

    if not cuts:
        last = max((place for place in range(len(tokens)) if times[place]), default=0)
        start, end = at(0) if any(times[:1]) else 0.0, at(last) if last else seconds
        return [TimedTokens(start, end, list(tokens))], seconds
    is_complete = times[-2:] == [False, True]
    if is_complete:
        cuts.append(len(tokens))
    starts = [0, *cuts[:-1]]
    parts = [
        TimedTokens(at(start), at(end - 1), list(tokens[start:end])) for start, end in zip(starts, cuts, strict=True)
    ]
    return parts, seconds if is_complete else parts[-1].end
