"""The probability and the rank of each token of a given translation."""

import pytest
from helpers import small_model

from transduce.errors import DataError
from transduce.inspect.inspection import inspect_translation, score_reference
from transduce.inspect.request import InspectionRequest
from transduce.tokenizers.tokenizer import EOS, Tokenizer
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(toy_tokenizer: Tokenizer) -> Translator:
    return Translator(small_model(3, toy_tokenizer.vocab_size).eval(), toy_tokenizer)


def test_probabilities_are_those_of_a_score(translator: Translator) -> None:
    tokens = score_reference(translator, "bada gobi", "gobi")
    (score,) = translator.score(["bada gobi"], ["gobi"])
    assert [token.log_prob for token in tokens] == pytest.approx(score.token_log_probs, abs=1e-5)
    assert tokens[-1].token == EOS


def test_ranks_count_the_tokens_that_are_more_probable(translator: Translator) -> None:
    tokens = score_reference(translator, "bada gobi", "gobi bada")
    forced = [token.token for token in tokens]
    inspection = inspect_translation(translator, InspectionRequest(text="bada gobi", prefix=forced))
    assert inspection.target == forced
    for token, best in zip(tokens, inspection.layers[-1].token_TC.tolist(), strict=True):
        assert (token.token in best) == (token.rank <= len(best))
        assert token.rank > len(best) or best[token.rank - 1] == token.token
        assert token.best == translator.tokenizer.pieces([best[0]])[0]


@pytest.mark.parametrize(("reference", "message"), [(" ", "empty"), ("ba " * 400, "at most 256 can be inspected")])
def test_a_reference_that_cannot_be_scored_is_refused(translator: Translator, reference: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        score_reference(translator, "bada", reference)
