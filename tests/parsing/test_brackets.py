"""Bracketing scores against their definition, worked out by hand, and against the package PYEVALB, EVALB in Python.

PYEVALB deletes nothing and treats no labels as equal, so it gets trees without punctuation whose labels are replaced.
It counts equal brackets of a tree once, so trees without repeated brackets are compared.
"""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from random_trees import TAGS, changed, random_leaves, random_tree

from transduce.parsing.task import COLLINS, BracketScore, Conventions, score_tree, score_trees
from transduce.parsing.trees import Leaf, Tree, read_tree

GOLD = read_tree("(S (NP (DT the) (NN cat)) (, ,) (ADVP (RB now)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .))")


def test_a_tree_matches_itself() -> None:
    score = score_tree(GOLD, GOLD)
    assert score == BracketScore(matched=6, output=6, reference=6, sentences=1, exact=1)
    assert (score.precision, score.recall, score.f1) == (100, 100, 100)


def test_precision_and_recall_are_those_of_brackets() -> None:
    flat = read_tree("(S (NP (XX the) (XX cat) (XX ,) (XX now)) (VP (XX sat) (XX on) (NP (XX it))) (XX .))")
    score = score_tree(flat, GOLD)
    # S, VP and NP(it) are right; NP(the cat now) is wrong; NP(the cat), ADVP and PP are missing
    assert (score.matched, score.output, score.reference) == (3, 4, 6)
    assert (score.precision, score.recall) == (75, 50)
    assert score.f1 == pytest.approx(60)


def test_punctuation_does_not_count_and_the_tags_of_the_reference_decide() -> None:
    attached = read_tree(
        "(S (NP (DT the) (NN cat) (XX ,)) (ADVP (RB now)) (VP (VBD sat) (PP (IN on) (NP (PRP it)) (XX .))))"
    )
    assert score_tree(attached, GOLD).f1 == 100
    assert score_tree(attached, GOLD, Conventions()).f1 < 100


def test_a_bracket_around_punctuation_only_does_not_count() -> None:
    assert score_tree(GOLD, read_tree("(S (NP (DT the) (NN cat)) (PRN (, ,)) (VP (RB now) (VBD sat) (IN on)"
                                      " (PRP it)) (. .))")).reference == 3  # fmt: skip


def test_adverbs_and_particles_are_equal_and_the_root_is_ignored() -> None:
    particle = read_tree("(TOP (VP (VB go) (PRT (RP on))) (NP (NN b)))")
    adverb = read_tree("(TOP (VP (VB go) (ADVP (RP on))) (NP (NN b)))")
    assert score_tree(adverb, particle) == BracketScore(3, 3, 3, 1, 1)
    assert score_tree(adverb, particle, Conventions()).matched == 3  # TOP, VP and NP, but not the particle


def test_equal_brackets_match_once_each() -> None:
    twice = read_tree("(NP (NP (NP (NN a))))")
    once = read_tree("(NP (NN a))")
    assert score_tree(twice, once) == BracketScore(1, 3, 1, 1, 0)
    assert score_tree(twice, twice).matched == 3


def test_a_missing_tree_or_other_words_count_as_no_brackets() -> None:
    other = read_tree("(S (NP (DT a) (NN cat)))")
    assert score_trees([None, other, GOLD], [GOLD, GOLD, GOLD]) == BracketScore(6, 6, 18, 3, 1)
    assert BracketScore().f1 == 0


def test_the_conventions_are_those_of_collins() -> None:
    assert COLLINS.deleted_tags == {",", ":", "``", "''", "."}
    assert (COLLINS.ignored_labels, COLLINS.equal_labels) == ({"TOP"}, {"PRT": "ADVP"})


PAIRS = 5000


@pytest.fixture(scope="module")
def pyevalb() -> Any:
    return pytest.importorskip("PYEVALB")


def brackets(node: Tree | Leaf) -> str:
    if isinstance(node, Leaf):
        return f"({node.tag.replace('_', '-')} {node.word})"
    return f"({node.label} {' '.join(map(brackets, node.children))})"


def prepared(tree: Tree, deleted: set[str], equal: dict[str, str]) -> Tree | None:
    """The tree without the deleted words, written independently of the package's own scores."""
    children: list[Tree | Leaf] = []
    for child in tree.children:
        if isinstance(child, Leaf):
            children += [child] if child.word not in deleted else []
        elif (inner := prepared(child, deleted, equal)) is not None:
            children.append(inner)
    return Tree(equal.get(tree.label, tree.label), tuple(children)) if children else None


def repeats(tree: Tree) -> bool:
    found: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def visit(node: Tree) -> None:
        found[node.label, tuple(node.words)] += 1
        for child in node.children:
            if isinstance(child, Tree):
                visit(child)

    visit(tree)
    return max(found.values()) > 1


def random_pairs(seed: int, tags: tuple[str, ...]) -> Iterator[tuple[Tree, Tree]]:
    chance = random.Random(seed)
    while True:
        leaves = random_leaves(chance, tags)
        gold = random_tree(chance, leaves)
        yield (random_tree(chance, leaves) if chance.random() < 0.5 else changed(chance, gold)), gold


def expected(pyevalb: Any, output: Tree, gold: Tree) -> tuple[int, int, int]:
    from PYEVALB import parser, scorer

    trees = [parser.create_from_bracket_string(brackets(tree)) for tree in (gold, output)]
    result = scorer.Scorer().score_trees(*trees)
    return result.matched_brackets, result.test_brackets, result.gold_brackets


def test_scores_equal_pyevalb(pyevalb: Any) -> None:
    total, theirs = BracketScore(), [0, 0, 0]
    pairs = (pair for pair in random_pairs(1, ("NN", "DT", "VB")) if not any(map(repeats, pair)))
    for output, gold in islice(pairs, PAIRS):
        score = score_tree(output, gold, Conventions())
        found = expected(pyevalb, output, gold)
        assert (score.matched, score.output, score.reference) == found, (brackets(output), brackets(gold))
        total, theirs = total + score, [a + b for a, b in zip(theirs, found, strict=True)]
    assert total.sentences == PAIRS
    assert total.f1 == pytest.approx(200 * theirs[0] / (theirs[1] + theirs[2]))
    assert 20 < total.f1 < 90


def test_the_conventions_of_collins_equal_pyevalb_on_prepared_trees(pyevalb: Any) -> None:
    compared = 0
    for output, gold in random_pairs(2, TAGS):
        deleted = {leaf.word for leaf in gold.leaves() if leaf.tag in COLLINS.deleted_tags}
        plain = [tree for one in (output, gold) if (tree := prepared(one, deleted, {"PRT": "ADVP"})) is not None]
        if len(plain) < 2 or any(map(repeats, plain)):
            continue
        found = expected(pyevalb, *plain)
        score = score_tree(Tree("TOP", (output,)), Tree("TOP", (gold,)))
        assert (score.matched, score.output, score.reference) == found, (brackets(output), brackets(gold))
        compared += 1
        if compared == PAIRS:
            break
