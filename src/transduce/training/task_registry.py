"""The table of tasks: `task = "..."` in a recipe names a row. A new task is a file and a row here."""

from transduce.classification.task import Classify
from transduce.encoders.denoise import Denoise
from transduce.encoders.masked import Masked
from transduce.language_model.task import LanguageModel
from transduce.parsing.task import Parse
from transduce.speech.task import Transcribe
from transduce.training.task import Task
from transduce.translation.task import Translate

TASKS: dict[str, type[Task]] = {
    "translate": Translate,
    "language_model": LanguageModel,
    "parse": Parse,
    "masked": Masked,
    "denoise": Denoise,
    "classify": Classify,
    "transcribe": Transcribe,
}
