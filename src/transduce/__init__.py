"""transduce: train and run Transformer translation models and language models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "AnyTokenizer",
    "Calibration",
    "Classification",
    "Classifier",
    "Comparison",
    "ConfigError",
    "DataError",
    "Engine",
    "Filling",
    "Generation",
    "GenerationEvent",
    "Generator",
    "Glossary",
    "Hypothesis",
    "Job",
    "Model",
    "ModelError",
    "Outcome",
    "PairScore",
    "Parser",
    "Part",
    "Protection",
    "RunError",
    "SamplingOptions",
    "Score",
    "SearchConfig",
    "SearchOptions",
    "SpeechOptions",
    "SpokenPart",
    "TextEncoder",
    "TextScore",
    "Tokenizer",
    "Transcriber",
    "Transcript",
    "TransduceError",
    "Translation",
    "Translator",
    "Tree",
    "compare",
    "score",
    "train",
]

if TYPE_CHECKING:
    from transduce.classifier import Classification, Classifier
    from transduce.engines.engine import Engine, Job
    from transduce.errors import ConfigError, DataError, ModelError, RunError, TransduceError
    from transduce.evaluation.scores import Comparison, Score, compare, score
    from transduce.generator import Generation, GenerationEvent, Generator, TextScore
    from transduce.models.model import Model
    from transduce.search.decoder import Hypothesis
    from transduce.search.options import SamplingOptions, SearchConfig, SearchOptions
    from transduce.text.any_tokenizer import AnyTokenizer
    from transduce.text.glossary import Glossary
    from transduce.text.protect import Protection
    from transduce.text.tokenizer import Tokenizer
    from transduce.text.trees import Tree
    from transduce.text_encoder import Filling, TextEncoder
    from transduce.training.api import train
    from transduce.training.loop import Outcome
    from transduce.transcriber import SpeechOptions, SpokenPart, Transcriber, Transcript
    from transduce.translator import Calibration, PairScore, Part, Translation, Translator
    from transduce.translator.parser import Parser
else:
    _MODULES = {
        "transduce.classifier": ["Classification", "Classifier"],
        "transduce.engines.engine": ["Engine", "Job"],
        "transduce.errors": ["ConfigError", "DataError", "ModelError", "RunError", "TransduceError"],
        "transduce.evaluation.scores": ["Comparison", "Score", "compare", "score"],
        "transduce.generator": ["Generation", "GenerationEvent", "Generator", "TextScore"],
        "transduce.models.model": ["Model"],
        "transduce.search.decoder": ["Hypothesis"],
        "transduce.search.options": ["SamplingOptions", "SearchConfig", "SearchOptions"],
        "transduce.text.any_tokenizer": ["AnyTokenizer"],
        "transduce.text.glossary": ["Glossary"],
        "transduce.text.protect": ["Protection"],
        "transduce.text.tokenizer": ["Tokenizer"],
        "transduce.text_encoder": ["Filling", "TextEncoder"],
        "transduce.text.trees": ["Tree"],
        "transduce.training.api": ["train"],
        "transduce.training.loop": ["Outcome"],
        "transduce.transcriber": ["SpeechOptions", "SpokenPart", "Transcriber", "Transcript"],
        "transduce.translator": ["Calibration", "PairScore", "Part", "Translation", "Translator"],
        "transduce.translator.parser": ["Parser"],
    }

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, so that `transduce --help` does not wait for torch."""
        from transduce.errors import needs_torch

        for module, names in _MODULES.items():
            if name in names:
                with needs_torch():
                    return getattr(import_module(module), name)
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
