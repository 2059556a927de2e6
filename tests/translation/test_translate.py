"""`transduce translate` on files: streams, resumes, and picks an engine."""

import fcntl
import gzip
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import complaint


@pytest.fixture
def many(tmp_path: Path) -> Path:
    words = ["ba", "be", "bi", "bo", "da", "de", "di", "do", "ga", "gi"]
    lines = [" ".join(words[(i * 7 + j) % 10] for j in range(1 + i % 6)) for i in range(60)]
    path = tmp_path / "many.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def run(transduce: Any, trained: Any, *words: str | Path) -> Any:
    return transduce("translate", "-m", trained.folder / "run", *words, cwd=trained.folder)


def test_an_output_file_holds_what_standard_output_would(transduce: Any, trained: Any, many: Path) -> None:
    out = many.parent / "out.txt"
    assert run(transduce, trained, many, "--out", out).code == 0
    assert out.read_text() == run(transduce, trained, many).out
    assert len(out.read_text().splitlines()) == 60


@pytest.mark.parametrize("by_sentence", [False, True])
def test_white_space_around_a_line_is_kept(transduce: Any, trained: Any, tmp_path: Path, by_sentence: bool) -> None:
    model = ["--to", "de"] if by_sentence else ["-m", trained.run]
    texts = ["bada gobi", "Good morning. Thank you!"]
    plain = transduce("translate", *model, stdin="".join(f"{text}\n" for text in texts), cwd=tmp_path)
    around = transduce("translate", *model, stdin="".join(f"\t  {text} \t\n" for text in texts), cwd=tmp_path)
    assert around.out == "".join(f"\t  {line} \t\n" for line in plain.out.splitlines())


@pytest.mark.parametrize("cut", [0, 1, 40, 200])
def test_resume_continues_after_the_last_complete_line(transduce: Any, trained: Any, many: Path, cut: int) -> None:
    whole, out = run(transduce, trained, many).out, many.parent / "out.txt"
    out.write_text(whole[:cut])
    outcome = run(transduce, trained, many, "-o", out, "--resume")
    assert outcome.code == 0
    assert out.read_text() == whole
    lines = whole[:cut].count("\n")
    assert (f"has {lines:,} lines already" in outcome.err) == (lines > 0)


@pytest.mark.parametrize("name", ["out.txt", "out.jsonl"])
def test_an_output_is_resumed_in_the_format_that_it_was_begun_in(
    transduce: Any, trained: Any, many: Path, name: str
) -> None:
    out = many.parent / name
    for first, second, begun in (([], ["--jsonl"], "without"), (["--jsonl"], [], "with")):
        assert run(transduce, trained, many, "-o", out, "--force", *first).code == 0
        lines = out.read_text().splitlines(keepends=True)
        out.write_text("".join(lines[:10]))
        message = complaint(run(transduce, trained, many, "-o", out, "--resume", *second))
        assert message == f"{out} was begun {begun} --jsonl; resume it the same way, or name another --out"
        assert out.read_text() == "".join(lines[:10])
        assert run(transduce, trained, many, "-o", out, "--resume", *first).code == 0
        assert out.read_text() == "".join(lines)


