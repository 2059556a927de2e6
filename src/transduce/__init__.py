"""transduce: train and run Transformer translation models and language models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transduce.version import __version__ as __version__

__all__ = [
    "AnyModel",
    "AnyTokenizer",
    "Calibration",
    "Classification",
    "Classifier",
    "Comparison",
    "ConfigError",
    "DataError",
    "Detected",
    "Engine",
    "Filling",
    "Generation",
    "GenerationEvent",
    "Generator",
    "Glossary",
    "HtmlPage",
    "Hypothesis",
    "Job",
    "Model",
    "ModelError",
    "Outcome",
    "PairScore",
    "Parser",
    "Protection",
    "RunError",
    "SamplingOptions",
    "Score",
    "SearchConfig",
    "SearchOptions",
    "Segment",
    "SpeechOptions",
    "SpokenPart",
    "TextEncoder",
    "TextScore",
    "Tokenizer",
    "TranscribeOptions",
    "Transcriber",
    "Transcript",
    "TransduceError",
    "TranslateOptions",
    "Translation",
    "Translations",
    "Translator",
    "Tree",
    "Wording",
    "compare",
    "score",
    "train",
    "translate_document",
]

if TYPE_CHECKING:
    from transduce.classification.classifier import Classification, Classifier
    from transduce.documents.translate import translate_document
    from transduce.encoders.text_encoder import Filling, TextEncoder
    from transduce.errors import ConfigError, DataError, ModelError, RunError, TransduceError
    from transduce.files.html_page import HtmlPage
    from transduce.language_model.generator import Generation, GenerationEvent, Generator, TextScore
    from transduce.models.any_model import AnyModel
    from transduce.models.model import Model
    from transduce.parsing.parser import Parser
    from transduce.parsing.trees import Tree
    from transduce.search.decoder import Hypothesis
    from transduce.search.engine import Engine, Job
    from transduce.search.options import SamplingOptions, SearchConfig, SearchOptions
    from transduce.speech.transcriber import SpeechOptions, SpokenPart, TranscribeOptions, Transcriber, Transcript
    from transduce.tokenizers.any_tokenizer import AnyTokenizer
    from transduce.tokenizers.tokenizer import Tokenizer
    from transduce.training.api import train
    from transduce.training.loop import Outcome
    from transduce.translation.confidence import Calibration
    from transduce.translation.detection import Detected
    from transduce.translation.scores import Comparison, Score, compare, score
    from transduce.translation.stages.glossary import Glossary
    from transduce.translation.stages.protect import Protection
    from transduce.translation.text import Segment
    from transduce.translation.translation import PairScore, Translation, Translations
    from transduce.translation.translator import Translator
    from transduce.translation.wording import TranslateOptions, Wording
else:
    _MODULES = {
        "transduce.classification.classifier": ["Classification", "Classifier"],
        "transduce.documents.translate": ["translate_document"],
        "transduce.encoders.text_encoder": ["Filling", "TextEncoder"],
        "transduce.errors": ["ConfigError", "DataError", "ModelError", "RunError", "TransduceError"],
        "transduce.files.html_page": ["HtmlPage"],
        "transduce.language_model.generator": ["Generation", "GenerationEvent", "Generator", "TextScore"],
        "transduce.models.any_model": ["AnyModel"],
        "transduce.models.model": ["Model"],
        "transduce.parsing.parser": ["Parser"],
        "transduce.parsing.trees": ["Tree"],
        "transduce.search.decoder": ["Hypothesis"],
        "transduce.search.engine": ["Engine", "Job"],
        "transduce.search.options": ["SamplingOptions", "SearchConfig", "SearchOptions"],
        "transduce.speech.transcriber": [
            "SpeechOptions",
            "SpokenPart",
            "TranscribeOptions",
            "Transcriber",
            "Transcript",
        ],
        "transduce.tokenizers.any_tokenizer": ["AnyTokenizer"],
        "transduce.tokenizers.tokenizer": ["Tokenizer"],
        "transduce.training.api": ["train"],
        "transduce.training.loop": ["Outcome"],
        "transduce.translation.confidence": ["Calibration"],
        "transduce.translation.detection": ["Detected"],
        "transduce.translation.stages.glossary": ["Glossary"],
        "transduce.translation.text": ["Segment"],
        "transduce.translation.stages.protect": ["Protection"],
        "transduce.translation.scores": ["Comparison", "Score", "compare", "score"],
        "transduce.translation.translation": ["PairScore", "Translation", "Translations"],
        "transduce.translation.translator": ["Translator"],
        "transduce.translation.wording": ["TranslateOptions", "Wording"],
    }

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, so that `transduce --help` does not wait for torch."""
        from transduce.errors import needs_torch

        for module, names in _MODULES.items():
            if name in names:
                with needs_torch():
                    return getattr(import_module(module), name)
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]
