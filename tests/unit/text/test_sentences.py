"""Sentence splitting."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Hello.", "How are you?", "I am fine!"],
        ["Dr. Smith met J. R. R. Tolkien.", 'He said "Go away."', "Then he left."],
        ["It costs 3.50 dollars.", "See e.g. Table 2."],
        ["No. 5 is alive."],
        ["Wait... what? ok."],
        ["It was I.", "He left."],
        ["They live in the U.S. They like it."],
        ["“Yes.”", "“No.”"],
        ["Mr. President, ladies and gentlemen!", "(Applause.)", "Thank you."],
        ["Ich bin müde.", "Übrigens: Du auch?", "Äh..."],
        ["."],
        [],
    ],
)
def test_joined_sentences_are_split_again(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("  ".join(sentences) + " ") == sentences


def test_lines_and_scripts_without_spaces() -> None:
    assert split_sentences("first line\nsecond line\n\n") == ["first line", "second line"]
    assert split_sentences("你好。世界！好") == ["你好。", "世界！", "好"]


@given(st.text(alphabet="aAÄ.!?\n \"'()。1", max_size=40))
def test_only_white_space_is_lost(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize("run", [".", " ", "\t", "!?"])
def test_a_long_run_does_not_take_quadratic_time(run: str) -> None:
    """Runs in another process, as a regular expression cannot be interrupted; quadratic time would take an hour."""
    code = "from transduce.text.sentences import split_sentences; "
    code += f"text = 'a' + {run!r} * 500_000 + 'b'; assert split_sentences(text) == [text]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
