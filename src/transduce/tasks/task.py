"""The `Task` contract: examples, loss and validation of a kind of training."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from transduce.data.batch import Batch
from transduce.data.packing import Example, PackedBatch
from transduce.models.model import Model
from transduce.nn.loss import smoothed_cross_entropy
from transduce.search.options import SearchConfig

if TYPE_CHECKING:
    from transduce.tasks.validation import Validation


@dataclass(frozen=True)
class ValidationScore:
    """The score of a model on the validation data; higher is better."""

    value: float
    samples: list[dict[str, str]] = field(default_factory=list)
    """Outputs for the report: source, reference, output."""


class Task(ABC):
    """Examples, loss and validation of a kind of training; everything else is common to all tasks."""

    reader: ClassVar[str] = "pairs"
    """Name of the reader that turns files into tuples of texts (text/readers.py)."""
    score_name: ClassVar[str] = "score"
    """Name of the score, for example BLEU; in lower case, it is the key in the metrics of a run."""

    @abstractmethod
    def pack(self, examples: Sequence[Example], seed: int) -> PackedBatch:
        """The batch of these examples, a pure function of them and the seed; each stream adds at most one marker."""

    def loss(self, model: Model, hidden_LD: Tensor, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        """The loss with label smoothing and the negative log-likelihood, both summed over the labels that count."""
        return smoothed_cross_entropy(hidden_LD, batch.labels_L, model.output_weight_VD, smoothing)

    def score(self, model: Model, validation: "Validation", options: SearchConfig) -> ValidationScore | None:
        """The score that selects the best checkpoint; None if the validation loss selects it."""
        return None

    def picture(self, model: Model, validation: "Validation", samples: list[dict[str, str]]) -> dict[str, Any] | None:
        """Attention weights of one sample for the report; None if there is nothing to draw."""
        return None
