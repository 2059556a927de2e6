"""The `Task` contract: examples, loss and validation of a kind of training."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import Tensor

from transduce.config import Table
from transduce.data.batch import BATCH_TOKENS, Batch
from transduce.data.packing import Example, PackedBatch
from transduce.data.plan import BatchPlan, Plan
from transduce.data.shards import TokenShards
from transduce.errors import DataError
from transduce.features import Registry, feature_with, load
from transduce.files.readers import DEFAULT_READER, READERS
from transduce.models.model import Model, ModelConfig
from transduce.nn.loss import with_bias
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer, tokenizer_of_stream
from transduce.tokenizers.symbols import escape, mark
from transduce.training.train_config import TrainConfig

if TYPE_CHECKING:
    from transduce.training.validation import Validation


@dataclass(frozen=True)
class ValidationScore:
    """The score of a model on the validation data; higher is better."""

    value: float | None
    """None if the validation loss is the only criterion."""
    samples: list[dict[str, str]] = field(default_factory=list)
    """Outputs for the report: source, reference, output."""
    more: dict[str, float] = field(default_factory=dict)
    """Other metrics on the same outputs, by their keys in the metrics of a run, e.g. chrf."""
    files: dict[str, dict[str, float]] = field(default_factory=dict)
    """Every metric on the outputs of each validation file, if there are several files."""
    tokenizer: str = ""
    """Tokenizer of the metric: scores with different tokenizers are not comparable."""
    confusion: dict[str, Any] | None = None
    """The confusion matrix of a classifier: `labels` and `counts`, one row for each right class."""


class Task(ABC):
    """Examples, loss and validation of a kind of training; everything else is common to all tasks."""

    reader: ClassVar[str] = DEFAULT_READER
    """Name of the reader that turns files into tuples of texts (files/readers.py)."""
    markers: ClassVar[int] = 1
    """Number of markers that each stream of a packed example has in addition to its tokens."""
    score_name: ClassVar[str] = "score"
    """Name of the score, for example BLEU; in lower case, it is the key in the metrics of a run."""
    searches: ClassVar[bool] = False
    """Whether the scores are those of outputs that a search has found, so that they depend on it."""
    counted: str = "tokens"
    """What the speed of training counts."""
    figures: ClassVar[Mapping[str, str]] = {}
    """Names of figures in the report, by their keys in the metrics of a run."""
    lower_is_better: ClassVar[frozenset[str]] = frozenset()
    """The keys of figures whose lowest value is the best."""
    samples: ClassVar[tuple[str, tuple[str, str, str]]] = ("Outputs", ("source", "output", "reference"))
    """Heading of the samples in the report, and of the columns: what is given, the output, the reference."""
    defaults: ClassVar[Table] = {}
    """Settings of a recipe, by section, unless it gives others."""
    translates: ClassVar[bool] = False
    """Whether source and target are texts in two languages, which may have a vocabulary each."""
    always_samples: ClassVar[bool] = False
    """Whether every output is sampled, so that options of sampling need no search.sample."""
    measured: ClassVar[tuple[str, ...]] = ()
    """Settings of the model that follow from the training data (`model_settings`)."""
    new_parts: ClassVar[tuple[str, ...]] = ()
    """How the names of weights begin that a model of another task, from which training starts, need not have."""
    validation_tokens: int = BATCH_TOKENS
    """Maximum number of tokens of a batch of validation examples."""

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings
        """The recipe's section with the name of the task, if it has one."""

    @classmethod
    def of(cls, recipe: Any) -> Self:
        """The task with the settings that a recipe has for it."""
        return cls() if recipe.task_settings is None else cls(recipe.task_settings)

    @property
    def symbols(self) -> Sequence[str]:
        """The symbols that the vocabulary must have, besides those of every vocabulary."""
        return ()

    def set_tokenizer(self, tokenizer: AnyTokenizer) -> None:
        """Called before `pack`, with the tokenizer of the examples."""
        self.tokenizer = tokenizer

    def model_settings(self, index: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the model that follow from the training data, whose index is given: those named by `measured`."""
        return {}

    def facts(self, config: ModelConfig) -> dict[str, Any]:
        """Metadata for the folder of a model with these settings, besides that of every task."""
        return {}

    def vary(self, examples: Sequence[Example], seed: int) -> Sequence[Example]:
        """The training examples, changed at random; a pure function of each of them and the seed."""
        return examples

    @abstractmethod
    def pack(self, examples: Sequence[Example], seed: int) -> PackedBatch:
        """The batch of these examples, a pure function of them and the seed; a stream adds at most `markers` tokens."""

    def loss(self, model: Model, hidden_LD: Tensor, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        """The loss with label smoothing and the negative log-likelihood, both summed over the labels that count."""
        hidden_LE, weight_VE = with_bias(hidden_LD, model.output_weight_VD, model.output_bias_V)
        return model.cross_entropy(hidden_LE, batch.labels_L, weight_VE, smoothing, model.logit_cap)

    def refusal(self, config: ModelConfig) -> str | None:
        """The reason why models with these settings cannot be trained for this task; None if they can."""
        return None

    def plan(self, shards: TokenShards, batch_tokens: int, seed: int, *, growth: float, max_length: int) -> Plan:
        """Which examples make up which batch; `growth` and `max_length` are of variation and of [data]."""
        return BatchPlan(shards, batch_tokens, seed, growth, self.markers)

    def max_labels(self, tokens: int, segments: int) -> int:
        """Upper bound on the labels of a batch with these numbers of tokens and segments in each stream.

        On a GPU, every batch has this many labels, some of which do not count.
        """
        return tokens

    def validation_examples(self, validation: "Validation", log: Callable[[str], None]) -> list[Example]:
        """The examples whose loss is measured, those of similar lengths side by side."""
        longest, tokenizer = validation.data.max_length, validation.tokenizer
        marked = [
            (mark(first, target, context=bool(validation.data.context)), *map(escape, others))
            for (first, *others), target in zip(validation.texts, validation.targets, strict=True)
        ]
        streams = [
            tokenizer_of_stream(tokenizer, stream).encode_all(texts, marked=True)
            for stream, texts in zip(READERS[self.reader].streams, zip(*marked, strict=True), strict=False)
        ]
        examples: list[Example] = [ids for ids in zip(*streams, strict=True) if max(map(len, ids)) <= longest]
        examples.sort(key=lambda ids: [len(stream) for stream in reversed(ids)])
        if validation.texts and not examples:
            raise DataError(f"every validation pair has more than {longest} tokens; raise data.max_length")
        if too_long := len(validation.texts) - len(examples):
            pairs = "pair" if too_long == 1 else "pairs"
            log(f"validation data: the loss leaves out {too_long:,} {pairs} above {longest} tokens (data.max_length)")
        return examples

    def more_figures(self, nll: float, validation: "Validation") -> dict[str, float]:
        """Further figures of the validation data, given its summed negative log-likelihood, by their keys."""
        return {}

    def check_scoring(
        self, config: TrainConfig, language: str | None, examples: Sequence[tuple[Any, ...]]
    ) -> str | None:
        """Raise an error now, before anything long, if `score` could not score these examples; returns a description.

        `language` is that of the references, if it is known. None means that nothing is scored.
        """
        return None

    def score(self, model: Model, validation: "Validation", options: SearchConfig) -> ValidationScore | None:
        """The score of a model; None if there is only the validation loss."""
        return None

    def calibrate(self, model: Model, validation: "Validation", options: SearchConfig) -> dict[str, Any]:
        """Calibrations of the confidence of outputs, for the facts of the finished model; empty if there are none."""
        return {}

    def worst(self, samples: list[dict[str, str]], count: int) -> list[dict[str, Any]]:
        """The outputs that are least like their references, for the report; none if outputs are not compared."""
        return []

    def picture(self, model: Model, validation: "Validation", samples: list[dict[str, str]]) -> dict[str, Any] | None:
        """Attention weights of one sample for the report; None if there is nothing to draw."""
        return None


TASKS: Registry[type[Task]] = Registry("tasks")
"""The tasks of all features (features.py): `task = "..."` in a recipe names one."""
TASK_SETTINGS: Registry[type[Any]] = Registry("task_settings")


def settings_class(task: str) -> type[Any] | None:
    """The class of the settings of a task, if it has any."""
    feature = feature_with("tasks", task)
    reference = feature and feature.task_settings.get(task)
    return load(reference) if reference else None
