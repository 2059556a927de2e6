"""The table of features: what each folder adds to the program, by name.

A row names what it adds as "module:attribute", which is imported when it is used: the core knows no feature, and a
command imports nothing that it does not need. Another package adds a row by an entry point of the group
`transduce.features` that loads a `Feature`:

    [project.entry-points."transduce.features"]
    toy = "toy_package:FEATURE"

Entry points are read only if a name is not in the table, or if all names are listed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from typing import Any, Generic, TypeVar

from transduce.errors import ConfigError

GROUP = "transduce.features"

T = TypeVar("T")
Names = Mapping[str, str]
"""What a name stands for, as "module:attribute"."""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A row of the table."""

    models: Names = field(default_factory=dict)
    """Subclasses of `Model`, by the architecture."""
    model_settings: Names = field(default_factory=dict)
    """The settings of each of these architectures: the section [model] of a recipe, a subclass of `ModelConfig`."""
    tasks: Names = field(default_factory=dict)
    """Subclasses of `Task`."""
    task_settings: Names = field(default_factory=dict)
    """The settings of those of these tasks that have any: the section with the name of the task, a frozen dataclass."""
    evaluations: Names = field(default_factory=dict)
    """Functions that score models of these tasks on a test set, for `transduce evaluate` (cli/evaluate.py). They are
    not methods of `Task`, because translations are scored without torch."""
    uses: Names = field(default_factory=dict)
    """How to use models of these tasks, as the end of a message to someone who tries to translate with one."""
    readers: Names = field(default_factory=dict)
    """Instances of `Reader`, which tell what the examples of a corpus are."""
    commands: Names = field(default_factory=dict)
    """Functions or groups of the command line (typer)."""
    exporters: Names = field(default_factory=dict)
    """Instances of `Exporter`, by the format that `transduce export --to` names."""
    pages: Names = field(default_factory=dict)
    """Functions that make a router for `transduce serve`, by the first part of its paths."""
    front_ends: Names = field(default_factory=dict)
    """Modules that read a source other than text, by `model.source`: made from the settings of a model."""
    hooks: Names = field(default_factory=dict)
    """Functions and classes that the core or another feature uses by name if the feature is there."""


