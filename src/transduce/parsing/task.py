"""Constituency parsing as text to text (section 6.3): a sentence and its linearized tree, scored by bracketing F1."""

from collections.abc import Sequence
from typing import Any, ClassVar

from transduce.config import Table, to_table
from transduce.files.pairs import ReadReport
from transduce.models.model import Model
from transduce.parsing.evaluate import score_trees
from transduce.parsing.parser import PARSING_SEARCH, Parser
from transduce.parsing.trees import MalformedTreeError, Tree, delinearize, linearize, read_corpus
from transduce.search.options import SearchConfig
from transduce.training.task import Scoring, ValidationScore
from transduce.training.validation import Validation
from transduce.translation.task import Translate


class Parse(Translate):
    """Pairs as in translation, whose targets are linearized trees: brackets are symbols, and words are repeated."""

    reader = "trees"
    translates = False
    score_name = "F1"
    defaults: ClassVar[Table] = {"search": to_table(PARSING_SEARCH)}

    def __init__(self, settings: None = None) -> None:
        super().__init__(settings)
        self._references: list[Tree] = []

    def check_scoring(self, scoring: Scoring, examples: Sequence[tuple[str, ...]]) -> str | None:
        """F1 needs nothing that may be missing."""
        return None

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore | None:
        """F1, precision and recall of the first trees of each validation file, and of all together."""
        scored, processes = validation.scored, validation.processes
        numbers = [number for _, trees in scored for number in range(len(validation.texts))[trees]]
        if not numbers:
            return None
        if not self._references:  # the examples do not have the tags, which tell punctuation
            self._references = list(read_corpus(validation.data.all_valid, ReadReport()))
        sentences = [validation.texts[number][0] for number in numbers]
        parser = Parser(model, validation.trained_tokenizer, config=options)
        words = [sentence.split(" ") for sentence in sentences[processes.share]]
        outputs = processes.gather(
            validation.interruptible(lambda: [" ".join(linearize(tree)) for tree in parser.parse(words)])
        )
        trees, references = [_tree(output) for output in outputs], [self._references[number] for number in numbers]
        samples = [
            {"source": sentence, "reference": validation.texts[number][1], "output": output}
            for sentence, number, output in zip(sentences, numbers, outputs, strict=True)
        ]
        files = validation.by_file(lambda part: {"f1": score_trees(trees[part], references[part]).f1})
        total = score_trees(trees, references)
        well_formed = 100 * sum(tree is not None for tree in trees) / len(trees)
        more = {"precision": total.precision, "recall": total.recall, "well_formed": well_formed}
        return ValidationScore(total.f1, samples, more, files)

    def calibrate(self, model: Model, validation: Validation, options: SearchConfig) -> dict[str, Any]:
        """Trees have no confidence."""
        return {}


def _tree(output: str) -> Tree | None:
    try:
        return delinearize(output.split(" "))
    except MalformedTreeError:
        return None
