"""A beam search as a tree: every hypothesis it considered, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transduce.search.beam import Extensions
from transduce.text.tokenizer import BOS, EOS

Fate = Literal["kept", "pruned", "finished"]


@dataclass(frozen=True)
class Node:
    """A hypothesis: what its parent said, and one token more."""

    parent: int
    """Number of a node before it; the root, which has said nothing, is its own."""
    token: int
    log_prob: float
    """Of all its tokens."""
    fate: Fate
    """Whether search went on with it, dropped it, or found it whole."""


def grow_tree(steps: Sequence[Extensions]) -> list[Node]:
    """The nodes of one sentence's search, step by step, the best of each step first."""
    nodes = [Node(0, BOS, 0.0, "kept")]
    node_of_row = [0] * steps[0].kept_BW.shape[1]
    for step in steps:
        kept = step.kept_BW[0].tolist()
        node_of_candidate: dict[int, int] = {}
        candidates = zip(
            step.parent_BC[0].tolist(), step.token_BC[0].tolist(), step.log_prob_BC[0].tolist(), strict=True
        )
        for number, (row, token, log_prob) in enumerate(candidates):
            if log_prob == -float("inf"):
                continue
            fate: Fate = "finished" if token == EOS else "kept" if number in kept else "pruned"
            node_of_candidate[number] = len(nodes)
            nodes.append(Node(node_of_row[row], token, log_prob, fate))
        # A row without a hypothesis has -inf, and so has all that would follow from it.
        node_of_row = [node_of_candidate.get(number, 0) for number in kept]
    return nodes
