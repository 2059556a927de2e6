"""Commands in a terminal: they say what they do, ask for text, and end with a summary."""

import re
from pathlib import Path
from typing import Any

from rich.console import Console
from terminals import in_a_terminal

from transduce.cli import messages
from transduce.training.display import Display, sparkline


def test_text_is_typed_after_a_prompt(transduce: Any, trained: Any, tmp_path: Path) -> None:
    output = transduce("translate", "-m", trained.run, "babo gigo", cwd=tmp_path).out.strip()
    words = ("translate", "-m", trained.run)
    text = in_a_terminal(transduce, *words, cwd=tmp_path, typed=b"babo gigo\n\x04")
    assert "loading the model ...\r\x1b[K" in text  # said at once, and removed when it is loaded
    assert "Type a text and press Enter; Ctrl-D ends.\n> " in text
    assert text.endswith(f"> {output}\n> \n")


def test_a_file_ends_with_its_number_of_lines(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("babo\ngigo\n")
    text = in_a_terminal(transduce, "translate", "-m", trained.run, "a.txt", "-o", "b.txt", cwd=tmp_path)
    assert re.search(r"transduce: 2 lines in \d+\.\d s\n", text)


def test_warnings_and_errors_have_colours_in_a_terminal_only(capsys: Any, monkeypatch: Any) -> None:
    messages.log("warning: look out")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    messages.log("warning: look out")
    messages.log("wrong", error=True)
    messages.log("right")
    monkeypatch.setenv("NO_COLOR", "1")
    messages.log("wrong", error=True)
    assert capsys.readouterr().err.splitlines() == [
        "transduce: warning: look out",
        "\x1b[33mtransduce: warning: look out\x1b[0m",
        "\x1b[31mtransduce: wrong\x1b[0m",
        "transduce: right",
        "transduce: wrong",
    ]


def test_a_message_replaces_the_announcement(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with messages.announce("working"):
        messages.log("a message")
    assert capsys.readouterr().err == "working ...\r\x1b[Ktransduce: a message\n\r\x1b[K"


def test_sparkline() -> None:
    assert sparkline([]) == ""
    assert sparkline([1.0]) == "▁"
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([8.0, 1.0, 1.0]) == "█▁▁"
    assert len(sparkline([float(number) for number in range(1000)])) == 40


def test_phases_are_shown_in_a_terminal_only() -> None:
    for terminal in (True, False):
        console = Console(force_terminal=terminal, width=80, highlight=False)
        with console.capture() as capture:
            display = Display(console)
            display.phase("scoring")
            display.log("warning: a")
        assert ("scoring ..." in capture.get()) == terminal
        assert ("\x1b[33m" in capture.get()) == terminal


def test_validation_tells_the_change_of_the_score(trained: Any) -> None:
    lines = re.findall(r"step \d+  valid loss .*", trained.outcome.err)
    assert not re.search(r"BLEU [\d.]+ \(", lines[0])
    assert all(re.search(r"BLEU [\d.]+ \([+-][\d.]+\)", line) for line in lines[1:])
    assert re.search(r"report: run/report.html; 60 steps in 0:00:\d\d\n", trained.outcome.err)


def test_a_refused_translation_leaves_no_file(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\n")
    refused = transduce("translate", "-m", trained.run, "bad.txt", "-o", "out.txt", cwd=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]
    (tmp_path / "out.txt").write_text("mine\n")
    assert transduce("translate", "-m", trained.run, "bad.txt", "-o", "out.txt", cwd=tmp_path).code == 2
    assert (tmp_path / "out.txt").exists()
