"""Minimum Bayes risk parsing, by its definition."""

import random
from collections import Counter
from math import log

import pytest
from random_trees import changed, random_leaves, random_tree

from transduce.parsing.parser import minimum_risk_tree
from transduce.parsing.trees import ROOT, Leaf, Tree


def constituents(tree: Tree) -> Counter[tuple[str, tuple[str, ...]]]:
    """Labels with words, which are all different."""
    found = Counter([(tree.label, tuple(tree.words))])
    for child in tree.children:
        if isinstance(child, Tree):
            found += constituents(child)
    return found


def differing(one: Tree, other: Tree) -> int:
    """The number of constituents that only one of two trees has."""
    ours, theirs = constituents(one), constituents(other)
    return (ours - theirs).total() + (theirs - ours).total()


@pytest.mark.parametrize("seed", range(200))
def test_no_tree_has_a_lower_expected_number_of_differing_constituents(seed: int) -> None:
    chance = random.Random(seed)
    first = random_tree(chance, random_leaves(chance))
    trees = [first, *(changed(chance, first) for _ in range(chance.randint(0, 8)))]
    weights = [chance.random() for _ in trees]
    chosen = minimum_risk_tree(trees, [log(weight) for weight in weights])
    assert chosen.words == first.words

    def risk(tree: Tree) -> float:
        # Without the root node, which is around what has no common constituent.
        return sum(weight * differing(tree, other) for weight, other in zip(weights, trees, strict=True))

    without_root = sum(weights) if chosen.label == ROOT else 0
    others = [*trees, *(changed(chance, chance.choice(trees)) for _ in range(50))]
    assert risk(chosen) - without_root <= min(map(risk, others)) + 1e-9


def test_constituents_that_most_trees_have_are_kept_in_their_order() -> None:
    a, b, c = Leaf("a"), Leaf("b"), Leaf("c")
    trees = [
        Tree("S", (Tree("NP", (Tree("NP", (a, b)),)), c)),
        Tree("S", (Tree("X", (Tree("NP", (a, b)),)), c)),
        Tree("S", (a, Tree("VP", (b, c)))),
    ]
    assert minimum_risk_tree(trees, [log(0.6), log(0.2), log(0.2)]) == trees[0]
    assert minimum_risk_tree(trees, [log(0.4), log(0.3), log(0.3)]) == Tree("S", (Tree("NP", (a, b)), c))
    assert minimum_risk_tree(trees, [log(0.4), log(0.1), log(0.5)]) == Tree("S", (a, b, c))


def test_words_without_a_common_constituent_are_below_the_root() -> None:
    a, b = Leaf("a"), Leaf("b")
    trees = [Tree("S", (a, b)), Tree("FRAG", (a, b)), Tree("X", (a, Tree("NP", (b,))))]
    assert minimum_risk_tree(trees, [0.0, 0.0, 0.0]) == Tree(ROOT, (a, b))
