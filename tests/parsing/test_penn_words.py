"""English text is split into words as treebanks have them."""

import pytest

from transduce.parsing.parser import split_words, without_brackets


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat sat.", "The cat sat ."),
        ("Dr. Smith didn't go to the U.S. (he can't), it's John's.", None),
        ("a well-known 1,000.50 idea...", "a well - known 1,000.50 idea ..."),
        ("I cannot; DON'T!", "I can not ; DO N'T !"),
        ("See https://a.b/c-d or x@y.com.", "See https://a.b/c-d or x@y.com ."),
        ("5% of $3 -LRB- etc. -RRB-", "5 % of $ 3 -LRB- etc. -RRB-"),
        ("  ", ""),
    ],
)
def test_words(text: str, words: str | None) -> None:
    if words is None:
        words = "Dr. Smith did n't go to the U.S. -LRB- he ca n't -RRB- , it 's John 's ."
    assert split_words(text) == words.split()


def test_words_of_trees_have_no_brackets_and_spaces() -> None:
    assert without_brackets(["f(x)", "a b", "", "["]) == ["f-LRB-x-RRB-", "a", "b", "["]
