"""Gradients and updates of a model's weights. Precision, graph capture and sharding are chosen once, here.

The weights that are trained are always float32, and `training/adam.py` updates them.
"""

import copy
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from transduce.data.batch import Batch
from transduce.features import HOOKS
from transduce.models.model import Model
from transduce.nn.loss import with_bias
from transduce.nn.low_rank import LowRank
from transduce.training.adam import Adam
from transduce.training.cuda_graph import capture
from transduce.training.processes import SINGLE_PROCESS, Processes
from transduce.training.r_drop import symmetric_kl
from transduce.training.sharded import is_sharded, local_shard
from transduce.training.task import Task
from transduce.training.train_config import TrainConfig


class Float32:
    """The weights themselves compute their gradients, in their own precision."""

    fused = False
    """Whether the worker has the fused modules of a CPU."""

    def __init__(self, model: Model) -> None:
        self.worker = model
        """The model that computes."""
        if model.device.type == "cpu" and not is_sharded(model):
            shared = {id(x): x for x in (*model.parameters(), *model.buffers())}
            worker = copy.deepcopy(model, {id(model.low_rank): None, **shared})  # modules, not weights
            if HOOKS["fuse_native"](worker):
                self.worker, self.fused = worker, True

    def begin(self) -> None:
        """Called before every forward pass. Gradients of several batches are summed, so nothing is cleared here."""

    def collect(self) -> None:
        """Add the worker's gradients to those of the weights; here, they are the same tensors."""

    def begin_again(self) -> None:
        """Called after a warm-up, whose batch is computed once more."""
        self.worker.zero_grad()

    def refresh(self) -> None:
        """Copy the updated weights to the worker; here, they are the same tensors."""

    @property
    def magnitudes(self) -> list[float]:
        """What the next step needs of the last one, besides weights and moments: largest magnitudes, for 8 bits."""
        return []

    @magnitudes.setter
    def magnitudes(self, magnitudes: list[float]) -> None:
        pass


class Bfloat16Copy(Float32):
    """A bfloat16 copy of the weights computes the gradients."""

    def __init__(self, model: Model) -> None:
        self._weights: list[Tensor] = list(model.parameters())
        self.worker = copy.deepcopy(model, {id(model.low_rank): None})
        for weight in self.worker.parameters():
            weight.data = weight.data.bfloat16()
        for module in self.worker.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # cuDNN wants the weights of a layer in one piece of memory
        if model.device.type == "cuda":
            HOOKS["fuse"](self.worker)
        elif model.device.type == "cpu":
            self.fused = HOOKS["fuse_native"](self.worker)

    def begin(self) -> None:
        """Clear the copy's gradients, so that each batch writes its own without adding to earlier ones."""
        self.worker.zero_grad()

    def collect(self) -> None:
        """Add the copy's gradients, converted to float32, to those of the weights."""
        wide = [torch.empty_like(weight) for weight in self._weights]
        torch._foreach_copy_(wide, gradients_of(self.worker.parameters()))
        if before := gradients_of(self._weights):
            torch._foreach_add_(wide, before)
        for weight, gradient in zip(self._weights, wide, strict=True):
            weight.grad = gradient

    def refresh(self) -> None:
        """Round the updated weights to bfloat16."""
        torch._foreach_copy_(list(self.worker.parameters()), self._weights)


