"""Augmentation changes the chosen share of pairs, both sides alike, and leaves symbols and escapes unchanged."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.augment import AugmentConfig, choose
from transduce.errors import ConfigError
from transduce.tokenizers.symbols import BACK_TRANSLATED, FORMALITY, SLOTS, escape, language_tag
from transduce.translation.augment import augment

PAIR = ("Tom sent 3.5 kg of apples to Berlin.", "Tom schickte 3.5 kg Äpfel nach Berlin.")
CHANGES = ["upper", "title", "typos", "punctuation", "emoji", "spans", "names", "formality"]


def slots(text: str) -> list[str]:
    return re.findall(f"[{''.join(SLOTS)}]", text)


def test_the_share_of_changed_pairs_is_that_of_the_settings() -> None:
    changes = choose(20_000, AugmentConfig(upper=0.1, spans=0.3), seed=5)
    assert sum("upper" in names for names in changes.values()) == pytest.approx(2000, rel=0.1)
    assert sum("spans" in names for names in changes.values()) == pytest.approx(6000, rel=0.1)
    assert all(changes.values())
    assert changes == choose(20_000, AugmentConfig(upper=0.1, spans=0.3), seed=5)
    assert changes != choose(20_000, AugmentConfig(upper=0.1, spans=0.3), seed=6)


def test_nothing_is_changed_by_default() -> None:
    assert not AugmentConfig().enabled
    assert choose(1000, AugmentConfig(), seed=1) == {}


def test_capitals_and_title_case_change_both_sides() -> None:
    assert augment(PAIR, ["upper"], 1) == (PAIR[0].upper(), PAIR[1].upper())
    assert augment(("it's a test", "das ist es"), ["title"], 1) == ("It'S A Test", "Das Ist Es")


def test_the_end_is_removed_or_doubled_on_both_sides() -> None:
    results = {augment(("Hi!", "Hallo!"), ["punctuation"], seed) for seed in range(50)}
    assert results == {("Hi", "Hallo"), ("Hi!!", "Hallo!!")}
    assert augment(("Hi", "Hallo!"), ["punctuation"], 1) == ("Hi", "Hallo!")


def test_typos_change_letters_of_the_source_only() -> None:
    for seed in range(50):
        source, target = augment(PAIR, ["typos"], seed)
        assert target == PAIR[1]
        assert source != PAIR[0] or seed  # an exchange of two equal letters changes nothing
        assert re.sub(r"\w", "", source) == re.sub(r"\w", "", PAIR[0])


def test_slots_replace_the_same_text_on_both_sides() -> None:
    seen = set()
    for seed in range(200):
        source, target = augment(PAIR, ["spans"], seed)
        assert sorted(slots(source)) == sorted(slots(target))
        assert len(slots(source)) == len(set(slots(source))) >= 1
        seen |= {*slots(source)}
        for shared in ("Tom", "3.5 kg", "Berlin"):
            assert (shared in source) == (shared in target)
    assert seen == {*SLOTS}  # all of them are trained


def test_an_invented_name_replaces_one_that_both_sides_share() -> None:
    invented = set()
    for seed in range(100):
        source, target = augment(("Tom lives in Berlin.", "Tom wohnt in Berlin."), ["names"], seed)
        name, place = re.fullmatch("(.+) lives in (.+)[.]", source).groups()  # type: ignore[union-attr]
        assert target == f"{name} wohnt in {place}."
        assert (name == "Tom") != (place == "Berlin")
        invented.add(name if place == "Berlin" else place)
    assert len(invented) > 90
    assert augment(("No name", "Kein Name"), ["names"], 1) == ("No name", "Kein Name")


def test_a_symbol_names_the_form_of_address_of_the_target() -> None:
    tag = language_tag("de")
    formal, informal = ("Are you ill?", "Sind Sie krank?"), ("Are you ill?", "Bist du krank?")
    assert augment((f"{tag} {formal[0]}", formal[1]), ["formality"], 1)[0] == f"{tag} {FORMALITY['formal']} {formal[0]}"
    assert augment(informal, ["formality"], 1, "de") == (f"{FORMALITY['informal']} {informal[0]}", informal[1])
    assert augment(informal, ["formality"], 1, "en") == informal
    assert augment(informal, ["formality"], 1) == informal
    assert augment(("She is ill.", "Sie ist krank."), ["formality"], 1, "de")[0] == "She is ill."


def test_a_part_of_a_word_is_not_replaced() -> None:
    for seed in range(50):
        _, target = augment(("The people of Berlin", "Die Berliner"), ["spans"], seed)
        assert "Berliner" in target


@given(
    source=st.text(st.characters(exclude_categories=["Cs", "Co"]), max_size=60),
    target=st.text(st.characters(exclude_categories=["Cs", "Co"]), max_size=60),
    changes=st.lists(st.sampled_from(CHANGES), unique=True),
    seed=st.integers(0, 2**40),
)
def test_any_pair_is_changed_by_a_pure_function_that_keeps_tags(
    source: str, target: str, changes: list[str], seed: int
) -> None:
    pair = (f"{language_tag('de')} {escape(source)}", escape(target))
    result = augment(pair, changes, seed)
    assert result == augment(pair, changes, seed)
    assert result[0].startswith(language_tag("de"))
    assert sorted(slots(result[0])) == sorted(slots(result[1]))


def test_the_tag_of_back_translations_stays_in_front() -> None:
    source, _ = augment((f"{BACK_TRANSLATED} hello", "hallo"), ["upper", "emoji"], 1)
    assert source.startswith(f"{BACK_TRANSLATED} ")
    assert "HELLO" in source


def test_text_with_escapes_is_left_alone() -> None:
    pair = (escape("a \u2581 b"), "x")
    assert augment(pair, CHANGES, 3) == pair


def test_a_share_above_one_is_an_error() -> None:
    with pytest.raises(ConfigError, match="upper must be between 0 and 1"):
        AugmentConfig(upper=1.5)
