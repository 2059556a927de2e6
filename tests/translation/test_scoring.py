"""Scores of given pairs with protected spans, by a model without training."""

import pytest

from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.likelihood import ModuleReader
from transduce.tokenizers.symbols import SLOTS
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.stages.protect import Protection
from transduce.translation.translator import Translator

FIRST, SECOND = SLOTS[:2]
MAIL, PATH = "a@b.de", "/usr/bin"


@pytest.mark.parametrize(
    ("source", "target", "marked_source", "marked_target"),
    [
        (f"babo {MAIL} dedu", f"dedu {MAIL} babo", f"babo {FIRST} dedu", f"dedu {FIRST} babo"),
        (f"babo {MAIL} {PATH}", f"{PATH} {MAIL} babo", f"babo {FIRST} {SECOND}", f"{SECOND} {FIRST} babo"),
        (f"babo {MAIL}", "babo", f"babo {MAIL}", "babo"),
        (f"babo {MAIL}", f"{MAIL} {MAIL}", f"babo {MAIL}", f"{MAIL} {MAIL}"),
        ("gi-go dedu go-ba", "gi-go-ba", f"{FIRST} dedu go-ba", f"{FIRST}-ba"),
    ],
)
def test_spans_of_both_sides_are_in_slots(
    untrained_model: EncoderDecoder,
    toy_tokenizer: Tokenizer,
    source: str,
    target: str,
    marked_source: str,
    marked_target: str,
) -> None:
    translator = Translator(untrained_model, toy_tokenizer, protection=Protection([r"\w\w-\w\w"]), uses_slots=True)
    (score,) = translator.score([source], [target])
    encoded = toy_tokenizer.encode_all([marked_source, marked_target], marked=True)
    assert score.token_log_probs == pytest.approx(
        ModuleReader(untrained_model).token_log_probs([(encoded[0], encoded[1])])[0]
    )
    assert "".join(score.tokens).replace("▁", "").removesuffix("</s>") == target.replace(" ", "")


def test_a_model_without_slots_reads_the_spans(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> None:
    translator = Translator(untrained_model, toy_tokenizer, protection=Protection())
    (score,) = translator.score([MAIL], [MAIL])
    ids = toy_tokenizer.encode(MAIL)
    assert score.token_log_probs == pytest.approx(ModuleReader(untrained_model).token_log_probs([(ids, ids)])[0])
