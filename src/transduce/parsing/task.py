"""Constituency parsing as text to text (section 6.3): a sentence and its linearized tree, scored by bracketing F1."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar

from transduce.cli.evaluate import Evaluation, read_test_set
from transduce.cli.messages import log
from transduce.cli.progress import ProgressBar
from transduce.config import Table, to_table
from transduce.errors import ConfigError
from transduce.files.pairs import ReadReport
from transduce.models.model import Model
from transduce.parsing.parser import PARSING_SEARCH, Parser
from transduce.parsing.trees import ROOT, MalformedTreeError, Tree, delinearize, linearize, read_corpus
from transduce.search.options import SINGLE_OUTPUT_OPTIONS, SearchConfig
from transduce.training.task import ValidationScore
from transduce.training.train_config import TrainConfig
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

    def check_scoring(
        self, config: TrainConfig, language: str | None, examples: Sequence[tuple[Any, ...]]
    ) -> str | None:
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
        validation.display.phase("parsing", len(words))
        found = parser.stream(words, tree_done=validation.display.advance)
        outputs = processes.gather(validation.interruptible(lambda: [" ".join(linearize(tree)) for tree in found]))
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


@dataclass(frozen=True)
class Conventions:
    """What is not counted, and what is equal."""

    deleted_tags: frozenset[str] = frozenset()
    """Tags of the words that are deleted before brackets are compared."""
    ignored_labels: frozenset[str] = frozenset()
    equal_labels: dict[str, str] = field(default_factory=dict)
    """Labels that are read as another label."""


COLLINS = Conventions(frozenset({",", ":", "``", "''", "."}), frozenset({ROOT}), {"PRT": "ADVP"})
"""EVALB's COLLINS.prm, in which almost all results are published."""


@dataclass(frozen=True)
class BracketScore:
    """The number of brackets of the outputs, of the references and of both, and what follows from them in percent."""

    matched: int = 0
    output: int = 0
    reference: int = 0
    sentences: int = 0
    exact: int = 0
    """Number of sentences whose brackets are all the same."""

    def __add__(self, other: "BracketScore") -> "BracketScore":
        return BracketScore(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def precision(self) -> float:
        """The share of the outputs' brackets that the references have."""
        return 100 * self.matched / self.output if self.output else 0.0

    @property
    def recall(self) -> float:
        """The share of the references' brackets that the outputs have."""
        return 100 * self.matched / self.reference if self.reference else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        brackets = self.output + self.reference
        return 200 * self.matched / brackets if brackets else 0.0


def score_trees(
    outputs: Sequence[Tree | None], references: Sequence[Tree], conventions: Conventions = COLLINS
) -> BracketScore:
    """The score of the outputs for a corpus; None is a sentence without a tree."""
    pairs = zip(outputs, references, strict=True)
    return sum((score_tree(output, reference, conventions) for output, reference in pairs), BracketScore())


def score_tree(output: Tree | None, reference: Tree, conventions: Conventions = COLLINS) -> BracketScore:
    """The score of one tree."""
    kept = [leaf.tag not in conventions.deleted_tags for leaf in reference.leaves()]
    wanted = _brackets(reference, kept, conventions)
    found: Counter[tuple[str, int, int]] = Counter()
    if output is not None and output.words == reference.words:
        found = _brackets(output, kept, conventions)
    matched = (wanted & found).total()
    return BracketScore(matched, found.total(), wanted.total(), 1, int(wanted == found))


def _brackets(tree: Tree, kept: Sequence[bool], conventions: Conventions) -> Counter[tuple[str, int, int]]:
    """The brackets of a tree: label, and the range of kept words."""
    before = [0, *accumulate(kept)]
    return Counter(
        (conventions.equal_labels.get(label, label), before[start], before[end])
        for label, start, end in tree.spans()
        if before[end] > before[start] and label not in conventions.ignored_labels
    )


def evaluate_trees(request: Evaluation) -> None:
    """Parse the words of the trees of a file with each model, or ensemble of several, and print the scores."""
    request.require_effect(*SINGLE_OUTPUT_OPTIONS, "mbr")
    if not request.test or request.src or request.refs or request.hyps:
        raise ConfigError("a parser is evaluated with trees: give --test with a file of trees, and nothing else")
    if request.out and len(request.systems) != 1:
        raise ConfigError(f"--out is for the trees of one model, not of {len(request.systems)}")
    references = read_test_set(read_corpus, str(request.test))
    results = []
    for folders in request.systems:
        parser = Parser.load(folders, device=request.device, threads=request.threads, mbr=request.mbr, **request.search)
        name = " + ".join(map(str, folders))
        log(f"{name}: {len(references):,} trees, {parser.config.name}, engine {parser.engine.description}")
        with ProgressBar(lambda: len(references), 0, False, "trees") as progress:
            trees = list(parser.stream([tree.words for tree in references], tree_done=progress.advance))
        if request.out:
            request.out.write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
        results.append({"model": name, "search": parser.config.name, **tree_scores(trees, references)})
    if request.as_json:
        print(json.dumps(results, indent=1))
        return
    for result in results:
        if len(results) > 1:
            print(result["model"])
        for key, name in (("f1", "F1"), ("precision", "P"), ("recall", "R"), ("exact", "exact")):
            print(f"{name:<6}{result[key]:6.2f}")
        counted = f"labelled brackets as EVALB counts them with COLLINS.prm, {result['search']}"
        print(f"{counted}; {result['well_formed']:.1f}% well-formed")


def tree_scores(trees: Sequence[Tree], references: Sequence[Tree]) -> dict[str, Any]:
    """F1, precision, recall, and the percentages of exact and of well-formed trees."""
    score = score_trees(trees, references)
    whole = sum(tree.words == reference.words for tree, reference in zip(trees, references, strict=True))
    return {
        "f1": score.f1, "precision": score.precision, "recall": score.recall,
        "exact": 100 * score.exact / score.sentences, "well_formed": 100 * whole / score.sentences,
        "sentences": score.sentences,
    }  # fmt: skip
