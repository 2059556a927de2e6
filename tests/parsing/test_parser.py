"""The parser: words of English text, the grammar that its search is held to, minimum Bayes risk."""

import random
from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Any

import pytest
import torch
from fault_injection import repetitions
from hypothesis import given
from hypothesis import strategies as st
from random_trees import changed, random_leaves, random_tree
from torch import Tensor

from transduce.parsing.parser import (
    MOST_IN_A_ROW,
    TreeConstraint,
    TreeGrammar,
    minimum_risk_tree,
    most_brackets,
    split_words,
    without_brackets,
)
from transduce.parsing.trees import ROOT, Leaf, MalformedTreeError, Tree, delinearize
from transduce.search.beam import beam_search
from transduce.search.options import SearchConfig
from transduce.search.search import search
from transduce.tokenizers.tokenizer import EOS

V = 16
GRAMMAR = TreeGrammar({4: 5, 6: 7, 8: 9}, frozenset({4, 5, 6, 7, 8, 9, 10, 11, 12}))
NAMES = {4: "(A", 5: ")A", 6: "(B", 7: ")B", 8: "(C", 9: ")C"}
WORD_STARTS, CONTINUATIONS = (10, 11, 12), (13, 14, 15)
SENTENCES = st.lists(
    st.tuples(st.sampled_from(WORD_STARTS), st.lists(st.sampled_from(CONTINUATIONS), max_size=2)),
    min_size=1,
    max_size=5,
).map(lambda words: [piece for start, more in words for piece in (start, *more)])


