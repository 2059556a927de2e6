"""Pairs of tags in lines of text: taken out, and given to the sentences that they are in."""

import pytest

from transduce.translation.line_tags import tags_by_sentence, take_tags, with_tags
from transduce.translation.project_tags import project
from transduce.translation.sentences import split_sentences


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
    assert take_tags(line)[0] == (line if text is None else text)


@pytest.mark.parametrize("unit", ["*a ", "**a", "`", "<a ", "*a*", "~~a"])
def test_hostile_lines_take_linear_time(unit: str) -> None:
    """In quadratic time, this would take minutes."""
    assert "a" in take_tags(unit * 30_000 + "a")[0]


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
    text, tags = take_tags(line)
    split = split_sentences(text)
    tagged = [with_tags(one.text, own) for one, own in zip(split, tags_by_sentence(text, tags, split), strict=True)]
    unchanged = [[((n, n + 1), (n, n + 1)) for n in range(len(one.text))] for one in tagged]
    assert [project(one, one.text, same, str) for one, same in zip(tagged, unchanged, strict=True)] == sentences
