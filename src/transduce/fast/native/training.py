"""Training on a CPU: modules of `nn/` and Adam, with the kernels of training.h.

They have the same parameters and names, and compute the same up to rounding and to the random numbers of dropout.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.fast.adjacent_heads import empty_adjacent, split_adjacent_heads
from transduce.fast.native.library import load_library
from transduce.fast.sublayers import connections, last_projection
from transduce.models.model import Model
from transduce.nn.attention import attend, repeat_heads
from transduce.nn.feed_forward import FeedForward
from transduce.nn.layers import DecoderLayer, EncoderLayer, Residual
from transduce.nn.linear import Linear
from transduce.nn.loss import capped_terms, chunked_loss
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.nn.segments import Segments
from transduce.tokenizers.tokenizer import PAD
from transduce.training.adam import Adam

_MOST_PARTS, _FEWEST_ROWS = 32, 16
"""Parts into which the rows of a tensor are divided, and rows of a part, unless there are fewer."""
_QUERIES, _COLUMNS = 64, 32
"""Queries that attention processes at once, and what columns are padded to a multiple of, at most."""
_LOGITS_AT_ONCE = 1 << 24
_BLOCK = 1 << 14
"""Weights that Adam updates at once."""
_KEPT_MEMORY = 1 << 30


@cache
def _library() -> ctypes.CDLL | None:
    """The library, which uses torch's threads."""
    if library := load_library():
        with suppress(AttributeError):  # not libgomp: the library then uses its own threads
            library.use_team(ctypes.CDLL(torch._C.__file__).GOMP_parallel)
    return library


def _run(kernel: str, parts: int, scratch: int, *fields: Tensor | float | None) -> None:
    """Run a kernel with the fields of its arguments in training.h; each thread has this number of floats as scratch."""
    threads = torch.get_num_threads()
    memory = torch.empty(threads * scratch)
    values = [x.data_ptr() if isinstance(x, Tensor) else x or 0 for x in (memory, scratch, threads, parts, *fields)]
    types = "".join("d" if isinstance(x, float) else "q" for x in values)
    getattr(_library(), kernel)(struct.pack(types, *values))


