"""The tree of an inspection is the search of the translator."""

import math
from dataclasses import replace
from typing import Any

import pytest
from inspections import TEXT, MakeTranslator, inspect, total_log_prob

from transduce.inspect.inspection import Inspection
from transduce.tokenizers.tokenizer import EOS
from transduce.translation.translator import Translator


def path(inspection: Inspection, index: int) -> list[int]:
    """The tokens from the root to a node of the tree."""
    node = inspection.tree[index]
    return [*path(inspection, node.parent), node.token] if index else []


@pytest.mark.parametrize("options", [{}, {"beam": 2}, {"beam": 6, "length_penalty": 1.5}, {"length_penalty": -0.5}])
def test_the_finished_nodes_are_the_hypotheses_of_the_search(translator: Translator, options: dict[str, Any]) -> None:
    inspection = inspect(translator, text=TEXT, **options)
    beam = options.get("beam", 4)
    (expected,) = translator.hypotheses([TEXT], nbest=beam, **options)
    finished = []
    for index, node in enumerate(inspection.tree):
        if node.outcome == "finished":
            tokens = path(inspection, index)
            score = node.log_prob / ((5 + len(tokens)) / 6) ** inspection.config.length_penalty
            finished.append((score, node.log_prob, tokens[:-1]))
    finished.sort(reverse=True)
    distinct: dict[str, tuple[float, float, list[int]]] = {}
    for score, log_prob, tokens in finished[:beam]:
        distinct.setdefault(translator.tokenizer.decode(tokens), (score, log_prob, tokens))
    for (score, log_prob, tokens), one in zip(distinct.values(), expected, strict=True):
        assert translator.tokenizer.pieces(tokens) == one.tokens
        assert score == pytest.approx(one.score, abs=1e-5)
        assert log_prob == pytest.approx(one.log_prob, abs=1e-5)
    assert inspection.best.score == pytest.approx(expected[0].score, abs=1e-5)
    assert inspection.best.log_prob == pytest.approx(expected[0].log_prob, abs=1e-5)
    assert translator.tokenizer.decode(inspection.best.tokens) == translator.translate(TEXT, **options)


def test_every_node_has_the_log_probability_of_its_tokens(translator: Translator, inspection: Inspection) -> None:
    for index in range(1, len(inspection.tree)):
        tokens = path(inspection, index)
        end = tokens[-1] == EOS
        expected = total_log_prob(translator.model, inspection.source, tokens[:-1] if end else tokens, end)
        assert inspection.tree[index].log_prob == pytest.approx(expected, abs=1e-3)


def test_only_the_best_hypotheses_of_a_step_are_kept_and_extended(inspection: Inspection) -> None:
    depth = [len(path(inspection, index)) for index in range(len(inspection.tree))]
    assert all(inspection.tree[node.parent].outcome == "kept" for node in inspection.tree)
    for step in range(1, max(depth) + 1):
        here = [node for node, d in zip(inspection.tree, depth, strict=True) if d == step]
        kept = [node.log_prob for node in here if node.outcome == "kept"]
        pruned = [node.log_prob for node in here if node.outcome == "pruned"]
        assert len(kept) <= 4
        assert len(here) <= 8
        assert min(kept, default=0) >= max(pruned, default=-math.inf)
    assert {node.outcome for node in inspection.tree} == {"kept", "pruned", "finished"}


def test_every_hypothesis_begins_with_a_forced_prefix(translator: Translator, inspection: Inspection) -> None:
    other = next(
        n for n, node in enumerate(inspection.tree) if node.outcome == "pruned" and len(path(inspection, n)) == 2
    )
    prefix = path(inspection, other)
    forced = inspect(translator, text=TEXT, prefix=prefix)
    assert forced.best.tokens[:2] == prefix
    assert [node.token for node in forced.tree[1:3]] == prefix
    assert forced.best.tokens != inspection.best.tokens
    assert forced.best.log_prob == pytest.approx(
        total_log_prob(translator.model, forced.source, forced.best.tokens, True), abs=1e-3
    )


def test_a_prefix_with_an_end_marker_is_the_complete_output(translator: Translator, inspection: Inspection) -> None:
    prefix = [*inspection.best.tokens[:2], EOS]
    forced = inspect(translator, text=TEXT, prefix=prefix)
    assert forced.target == prefix
    assert [node.token for node in forced.tree[1:]] == prefix


def test_the_search_respects_max_length_and_no_repeat(make_translator: MakeTranslator) -> None:
    translator = make_translator()
    translator.config = replace(translator.config, max_length=4, no_repeat=1)
    inspection = inspect(translator, text=TEXT)
    assert translator.tokenizer.decode(inspection.best.tokens) == translator.translate(TEXT)
    assert len(inspection.target) <= 5
    assert len(set(inspection.target)) == len(inspection.target)
    assert inspect(translator, text=TEXT, prefix=[300, 300]).target[:2] == [300, 300]  # a prefix may repeat
