"""Safe output on a terminal."""

from transduce.text.printable import printable


def test_control_characters_are_replaced() -> None:
    assert printable("\x1b]0;title\x07\x1b[2J\x9bJ ok\tgut\nÄ😀") == "�]0;title��[2J�J ok\tgut\nÄ😀"
