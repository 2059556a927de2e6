"""A sentence that the native engine is decoding."""

import math
from array import array
from ctypes import pointer
from typing import Any

from transduce.fast.native import structs
from transduce.fast.native.shortlists import Shortlists
from transduce.fast.native.spare_memory import SpareMemory
from transduce.fast.native.structs import MAX_BEAM, Model
from transduce.models.arrays import zeros
from transduce.models.given_outputs import Attention, TokenStatistics
from transduce.search.decoder import Hypothesis
from transduce.search.engine import ANY, ANY_BUT_END, Job
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import EOS


class ActiveJob:
    """A job that is being decoded: its structure and the memory that it points to."""

    def __init__(
        self,
        key: int,
        job: Job,
        limit: int,
        config: SearchConfig,
        model: Model,
        memory: SpareMemory,
        shortlists: Shortlists | None,
        reads: bool,
    ) -> None:
        assert config.beam <= (1 if reads else MAX_BEAM)
        self.key, self._nbest, beam = key, config.nbest, config.beam
        self.common = -1
        """The source token whose list has the common tokens; -1 without a shortlist."""
        positions, source_length = limit + 1, len(job.tokens) + 1
        kv_width = model.heads * (model.d_k + model.d_v) * model.decoder_layers
        self_width, state_width = (0, model.width * model.decoder_layers) if model.ssru else (kv_width, 0)
        least = min(config.min_length, positions)
        forced = array("i", [ANY_BUT_END] * least + [ANY] * (positions - least))
        forced[: len(job.prefix)], forced[limit] = array("i", job.prefix), EOS
        self.caches = {
            "self_kv": memory.take(beam * positions * self_width),
            "cross_kv": memory.take(source_length * kv_width),
        }
        self.arrays: dict[str, array[Any]] = {
            "states": zeros("f", 2 * beam * state_width),
            "ancestor": zeros("B", beam * positions),
            "tokens": zeros("i", beam * positions),
            "forced": forced,
            "log_prob": array(
                "f", [0.0, *[-math.inf] * (beam - 1)]
            ),  # search starts with one hypothesis, which is empty
            "finished_tokens": zeros("i", beam * positions),
            "finished_length": zeros("i", beam),
            "finished_log_prob": zeros("f", beam),
            "finished_score": array("f", [-math.inf] * beam),
        }
        if reads:
            # A search may end early, as with weights that are no numbers.
            self.arrays |= {
                "head_attention": zeros("f", model.heads * source_length),
                "attention": array("f", [1 / source_length]) * (positions * source_length),
                "token_log_prob": array("f", [-math.inf]) * positions,
                "entropy": zeros("f", positions),
            }
        addresses = {name: one.buffer_info()[0] for name, one in self.arrays.items()}
        addresses |= {name: block.address for name, block in self.caches.items()}
        self.struct = structs.Job(
            beam=beam, positions=positions, source_length=source_length, limit=limit, nbest=config.nbest,
            alpha=config.length_penalty, **addresses,
        )  # fmt: skip
        if config.shortlist:
            assert shortlists
            self.common, common, own = shortlists.of(job)
            self.struct.common, self.struct.own = pointer(common.struct), own.struct
            self._shortlist = common, own  # they own the memory

    def give_back(self, memory: SpareMemory) -> None:
        """Release the KV caches of a job that takes no more steps."""
        while self.caches:
            memory.give_back(self.caches.popitem()[1])

    def hypotheses(self) -> list[Hypothesis]:
        """The finished hypotheses, best first."""
        tokens, length, log_prob, score = (
            self.arrays[f"finished_{name}"] for name in ("tokens", "length", "log_prob", "score")
        )
        order = sorted(range(self.struct.finished_count), key=lambda i: -score[i])[: self._nbest]
        starts = [i * self.struct.positions for i in order]
        return [
            Hypothesis(tokens[start : start + length[i]].tolist(), log_prob[i], score[i])
            for i, start in zip(order, starts, strict=True)
        ]

    def attention_weights(self) -> Attention:
        """The cross-attention (T, S) of the layer that aligns: the mean over its heads."""
        weights, length = self.arrays["attention"], self.struct.source_length
        return [weights[start : start + length].tolist() for start in range(0, len(weights), length)]

    def token_statistics(self) -> TokenStatistics:
        """What the model predicts at each token."""
        log_probs, entropies = (self.arrays[name].tolist() for name in ("token_log_prob", "entropy"))
        return TokenStatistics(log_probs, entropies, [max(own) for own in self.attention_weights()])