FEATURES = {
    "core": Feature(
        models={
            "encoder_decoder": "transduce.models.encoder_decoder:EncoderDecoder",
            "decoder_only": "transduce.models.decoder_only:DecoderOnly",
            "encoder_only": "transduce.models.encoder_only:EncoderOnly",
        },
        model_settings={
            "encoder_decoder": "transduce.models.encoder_decoder:EncoderDecoderConfig",
            "decoder_only": "transduce.models.decoder_only:DecoderOnlyConfig",
            "encoder_only": "transduce.models.encoder_only:EncoderOnlyConfig",
        },
        readers={"pairs": "transduce.files.readers:PAIRS", "lines": "transduce.files.readers:LINES"},
        commands={
            "train": "transduce.cli.train:train",
            "evaluate": "transduce.cli.evaluate:evaluate",
            "info": "transduce.cli.info:info",
            "average": "transduce.cli.average:average",
            "shrink": "transduce.cli.shrink:shrink",
            "cache": "transduce.cli.cache:cache",
        },
    ),
    "init": Feature(commands={"init": "transduce.init.command:init"}),
    "tracking": Feature(
        hooks={
            "require_tracking": "transduce.tracking.sinks:require_packages",
            "tracking": "transduce.tracking.sinks:tracking",
        }
    ),
    "translation": Feature(
        tasks={"translate": "transduce.translation.task:Translate"},
        evaluations={"translate": "transduce.translation.evaluate:evaluate_translations"},
        commands={
            "translate": "transduce.translation.commands.translate:translate",
            "score": "transduce.translation.commands.score:score",
            "rerank": "transduce.translation.commands.rerank:rerank",
            "calibrate": "transduce.translation.commands.calibrate:calibrate",
            "backtranslate": "transduce.translation.commands.backtranslate:backtranslate",
            "shortlist": "transduce.translation.commands.shortlist:shortlist",
        },
        hooks={
            "augment": "transduce.translation.augment:augment",
            "languages_of_run": "transduce.translation.run_languages:languages_of_run",
            "warn_of_exchanged_sides": "transduce.translation.run_languages:warn_of_exchanged_sides",
        },
    ),
    "language_model": Feature(
        tasks={"language_model": "transduce.language_model.task:LanguageModel"},
        task_settings={"language_model": "transduce.language_model.task:LanguageModelConfig"},
        readers={
            "text": "transduce.language_model.document_shards:DOCUMENTS",
            "prompts": "transduce.language_model.documents:PROMPTS",
        },
        evaluations={"language_model": "transduce.language_model.evaluate:evaluate_language_model"},
        uses={"language_model": "use it with: transduce generate or transduce score"},
        commands={"generate": "transduce.language_model.command:generate"},
        hooks={"score_texts": "transduce.language_model.command:score_texts"},
    ),
    "parsing": Feature(
        tasks={"parse": "transduce.parsing.task:Parse"},
        evaluations={"parse": "transduce.parsing.task:evaluate_trees"},
        uses={"parse": "use it with: transduce parse"},
        readers={"trees": "transduce.parsing.trees:TREES"},
        commands={"parse": "transduce.parsing.command:parse"},
    ),
    "encoders": Feature(
        tasks={"masked": "transduce.encoders.pretraining:Masked", "denoise": "transduce.encoders.pretraining:Denoise"},
        task_settings={
            "masked": "transduce.encoders.pretraining:MaskedConfig",
            "denoise": "transduce.encoders.pretraining:DenoiseConfig",
        },
        evaluations={"masked": "transduce.encoders.evaluate:evaluate_masked"},
        uses={
            "masked": "use it with: transduce fill",
            "denoise": "train a translation model from it with: transduce train --start-from",
        },
        commands={"fill": "transduce.encoders.command:fill", "embed": "transduce.encoders.command:embed"},
    ),
    "classification": Feature(
        tasks={"classify": "transduce.classification.task:Classify"},
        task_settings={"classify": "transduce.classification.task:ClassifyConfig"},
        evaluations={"classify": "transduce.classification.task:evaluate_classes"},
        uses={"classify": "use it with: transduce classify"},
        readers={
            "labelled": "transduce.classification.labelled:LABELLED",
            "images": "transduce.classification.labelled:IMAGES",
        },
        commands={"classify": "transduce.classification.command:classify"},
        front_ends={"image": "transduce.classification.classifier:Patches"},
    ),
    "speech": Feature(
        tasks={"transcribe": "transduce.speech.task:Transcribe"},
        task_settings={"transcribe": "transduce.speech.task:TranscribeConfig"},
        evaluations={"transcribe": "transduce.speech.task:evaluate_speech"},
        uses={"transcribe": "use it with: transduce transcribe"},
        readers={"speech": "transduce.speech.sound:SPEECH"},
        commands={"transcribe": "transduce.speech.command:transcribe"},
        front_ends={"audio": "transduce.speech.sound:Frames"},
    ),
    "predecessors": Feature(
        models={
            "recurrent": "transduce.predecessors.recurrent:RecurrentModel",
            "convolutional": "transduce.predecessors.convolutional:ConvolutionalModel",
        },
        model_settings={
            "recurrent": "transduce.predecessors.recurrent:RecurrentConfig",
            "convolutional": "transduce.predecessors.convolutional:ConvolutionalConfig",
        },
        hooks={"variant_layers": "transduce.predecessors.variants:VariantLayerConfig"},
    ),
    "fast": Feature(
        hooks={
            "fuse": "transduce.fast.kernels.fuse:fuse",
            "fastest_products": "transduce.fast.kernels.products:FastestProducts",
            "use_float8": "transduce.fast.kernels.fuse:use_float8",
            "fused_adam": "transduce.fast.kernels.adam:FusedAdam",
            "fuse_native": "transduce.fast.native.training:fuse_native",
            "native_adam": "transduce.fast.native.training:NativeAdam",
        }
    ),
    "inspect": Feature(
        commands={"inspect": "transduce.inspect.command:inspect"},
        pages={"inspect": "transduce.inspect.routes:inspect_routes"},
        hooks={"inspect_translation": "transduce.inspect.page:translation_page"},
    ),
    "interop": Feature(
        commands={"export": "transduce.interop.command:export", "import": "transduce.interop.command:import_model"},
        hooks={"imported_tokenizer": "transduce.interop.imported_tokenizers:parse_imported_tokenizer"},
        exporters={
            "hf": "transduce.interop.huggingface:HF",
            "ctranslate2": "transduce.interop.ctranslate2:CTRANSLATE2",
            "argos": "transduce.interop.argos:ARGOS",
            "onnx": "transduce.interop.onnx:ONNX",
            "marian": "transduce.interop.marian:MARIAN",
        },
    ),
    "documents": Feature(hooks={"translate_documents": "transduce.documents.translate:translate_documents"}),
    "web": Feature(hooks={"export_site": "transduce.web.site:export_site"}),
    "serve": Feature(commands={"serve": "transduce.serve.command:serve"}),
    "corpora": Feature(
        commands={"demo": "transduce.corpora.command:demo", "data": "transduce.corpora.command:data"},
        hooks={"missing_text": "transduce.corpora.get.catalogue:how_to_get"},
    ),
    "cluster": Feature(hooks={"translate_with_ray": "transduce.cluster.ray:translate_with_ray"}),
    "environment": Feature(commands={"doctor": "transduce.environment:doctor"}),
    "report": Feature(
        commands={"compare": "transduce.report.command:compare"},
        hooks={"write_report": "transduce.report.report:write_report"},
    ),
    "paper": Feature(commands={"paper": "transduce.paper.command:paper"}),
}
"""The features of this package, by their folders."""


