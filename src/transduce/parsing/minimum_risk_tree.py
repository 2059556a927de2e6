"""Minimum Bayes risk parsing: one tree from several, each of which has a probability."""

from collections import Counter
from collections.abc import Sequence
from math import exp

from transduce.parsing.trees import ROOT, Leaf, Tree

_Constituent = tuple[str, int, int, int]
"""Label, first word, the word after the last one, and the number of equal constituents around it."""


def minimum_risk_tree(trees: Sequence[Tree], log_probs: Sequence[float]) -> Tree:
    """The tree with the lowest expected number of constituents that differ from the right tree.

    A constituent that is left out is missing with its probability, one that is not is wrong otherwise. So the tree has
    those with more than half of the probability. As any two of them are together in a tree, they do not cross.

    The trees have the same words, and the first one is the most probable; probabilities are normalized. Words that are
    in no constituent are children of a root node.
    """
    highest = max(log_probs)
    weights = [exp(log_prob - highest) for log_prob in log_probs]
    probabilities: dict[_Constituent, float] = {}
    for tree, weight in zip(trees, weights, strict=True):
        for constituent in _constituents(tree):
            probabilities[constituent] = probabilities.get(constituent, 0.0) + weight
    half = sum(weights) / 2
    # Outermost first; sorting is stable, so constituents over the same words stay in the order of the trees.
    chosen = sorted((one for one in probabilities if probabilities[one] > half), key=lambda one: (one[1], -one[2]))
    return _build(chosen, trees[0].leaves())


def _constituents(tree: Tree) -> list[_Constituent]:
    """The constituents of a tree, outermost first."""
    found: list[_Constituent] = []
    counts: Counter[tuple[str, int, int]] = Counter()

    def visit(node: Tree, start: int) -> int:
        end = start + len(node.leaves())
        found.append((node.label, start, end, counts[node.label, start, end]))
        counts[node.label, start, end] += 1
        for child in node.children:
            start = start + 1 if isinstance(child, Leaf) else visit(child, start)
        return end

    visit(tree, 0)
    return found


def _build(constituents: Sequence[_Constituent], leaves: Sequence[Leaf]) -> Tree:
    """The tree of constituents that do not cross, which are in the order of their opening brackets."""
    open_nodes: list[tuple[_Constituent, list[Tree | Leaf]]] = [((ROOT, 0, len(leaves), 0), [])]
    following = list(reversed(constituents))
    for position, word in enumerate(leaves):
        while following and following[-1][1] == position:
            open_nodes.append((following.pop(), []))
        open_nodes[-1][1].append(word)
        while len(open_nodes) > 1 and open_nodes[-1][0][2] == position + 1:
            (label, *_), children = open_nodes.pop()
            open_nodes[-1][1].append(Tree(label, tuple(children)))
    _, children = open_nodes.pop()
    return children[0] if len(children) == 1 and isinstance(children[0], Tree) else Tree(ROOT, tuple(children))
