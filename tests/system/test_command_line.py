"""The command line, `python -m transduce`: files, outputs, exit codes and messages."""

import base64
import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from commands import complaint
from safetensors.numpy import load_file

DATA_CHECK = ["data", "check", "--src", "train.src", "--tgt", "train.tgt"]
COMMANDS = ["data", "train", "translate", "inspect", "evaluate", "info", "shrink", "serve", "demo", "cache"]

# Translating

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


# Inspecting


def test_inspect_writes_one_self_contained_page(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = ["--beam", "2", "--prefix", "gigo", "--off", "cross.1.2", "-o", tmp_path / "look.html"]
    outcome = transduce("inspect", "-m", "run", "babo dedu", *words, cwd=trained.folder)
    assert (outcome.code, outcome.err) == (0, "")
    source, output, _ = outcome.out.splitlines()
    assert source == "babo dedu"
    assert output.startswith("→ gigo")
    page = (tmp_path / "look.html").read_text(encoding="utf-8")
    held = base64.b64decode(re.search(r'<script type="text/plain" id="inspection">([^<]*)<', page)[1])
    header = json.loads(held[4 : 4 + int.from_bytes(held[:4], "little")])
    assert (header["text"], header["beam"], header["off"]) == ("babo dedu", 2, ["cross.1.2"])
    assert output == f"→ {header['translation']}"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([" "], "the text is empty"),
        (["babo", "--off", "cross.1.9"], "head cross.1.9 does not exist: cross has layers 1 to 1 with heads 1 to 2"),
        (["babo", "--beam", "99"], "beam must be at most 16"),
        (["babo " * 300], "the text has 301 tokens; the model takes 256: shorten it"),
        (["babo", "-o", "nowhere/look.html"], "nowhere/look.html"),
    ],
)
def test_inspect_refuses_what_it_cannot_show_in_one_line(
    transduce: Any, trained: Any, words: list[str], reason: str
) -> None:
    assert reason in complaint(transduce("inspect", "-m", "run", *words, cwd=trained.folder))


# Scoring


def test_evaluate_scores_a_model(transduce: Any, trained: Any, tmp_path: Path) -> None:
    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    words = ("evaluate", "-m", trained.run, "--src", src, "--ref", ref, "--out", "out.txt", "--beam", "2")
    outcome = transduce(*words, "--engine", "native", "--threads", "1", cwd=tmp_path)
    assert outcome.code == 0
    assert re.fullmatch(
        rf"transduce: {re.escape(str(trained.run))}/model: engine native \(8-bit, .*, threads: 1\)\n", outcome.err
    )
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["BLEU", "chrF2", "TER"]
    assert "tok:13a" in outcome.out
    saved = transduce("evaluate", "--hyp", "out.txt", "--ref", ref, cwd=tmp_path)
    assert saved.out == outcome.out
    translated = transduce("translate", "-m", trained.run, "--beam", "2", src, cwd=tmp_path)
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == translated.out


def test_evaluate_scores_one_system_as_sacrebleu_does(transduce: Any, trained: Any, tmp_path: Path) -> None:
    from transduce.evaluation.scores import score

    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    outcome = transduce("evaluate", "--hyp", src, "--ref", ref, "--json", cwd=tmp_path)
    expected = score(*(path.read_text(encoding="utf-8").splitlines() for path in (src, ref)))
    assert json.loads(outcome.out) == [asdict(one) for one in expected]


def test_evaluate_takes_every_search_option_and_names_the_engine(transduce: Any, trained: Any) -> None:
    words = (
        "evaluate",
        "-m",
        "run",
        "--src",
        "valid.src",
        "--ref",
        "valid.tgt",
        "--engine",
        "native",
        "--device",
        "cpu",
        "--json",
    )
    scores = json.loads(transduce(*words, "--max-length", "1", "--sample", cwd=trained.folder).out)
    engine = "plain (cpu, float32), because native has no sampling"
    assert [one["engine"] for one in scores] == [engine] * 3
    assert [one.keys() for one in scores] == [{"metric", "value", "signature", "engine"}] * 3