class Float8Copy(Bfloat16Copy):
    """The bfloat16 copy computes most of its products in 8 bits."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.scales = HOOKS["use_float8"](self.worker)

    @property
    def magnitudes(self) -> list[float]:
        magnitudes: list[float] = self.scales.largest.tolist()
        return magnitudes

    @magnitudes.setter
    def magnitudes(self, magnitudes: list[float]) -> None:
        if len(magnitudes) == len(self.scales.largest):
            self.scales.largest.copy_(torch.tensor(magnitudes))

    def begin(self) -> None:
        super().begin()
        self.scales.begin()

    def begin_again(self) -> None:
        super().begin_again()
        self.scales.repeat()


class LowRankGradients(Float32):
    """The gradients of low-rank updates follow from those of the weights, which another precision computes."""

    def __init__(self, precision: Float32, low_rank: LowRank) -> None:
        self._precision, self._low_rank, self.worker = precision, low_rank, precision.worker

    def begin(self) -> None:
        """Clear the worker's gradients, so that each batch writes its own."""
        self.worker.zero_grad()
        self._precision.begin()

    def begin_again(self) -> None:
        self._precision.begin_again()

    def collect(self) -> None:
        weights = self.worker.named_parameters()
        self._low_rank.add_gradients({name: weight.grad for name, weight in weights if weight.grad is not None})

    def refresh(self) -> None:
        """Compute the weights of the model and of the worker."""
        self._low_rank.apply()
        self._precision.refresh()

    @property
    def magnitudes(self) -> list[float]:
        return self._precision.magnitudes

    @magnitudes.setter
    def magnitudes(self, magnitudes: list[float]) -> None:
        self._precision.magnitudes = magnitudes


def make_precision(model: Model, *, half: bool, float8: bool = False) -> Float32:
    precision = (Float8Copy if float8 else Bfloat16Copy)(model) if half else Float32(model)
    return LowRankGradients(precision, model.low_rank) if model.low_rank else precision


def use_bfloat16(precision: str, device: torch.device) -> bool:
    """Whether the setting `train.precision` means bfloat16 on this device; in fp8, it is the type of all vectors."""
    return precision in ("bfloat16", "fp8") or (
        precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    )


def gradients_of(weights: Iterable[Tensor]) -> list[Tensor]:
    """The gradients that exist; of a sharded model, this process's shards."""
    return [local_shard(weight.grad) for weight in weights if weight.grad is not None]


class Compute:
    """Computes gradients by running the model."""

    def __init__(self, precision: Float32, task: Task, label_smoothing: float, r_drop: float) -> None:
        self.precision, self.task = precision, task
        self.label_smoothing, self.r_drop = label_smoothing, r_drop

    def __call__(self, batch: Batch) -> Tensor:
        """Compute the gradients of the summed loss; returns the sums of loss and negative log-likelihood.

        A loss that is not finite makes the gradients not finite.
        """
        self.precision.begin()
        model = self.precision.worker
        hidden_LD = model(batch)
        loss, nll = self.task.loss(model, hidden_LD, batch, self.label_smoothing)
        if self.r_drop:
            second_LD = model(batch)
            second_loss, second_nll = self.task.loss(model, second_LD, batch, self.label_smoothing)
            weight_VD, bias_V = model.output_weight_VD, model.output_bias_V
            (first_LE, weight_VE), (second_LE, _) = (with_bias(x, weight_VD, bias_V) for x in (hidden_LD, second_LD))
            divergence = symmetric_kl(first_LE, second_LE, batch.labels_L, weight_VE, model.logit_cap)
            # Half of the sum in the R-Drop paper, so that it is comparable with the loss of one pass.
            loss, nll = (loss + second_loss + self.r_drop / 2 * divergence) / 2, (nll + second_nll) / 2
        loss.backward()
        sums = torch.stack([loss.detach(), nll])
        gradients_of(model.parameters())[0].view(-1)[:1].add_(0.0 * sums.sum())  # NaN if the sums are not finite
        return sums

    def reset(self) -> None:
        """Prepare for batches of other shapes."""