def load(reference: str) -> Any:
    """Import what "module:attribute" names."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


@cache
def installed() -> tuple[Feature, ...]:
    """The features of other packages, by their entry points."""
    from importlib.metadata import entry_points  # takes a tenth of the time in which the program starts

    found: list[Feature] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            feature = point.load()
        except Exception as error:  # the package is not ours
            raise ConfigError(f"the feature {point.name} ({point.value}) cannot be loaded: {error!r:.200}") from error
        if not isinstance(feature, Feature):
            raise ConfigError(f"the feature {point.name} ({point.value}) is not a transduce.features.Feature")
        for column in fields(Feature):
            known = {name for row in (*FEATURES.values(), *found) for name in getattr(row, column.name)}
            if twice := known & getattr(feature, column.name).keys():
                raise ConfigError(
                    f"the feature {point.name} ({point.value}) has the name {min(twice)} among its {column.name}, "
                    "which another feature has already"
                )
        found.append(feature)
    return tuple(found)


def feature_with(column: str, name: str) -> Feature | None:
    """The feature that has a name in this column."""
    known = (row for row in FEATURES.values() if name in getattr(row, column))
    return next(known, None) or next((row for row in installed() if name in getattr(row, column)), None)


class Registry(Mapping[str, T], Generic[T]):
    """A column of the table as a mapping: what a name stands for is imported when it is looked up."""

    def __init__(self, column: str) -> None:
        self._column = column

    def __getitem__(self, name: str) -> T:
        if (feature := feature_with(self._column, name)) is None:
            raise KeyError(name)
        found: T = load(getattr(feature, self._column)[name])
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and feature_with(self._column, name) is not None

    def __iter__(self) -> Iterator[str]:
        for row in (*FEATURES.values(), *installed()):
            yield from getattr(row, self._column)

    def __len__(self) -> int:
        return sum(1 for _ in self)


HOOKS: Registry[Any] = Registry("hooks")
