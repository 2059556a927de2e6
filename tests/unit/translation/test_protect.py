"""Protected spans: the kinds that are found, and properties that hold for any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ConfigError
from transduce.tokenizers.symbols import SLOTS, unescape
from transduce.translation.stages.protect import Protection
from transduce.translation.stages.slots import mask

PROTECTION = Protection()
ANY_TEXT = st.text(st.sampled_from("ab1. @/\\{}<>$%_-:`😀\ue100\ue011▁,+#&€é")) | st.text()


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Write to anna.schmidt+x@mail.example.org.", ["anna.schmidt+x@mail.example.org"]),
        ("See https://example.com/a?b=1&c=(2), please.", ["https://example.com/a?b=1&c=(2)"]),
        ("(see www.example.com/x) or example.org!", ["www.example.com/x", "example.org"]),
        ("Hello {% if user.name %}you{% endif %}, 5% {of} it", ["{% if user.name %}", "{% endif %}", "5%", "{of}"]),
        ("Hello {name}, {0} of ${total}, {{ user.name }}", ["{name}", "{0}", "${total}", "{{ user.name }}"]),
        ("%s has %d files in %(folder)s, %1$s and %.2f", ["%s", "%d", "%(folder)s", "%1$s", "%.2f"]),
        ("Set $HOME and `x = 1` and &nbsp; now", ["$HOME", "`x = 1`", "&nbsp;"]),
        (
            "You have {n, plural, =0 {no files} other {# files in {folder}}} and {x} {y, plural of z",
            ["{n, plural, =0 {no files} other {# files in {folder}}}", "{x}"],
        ),
        ("Click <b>Save</b> or <br/>.", ["<b>", "</b>", "<br/>"]),
        ("Copy /usr/local/bin to ~/x.d/y.", ["/usr/local/bin", "~/x.d/y"]),
        (r"It is in C:\Users\Anna\x.txt today", [r"C:\Users\Anna\x.txt"]),
        ("Open report_final-2.pdf, main.py and src/app.js.", ["report_final-2.pdf", "main.py", "src/app.js"]),
        ("It weighs 3.5 kg at 20 °C, costs $1,200 or 99 €.", ["3.5 kg", "20 °C", "$1,200", "99 €"]),
        ("At 10:45 on 2024-05-17, 50% of 12,345 and 1234567", ["10:45", "2024-05-17", "50%", "12,345", "1234567"]),
        ("Call +49 30 123456 for v1.2.3", ["+49 30 123456", "v1.2.3"]),
        ("Thanks 😀🎉 and ❤️!", ["😀🎉", "❤️"]),
        ("A family 👨‍👩‍👧 and a thumb 👍🏽", ["👨‍👩‍👧", "👍🏽"]),
        (":wave: Thanks :+1: :thumbs_up: for all :heart:.", [":wave:", ":+1:", ":thumbs_up:", ":heart:"]),
        ("> If 5 > 3 or x >= y, go to File > Save", ["5 > 3", "x >= y", ">"]),
        ("So E = mc^2, f(x) = 2x + 1 and (a + b)^2 > 0", ["E = mc^2", "f(x) = 2x + 1", "(a + b)^2 > 0"]),
        ("If 2 x 4 = 8, x_1 ≤ 5 and p<0.05, compute x² - 10^6", ["2 x 4 = 8", "x_1 ≤ 5", "p<0.05", "x² - 10^6"]),
        ("x = a number, A = good, we + you = us, T-shirt = 5, a <b", []),
        ("At 5:30 pm, 5pm, 11 PM, 8am or 10.45 a.m. on Monday", ["5:30 pm", "5pm", "11 PM", "8am", "10.45 a.m."]),
        ("Open 9am-5pm, 9 am – 5:30 pm; um 5 am Bahnhof, 5 pmx. It is 5 p.m.", ["9am-5pm", "9 am – 5:30 pm", "5 p.m"]),
        (
            "$5bn, £ 20m, €3.5 M, 20k, 1.5 bn or 5 M€, 3,2 Mrd. Euro",
            ["$5bn", "£ 20m", "€3.5 M", "20k", "1.5 bn", "5 M€"],
        ),
        (
            "Take 2 tbsp, 10 lbs, 30 mpg, 100 Mbit/s and 4 GiB, not 5 lbsx",
            ["2 tbsp", "10 lbs", "30 mpg", "100 Mbit/s", "4 GiB"],
        ),
        ("At 0x1F or 1e-5, abc123def456 and v1.2.3-beta.1", ["0x1F", "1e-5", "abc123def456", "v1.2.3-beta.1"]),
        ("2001:db8::1 00:1A:2B:3C:4D:5E a:b, ab12", ["2001:db8::1", "00:1A:2B:3C:4D:5E"]),
        ("The id 550e8400-e29b-41d4-a716-446655440000 is it", ["550e8400-e29b-41d4-a716-446655440000"]),
        ("Press Ctrl+Alt+Del or Ctrl-C, not Alt-text", ["Ctrl+Alt+Del", "Ctrl-C"]),
        (
            r"\nUse __init__ && \ref{a b} == c <!-- x --> \nu",
            [r"\n", "__init__", "&&", r"\ref{a b}", "==", "<!-- x -->"],
        ),
        ("A 1920x1080 screen, 10 x 15.5 cm, or a 4×4", ["1920x1080", "10 x 15.5 cm", "4×4"]),
        ("Name: ______, age: ____.", ["______", "____"]),
        ("Haha :-) and ;) but :-(", [":-)", ";)", ":-("]),
        ("Two (one :p) a=(b), x :( y", ["a=(b)", ":("]),
        ("He said:yes: no. Two things :one, two: three", []),
        ("From 10:30:00 to 10:45:", ["10:30:00", "10:45"]),
        ("Use max_length, --dry-run, @anna and #python", ["max_length", "--dry-run", "@anna", "#python"]),
        ("Tom's dog is 5 years old. It is well-known, and/or so.", []),
        ("He paid 100 % of it? No. In 1999 he left.", ["100 %"]),
        ("From -5 to +3 or −7, a loss of -$40, A-10, -5 million", ["-5", "+3", "−7", "-$40"]),
        ("Used 100%% or %d%% of %s, 5% and %%", ["100%%", "%d%%", "%s", "5%", "%%"]),
        ("e.g. a cat, i.e. Tom & Anna", []),
    ],
)
def test_kinds(text: str, spans: list[str]) -> None:
    assert [text[start:end] for start, end in PROTECTION.spans(text)] == spans


def test_numbers_are_only_found_if_requested() -> None:
    text = "3.5 kg for anna@example.org"
    assert [text[start:end] for start, end in PROTECTION.spans(text, numbers=False)] == ["anna@example.org"]


def test_plain_integers_and_codes_are_listed_separately() -> None:
    text = "He saw 12 birds, 1999 cats, 3 dogs and 3.5 kg of H2O by LH400 in 20A, a5, ABCDE1, getName or F5."
    copied = PROTECTION.copied(text, PROTECTION.spans(text))
    assert [text[start:end] for start, end in copied] == ["12", "1999", "H2O", "LH400", "getName", "F5"]


def test_lists_of_integers_are_found_as_a_whole() -> None:
    text = "Rooms 1 2 3, bus 12 14 15 or 5 6; pages 7, 8, 9, 10. No 12 14, 12 000 000, one 1, 2, 3 or 5 6-year-olds."
    found = [text[start:end] for start, end in PROTECTION.integer_lists(text)]
    assert found == ["1 2 3", "12 14 15", "5 6", "7, 8, 9, 10"]


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
    marked = mask(text, spans)
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