class CapturedCompute(Compute):
    """Computes gradients by replaying a CUDA graph, recorded with the first batch; all batches have its shapes.

    So large matrix products can take the fastest algorithm for their sizes.
    """

    _replay: Callable[[], Tensor] | None = None

    def __call__(self, batch: Batch) -> Tensor:
        if self._replay is None:
            compute, fastest_products = super().__call__, HOOKS["fastest_products"]
            inputs = self._inputs = [x.clone() for x in batch.tensors]

            def computation() -> Tensor:
                with fastest_products():
                    return compute(batch.with_tensors(inputs))

            self._replay = capture(computation, self.precision.begin_again)
        torch._foreach_copy_(self._inputs, batch.tensors)
        return self._replay()

    def reset(self) -> None:
        """Discard the graph; the next batch is recorded again."""
        self._replay = None


def make_optimizer(model: Model, config: TrainConfig) -> Adam:
    """Adam for what is trained of a model."""
    weights = (weight for _, weight in model.trained.named_parameters())
    return Adam(weights, config.beta1, config.beta2, config.epsilon, config.weight_decay)


class Learner:
    """Trains a model: `compute` the gradients of one or more batches, then `update` the weights."""

    def __init__(
        self, model: Model, optimizer: Adam, task: Task, config: TrainConfig, processes: Processes = SINGLE_PROCESS
    ) -> None:
        self.optimizer, self.clip_norm = optimizer, config.clip_norm
        self._weights: list[Tensor] = [weight for _, weight in model.trained.named_parameters()]
        self._processes = processes
        self.is_sharded = is_sharded(model)
        half = use_bfloat16(config.precision, model.device) and not self.is_sharded  # FSDP2 has its own mixed precision
        self.captures = half and model.device.type == "cuda" and model.captures
        """Whether gradients are computed by a CUDA graph, for which all batches must have the same shapes."""
        self.precision = make_precision(model, half=half, float8=config.precision == "fp8")
        self.precision.worker.train()
        computing = CapturedCompute if self.captures else Compute
        self.compute = computing(self.precision, task, config.label_smoothing, config.r_drop)
        adam = "fused_adam" if self.captures and find_spec("triton") is not None else ""
        adam = "native_adam" if self.precision.fused else adam
        self._adam_hook = "" if model.low_rank or processes.communicates else adam
        """The name of the fused Adam, if gradients are used as the worker computes them."""
        self._fused_adam: Any = None
        self._collected = False
        """Whether the weights have the gradients of the batches since the last update."""

    def collect(self) -> None:
        """Add the gradients of a batch to those of the weights; needed after each batch if an update has several."""
        self.precision.collect()
        self._collected = True

    @torch.no_grad()
    def update(self, number: int, rate: float, count: int) -> Tensor:
        """Make update `number`, counted from 1, with the mean gradient over `count` labels; returns its norm.

        If the norm is not finite, the weights stay as they are.
        """
        if not self._collected:
            if self._adam_hook:
                return self._fused_update(number, rate, count)
            self.precision.collect()
        self._collected = False
        gradients = gradients_of(self._weights)
        if not self.is_sharded:  # otherwise FSDP2 has summed the gradients in the backward pass
            self._processes.all_reduce(gradients)
        torch._foreach_mul_(gradients, 1 / count)
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.is_sharded:
            squares = norm.square()
            self._processes.all_reduce([squares])
            norm = squares.sqrt()
        if not norm.isfinite():
            self.optimizer.zero_grad()
            return norm
        if self.clip_norm:
            torch._foreach_mul_(gradients, (self.clip_norm / (norm + 1e-6)).clamp(max=1.0))
        self.optimizer.step(number, rate)
        self.optimizer.zero_grad()
        self.precision.refresh()
        return norm

    def reset(self) -> None:
        """Discard the gradients since the last update, and the recorded graph."""
        self.optimizer.zero_grad()
        self.precision.worker.zero_grad()
        self.compute.reset()
        self._fused_adam, self._collected = None, False

    def _fused_update(self, number: int, rate: float, count: int) -> Tensor:
        if self._fused_adam is None:
            self._fused_adam = HOOKS[self._adam_hook](
                self.optimizer, list(self.precision.worker.parameters()), self._weights
            )
        return self._fused_adam.step(number, rate, 1 / count, self.clip_norm)
