"""A beam search as a tree of all hypotheses that it considered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transduce.search.beam import Extensions
from transduce.tokenizers.tokenizer import BOS, EOS

Outcome = Literal["kept", "pruned", "finished"]


@dataclass(frozen=True)
class Node:
    """A hypothesis: its parent's tokens and one more."""

    parent: int
    """Index of the parent; the root, the empty hypothesis, is its own parent."""
    token: int
    log_prob: float
    """Log-probability of all tokens up to this one."""
    outcome: Outcome
    """Whether the search kept the hypothesis in the beam, pruned it, or finished it with the end marker."""


def build_tree(steps: Sequence[Extensions]) -> list[Node]:
    """The nodes of one sentence's search in the order of the steps, the best node of each step first."""
    nodes = [Node(0, BOS, 0.0, "kept")]
    node_of_row = [0] * steps[0].kept_BW.shape[1]
    for step in steps:
        kept = step.kept_BW[0].tolist()
        node_of_candidate: dict[int, int] = {}
        candidates = zip(
            step.parent_BC[0].tolist(), step.token_BC[0].tolist(), step.log_prob_BC[0].tolist(), strict=True
        )
        for index, (row, token, log_prob) in enumerate(candidates):
            if log_prob == -float("inf"):
                continue
            outcome: Outcome = "finished" if token == EOS else "kept" if index in kept else "pruned"
            node_of_candidate[index] = len(nodes)
            nodes.append(Node(node_of_row[row], token, log_prob, outcome))
        # Empty rows have log-probability -inf, and so do all their extensions.
        node_of_row = [node_of_candidate.get(index, 0) for index in kept]
    return nodes
