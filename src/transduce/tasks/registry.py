"""The table of tasks: `task = "..."` in a recipe names a row. A new task is a file and a row here."""

from transduce.tasks.language_model import LanguageModel
from transduce.tasks.parse import Parse
from transduce.tasks.task import Task
from transduce.tasks.translate import Translate

TASKS: dict[str, type[Task]] = {
    "translate": Translate,
    "language_model": LanguageModel,
    "parse": Parse,
}
