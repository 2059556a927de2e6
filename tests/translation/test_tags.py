"""Pairs of tags in lines of text: taken out, and given to the sentences that they are in."""

import pytest

from transduce.translation.projection import project
from transduce.translation.stages.normalize import Readable
from transduce.translation.stages.protect import Protect, Protection
from transduce.translation.stages.split import Split
from transduce.translation.stages.tags import Tags
from transduce.translation.text import Context, Segment, Text

CONTEXT = Context(protection=Protection())


def taken(line: str) -> Text:
    return Tags(aligns=True).apply(Text.of(line), CONTEXT)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Click <b>Save</b> now.", "Click Save now."),
        ("  a <i>b <u>c</u></i>\td", "  a b c\td"),
        ("un<b>believ</b>able", "unbelievable"),
        ("<li>one</li><li>two</li>", "one two"),
        ("<p>one</p> <p>two</p>", "one two"),
        ("Dear <name>, <br>hello", "Dear <name>, <br>hello"),
        ("<b>...</b>", "<b>...</b>"),
        ("**Note:** a *red* ~~old~~ ***big*** house", "Note: a red old big house"),
        ("2 * 3 * 4, a*b*c, *args and **kwargs, f*** *.py, `a *b*`, \\*a*", None),
        ("<i title='*a*'>*b*</i> **c", "b **c"),
        ("", ""),
    ],
)
def test_pairs_are_taken_out_of_a_line(line: str, text: str | None) -> None:
    assert taken(line).characters == (line if text is None else text)


@pytest.mark.parametrize("unit", ["*a ", "**a", "`", "<a ", "*a*", "~~a"])
def test_hostile_lines_take_linear_time(unit: str) -> None:
    """In quadratic time, this would take minutes."""
    assert "a" in taken(unit * 30_000 + "a").characters


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("<p>One. It is <b>two. Three</b> is four.</p>", ["<p>One.", "It is <b>two.", "Three</b> is four.</p>"]),
        ("<b>One.</b> Two.", ["<b>One.</b>", "Two."]),
        ("One. <b>Two.</b>", ["One.", "<b>Two.</b>"]),
        ("One.<b> Two.</b>", ["One.", "<b>Two.</b>"]),
        ("  <b>One. </b>Two.", ["<b>One.", "</b>Two."]),
        ("One.<b></b> Two.", ["One.", "<b></b>Two."]),
    ],
)
def test_sentences_have_the_tags_in_them(line: str, sentences: list[str]) -> None:
    split = Split(Protect(Readable(list), uses_slots=False, sources={}), by_sentence=True)
    segments = [Segment([], [], text, text) for text in split.apply(taken(line), CONTEXT)]
    for segment, expected in zip(segments, sentences, strict=True):
        unchanged = [((n, n + 1), (n, n + 1)) for n in range(len(segment.text))]
        tagged = segment.tagged
        assert (project(tagged, tagged.text, unchanged, str) if tagged else segment.text) == expected
