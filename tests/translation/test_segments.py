"""What the parts of a text require, and translations of text with protected spans by a model without training."""

from dataclasses import replace

import pytest

from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.ensemble import Ensemble
from transduce.tokenizers.symbols import SLOTS
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.confidence import ANY, Calibration
from transduce.translation.stages.protect import Protection
from transduce.translation.text import Segment
from transduce.translation.translator import Translator
from transduce.translation.wording import Wording

TEXTS = ["babo a@b.de dedu", "babo", "a@b.de, {x}!", "gi 😀 go 12", "dedu /usr/bin babo {y} {y}"]
SPANS = [["a@b.de"], [], ["a@b.de", "{x}"], ["😀", "12"], ["/usr/bin", "{y}", "{y}"]]


@pytest.fixture
def translator(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> Translator:
    calibration = Calibration((-1.0, 1.0, 0.5, 0.5), (1.0, 1.0, 0.1, 0.1), (0.05, -0.05, 0.05, 0.01), 0.6)
    translator = Translator(
        untrained_model,
        toy_tokenizer,
        protection=Protection(),
        uses_slots=True,
        by_sentence=True,
        calibrations={ANY: calibration},
    )
    translator.config = replace(translator.config, max_extra=4)
    return translator


def requirements(parts: list[Segment]) -> list[tuple[str, bool]]:
    return [(one.text, bool(one.slot)) for part in parts for one in part.required]


def test_spans_beyond_the_number_of_slots_are_joined_or_in_other_parts(translator: Translator) -> None:
    names = [f"{{{name}}}" for name in "abcdefghijkl"]
    (listed,) = translator.segments(f"babo {', '.join(names)} dedu")
    assert requirements([listed]) == [(", ".join(names), True)]
    parts = translator.segments(" babo ".join(names))
    assert len(parts) > 1
    assert requirements(parts) == [(name, True) for name in names]
    whole = translator.whole(" babo ".join(names))
    assert requirements([whole]) == [(name, index < len(SLOTS)) for index, name in enumerate(names)]


def test_a_term_takes_precedence_over_what_it_contains(translator: Translator) -> None:
    terms = {"max_length": "gigo", "dedu 12": "zwölf"}
    parts = translator.segments("babo max_length dedu 12", wording=Wording.of(terms))
    assert requirements(parts) == [("gigo", False), ("zwölf", False)]


@pytest.mark.parametrize(
    ("text", "count"), [("Babo. Dedu.", 2), ("Yahoo! Mail dedu.", 1), ("{{ Babo! Dedu }} go. Gi.", 2)]
)
def test_sentences_with_a_common_term_or_span_are_one_part(translator: Translator, text: str, count: int) -> None:
    parts = translator.segments(text, wording=Wording.of({"Yahoo! Mail": "Yahoo"}))
    assert len(parts) == count
    assert "".join(part.text + part.separator for part in parts) == text


def test_a_model_without_slots_requires_names_but_no_numbers(
    untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer
) -> None:
    translator = Translator(untrained_model, toy_tokenizer, protection=Protection())
    assert requirements(translator.segments("babo a@b.de 3.5 kg 12")) == [("a@b.de", False)]


def test_text_is_not_protected_without_protection(translator: Translator) -> None:
    assert requirements(translator.segments(TEXTS[0], protect=False)) == []


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"nbest": 2, "beam": 2}, {"sample": True}, {"no_repeat": 2}])
def test_every_span_is_in_every_output_once(translator: Translator, options: dict[str, int]) -> None:
    for text, spans, best in zip(
        TEXTS, SPANS, translator.hypotheses(TEXTS, align=True, confidence=True, **options), strict=True
    ):
        for one in best:
            assert all(one.text.count(span) >= spans.count(span) for span in spans), (text, one)
            if not any(token.startswith("<0x") for token in one.tokens):  # bytes
                assert "".join(one.tokens).replace("▁", " ").removeprefix(" ") == one.text
            assert one.alignment is not None
            assert len(one.alignment) == len(one.tokens)
            assert all(
                0 <= index < len(translator.source_tokens(translator.segments(text))) + 1 for index in one.alignment
            )
            assert one.word_confidences is not None
            assert len(one.word_confidences) == len(one.text.split())


def test_prefixes_and_glossaries_hold_with_spans(translator: Translator) -> None:
    results = translator.hypotheses(TEXTS, prefixes=["gigo"] * len(TEXTS), glossary={"babo": "begi"})
    for text, (best, *_) in zip(TEXTS, results, strict=True):
        assert best.text.startswith("gigo")
        assert ("babo" in text) <= ("begi" in best.text)


def test_an_ensemble_keeps_spans(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> None:
    ensemble = Ensemble([untrained_model, untrained_model])
    translator = Translator(ensemble, toy_tokenizer, protection=Protection(), uses_slots=True)
    assert "a@b.de" in translator.translate(TEXTS[0])


def test_a_sentence_in_capitals_is_translated_as_an_ordinary_one(
    untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer
) -> None:
    plain = Translator(untrained_model, toy_tokenizer, protection=Protection(), uses_slots=True)
    truecasing = Translator(untrained_model, toy_tokenizer, protection=Protection(), uses_slots=True, truecases=True)
    text = "BABO DEDU {x} GIGO"
    (part,) = truecasing.segments(text)
    assert (part.text, part.source.shape) == (text, "capitals")
    assert part.tokens == plain.segments("Babo dedu {x} gigo")[0].tokens
    output = plain.translate("Babo dedu {x} gigo")
    assert truecasing.translate(text) == output.upper().replace("{X}", "{x}")
    assert truecasing.translate("Babo dedu {x} gigo") == output
    assert truecasing.hypotheses([text], prefixes=["gi"])[0][0].text.startswith("gi")


def test_text_without_letters_and_words_in_unknown_scripts_are_copied(translator: Translator) -> None:
    texts = ["...", "?!", "-", "Привет, мир!", "東京"]
    assert translator.translate(texts) == texts
    assert requirements(translator.segments("babo 東京 dedu")) == [("東京", True)]
    assert translator.translate("- babo\n  # ...\n") == "- " + translator.translate("babo") + "\n  # ...\n"
    assert translator.translate("babo\t東京\tdedu").split("\t")[1] == "東京"


def test_a_text_is_explained_stage_by_stage(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> None:
    translator = Translator(
        untrained_model, toy_tokenizer, protection=Protection(), uses_slots=True, truecases=True, by_sentence=True
    )
    text = "BABO <b>DEDU</b> {x} GIGO. Babo."
    steps = translator.explain(text, glossary={"dedu": "gigo"}, max_extra=4)
    before = [(number, stage, after) for number, stage, after in steps if stage not in ("search", "repair")][:7]
    assert before == [
        (0, "tags", "BABO DEDU {x} GIGO. Babo."),
        (1, "split", "BABO DEDU {x} GIGO."),
        (2, "split", "Babo."),
        (1, "protect", "BABO DEDU [{x}] GIGO."),
        (1, "glossary", "BABO [DEDU = gigo] {x} GIGO."),
        (1, "truecase", "Babo dedu {x} gigo."),
        (1, "slots", "Babo dedu ⟨0⟩ gigo."),
    ]
    assert {number for number, stage, _ in steps if stage == "search"} == {1, 2}
    assert steps[-1][:2] == (0, "split")
    assert steps[-1][2] == translator.translate(text, glossary={"dedu": "gigo"}, max_extra=4)
    assert translator.explain("") == []
