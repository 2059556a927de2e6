"""Messages with untrusted text: one line that a terminal only displays."""

import pytest

from transduce.files.texts import one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\x1b]0;title\x07\x1b[2J\x9bJ ok\tgut Ä😀", r"\x1b]0;title\x07\x1b[2J\x9bJ ok	gut Ä😀"),
        ("a\nb\r\u2028c\u2029", r"a\nb\r\u2028c\u2029"),
        ("not \udcff UTF-8", r"not \udcff UTF-8"),
        ("txt\u202eexe\u2066", r"txt\u202eexe\u2066"),
        ("👩\u200d👧 \u200c", "👩\u200d👧 \u200c"),
    ],
)
def test_what_a_terminal_would_execute_is_escaped(text: str, line: str) -> None:
    assert one_line(text) == line


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    line = one_line("model.json: " + "x" * 4_000_000 + "; choose another")
    assert len(line) < 2100
    assert line.startswith("model.json: xxx")
    assert line.endswith("xxx; choose another")
    assert "[... 3,998,028 characters ...]" in line
