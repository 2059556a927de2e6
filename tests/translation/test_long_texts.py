"""Texts that are longer than the model takes at once."""

from collections.abc import Callable

import pytest
from helpers import small_model

from transduce.errors import ConfigError, DataError
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator


def test_a_long_text_is_translated_in_pieces(make_translator: Callable[..., Translator]) -> None:
    translator = make_translator(max_source_length=9)
    text = "Baba bebe. Gigi gogo. Dudu dada."
    pieces = ["Baba bebe.", "Gigi gogo.", "Dudu dada."]
    assert len(translator.tokenizer.encode(text)) > 9 >= max(len(translator.tokenizer.encode(one)) for one in pieces)
    best = translator.hypotheses(["ba", text, "gi"], nbest=2)
    apart = [translator.hypotheses([piece], nbest=2)[0] for piece in pieces]
    assert best[1][0].text == " ".join(one[0].text for one in apart)
    assert best[1][0].score == pytest.approx(sum(one[0].score for one in apart), abs=1e-4)
    assert best[1][0].score >= best[1][1].score
    assert [one[0].text for one in (best[0], best[2])] == translator.translate(["ba", "gi"])


def test_a_long_text_without_spaces_is_translated_in_pieces(make_translator: Callable[..., Translator]) -> None:
    translator = make_translator(max_source_length=8)
    assert isinstance(translator.translate("汉" * 50), str)


def test_a_long_text_can_be_refused_with_its_line(make_translator: Callable[..., Translator]) -> None:
    translator = make_translator(max_source_length=8)
    with pytest.raises(DataError, match=r"line 12 has \d+ tokens, more than the 8"):
        translator.hypotheses(["ba", "ba be bi bo bu da de di do du"], long="refuse", first_line=11)


def test_a_text_of_exactly_the_maximum_length_is_not_split(make_translator: Callable[..., Translator]) -> None:
    text = "ba be bi bo bu da de di do du"
    length = len(make_translator().tokenizer.encode(text))
    exact, below = (
        make_translator(max_source_length=n).hypotheses([text], align=True)[0][0] for n in (length, length - 1)
    )
    assert exact == make_translator().hypotheses([text], align=True)[0][0]
    assert below.alignment is not None  # it came in parts, whose tokens lie end to end
    assert len(below.alignment) == len(below.tokens)
    split = make_translator(max_source_length=length - 1)
    assert len(split.source_tokens(split.segments(text))) > max(below.alignment) >= length // 2


def test_a_model_without_a_position_for_words_refuses_every_text(toy_tokenizer: Tokenizer) -> None:
    model = small_model(0, toy_tokenizer.vocab_size, positions="learned", max_positions=1).eval()
    translator = Translator(model, toy_tokenizer)
    assert translator.max_source_length == 0  # not the same as no limit
    with pytest.raises(DataError, match=r"line 1 has \d+ tokens, more than the 0 this model takes at once"):
        translator.hypotheses(["babo"], long="refuse")
    with pytest.raises(ConfigError, match="exceeds the 1 learned positions"):
        translator.translate("babo")