def test_search_options_without_effect_are_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    outcome = transduce("evaluate", "--hyp", src, "--ref", ref, "--beam", "8", cwd=tmp_path)
    assert complaint(outcome) == "--beam has no effect on translations that are given with --hyp; leave it out"
    for words in (["evaluate", "--src", src, "--ref", ref], ["backtranslate", src, "--out", "new.tsv"]):
        outcome = transduce(*words, "-m", trained.run, "--nbest", "2", cwd=tmp_path)
        assert outcome.code == 2
        assert "No such option: --nbest" in outcome.err


def test_evaluate_compares_two_systems(transduce: Any, trained: Any, tmp_path: Path) -> None:
    ref = trained.folder / "valid.tgt"
    (tmp_path / "bad.txt").write_text("nonsense all the way\n" * 20)
    shutil.copy(ref, tmp_path / "good.txt")
    outcome = transduce("evaluate", "--hyp", "bad.txt", "--hyp", "good.txt", "--ref", ref, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    lines = [line for line in outcome.out.splitlines() if re.match(r"(BLEU|chrF2|TER) ", line)]
    assert [("baseline" in line, "better, significantly" in line) for line in lines] == [
        (True, False),
        (False, True),
    ] * 3
    compared = json.loads(
        transduce("evaluate", "--hyp", "good.txt", "--hyp", "bad.txt", "--ref", ref, "--json", cwd=tmp_path).out
    )
    assert [one["p_value"] is None for one in compared["comparisons"]] == [True, False] * 3
    assert len(compared["signatures"]) == 3


def test_evaluate_compares_two_models(transduce: Any, trained: Any) -> None:
    models = [trained.run / "checkpoints" / f"step-{step}" for step in (20, 60)]
    words = [word for model in models for word in ("-m", model)]
    text = ["--src", trained.folder / "valid.src", "--ref", trained.folder / "valid.tgt"]
    result = json.loads(transduce("evaluate", *words, *text, "--json", "--engine", "plain", cwd=trained.folder).out)
    assert result["engines"] == {str(model): "plain (cpu, float32)" for model in models}
    compared = result["comparisons"]
    assert [one["system"] for one in compared if one["metric"] == "BLEU"] == [str(model) for model in models]
    twice = transduce("evaluate", *words[:2], *words[:2], *text, cwd=trained.folder)
    assert "given twice" in complaint(twice)
    saved = transduce("evaluate", *words, *text, "--out", "out.txt", cwd=trained.folder)
    assert "--out is for the translations of one model, not of 2" in complaint(saved)


def test_evaluate_takes_a_test_set_in_one_file(transduce: Any, trained: Any, tmp_path: Path) -> None:
    sides = [(trained.folder / f"valid.{side}").read_text().splitlines() for side in ("src", "tgt")]
    (tmp_path / "test.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in zip(*sides, strict=True)))
    (tmp_path / "hyp.txt").write_text("".join(f"{tgt}\n" for tgt in sides[1]))
    outcome = transduce("evaluate", "--test", "test.tsv", "--hyp", "hyp.txt", cwd=tmp_path)
    assert outcome.out.startswith("BLEU  100.00")


def test_evaluate_never_overwrites_a_file_that_it_reads(transduce: Any, trained: Any, tmp_path: Path) -> None:
    for side in ("src", "tgt"):
        shutil.copy(trained.folder / f"valid.{side}", tmp_path / side)
    words = ("evaluate", "-m", trained.run, "--src", "src", "--ref", "tgt", "--out")
    for name in ("src", "tgt"):
        before = (tmp_path / name).read_bytes()
        message = complaint(transduce(*words, tmp_path / name, cwd=tmp_path))
        assert message == f"--out would overwrite {tmp_path / name}, which is being read; name another file"
        assert (tmp_path / name).read_bytes() == before
    # Before the text is translated, which may take long.
    assert complaint(transduce(*words, "no/out", cwd=tmp_path)) == "--out no/out: there is no folder no; make it first"
    assert complaint(transduce(*words, tmp_path, cwd=tmp_path)) == f"--out {tmp_path} is a folder; name a file"


def test_evaluate_refuses_files_that_do_not_match(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("one\ntwo\n")
    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    by_output = complaint(transduce("evaluate", "--hyp", "short.txt", "--ref", ref, cwd=tmp_path))
    assert "short.txt has 2 lines, the reference 20" in by_output
    by_source = complaint(transduce("evaluate", "-m", trained.run, "--src", src, "--ref", "short.txt", cwd=tmp_path))
    assert "valid.src has 20 lines" in by_source
    assert "short.txt 2" in by_source
    (tmp_path / "blank.txt").write_text("\n\n")
    by_reference = complaint(transduce("evaluate", "--hyp", "short.txt", "--ref", "blank.txt", cwd=tmp_path))
    assert by_reference == "the reference is empty"


def test_evaluate_reports_missing_options(transduce: Any, trained: Any) -> None:
    assert "--ref" in complaint(transduce("evaluate", "--hyp", "valid.src", cwd=trained.folder))
    assert "--hyp" in complaint(transduce("evaluate", "--ref", "valid.src", cwd=trained.folder))
    assert "--src" in complaint(transduce("evaluate", "-m", "run", "--ref", "valid.tgt", cwd=trained.folder))


# Model information


def test_info_prints_facts_of_a_model(transduce: Any, trained: Any) -> None:
    outcome = transduce("info", "-m", "run", cwd=trained.folder)
    assert (outcome.code, outcome.err) == (0, "")
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in outcome.out.splitlines())
    assert rows["folder"] == "run/model"
    assert (rows["d_model"], rows["steps"], rows["data: pairs"]) == ("32", "60", "300")
    assert rows["confidence"] == "not calibrated"


def test_info_prints_the_same_as_json(transduce: Any, trained: Any) -> None:
    facts = json.loads(transduce("info", "-m", "run/model", "--json", cwd=trained.folder).out)
    weights = load_file(trained.run / "model/model.safetensors")
    assert facts["parameters"] == sum(x.size for x in weights.values())
    assert facts["data: pairs"] == 300
    assert facts["score: valid bleu"] >= 0


# Help and imports


def test_every_command_has_help(transduce: Any, tmp_path: Path) -> None:
    top = transduce("--help", cwd=tmp_path)
    assert top.code == 0
    for command in COMMANDS:
        assert re.search(rf"^ *{command} ", top.out, re.MULTILINE)
        outcome = transduce(command, "--help", cwd=tmp_path)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("Usage: ")
        assert f" {command} " in outcome.out.splitlines()[0]


@pytest.mark.parametrize("command", ["translate", "evaluate", "inspect"])
def test_help_shows_type_default_and_bounds_of_search_options(transduce: Any, tmp_path: Path, command: str) -> None:
    text = " ".join(transduce(command, "--help", cwd=tmp_path).out.split())
    beam = "--beam <int> Number of hypotheses kept at each step; 1 is greedy search. [default: 4; x>=1; x<=1024]"
    options = [
        beam,
        "Block repeated n-grams of this size; 0 disables. [default: 0; x>=0]",
        "[default: 0.6; x>=-10; x<=10]",
    ]
    if command != "inspect":
        options += ["--top-p <float>", "[default: 1.0; x>0; x<=1]", "--sample / --no-sample", "[default: no-sample]"]
    for part in options:
        assert part in text


@pytest.mark.parametrize(
    "command",
    [["train"], ["translate"], ["inspect"], ["evaluate"], ["shrink"], ["demo"], ["data", "get"], ["data", "check"]],
)
def test_outputs_have_one_name_on_the_command_line(transduce: Any, tmp_path: Path, command: list[str]) -> None:
    text = transduce(*command, "--help", cwd=tmp_path).out
    assert re.search(r"^ *-o, --out <path> ", text, re.MULTILINE)
    assert "--output" not in text
    assert "--save" not in text


def test_earlier_names_of_out_still_work(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("ba be\n")
    for words in (["--output", "a.txt"], ["--output=b.txt"], ["--out", "c.txt"], ["-o", "d.txt"]):
        assert transduce("translate", "-m", trained.run, "in.txt", *words, cwd=tmp_path).code == 0
    pair = ("--src", "in.txt", "--ref", "in.txt", "--save", "e.txt")
    assert transduce("evaluate", "-m", trained.run, *pair, cwd=tmp_path).code == 0
    assert len({(tmp_path / f"{name}.txt").read_text() for name in "abcde"}) == 1


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["info", "-m", "run"], DATA_CHECK])
def test_commands_that_compute_nothing_do_not_import_torch(transduce: Any, trained: Any, words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "transduce", *words]
    done = subprocess.run(command, cwd=trained.folder, env=transduce.environment, capture_output=True, text=True)
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "transduce.cli.main" in imported
    assert not {"torch", "matplotlib", "fastapi"} & imported
