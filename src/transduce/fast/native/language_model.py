"""Decoder-only language models in the native engine: weights, KV caches and the calls into language_model.h."""

import ctypes
import threading
from collections import deque
from collections.abc import Iterator
from ctypes import byref, c_void_p, sizeof
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.data.batch import Stream
from transduce.fast.native import structs
from transduce.fast.native.structs import (
    ACTIVATIONS,
    CHUNK,
    FEW_ROWS,
    INTEGER_BYTES,
    PADDING,
    TILE_ROWS,
    Batch,
    Candidate,
    Chunk,
)
from transduce.fast.native.weights import ModelWeights
from transduce.models.config import DecoderOnlyConfig
from transduce.models.decoder_only import DecoderOnly
from transduce.models.weight_tensors import module_arrays
from transduce.models.weights_file import Arrays, Block, RawTensor
from transduce.nn.rotary_rates import RotaryRates

_PREFILL_TOKENS = 128
"""Tokens of prompts that are processed at once."""
_LEAST_POSITIONS = 128
"""Positions for which memory is reserved at first."""
Floats = npt.NDArray[np.float32]
_TOKEN = np.dtype([("sequence", np.uintp), ("token", np.int32), ("position", np.int32)])
_CANDIDATE = np.dtype([("log_prob", np.float32), ("token", np.int32)])
assert (_TOKEN.itemsize, _CANDIDATE.itemsize) == (sizeof(structs.Token), sizeof(Candidate))


class _Text:
    """A text in progress: its KV cache."""

    def __init__(self, model: structs.LanguageModel) -> None:
        self._model = model
        self._caches = self._allocate(0)
        """Keys and values, as (layers, heads, capacity, width)."""
        self._struct = structs.Sequence()
        self.length = 0
        """Number of tokens in the caches."""

    @property
    def address(self) -> int:
        return ctypes.addressof(self._struct)

    def reserve(self, length: int) -> None:
        """Make room for this many tokens; the room doubles, because a text grows by one token at a time."""
        if length > self._struct.capacity:
            self._use(self._caches, max(length, 2 * self._struct.capacity, _LEAST_POSITIONS))

    def copy(self) -> "_Text":
        """A text with the same tokens and caches of its own."""
        text = _Text(self._model)
        text.length = self.length
        text._use(self._caches, self._struct.capacity)
        return text

    def _use(self, caches: list[Floats], capacity: int) -> None:
        """Use new caches with room for this many tokens and the content of these."""
        self._caches = self._allocate(capacity)
        for new, old in zip(self._caches, caches, strict=True):
            new[:, :, : self.length] = old[:, :, : self.length]
        self._struct.keys, self._struct.values = (cache.ctypes.data for cache in self._caches)
        self._struct.capacity = capacity

    def _allocate(self, capacity: int) -> list[Floats]:
        model = self._model
        return [
            np.empty((model.layers, model.kv_heads, capacity, width), np.float32) for width in (model.d_k, model.d_v)
        ]


class LanguageModelWeights(ModelWeights):
    """The structures of a decoder-only model."""

    _least_positions = _LEAST_POSITIONS

    def __init__(self, config: DecoderOnlyConfig, arrays: Arrays, library: ctypes.CDLL) -> None:
        super().__init__(config, arrays, library, chunked=True)
        heads, embedding = config.heads, arrays["embedding.weight_VD"]
        self._rates = config.rotary_rates()
        scale = config.d_model**0.5 if config.embedding == "scaled" else 1.0
        self.model = structs.LanguageModel(
            embedding.shape[0], config.d_model, heads.num_heads, heads.kv_heads, heads.d_k, heads.d_v,
            config.layers, config.norm == "pre", ACTIVATIONS.index(config.activation), config.d_ff, scale,
        )  # fmt: skip
        projection = embedding if config.tie_output else arrays["output.weight_VD"]
        self.model.projection = self.linear(projection, arrays["output.bias_V"] if config.output_bias else None)
        self.model.embedding = self.model.projection if config.tie_output else self.linear(embedding, None)
        if config.embedding == "normalized":
            self.model.embedding_norm = self._norm("embedding.norm")
        if config.norm == "pre":
            self.model.final_norm = self._norm("decoder_norm")
        self.model.layer = self._stack("decoder", config.layers)
        if config.positions == "learned":
            self._read_learned_positions(self.model)
        del self._arrays
        self.require_positions(1)

    def _compute_positions(self, length: int) -> None:
        if self._config.positions != "rotary":
            super()._compute_positions(length)
            return
        table = _rotations(length, self._rates)
        self.model.rotations = self.floats(RawTensor("F32", table.shape, table.data.cast("B")))