class RandomDecoder:
    """Logits are noise, with a preference for some tokens, and depend on the row's history."""

    def __init__(self, seed: int, favourite: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.favourite = favourite

    def start(self, source: Any) -> int:
        return 0

    def step(self, token_R: Tensor, state: int) -> tuple[Tensor, int]:
        logits_RV = 3 * torch.randn(len(token_R), V, generator=self.generator)
        logits_RV[:, self.favourite] += 6
        return logits_RV, state + 1

    def reorder(self, state: int, index_BW: Tensor) -> int:
        return state


def tree_of(tokens: Sequence[int], sentence: Sequence[int]) -> Tree:
    """The tree of an output; fails unless its words are exactly those of the sentence."""
    assert [token for token in tokens if token not in NAMES] == list(sentence)
    words: list[str] = []
    for token in tokens:
        if token in NAMES or token in GRAMMAR.word_starts:
            words.append(NAMES.get(token, str(token)))
        else:  # a bracket within a word would make this an error
            assert words[-1][0] not in "()"
            words[-1] += f"-{token}"
    return delinearize(words)


@given(
    st.lists(SENTENCES, min_size=1, max_size=4),
    st.integers(0, 10**6),
    st.sampled_from([3, 4, 5, 9, 10, 13]),
    st.sampled_from([{"beam": 1}, {"beam": 5, "nbest": 5}, {"sample": True, "nbest": 3}, {"beam": 21}]),
)
def test_every_output_is_a_tree_over_the_words(
    sentences: list[list[int]], seed: int, favourite: int, options: dict[str, Any]
) -> None:
    constraint = TreeConstraint(GRAMMAR, sentences, "cpu")
    config = SearchConfig(length_penalty=0.3, **options)
    found = search(RandomDecoder(seed, favourite), None, constraint.limits, config, constraint=constraint)
    assert len(found) == len(sentences)
    for hypotheses, sentence in zip(found, sentences, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.score > -float("inf")
            tree_of(hypothesis.tokens, sentence)


def test_the_mask_allows_exactly_the_prefixes_of_trees() -> None:
    """Compare with an enumeration of every token sequence of a short sentence."""
    sentence = [10, 13, 11]
    two_labels = TreeGrammar({4: 5, 6: 7}, GRAMMAR.word_starts)
    constraint = TreeConstraint(two_labels, [sentence], "cpu")
    most, complete, prefixes = 2 * most_brackets(2) + 3, set(), {()}
    for _ in range(8):  # all trees with at most 7 tokens
        prefix_1WT = torch.tensor([sorted(prefixes)], dtype=torch.long)
        extended = set()
        for prefix, mask_V in zip(sorted(prefixes), constraint.allowed([0], prefix_1WT, V)[0], strict=True):
            tokens = mask_V.nonzero().flatten().tolist()
            assert tokens, prefix
            if EOS in tokens:
                assert tokens == [EOS]
                complete.add(prefix)
            extended |= {(*prefix, token) for token in tokens if token != EOS}
        prefixes = extended
    assert most == constraint.limits[0]

    def is_tree(tokens: tuple[int, ...]) -> bool:
        try:
            tree_of(tokens, sentence)
        except (AssertionError, MalformedTreeError):
            return False
        return True

    brackets, expected = (4, 5, 6, 7), set()
    candidates: list[tuple[int, ...]] = [()]
    for _ in range(7):  # every sequence of brackets and of the next piece
        following = []
        for one in candidates:
            used = sum(token not in NAMES for token in one)
            following += [(*one, token) for token in (*brackets, *sentence[used : used + 1])]
        depths = {one: sum(1 if t in GRAMMAR.closing else -1 if t in NAMES else 0 for t in one) for one in following}
        candidates = [one for one in following if depths[one] > 0 or is_tree(one)]
        expected |= {one for one in candidates if is_tree(one)}
    assert complete == expected
    assert len(complete) == 2 + 3 * 4  # one bracket; or two around both words or around either


def test_the_number_of_brackets_is_bounded() -> None:
    constraint = TreeConstraint(GRAMMAR, [[10]], "cpu")
    opened = [4] * (most_brackets(1) - 1)
    for prefix, may_open in ((opened, True), ([*opened, 4], False)):
        mask_V = constraint.allowed([0], torch.tensor([[prefix]]), V)[0, 0]
        assert bool(mask_V[4]) is may_open
        assert mask_V[10]
    long = TreeConstraint(GRAMMAR, [[10] * 20], "cpu")
    in_a_row = [4, 10, *([6] * MOST_IN_A_ROW)]
    for prefix, may_open in ((in_a_row[:-1], True), (in_a_row, False), ([*in_a_row, 10], True)):
        mask_V = long.allowed([0], torch.tensor([[prefix]]), V)[0, 0]
        assert bool(mask_V[4]) is may_open


def test_without_a_constraint_nothing_changes() -> None:
    outputs = [
        beam_search(RandomDecoder(1, 3), None, [6], beam=3, alpha=0.6, constraint=constraint)
        for constraint in (None, Everything())
    ]
    assert outputs[0] == outputs[1]


class Everything:
    limits = (6,)

    def allowed(self, sentence_B: Sequence[int], prefix_BWT: Tensor, vocab_size: int) -> Tensor:
        return torch.ones(*prefix_BWT.shape[:2], vocab_size, dtype=torch.bool)


def test_an_empty_sentence_is_not_searched() -> None:
    with pytest.raises(AssertionError):
        TreeConstraint(GRAMMAR, [[]], "cpu")


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


@pytest.mark.parametrize("seed", range(repetitions(50, 200)))
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat sat.", "The cat sat ."),
        ("Dr. Smith didn't go to the U.S. (he can't), it's John's.", None),
        ("a well-known 1,000.50 idea...", "a well - known 1,000.50 idea ..."),
        ("I cannot; DON'T!", "I can not ; DO N'T !"),
        ("See https://a.b/c-d or x@y.com.", "See https://a.b/c-d or x@y.com ."),
        ("5% of $3 -LRB- etc. -RRB-", "5 % of $ 3 -LRB- etc. -RRB-"),
        ("  ", ""),
    ],
)
def test_words(text: str, words: str | None) -> None:
    if words is None:
        words = "Dr. Smith did n't go to the U.S. -LRB- he ca n't -RRB- , it 's John 's ."
    assert split_words(text) == words.split()


def test_words_of_trees_have_no_brackets_and_spaces() -> None:
    assert without_brackets(["f(x)", "a b", "", "["]) == ["f-LRB-x-RRB-", "a", "b", "["]
