"""`transduce translate` on lines of text: its input, its output and its refusals."""

import json
import re
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

from commands import complaint

LINES = ["ba be", "", "gugu dada bibo baba", "  ", "x 汉 😀", "ba be", "gi"]


def test_translate_is_a_filter(transduce: Any, trained: Any) -> None:
    words = ("translate", "-m", "run", "--length-penalty", "3", "--max-extra", "3")  # it prefers short outputs
    outcome = transduce(*words, stdin="".join(f"{line}\n" for line in LINES), cwd=trained.folder)
    assert (outcome.code, outcome.err) == (0, "")
    outputs = outcome.out.split("\n")
    assert outputs.pop() == ""
    assert len(outputs) == len(LINES)
    assert [line.strip() == "" for line in LINES] == [output == "" for output in outputs]
    assert outputs[0] == outputs[5]
    assert len(set(outputs)) > 3  # or their order would show nothing
    for line, output in list(zip(LINES, outputs, strict=True))[-3:]:
        assert transduce(*words, stdin=line, cwd=trained.folder).out == f"{output}\n"


def test_translate_reads_files_in_order(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ba be\r\ngugu")
    (tmp_path / "b.txt").write_bytes(b"gi\n")
    run = trained.run
    together = transduce("translate", "-m", run, "a.txt", "b.txt", cwd=tmp_path)
    piped = transduce("translate", "-m", run, stdin="ba be\ngugu\ngi\n", cwd=tmp_path)
    assert together == piped
    assert together.out.count("\n") == 3


def test_a_sentence_without_quotes_is_named(transduce: Any, trained: Any) -> None:
    outcome = transduce("translate", "-m", "run", "ba", "be", "gugu", cwd=trained.folder)
    assert outcome.err == "transduce: 3 words are translated one by one; put a sentence in quotes\n"
    assert outcome.out.count("\n") == 3
    assert transduce("translate", "-m", "run", "ba be", "gugu", "gi", cwd=trained.folder).err == ""


def test_wrapped_sentences_are_named(transduce: Any, trained: Any, tmp_path: Path) -> None:
    text = "ba be gugu dada bibo baba " * 20
    (tmp_path / "mail.txt").write_text(textwrap.fill(text, 70) + "\n", encoding="utf-8")
    (tmp_path / "lines.txt").write_text("\n".join(text[:n] for n in range(20, 80, 3)) + "\n", encoding="utf-8")
    words = ("translate", "-m", trained.run)
    wrapped, lines = (transduce(*words, name, cwd=tmp_path) for name in ("mail.txt", "lines.txt"))
    assert "sentences seem to continue in the next; --format md joins them" in wrapped.err
    as_lines = transduce(*words, "--format", "text", "mail.txt", cwd=tmp_path)
    assert (lines.err, as_lines.err, as_lines.out) == ("", "", wrapped.out)


def test_translate_jsonl_gives_the_n_best_with_all_fields(transduce: Any, trained: Any) -> None:
    words = ("translate", "-m", "run", "--jsonl", "--nbest", "4")
    outcome = transduce(*words, stdin="ba be\n\ngugu dada\n", cwd=trained.folder)
    assert outcome.code == 0, outcome.err
    first, empty, second = map(json.loads, outcome.out.splitlines())
    for record, source in ((first, "ba be"), (second, "gugu dada")):
        assert record.keys() == {"source", "source_tokens", "translations"}
        assert record["source"] == source
        assert len(record["translations"]) == 4
        scores = [one["score"] for one in record["translations"]]
        assert scores == sorted(scores, reverse=True)
        for one in record["translations"]:
            assert one.keys() == {"text", "score", "log_prob", "tokens", "alignment"}
            assert len(one["alignment"]) == len(one["tokens"])
            assert all(0 <= place < len(record["source_tokens"]) for place in one["alignment"])
    assert [one["text"] for one in empty["translations"]] == [""]
    plain = transduce("translate", "-m", "run", stdin="ba be\n", cwd=trained.folder)
    assert plain.out == first["translations"][0]["text"] + "\n"


def test_every_line_starts_with_the_prefix(transduce: Any, trained: Any) -> None:
    outcome = transduce("translate", "-m", "run", "--prefix", "dada", stdin="ba be\ngugu\n", cwd=trained.folder)
    assert [line[:4] for line in outcome.out.splitlines()] == ["dada", "dada"]


def test_n_best_in_plain_output_is_refused(transduce: Any, trained: Any) -> None:
    outcome = transduce("translate", "-m", "run", "--nbest", "2", stdin="ba\n", cwd=trained.folder)
    assert "--nbest needs --jsonl" in complaint(outcome)


def test_a_line_too_long_for_the_model_is_split_or_refused(transduce: Any, trained: Any) -> None:
    text = "ba\n" + "gugu dada. " * 200 + "\n"
    split = transduce("translate", "-m", "run", "--beam", "1", "--max-extra", "2", stdin=text, cwd=trained.folder)
    assert split.code == 0, split.err
    assert split.out.count("\n") == 2
    refused = transduce("translate", "-m", "run", "--long", "refuse", stdin=text, cwd=trained.folder)
    assert re.search(r"line 2 has [\d,]+ tokens, more than the 256", complaint(refused))


def test_half_a_character_in_rows_and_options_is_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    for row in ('{"src": "x \\ud83d"}', '{"src": "babo", "note": "\\ud83d"}'):
        rows.write_text('{"src": "\\u0062abo \\ud83d\\ude00"}\n' + row + "\n")
        message = complaint(transduce("translate", "-m", "run", rows, "-o", tmp_path / "o.jsonl", cwd=trained.folder))
        assert message == f"{rows}, line 2 is not valid Unicode: it contains a lone surrogate"
    prefixed = transduce("translate", "-m", "run", "--prefix", "a\udcff", "babo", cwd=trained.folder)
    assert complaint(prefixed) == r"'a\udcff' is not UTF-8; set the terminal's encoding to UTF-8"


def test_input_that_is_not_utf8_is_refused_with_its_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    piped = transduce("translate", "-m", "run", stdin=b"ba\nbe\n\xff\xfe\n", cwd=trained.folder)
    assert "line 3: not UTF-8" in complaint(piped)
    (tmp_path / "in.txt").write_bytes(b"caf\xe9\n")
    named = transduce("translate", "-m", trained.run, "in.txt", cwd=tmp_path)
    assert "in.txt, line 1: not UTF-8" in complaint(named)


def test_input_in_utf16_without_a_mark_is_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes("babo\ndego\n".encode("utf-16-le"))
    message = complaint(transduce("translate", "-m", trained.run, "in.txt", cwd=tmp_path))
    assert message.startswith("in.txt, line 1: a NUL character; if the file is UTF-16, convert it with iconv")


def test_a_closed_output_pipe_ends_translation_quietly(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("ba\n" * 4500)
    words = ("translate", "-m", trained.run, "--beam", "1", "--max-extra", "0", "many.txt")
    process = transduce.background(*words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline().endswith("\n")
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait() == 128 + signal.SIGPIPE
    assert err == ""