class NativeLanguageModel:
    """A `GreedyDecoder` (search/sampling.py) that runs a language model with 8-bit integers, on several threads.

    Calls from several threads run one after the other, since they share the buffers.
    """

    def __init__(self, model: DecoderOnly, library: ctypes.CDLL, threads: int) -> None:
        self._library, self._threads = library, threads
        self._weights = LanguageModelWeights(model.config, module_arrays(model.state_dict()), library)
        self._lock = threading.Lock()
        self._reserved = (0, 0)
        """Rows of the buffers, and the size of each thread's scratch space."""
        self._logits_RV: Floats = np.empty((0, self._weights.model.vocabulary), np.float32)

    @property
    def description(self) -> str:
        return f"native (8-bit, {self._library.instructions().decode()}, threads: {self._threads})"

    def start(self, prompts: Stream) -> list[_Text]:
        return deque(self.start_steps(prompts), maxlen=1).pop()

    def start_steps(self, prompts: Stream) -> Iterator[list[_Text]]:
        """As `start`, in parts of a bounded number of tokens."""
        lengths, ids = prompts.segments.lengths_B.tolist(), prompts.ids_N.tolist()
        self._weights.require_positions(max(lengths, default=1))
        texts = [_Text(self._weights.model) for _ in lengths]
        rows: list[tuple[int, int, int]] = []
        for text, length in zip(texts, lengths, strict=True):
            text.reserve(length)
            rows += [(text.address, ids[len(rows) + position], position) for position in range(length)]
            text.length = length
        for start in range(0, len(rows), _PREFILL_TOKENS):
            self._process(rows[start : start + _PREFILL_TOKENS], max(lengths), None)
            yield texts
        if not rows:
            yield texts

    def step(self, token_R: Tensor, state: list[_Text]) -> tuple[Tensor, list[_Text]]:
        logits_RV = np.empty((len(state), self._weights.model.vocabulary), np.float32)
        self._append(token_R, state, logits_RV)
        return torch.from_numpy(logits_RV), state

    def greedy_step(self, token_R: Tensor, state: list[_Text]) -> tuple[Tensor, Tensor, list[_Text]]:
        if len(self._logits_RV) < len(state):
            self._logits_RV = np.empty((len(state), self._weights.model.vocabulary), np.float32)
        best_R = self._append(token_R, state, self._logits_RV)
        return torch.from_numpy(best_R["token"].astype(np.int64)), torch.from_numpy(best_R["log_prob"].copy()), state

    def reorder(self, state: list[_Text], index_BW: Tensor) -> list[_Text]:
        index = index_BW.flatten().tolist()
        return [state[old].copy() if old in index[:new] else state[old] for new, old in enumerate(index)]

    def _append(self, token_R: Tensor, texts: list[_Text], logits_RV: Floats) -> npt.NDArray[Any]:
        longest = max(text.length for text in texts) + 1
        self._weights.require_positions(longest)
        rows: list[tuple[int, int, int]] = []
        for text, token in zip(texts, token_R.tolist(), strict=True):
            text.reserve(text.length + 1)
            rows.append((text.address, token, text.length))
            text.length += 1
        return self._process(rows, longest, logits_RV)

    def _process(self, rows: list[tuple[int, int, int]], longest: int, logits_RV: Floats | None) -> npt.NDArray[Any]:
        """Process tokens, given the address of their text, id and position; returns the most likely next tokens."""
        tokens, best_R, model = np.array(rows, _TOKEN), np.empty(len(rows), _CANDIDATE), self._weights.model
        assert 0 <= tokens["token"].min() <= tokens["token"].max() < model.vocabulary
        with self._lock:
            self._reserve(len(rows), longest)
            self._library.process_tokens(
                byref(model), c_void_p(tokens.ctypes.data), len(rows), byref(self._batch),
                None if logits_RV is None else c_void_p(logits_RV.ctypes.data), c_void_p(best_R.ctypes.data),
                self._threads,
            )  # fmt: skip
        return best_R

    def _reserve(self, rows: int, longest: int) -> None:
        """Allocate the buffers for this many rows of texts up to this length, unless they are there."""
        if rows <= self._reserved[0] and longest <= self._reserved[1]:
            return
        model, threads = self._weights.model, self._threads
        attended = model.heads * model.d_v
        qkv = model.heads * model.d_k + model.kv_heads * (model.d_k + model.d_v)
        widest = max(model.width, attended, model.inner_width) + PADDING
        # Doubled, because a text grows by one token at a time.
        scratch = max(2 * longest if longest > self._reserved[1] else self._reserved[1], widest)
        rows = max(rows, self._reserved[0])
        least = threads * FEW_ROWS  # workers have rows for themselves
        bytes_of = {
            "x": max(rows, least) * model.width * 4, "y": rows * model.width * 4,
            "wide": rows * max(2 * model.inner_width, qkv + attended) * 4,
            "quantised": max((rows + TILE_ROWS) * widest, least * scratch) * INTEGER_BYTES,
            "chunks": max(rows, least) * -(-scratch // CHUNK) * sizeof(Chunk),
            "scratch": threads * scratch * 4,
            "max_logit": threads * rows * 4, "exp_sum": threads * rows * 4,
            "candidates": threads * rows * sizeof(Candidate),
        }  # fmt: skip
        self._buffers = {name: Block(size) for name, size in bytes_of.items()}
        addresses = {name: buffer.address for name, buffer in self._buffers.items()}
        self._batch = Batch(scratch_size=scratch, **addresses)
        self._reserved = rows, scratch


def language_model_limits(config: DecoderOnlyConfig) -> str | None:
    """What engine native does not compute: it has the settings of GPT-2, Llama, Qwen2 and the paper."""
    if config.window is not None:
        return "no attention to a window (model.window)"
    if config.qk_norm:
        return "no norms of queries and keys (model.qk_norm)"
    if config.score_cap is not None or config.logit_cap is not None:
        return "no bounds of scores or logits (model.score_cap, model.logit_cap)"
    return "no norms after sub-layers (model.norm = both)" if config.norm == "both" else None


def _rotations(length: int, rates: RotaryRates) -> Floats:
    """The cosines and sines of rotary positions (`Rotary` in nn/positions.py), as (length, d_k)."""
    angle_TK = (np.arange(length)[:, None] * np.array(rates.rates())).astype(np.float32)
    return np.concatenate([np.cos(angle_TK), np.sin(angle_TK)], axis=1)
