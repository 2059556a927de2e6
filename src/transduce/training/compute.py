"""The gradients of one batch: forward pass, loss, backward pass."""

import torch
from torch import Tensor

from transduce.data.batch import Batch
from transduce.nn.loss import with_bias
from transduce.training.cuda_graph import CapturedFunction
from transduce.training.precision import Float32, gradients_of
from transduce.training.r_drop import symmetric_kl
from transduce.training.task import Task


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
            divergence = symmetric_kl(first_LE, second_LE, batch.labels_L, weight_VE)
            # Half of the sum in the R-Drop paper, so that it is comparable with the loss of one pass.
            loss, nll = (loss + second_loss + self.r_drop / 2 * divergence) / 2, (nll + second_nll) / 2
        loss.backward()
        sums = torch.stack([loss.detach(), nll])
        gradients_of(model.parameters())[0].view(-1)[:1].add_(0.0 * sums.sum())  # NaN if the sums are not finite
        return sums

    def reset(self) -> None:
        """Prepare for batches of other shapes."""


class CapturedCompute(Compute):
    """Computes gradients by replaying a CUDA graph, recorded with the first batch; all batches have its shapes."""

    _graph: CapturedFunction | None = None

    def __call__(self, batch: Batch) -> Tensor:
        """See `Compute`."""
        if self._graph is None:
            compute = super().__call__
            self._graph = CapturedFunction(
                lambda tensors: compute(batch.with_tensors(tensors)), batch.tensors, self.precision.worker.zero_grad
            )
        return self._graph(batch.tensors)

    def reset(self) -> None:
        """Discard the graph; the next batch is recorded again."""
        self._graph = None
