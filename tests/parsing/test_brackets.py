"""Bracketing scores against their definition, worked out by hand."""

import pytest

from transduce.parsing.evaluate import COLLINS, BracketScore, Conventions, score_tree, score_trees
from transduce.parsing.trees import read_tree

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