def test_an_output_is_resumed_with_the_request_that_it_was_begun_with(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_bytes(b"Yes.\n" * 900 + b"\xff\n")
    (tmp_path / "terms.tsv").write_text("yes\tjawohl\n")
    words = ("translate", "in.txt", "--out", "out.txt")
    assert "line 901" in complaint(transduce(*words, "--to", "de", cwd=tmp_path))  # ends it before it is complete
    begun = (tmp_path / "out.txt").read_text()
    assert begun
    (tmp_path / "in.txt").write_text("Yes.\n" * 901)
    for more, other in [
        (["--to", "fr"], "target language"),
        (["--to", "de", "--glossary", "terms.tsv"], "glossary"),
        (["--to", "de", "--beam", "1", "--no-protect"], "search and protection"),
        (["-m", trained.run], "target language and model and search"),
    ]:
        message = complaint(transduce(*words, "--resume", *more, cwd=tmp_path))
        assert message == f"out.txt was begun with another {other}; resume it the same way, or name another --out"
        assert (tmp_path / "out.txt").read_text() == begun
    assert transduce(*words, "--resume", "--to", "de", cwd=tmp_path).code == 0
    assert (tmp_path / "out.txt").read_text() == f"{begun.splitlines()[0]}\n" * 901
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt", "terms.tsv"]


def test_an_output_with_more_lines_than_the_input_is_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("ba\n")
    (tmp_path / "out.txt").write_text("one\ntwo\n")
    words = ("translate", "-m", trained.run, "in.txt", "--out", "out.txt", "--resume")
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 2
    assert "out.txt has more lines than there are to translate" in outcome.err.splitlines()[-1]
    assert (tmp_path / "out.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("resume", [[], ["--resume"]])
@pytest.mark.parametrize(("command", "out"), [("translate", "out.txt"), ("backtranslate", "out.tsv")])
def test_a_file_that_another_process_writes_is_not_touched(
    transduce: Any, trained: Any, tmp_path: Path, command: str, out: str, resume: list[str]
) -> None:
    (tmp_path / "in.txt").write_text("babo\ndego\n")
    before = "babo\tbabo\nincompl" if resume or command == "translate" else ""
    (tmp_path / out).write_text(before)
    with (tmp_path / out).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        words = [command, "-m", trained.run, "in.txt", "-o", out, *(resume or ["--force"])]
        outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1] == (
        f"transduce: {out} is being written by another process; wait, or name another file"
    )
    assert (tmp_path / out).read_text() == before


@pytest.mark.parametrize("name", ["out.tsv", "out.po", "out.html", "out.csv", "OUT.HTML"])
def test_lines_are_not_written_under_the_name_of_another_format(
    transduce: Any, trained: Any, many: Path, name: str
) -> None:
    message = complaint(run(transduce, trained, many, "--out", many.parent / name))
    assert message.endswith(
        f"{name}: the output is lines of text; end its name in .txt, or in .jsonl to have sources and translations"
    )
    assert not (many.parent / name).exists()
    assert run(transduce, trained, many, "--out", many.parent / name, "--format", "text").code == 0


def test_the_suffix_of_rows_may_have_capitals(transduce: Any, trained: Any, tmp_path: Path) -> None:
    for name in ("in.jsonl", "IN.JSONL"):
        (tmp_path / name).write_text('{"src": "babo"}\n')
        assert transduce("translate", "-m", trained.run, name, "--out", f"out-{name}", cwd=tmp_path).code == 0
    assert (tmp_path / "out-IN.JSONL").read_text() == (tmp_path / "out-in.jsonl").read_text()
    assert json.loads((tmp_path / "out-IN.JSONL").read_text()).keys() == {"src", "tgt"}


def test_the_columns_of_a_table_of_text_are_not_translated_together(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text("babo\tbabo\n")
    (tmp_path / "pairs.tsv.gz").write_bytes(gzip.compress(b"babo\tbabo\n"))
    for name in ("pairs.tsv", "pairs.tsv.gz"):
        message = complaint(transduce("translate", "-m", trained.run, name, cwd=tmp_path))
        assert message.startswith(f"{name}: the columns of a .tsv file are not told apart; give the column")
    outcome = transduce("translate", "-m", trained.run, "pairs.tsv", "--format", "text", cwd=tmp_path)
    assert len(outcome.out.splitlines()) == 1


@pytest.mark.parametrize("out", ["/dev/null", "/dev/stdout"])
def test_a_device_can_be_written_by_several_processes(transduce: Any, trained: Any, tmp_path: Path, out: str) -> None:
    with Path("/dev/null").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert transduce("translate", "-m", trained.run, "babo", "-o", out, cwd=tmp_path).code == 0


def test_resume_needs_input_files(transduce: Any, trained: Any) -> None:
    outcome = transduce("translate", "-m", "run", "--resume", stdin="ba\n", cwd=trained.folder)
    assert outcome.code == 2
    assert "--resume needs --out" in outcome.err


def test_engines_are_picked_by_name(transduce: Any, trained: Any, many: Path) -> None:
    plain = run(transduce, trained, many, "--engine", "plain", "--threads", "1", "--batch-tokens", "64")
    assert plain.code == 0
    assert len(plain.out.splitlines()) == 60
    outcome = run(transduce, trained, many, "--engine", "warp")
    assert outcome.code == 2
    assert "engine must be one of auto, plain, native, gpu, not 'warp'" in outcome.err
    outcome = run(transduce, trained, many, "--engine", "gpu", "--device", "cpu")
    assert outcome.code == 2
    assert "engine gpu needs a CUDA GPU" in outcome.err


def test_the_engine_is_named_if_the_chosen_one_does_not_support_the_options(transduce: Any, trained: Any) -> None:
    words = ("translate", "-m", trained.run, "--device", "cpu", "babo")
    assert transduce(*words, cwd=trained.folder).err == ""
    outcome = transduce(*words, "--engine", "native", "--no-repeat", "2", cwd=trained.folder)
    assert outcome.code == 0
    assert outcome.err.startswith(
        "transduce: engine plain (cpu, float32), because native has no blocking of repeated n-grams"
    )
    assert transduce(*words, "--engine", "plain", "--no-repeat", "2", cwd=trained.folder).err == ""


def test_outputs_have_at_most_max_length_tokens(transduce: Any, trained: Any, many: Path) -> None:
    outcome = run(transduce, trained, many, "--jsonl", "--max-length", "2")
    assert all(len(json.loads(line)["translations"][0]["tokens"]) <= 2 for line in outcome.out.splitlines())


def test_no_repeat_blocks_repeated_n_grams(transduce: Any, trained: Any, many: Path) -> None:
    outcome = run(transduce, trained, many, "--jsonl", "--no-repeat", "2", "--length-penalty", "-3")
    for line in outcome.out.splitlines():
        tokens = json.loads(line)["translations"][0]["tokens"]
        pairs = list(pairwise(tokens))
        assert len(pairs) == len(set(pairs))


def test_compressed_files_are_read(transduce: Any, trained: Any, many: Path) -> None:
    packed = many.with_suffix(".txt.gz")
    packed.write_bytes(gzip.compress(many.read_bytes()))
    assert run(transduce, trained, packed).out == run(transduce, trained, many).out


@pytest.mark.parametrize("name", ["many.txt", "link.txt"])
@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_a_file_is_not_translated_into_itself(
    transduce: Any, trained: Any, many: Path, name: str, more: list[str]
) -> None:
    before = many.read_bytes()
    (many.parent / "link.txt").symlink_to(many)
    outcome = run(transduce, trained, many, "--out", many.parent / name, *more)
    assert outcome.code == 2
    assert f"--out would overwrite {many.parent / name}, which is being read" in outcome.err
    assert many.read_bytes() == before


def test_a_damaged_checkpoint_is_not_used(transduce: Any, trained: Any, tmp_path: Path) -> None:
    checkpoints = shutil.copytree(trained.run / "checkpoints", tmp_path / "run" / "checkpoints", symlinks=True)
    weights = checkpoints / "step-60" / "model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    outcome = transduce("translate", "-m", tmp_path / "run", "ba be", cwd=tmp_path)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith(f"transduce: {weights} is damaged")


def test_model_files_have_default_permissions(trained: Any) -> None:
    assert {oct(path.stat().st_mode) for path in (trained.run / "model").iterdir()} == {
        oct((trained.run / "config.toml").stat().st_mode)
    }
