"""A sentence that the native engine is decoding."""

from ctypes import pointer
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.engines.engine import ANY, ANY_BUT_END, Job
from transduce.engines.native import structs
from transduce.engines.native.shortlists import Shortlists
from transduce.engines.native.spare_memory import SpareMemory
from transduce.engines.native.structs import MAX_BEAM, Model
from transduce.models.given_outputs import Floats
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import EOS


class ActiveJob:
    """A job that is being decoded: its structure and the arrays that it points to."""

    def __init__(
        self,
        key: int,
        job: Job,
        limit: int,
        config: SearchConfig,
        model: Model,
        memory: SpareMemory,
        shortlists: Shortlists | None,
        align: bool,
    ) -> None:
        assert config.beam <= (1 if align else MAX_BEAM)
        self.key, self._nbest, beam = key, config.nbest, config.beam
        self.common = -1
        """The source token whose list has the common tokens; -1 without a shortlist."""
        positions, source_length = limit + 1, len(job.tokens) + 1
        kv_width = model.heads * (model.d_k + model.d_v) * model.decoder_layers
        self_width, state_width = (0, model.width * model.decoder_layers) if model.ssru else (kv_width, 0)
        forced = np.full(positions, ANY, np.int32)
        forced[: config.min_length] = ANY_BUT_END
        forced[: len(job.prefix)], forced[limit] = job.prefix, EOS
        log_prob = np.full(beam, -np.inf, np.float32)
        log_prob[0] = 0.0  # search starts with one hypothesis, which is empty
        self.arrays: dict[str, npt.NDArray[Any]] = {
            "self_kv": memory.take(beam * positions * self_width),
            "cross_kv": memory.take(source_length * kv_width),
            "states": np.zeros(2 * beam * state_width, np.float32),
            "ancestor": np.zeros((beam, positions), np.uint8),
            "tokens": np.zeros((beam, positions), np.int32),
            "forced": forced,
            "log_prob": log_prob,
            "finished_tokens": np.zeros((beam, positions), np.int32),
            "finished_length": np.zeros(beam, np.int32),
            "finished_log_prob": np.zeros(beam, np.float32),
            "finished_score": np.full(beam, -np.inf, np.float32),
        }
        if align:
            # Where a search ends early, as with weights that are no numbers, they are equal.
            self.arrays["attention"] = np.full((positions, model.heads, source_length), 1 / source_length, np.float32)
        addresses = {name: array.ctypes.data for name, array in self.arrays.items()}
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
        for name in ("self_kv", "cross_kv"):
            memory.give_back(self.arrays.pop(name))

    def hypotheses(self) -> list[Hypothesis]:
        """The finished hypotheses, best first."""
        tokens, length, log_prob, score = (
            self.arrays[f"finished_{name}"] for name in ("tokens", "length", "log_prob", "score")
        )
        order = np.argsort(-score, kind="stable")[: min(self._nbest, self.struct.finished_count)]
        return [Hypothesis(tokens[i, : length[i]].tolist(), float(log_prob[i]), float(score[i])) for i in order]

    def attention_weights(self) -> Floats:
        """The cross-attention (T, S) of the layer that aligns: the mean over its heads."""
        weights_THS: Floats = self.arrays["attention"]
        return weights_THS.mean(axis=1)
