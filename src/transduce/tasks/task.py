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
class Scoring:
    """How a model is scored on the validation data."""

    sentences: int
    """Number of examples of each validation file, counted from the first, that are scored."""
    criterion: str = "bleu"
    """The metric that selects the best checkpoint: bleu, chrf or loss."""
    bleu_tokenizer: str = "auto"
    """Tokenizer of BLEU, one of sacreBLEU's; auto selects it by the language."""
    language: str | None = None
    """Language of the references, an ISO 639-1 code, if it is known."""


@dataclass(frozen=True)
class ValidationScore:
    """The score of a model on the validation data; higher is better."""

    value: float
    samples: list[dict[str, str]] = field(default_factory=list)
    """Outputs for the report: source, reference, output."""
    more: dict[str, float] = field(default_factory=dict)
    """Other metrics on the same outputs, by their keys in the metrics of a run, e.g. chrf."""
    files: dict[str, dict[str, float]] = field(default_factory=dict)
    """Every metric on the outputs of each validation file, if there are several files."""
    tokenizer: str = ""
    """Tokenizer of the metric: scores with different tokenizers are not comparable."""


class Task(ABC):
    """Examples, loss and validation of a kind of training; everything else is common to all tasks."""

    reader: ClassVar[str] = "pairs"
    """Name of the reader that turns files into tuples of texts (text/readers.py)."""
    score_name: ClassVar[str] = "score"
    """Name of the score, for example BLEU; in lower case, it is the key in the metrics of a run."""
    search: ClassVar[SearchConfig] = SearchConfig()
    """The search options of a recipe that does not give its own."""

    @abstractmethod
    def pack(self, examples: Sequence[Example], seed: int) -> PackedBatch:
        """The batch of these examples, a pure function of them and the seed; each stream adds at most one marker."""

    def loss(self, model: Model, hidden_LD: Tensor, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        """The loss with label smoothing and the negative log-likelihood, both summed over the labels that count."""
        return smoothed_cross_entropy(hidden_LD, batch.labels_L, model.output_weight_VD, smoothing)

    def check_scoring(self, scoring: Scoring, examples: Sequence[tuple[str, ...]]) -> str | None:
        """Raise an error now, before anything long, if `score` could not score these examples; returns a description.

        None means that nothing is scored.
        """
        return None

    def score(self, model: Model, validation: "Validation", options: SearchConfig) -> ValidationScore | None:
        """The score of a model; None if there is only the validation loss."""
        return None

    def calibrate(self, model: Model, validation: "Validation", options: SearchConfig) -> dict[str, Any]:
        """Calibrations of the confidence of outputs, for the facts of the finished model; empty if there are none."""
        return {}

    def picture(self, model: Model, validation: "Validation", samples: list[dict[str, str]]) -> dict[str, Any] | None:
        """Attention weights of one sample for the report; None if there is nothing to draw."""
        return None
