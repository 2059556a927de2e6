"""What may be shown."""

from transduce.text.printable import printable


def test_a_terminal_is_told_nothing_but_text() -> None:
    assert printable("\x1b]0;title\x07\x1b[2J\x9bJ ok\tgut\nÄ😀") == "�]0;title��[2J�J ok\tgut\nÄ😀"
