"""Random constituency trees, and random changes to them."""

import random

from transduce.parsing.trees import Leaf, Tree

LABELS = ("S", "NP", "VP", "PP", "ADVP", "PRT", "SBAR", "X")
TAGS = ("NN", "DT", "VB", "IN", ",", ".", ":", "``", "''", "-LRB-")


def random_leaves(chance: random.Random, tags: tuple[str, ...] = TAGS) -> list[Leaf]:
    return [Leaf(f"w{number}", chance.choice(tags)) for number in range(chance.randint(1, 12))]


def random_tree(chance: random.Random, leaves: list[Leaf], labels: tuple[str, ...] = LABELS) -> Tree:
    """A tree over the leaves, with unary nodes; no bracket repeats the label and the words of its parent."""
    label = chance.choice(labels)
    others = tuple(one for one in labels if one != label)
    if len(leaves) > 1 or chance.random() < 0.5:
        cuts = sorted(chance.sample(range(1, len(leaves)), chance.randint(0, min(3, len(leaves) - 1))))
        pieces = [leaves[a:b] for a, b in zip([0, *cuts], [*cuts, len(leaves)], strict=True)]
    else:
        pieces = [leaves]
    if len(pieces) == 1 and (len(others) < 3 or chance.random() < 0.4):
        return Tree(label, tuple(leaves))
    if len(pieces) == 1:
        return Tree(label, (random_tree(chance, leaves, others),))
    children = [
        piece[0] if len(piece) == 1 and chance.random() < 0.6 else random_tree(chance, piece) for piece in pieces
    ]
    return Tree(label, tuple(children))


def changed(chance: random.Random, tree: Tree) -> Tree:
    """The tree with some labels changed and some nodes removed; its words stay."""
    children: list[Tree | Leaf] = []
    for child in tree.children:
        if isinstance(child, Leaf):
            children.append(child)
        elif chance.random() < 0.15:
            children += changed(chance, child).children
        else:
            children.append(changed(chance, child))
    return Tree(chance.choice(LABELS) if chance.random() < 0.15 else tree.label, tuple(children))
