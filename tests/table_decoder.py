"""A decoder whose every probability is known, and search over it by enumeration and on lists."""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.search.decoder import Decoder, Hypothesis, last_result
from transduce.search.sampling import Choose, roll_out_search

PAD, UNK, BOS, EOS = 0, 1, 2, 3
WORDS = (4, 5, 6)
EXACT_BEAM = 81  # as many as there are outputs of 4 words, so nothing is ever dropped


@dataclass
class Rows:
    """What the fake decoder remembers: sentence and prefix of each row."""

    rows: list[tuple[str, tuple[int, ...]]]
    sentences: int


class TableDecoder:
    """Random but fixed probabilities of the next token, given the sentence and all that was said before."""

    def __init__(self, seed: int, end_bonus: float = 0.0, sharp_end: bool = False) -> None:
        self.seed, self.end_bonus, self.sharp_end = seed, end_bonus, sharp_end
        self.steps = 0
        self._logits: dict[tuple[str, tuple[int, ...]], list[float]] = {}

    def logits(self, sentence: str, prefix: tuple[int, ...]) -> list[float]:
        if (sentence, prefix) not in self._logits:
            draw = random.Random(f"{self.seed}/{sentence}/{prefix}")
            shift = draw.uniform(-5, 5)  # logits are no log-probabilities
            logits = [draw.gauss(0, 1.5) + shift for _ in range(7)]
            logits[EOS] += self.end_bonus
            if self.sharp_end:
                logits[EOS] = shift + (12 if draw.random() < 0.3 else -12)
            self._logits[sentence, prefix] = logits
        return self._logits[sentence, prefix]

    def log_probs(self, sentence: str, prefix: tuple[int, ...]) -> list[float]:
        logits = self.logits(sentence, prefix)
        total = math.log(sum(map(math.exp, logits)))
        return [logit - total for logit in logits]

    def log_prob(self, sentence: str, words: Sequence[int]) -> float:
        """Of these words and the end marker."""
        said = (*words, EOS)
        return sum(self.log_probs(sentence, tuple(said[:t]))[token] for t, token in enumerate(said))

    def start(self, source: list[str]) -> Rows:
        return Rows([(sentence, ()) for sentence in source], len(source))

    def step(self, token_R: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        self.steps += 1
        rows = []
        for (sentence, prefix), token in zip(state.rows, token_R.tolist(), strict=True):
            rows.append((sentence, (*prefix, token)))
            assert (*prefix, token)[0] == BOS
        return torch.tensor([self.logits(s, prefix[1:]) for s, prefix in rows]), Rows(rows, state.sentences)

    def reorder(self, state: Rows, index_BW: Tensor) -> Rows:
        width = len(state.rows) // state.sentences
        owners = [{row // width for row in rows} for rows in index_BW.tolist()]
        assert all(len(owner) == 1 for owner in owners), "a sentence must keep to its own rows"
        order = [min(owner) for owner in owners]
        assert order == sorted(set(order)), "sentences must keep their order"
        return Rows([state.rows[row] for row in index_BW.flatten().tolist()], len(owners))


def penalty(length_with_end: int, alpha: float) -> float:
    return math.pow((5 + length_with_end) / 6, alpha)


@dataclass(frozen=True)
class Symbols:
    """Words that are symbols, and those of them that a sentence must contain."""

    reserved: range = range(0)
    once: tuple[int, ...] = ()

    def is_complete(self, words: Sequence[int]) -> bool:
        return {*self.once} <= {*words}

    def allows(self, word: int, before: Sequence[int]) -> bool:
        return word not in self.reserved or (word in self.once and word not in before)

    def is_output(self, words: Sequence[int], limit: int, prefix: Sequence[int]) -> bool:
        """Whether words that begin with a prefix, which is exempt, may be an output."""
        fit = (self.allows(words[t], words[:t]) for t in range(len(prefix), len(words)))
        return all(fit) and (self.is_complete(words) or len(words) == limit)


NO_SYMBOLS = Symbols()


def all_outputs(
    decoder: TableDecoder,
    sentence: str,
    limit: int,
    alpha: float,
    prefix: Sequence[int] = (),
    symbols: Symbols = NO_SYMBOLS,
    min_length: int = 0,
) -> list[Hypothesis]:
    """Every output there is, best first."""
    found = []
    for length in range(max(len(prefix), min(min_length, limit)), limit + 1):
        for words in itertools.product(WORDS, repeat=length):
            if words[: len(prefix)] == tuple(prefix) and symbols.is_output(words, limit, prefix):
                log_prob = decoder.log_prob(sentence, words)
                found.append(Hypothesis(list(words), log_prob, log_prob / penalty(length + 1, alpha)))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def _next_tokens(words: Sequence[int], symbols: Symbols, min_length: int) -> list[int]:
    ends = len(words) >= min_length and symbols.is_complete(words)
    return [*([EOS] if ends else []), *(word for word in WORDS if symbols.allows(word, words))]


def greedy_output(
    decoder: TableDecoder,
    sentence: str,
    limit: int,
    prefix: Sequence[int] = (),
    symbols: Symbols = NO_SYMBOLS,
    min_length: int = 0,
) -> list[int]:
    """The likeliest word, again and again."""
    words: list[int] = list(prefix)
    while len(words) < limit:
        log_probs = decoder.log_probs(sentence, tuple(words))
        best = max(_next_tokens(words, symbols, min_length), key=log_probs.__getitem__)
        if best == EOS:
            break
        words.append(best)
    return words


def narrow_beam(
    decoder: TableDecoder,
    sentence: str,
    limit: int,
    beam: int,
    alpha: float,
    symbols: Symbols = NO_SYMBOLS,
    min_length: int = 0,
) -> list[Hypothesis]:
    """Beam search as the definition has it, on lists: of the best 2W extensions, those that end and W that do not."""
    alive: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[Hypothesis] = []
    for t in range(limit + 1):
        extensions = [
            (log_prob + decoder.log_probs(sentence, words)[token], words, token)
            for log_prob, words in alive
            for token in ([EOS] if t == limit else _next_tokens(words, symbols, min_length))
        ]
        best = sorted(extensions, reverse=True)[: 2 * beam]
        ended += [Hypothesis(list(words), p, p / penalty(t + 1, alpha)) for p, words, token in best if token == EOS]
        alive = [(p, (*words, token)) for p, words, token in best if token != EOS][:beam]
    return sorted(ended, key=lambda hypothesis: -hypothesis.score)


def assert_same_outputs(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[h.tokens for h in group] for group in found] == [[h.tokens for h in group] for group in expected]
    for group, expected_group in zip(found, expected, strict=True):
        assert [h.log_prob for h in group] == pytest.approx([h.log_prob for h in expected_group], abs=1e-4)
        assert [h.score for h in group] == pytest.approx([h.score for h in expected_group], abs=1e-4)


def roll_out(
    decoder: Decoder, source: Any, limits: Sequence[int], choose: Choose, *, alpha: float, **options: Any
) -> list[list[Hypothesis]]:
    """All steps of `roll_out_search` at once."""
    return last_result(roll_out_search(decoder, source, limits, choose, alpha=alpha, **options))
