"""Protected spans: patterns of a user, and properties that hold for any text; test_rules.py has the kinds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ConfigError
from transduce.tokenizers.symbols import SLOTS, unescape
from transduce.translation.locale import localized
from transduce.translation.scoring import masked
from transduce.translation.stages.protect import Protection

PROTECTION = Protection()
ANY_TEXT = st.text(st.sampled_from("ab1. @/\\{}<>$%_-:`😀\ue100\ue011▁,+#&€é")) | st.text()


def test_numbers_are_only_found_if_requested() -> None:
    text = "3.5 kg for anna@example.org"
    assert [text[start:end] for start, end in PROTECTION.spans(text, numbers=False)] == ["anna@example.org"]


def test_a_time_stays_if_the_target_language_is_not_known() -> None:
    assert localized("5:30 pm", "", ["en"], None) == "5:30 pm"


def test_a_users_pattern_comes_before_the_kinds() -> None:
    text = "Order AB-12 of anna@example.org in ACME"
    spans = Protection([r"[A-Z]{2}-\d+", "ACME", "anna"]).spans(text)
    assert [text[start:end] for start, end in spans] == ["AB-12", "anna", "ACME"]


def test_a_pattern_that_is_wrong_is_an_error() -> None:
    with pytest.raises(ConfigError, match="not a regular expression"):
        Protection(["("])


@given(ANY_TEXT)
def test_spans_are_in_order_without_overlap(text: str) -> None:
    for protection in (PROTECTION, Protection(["a.", r"\d"])):
        spans = protection.spans(text)
        places = [place for span in spans for place in span]
        assert places == sorted(places)
        assert all(0 <= start < end <= len(text) for start, end in spans)


@given(ANY_TEXT)
def test_a_mask_that_is_filled_is_the_text(text: str) -> None:
    spans = PROTECTION.spans(text)
    marked = masked(text, spans)
    restored = marked
    for slot, (start, end) in zip(SLOTS, spans, strict=False):
        assert marked.count(slot) == 1
        before, after = restored.split(slot)
        restored = before + text[start:end].replace("\ue100", "").replace("\ue011", "") + after
    if not any(symbol in text for symbol in ("\ue100", "\ue011", "▁", "\ufffd")):
        assert unescape(restored) == text


@pytest.mark.parametrize(
    "unit",
    [
        "+49/",
        "a.",
        "a_",
        "{",
        "<a ",
        "a@",
        "1 ",
        "1.",
        "/a",
        "a-",
        "%(a",
        "`",
        "\\",
        "😀 ",
        " :a",
        "{a,plural,",
        "{a,select,{}",
        "a + ",
        "a=",
        "a^",
        "(a",
        "1 x ",
        "1x",
        "1 = ",
        "a1",
        "1:",
        "aA",
        "9 am-",
        "Ctrl+",
        "<!--",
        "\\a{",
        "__a",
    ],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """In quadratic time, this would take minutes."""
    text = unit * (100_000 // len(unit))
    assert all(0 <= start < end <= len(text) for start, end in PROTECTION.spans(text))