def _parts(rows: int) -> int:
    return max(1, min(_MOST_PARTS, rows // _FEWEST_ROWS))


def _is_half(*tensors: Tensor | None) -> bool:
    (dtype,) = {x.dtype for x in tensors if x is not None}
    assert dtype in (torch.float32, torch.bfloat16), "the kernels support no other type"
    return dtype == torch.bfloat16


class _Connect(torch.autograd.Function):
    """The steps of a residual connection: x + Dropout(sublayer + bias), and the norm of this.

    Without a sub-layer, the sum is x. Returns the sum if there is no gain; otherwise its norm and, if there is no
    sub-layer, also x, whose gradient the backward pass adds.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        sublayer_ND: Tensor | None,
        bias_D: Tensor | None,
        gain_D: Tensor | None,
        shift_D: Tensor | None,
        p: float,
        epsilon: float,
    ) -> Any:
        ctx.set_materialize_grads(False)
        x_ND, (N, D), rms = x_ND.contiguous(), x_ND.shape, shift_D is None
        sublayer_ND = None if sublayer_ND is None else sublayer_ND.contiguous()
        seeds = torch.randint(1 << 31, (2,)) if p else None
        sum_ND = x_ND if sublayer_ND is None else torch.empty_like(x_ND)
        y_ND = None if gain_D is None else torch.empty_like(x_ND)
        ctx.settings = N, D, _is_half(x_ND, sublayer_ND, bias_D, gain_D, shift_D), rms, float(p), float(epsilon), seeds
        _run("connect", _parts(N), 7 * D, *ctx.settings, x_ND, sublayer_ND, bias_D, gain_D, shift_D, sum_ND, y_ND)
        ctx.save_for_backward(None if gain_D is None else sum_ND, gain_D)
        ctx.has_sublayer = sublayer_ND is not None
        if y_ND is None:
            return sum_ND
        return y_ND if ctx.has_sublayer else (y_ND, x_ND.view(N, D))

    @staticmethod
    def backward(ctx: Any, *gradients_ND: Tensor | None) -> Any:
        sum_ND, gain_D = ctx.saved_tensors
        N, D = ctx.settings[:2]
        needs_x, _, *needs_sums = ctx.needs_input_grad[:5]
        first_ND, second_ND = (None if x is None else x.contiguous() for x in (*gradients_ND, None)[:2])
        like_ND = next(x for x in (first_ND, second_ND) if x is not None)
        dx_ND, dy_ND, dsum_ND = like_ND, None, first_ND
        if gain_D is not None:
            dx_ND, dy_ND = torch.empty_like(like_ND), torch.zeros_like(like_ND) if first_ND is None else first_ND
            dsum_ND = second_ND
        dsublayer_ND = torch.empty_like(like_ND) if ctx.has_sublayer else None
        partial_P3D = torch.empty(_parts(N), 3, D)
        _run(
            "connect_gradient", len(partial_P3D), 5 * D, *ctx.settings, sum_ND, gain_D, dy_ND, dsum_ND,
            None if gain_D is None else dx_ND, dsublayer_ND, partial_P3D,
        )  # fmt: skip
        sums_3D = partial_P3D.sum(0).to(like_ND.dtype)
        sums_D = [sum_D if needed else None for needed, sum_D in zip(needs_sums, sums_3D, strict=True)]
        return dx_ND if needs_x else None, dsublayer_ND, *sums_D, None, None


class _LinearRelu(torch.autograd.Function):
    """x W^T + b or, with `relu`, max(0, x W^T + b)."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor, relu: bool) -> Tensor:
        if relu:
            y_NF = x_ND @ weight_FD.t()
            (N, width) = y_NF.shape
            _run("add_bias_relu", _parts(N), 2 * width, N, width, _is_half(y_NF), bias_F, y_NF, None, None)
        else:
            y_NF = torch.addmm(bias_F, x_ND, weight_FD.t())
        ctx.save_for_backward(x_ND, weight_FD, y_NF if relu else None)
        return y_NF

    @staticmethod
    def backward(ctx: Any, dy_NF: Tensor) -> Any:
        x_ND, weight_FD, y_NF = ctx.saved_tensors
        dy_NF, (N, width) = dy_NF.contiguous(), dy_NF.shape
        partial_PF = torch.empty(_parts(N), width)
        # With max(0, x), its gradient replaces that of the output, which nothing else reads.
        _run(
            "bias_gradient", len(partial_PF), 2 * width, N, width, _is_half(dy_NF), None, y_NF, dy_NF, partial_PF,
        )  # fmt: skip
        needs_x, needs_weight, *_ = ctx.needs_input_grad
        return (
            dy_NF @ weight_FD if needs_x else None, dy_NF.t() @ x_ND if needs_weight else None,
            partial_PF.sum(0).to(dy_NF.dtype), None,
        )  # fmt: skip


class _Attend(torch.autograd.Function):
    """See `nn.attention.reference`."""

    @staticmethod
    def forward(
        ctx: Any, q_NHK: Tensor, k_MHK: Tensor, v_MHK: Tensor, q_segments: Segments, k_segments: Segments, causal: bool
    ) -> Tensor:
        o_NHK = q_NHK.new_empty(len(q_NHK), q_NHK.shape[1], v_MHK.shape[2])
        parts = [x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous() for x in (q_NHK, k_MHK, v_MHK)]
        ctx.save_for_backward(*parts)
        ctx.segments, ctx.causal = (q_segments, k_segments), causal
        _attention(parts, o_NHK, [], *ctx.segments, causal=causal)
        return o_NHK

    @staticmethod
    def backward(ctx: Any, do_NHK: Tensor) -> Any:
        gradients = empty_adjacent(*ctx.saved_tensors)
        _attention(ctx.saved_tensors, do_NHK.contiguous(), gradients, *ctx.segments, causal=ctx.causal)
        return *gradients, None, None, None


def _attention(
    inputs: Sequence[Tensor],
    o_NHK: Tensor,
    gradients: Sequence[Tensor],
    q_segments: Segments,
    k_segments: Segments,
    *,
    causal: bool,
) -> None:
    """Compute the outputs o or, from those of o, the gradients."""
    (_, H, d_k), d_v, longest = inputs[0].shape, inputs[2].shape[2], k_segments.longest
    K, V, W = (-(-size // _COLUMNS) * _COLUMNS for size in (d_k, d_v, longest))
    W += _COLUMNS
    scratch = 2 * longest * (K + V) + (d_k + d_v) * W + 2 * _QUERIES * (W + K + V)
    arrays = [field for x in (*inputs, o_NHK, *gradients) for field in (x, x.stride(0))]
    _run(
        "attend_segments", len(q_segments) * H, scratch, H, d_k, d_v, causal, _is_half(*inputs, o_NHK),
        q_segments.offsets_B1, k_segments.offsets_B1, *arrays, *([] if gradients else [None] * 6),
    )  # fmt: skip


def attend_segments(
    q_NHK: Tensor,
    k_MHK: Tensor,
    v_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    causal: bool,
    score_bias_BHTS: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """See `nn.attention.reference`; biases of scores and dropout need the padded grid."""
    if score_bias_BHTS is not None or dropout:
        return attend(q_NHK, k_MHK, v_MHK, q_segments, k_segments, causal, score_bias_BHTS, dropout)
    k_MHK, v_MHK = (repeat_heads(x, q_NHK.shape[1]) for x in (k_MHK, v_MHK))
    return _Attend.apply(q_NHK, k_MHK, v_MHK, q_segments, k_segments, causal)


def smoothed_cross_entropy(
    hidden_LD: Tensor, labels_L: Tensor, weight_VD: Tensor, smoothing: float, cap: float | None = None
) -> tuple[Tensor, Tensor]:
    """See `nn.loss.smoothed_cross_entropy`."""
    terms = capped_terms(partial(_terms, smoothing=smoothing), cap)
    return chunked_loss(hidden_LD, labels_L, weight_VD, terms, _LOGITS_AT_ONCE)


def _terms(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Sequence[Tensor]]:
    """See `nn.loss`; the gradient overwrites the logits."""
    (M, V), terms_M2 = logits.shape, torch.empty(len(logits), 2)
    _run(
        "smoothed_loss", _parts(M), V, M, V, logits.stride(0), _is_half(logits), PAD, float(smoothing), logits,
        labels.contiguous(), terms_M2,
    )  # fmt: skip
    return terms_M2.sum(0), [logits]


class NativeLinear(Linear):
    def forward(self, x_ND: Tensor) -> Tensor:
        if self.bias is None:
            return F.linear(x_ND, self.weight)
        return _LinearRelu.apply(x_ND, self.weight, self.bias, False)


class LinearWithoutBias(NativeLinear):
    """The last projection of a sub-layer: the residual connection around it adds the bias."""

    def forward(self, x_ND: Tensor) -> Tensor:
        return F.linear(x_ND, self.weight)


class NativeFeedForward(FeedForward):
    def forward(self, x_ND: Tensor) -> Tensor:
        if self.activation != "relu" or self.inner.bias is None:
            return super().forward(x_ND)
        return self.outer(_LinearRelu.apply(x_ND, self.inner.weight, self.inner.bias, True))


class NativeSelfAttention(SelfAttention):
    attend = staticmethod(attend_segments)
    split_heads = staticmethod(split_adjacent_heads)


class NativeCrossAttention(CrossAttention):
    attend = staticmethod(attend_segments)
    split_heads = staticmethod(split_adjacent_heads)


class NativeResidual(Residual):
    """Bias, dropout, residual connection and norm in one pass (post-norm) or two (pre-norm)."""

    def forward(self, x_ND: Tensor, sublayer: Callable[..., Tensor], *args: Any) -> Tensor:
        last = last_projection(sublayer)
        bias_D = last.bias if isinstance(last, LinearWithoutBias) else None
        p = self.dropout.p if self.training else 0.0
        norm = self.norm.weight, getattr(self.norm, "bias", None)
        if self.norm_first:
            normed_ND, shortcut_ND = _Connect.apply(x_ND, None, None, *norm, 0.0, self.norm.eps)
            return _Connect.apply(shortcut_ND, sublayer(normed_ND, *args), bias_D, None, None, p, 0.0)
        return _Connect.apply(x_ND, sublayer(x_ND, *args), bias_D, *norm, p, self.norm.eps)


_FUSED: dict[type[nn.Module], type[nn.Module]] = {
    SelfAttention: NativeSelfAttention,
    CrossAttention: NativeCrossAttention,
    FeedForward: NativeFeedForward,
    Linear: NativeLinear,
}


def fuse_native(model: Model) -> bool:
    """Replace the modules of a model on the CPU by fused ones; returns whether there is a library for this machine."""
    if _library() is None:
        return False
    _keep_memory()
    modules = list(model.modules())
    model.cross_entropy = smoothed_cross_entropy
    for module in modules:
        module.__class__ = _FUSED.get(type(module), type(module))
    for layer in modules:
        if type(layer) is EncoderLayer or type(layer) is DecoderLayer:
            for residual, sublayer in connections(layer):
                last = last_projection(sublayer)
                if type(residual) is Residual and isinstance(residual.output_norm, nn.Identity):
                    residual.__class__ = NativeResidual
                    if isinstance(last, NativeLinear) and last.bias is not None:
                        last.__class__ = LinearWithoutBias
    return True


@cache
def _keep_memory() -> None:
    """Let glibc keep the memory of tensors for the next ones: the system clears what it gives out anew."""
    trim_threshold, mmap_threshold = -1, -3
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(mmap_threshold, _KEPT_MEMORY) or mallopt(mmap_threshold, 1 << 25)  # the most in older versions
        mallopt(trim_threshold, _KEPT_MEMORY)


class NativeAdam:
    """Updates the weights and moments of `optimizer` with the gradients of `workers`, and these with the weights.

    `workers` are the weights themselves, or copies of them in bfloat16, in the same order.
    """

    def __init__(self, optimizer: Adam, workers: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
        assert all(x.is_contiguous() for x in (*workers, *weights))
        self._beta1, self._beta2, self._epsilon = optimizer.beta1, optimizer.beta2, optimizer.epsilon
        self._workers, self._half = workers, _is_half(workers[0])
        self._trained_T7 = torch.zeros(len(weights), 7, dtype=torch.int64)
        for row, weight, worker in zip(self._trained_T7, weights, workers, strict=True):
            row[:3] = torch.tensor([x.data_ptr() for x in (weight, *optimizer.moments[weight].values())])
            row[4] = worker.data_ptr()
            row[6:] = torch.tensor([optimizer.decay_of(weight)], dtype=torch.float64).view(torch.int64)
        sizes = enumerate(weight.numel() for weight in weights)
        self._blocks_C2 = torch.tensor([(number, start) for number, size in sizes for start in range(0, size, _BLOCK)])
        self._squares_C = torch.empty(len(self._blocks_C2), dtype=torch.float64)

    def step(self, number: int, rate: float, scale: float, clip_norm: float) -> Tensor:
        """Apply update `number`, counted from 1, with the gradients times `scale`; returns their norm.

        If the norm is not finite, the weights stay unchanged. The gradients are discarded.
        """
        gradients = [None if worker.grad is None else worker.grad.contiguous() for worker in self._workers]
        present = [(0, 0) if x is None else (x.data_ptr(), x.numel()) for x in gradients]
        self._trained_T7[:, [3, 5]] = torch.tensor(present)  # no element of a weight without a gradient
        fields = self._half, self._trained_T7, self._blocks_C2, self._squares_C
        _run("sum_squares", len(self._blocks_C2), _BLOCK, *fields, *[0.0] * 7)
        norm = self._squares_C.sum().sqrt().float() * scale
        if norm.isfinite():
            if clip_norm:
                scale *= min(1.0, clip_norm / (norm.item() + 1e-6))
            correction1, correction2 = 1 - self._beta1**number, 1 - self._beta2**number
            _run(
                "update_weights", len(self._blocks_C2), _BLOCK, *fields, self._beta1, self._beta2, self._epsilon,
                float(rate / correction1), float(rate), correction2**-0.5, float(scale),
            )  # fmt: skip
        for worker in self._workers:
            worker.grad = None
        return norm
