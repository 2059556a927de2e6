"""`transduce evaluate` for models that parse: labelled bracketing F1."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from transduce.cli.messages import log
from transduce.errors import ConfigError
from transduce.search.options import SearchOptions

if TYPE_CHECKING:
    from transduce.parsing.trees import Tree


def evaluate_trees(
    models: Sequence[Sequence[Path]],
    test: Path,
    out: Path | None,
    device: str,
    threads: int | None,
    as_json: bool,
    mbr: bool,
    **options: Unpack[SearchOptions],
) -> None:
    """Parse the words of the trees of a file with each model, or ensemble of several, and print the scores."""
    from transduce.parsing.parser import Parser

    references = read_test_trees(test)
    results = []
    for group in models:
        parser = Parser.load(group, device=device, threads=threads, mbr=mbr, **options)
        name = " + ".join(map(str, group))
        log(f"{name}: {len(references):,} trees, engine {parser.engine.description}")
        trees = parser.parse([tree.words for tree in references])
        if out:
            out.write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
        results.append({"model": name, **tree_scores(trees, references)})
    if as_json:
        print(json.dumps(results, indent=1))
        return
    for result in results:
        if len(results) > 1:
            print(result["model"])
        for key, name in (("f1", "F1"), ("precision", "P"), ("recall", "R"), ("exact", "exact")):
            print(f"{name:<6}{result[key]:6.2f}")
        print(f"labelled brackets as EVALB counts them with COLLINS.prm; {result['well_formed']:.1f}% well-formed")


def read_test_trees(test: Path) -> "list[Tree]":
    """The trees of a test set, none of which may be left out."""
    from transduce.files.pairs import ReadReport
    from transduce.parsing.trees import read_corpus

    report = ReadReport()
    trees = list(read_corpus([(str(test),)], report))
    if report.left_out:
        raise ConfigError(f"{test} cannot be a test set: {'; '.join(report.lines())}")
    return trees


def tree_scores(trees: "Sequence[Tree]", references: "Sequence[Tree]") -> dict[str, Any]:
    """F1, precision, recall, and the percentages of exact and of well-formed trees."""
    from transduce.parsing.brackets import score_trees

    score = score_trees(trees, references)
    whole = sum(tree.words == reference.words for tree, reference in zip(trees, references, strict=True))
    return {
        "f1": score.f1, "precision": score.precision, "recall": score.recall,
        "exact": 100 * score.exact / score.sentences, "well_formed": 100 * whole / score.sentences,
        "sentences": score.sentences,
    }  # fmt: skip
