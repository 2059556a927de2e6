"""The program as a user meets it: `python -m transduce`, with its files, outputs, exit codes and messages."""

import base64
import fcntl
import gzip
import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

DATA_CHECK = ["data", "check", "--src", "train.src", "--tgt", "train.tgt"]
COMMANDS = ["data", "train", "translate", "inspect", "evaluate", "info", "shrink", "serve", "demo"]


def complaint(outcome: Any) -> str:
    """The one line with which a command refuses, checked to be no more than that."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    *before, last = outcome.err.splitlines()
    assert last.startswith("transduce: ")
    assert not [line for line in before if not line.startswith("data: ")]
    return last.removeprefix("transduce: ")


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, but for the lock, which names the last process."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def copied(trained: Any, tmp_path: Path) -> Path:
    """A copy of the trained run, to be changed."""
    return shutil.copytree(trained.run, tmp_path / "run", symlinks=True)


def sets(**values: object) -> list[str]:
    """Further settings of [train]."""
    return [word for name, value in values.items() for word in ("--set", f"train.{name}={value}")]


# Training


def test_a_run_holds_what_a_run_should_hold(trained: Any) -> None:
    run = trained.run
    assert sorted(path.name for path in run.iterdir()) == [
        ".lock",
        "checkpoints",
        "config.toml",
        "metrics.jsonl",
        "model",
        "report.html",
        "tokenizer.model",
    ]
    assert sorted(path.name for path in (run / "model").iterdir()) == [
        "model.json",
        "model.safetensors",
        "tokenizer.model",
    ]
    checkpoints = run / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["best", "step-20", "step-40", "step-60"]
    assert os.readlink(checkpoints / "best") in ("step-20", "step-40", "step-60")
    assert (run / "model" / "tokenizer.model").read_bytes() == (run / "tokenizer.model").read_bytes()


def test_every_checkpoint_is_what_its_manifest_says(trained: Any) -> None:
    for step in (20, 40, 60):
        folder = trained.run / "checkpoints" / f"step-{step}"
        manifest = json.loads((folder / "manifest.json").read_text())
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        assert {"model.safetensors", "optimizer.safetensors", "state.json", "model.json"} <= manifest.keys()
        assert {name: digest for name, digest in found.items() if name != "manifest.json"} == manifest


def test_the_resolved_settings_are_written_down(trained: Any) -> None:
    config = tomllib.loads((trained.run / "config.toml").read_text(encoding="utf-8"))
    assert config["data"]["train"] == [[str(trained.folder / "train.src"), str(trained.folder / "train.tgt")]]
    assert (config["model"]["d_model"], config["model"]["dropout"], config["train"]["steps"]) == (32, 0.1, 60)


def test_every_measurement_is_written_down(trained: Any) -> None:
    records = metrics(trained.run)
    assert [record["step"] for record in records if record["kind"] == "train"] == list(range(1, 61))
    assert [record["step"] for record in records if record["kind"] == "valid"] == [20, 40, 60]
    assert [record["step"] for record in records if record["kind"] == "final"] == [60]
    losses = [record["loss"] for record in records if record["kind"] == "train"]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0] - 1


def test_training_speaks_on_stderr_and_says_what_it_made(trained: Any) -> None:
    assert trained.outcome.out == ""
    assert "300 pairs" in trained.outcome.err
    assert "step 60/60  loss " in trained.outcome.err
    assert "finished: run/model (mean of 3 checkpoints" in trained.outcome.err


def test_the_finished_model_is_the_mean_of_the_last_checkpoints(trained: Any) -> None:
    parts = [load_file(trained.run / f"checkpoints/step-{step}/model.safetensors") for step in (20, 40, 60)]
    for name, mean in load_file(trained.run / "model/model.safetensors").items():
        assert mean == pytest.approx(sum(part[name].astype("float64") for part in parts) / 3, abs=1e-6)


def test_the_same_command_again_finds_the_run_finished(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    outcome = transduce(*trained.words, "--out", run, cwd=tmp_path)
    assert outcome.code == 0
    assert "finished" in outcome.err
    assert "step 60/60" not in outcome.err
    before, after = content(trained.run), content(run)
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {"metrics.jsonl", "report.html"}


def test_the_same_command_again_adds_nothing_to_the_record(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    transduce(*trained.words, "--out", run, cwd=tmp_path)
    assert content(run) == content(trained.run)


def test_a_finished_run_goes_on_when_steps_are_raised(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    outcome = transduce(*trained.words, *sets(steps=63), "--out", run, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert f"resuming from {run}/checkpoints/step-60" in outcome.err
    assert "step 61/63" in outcome.err
    assert "step 60/" not in outcome.err
    steps = [record["step"] for record in metrics(run) if record["kind"] == "train"]
    assert steps == list(range(1, 64))
    assert json.loads((run / "model/model.json").read_text())["facts"]["steps"] == 63


def test_a_recipe_with_a_tsv_trains_under_its_own_name(
    transduce: Any, trained: Any, toy_pairs: Any, tmp_path: Path
) -> None:
    lines = "".join(f"{src}\t{tgt}\n" for src, tgt in toy_pairs[:50])
    (tmp_path / "pairs.tsv").write_text(lines, encoding="utf-8")
    model = tomllib.loads((trained.run / "config.toml").read_text(encoding="utf-8"))["model"]
    (tmp_path / "backwards.toml").write_text(
        'preset = "tiny"\n[data]\ntrain = "pairs.tsv"\nreverse = true\n[tokenizer]\nvocab_size = 320\n'
        "[train]\nsteps = 9\nsave_every = 1\nkeep = 2\naverage = 1\nbatch_tokens = 300\n[model]\n"
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in model.items())
    )
    outcome = transduce("train", "backwards.toml", *sets(steps=3), cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    run = tmp_path / "runs" / "backwards"
    config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    assert config["train"]["steps"] == 3
    assert config["data"]["reverse"] is True
    assert config["data"]["train"] == [["pairs.tsv"]]
    checkpoints = {path.name for path in (run / "checkpoints").iterdir()}
    assert {"step-2", "step-3"} <= checkpoints
    assert "step-1" not in checkpoints
    weights = [(run / folder / "model.safetensors").read_bytes() for folder in ("model", "checkpoints/step-3")]
    assert weights[0] == weights[1]


def test_changed_settings_are_refused_in_the_same_folder(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    outcome = transduce(*trained.words, *sets(seed=5, steps=80), "--out", run, cwd=tmp_path)
    message = complaint(outcome)
    assert "train.seed (there 1, here 5)" in message
    assert "train.steps" not in message
    assert "another --out" in message
    assert content(run) == content(trained.run)


def test_changed_text_is_refused_in_the_same_folder(
    transduce: Any, trained: Any, toy_pairs: Any, tmp_path: Path
) -> None:
    words = [word.replace(str(trained.folder), str(tmp_path)) for word in trained.words]
    for name in ("train.src", "train.tgt", "valid.src", "valid.tgt"):
        shutil.copy(trained.folder / name, tmp_path)
    assert transduce(*words, *sets(steps=1), "--out", "run", cwd=tmp_path).code == 0
    for name in ("train.src", "train.tgt"):
        (tmp_path / name).write_text("other words entirely\n" * 300)
    line = complaint(transduce(*words, *sets(steps=2), "--out", "run", cwd=tmp_path))
    assert "the training text has changed" in line
    assert str(tmp_path / "train.src") in line
    assert str(tmp_path / "train.tgt") in line


def test_a_folder_that_holds_other_things_is_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/dear.txt").write_text("Dear")
    outcome = transduce(*trained.words, "--out", "letters", cwd=tmp_path)
    assert "letters holds other things and no run" in complaint(outcome)
    assert content(tmp_path / "letters") == {"dear.txt": b"Dear"}


def test_a_mistyped_file_name_can_be_corrected_in_the_same_folder(transduce: Any, trained: Any, tmp_path: Path) -> None:
    mistyped = [word.replace("train.src", "trian.src") for word in trained.words]
    assert "trian.src" in complaint(transduce(*mistyped, "--out", "run", cwd=tmp_path))
    outcome = transduce(*trained.words, *sets(steps=1), "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err


def test_training_that_diverges_says_so_and_keeps_no_ruined_checkpoint(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    changes = sets(learning_rate_scale="1e30", steps=10, log_every=10, save_every=5)
    outcome = transduce(*trained.words, *changes, "--out", "run", cwd=tmp_path)
    assert outcome.code == 2, outcome.err
    assert "train.learning_rate_scale" in outcome.err.splitlines()[-1]
    for path in (tmp_path / "run/checkpoints").glob("step-*/model.safetensors"):
        assert all(math.isfinite(float(x.sum())) for x in load_file(path).values())


def test_validation_text_of_overlong_pairs_alone_is_no_crash(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "long.tsv").write_text(("ba be bi " * 30 + "\t" + "x " * 40 + "\n") * 3)
    words = trained.words[: trained.words.index("--valid-src")]
    rest = trained.words[trained.words.index("--preset") :]
    outcome = transduce(
        *words,
        "--valid",
        "long.tsv",
        *rest,
        *sets(steps=1),
        "--set",
        "data.max_length=20",
        "--out",
        "run",
        cwd=tmp_path,
    )
    assert outcome.code in (0, 2), outcome.err
    assert "internal error" not in outcome.err


def test_words_cut_anew_never_exceed_the_positions_of_the_model(transduce: Any, trained: Any, tmp_path: Path) -> None:
    positions = ["--set", "data.max_length=12", "--set", "model.max_positions=13"]
    outcome = transduce(*trained.words, *sets(steps=3, bpe_dropout=0.9), *positions, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err


# Stopping and going on


@pytest.fixture(scope="module", params=[signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def stopped(
    request: pytest.FixtureRequest, transduce: Any, trained: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The trained run again, stopped by a signal, looked at, and gone on with."""
    folder = tmp_path_factory.mktemp("stopped")
    process = transduce.fresh(*trained.words, "--out", "run", cwd=folder, stderr=subprocess.PIPE, bufsize=0)
    pipe = process.stderr.fileno()
    # A pipe this small holds fewer lines than training writes: it cannot finish before we have read on.
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    heard = b""
    while b"step 1/" not in heard:
        part = os.read(pipe, 64)
        assert part, heard
        heard += part
    process.send_signal(request.param)
    while part := os.read(pipe, 4096):
        heard += part
    code = process.wait(120)
    run = folder / "run"
    found = {
        "signal": request.param,
        "code": code,
        "err": heard.decode(),
        "checkpoints": sorted(path.name for path in (run / "checkpoints").glob("step-*")),
        "had_model": (run / "model").exists(),
        "info": transduce("info", "-m", "run", "--json", cwd=folder),
        "translation": transduce("translate", "-m", "run", stdin="ba be\n", cwd=folder),
    }
    found["resumed"] = transduce(*trained.words, "--out", "run", cwd=folder)
    return found | {"run": run}


def test_a_stopped_run_says_how_to_go_on(stopped: dict[str, Any]) -> None:
    assert stopped["code"] == 128 + stopped["signal"]
    assert "Traceback" not in stopped["err"]
    step = re.search(
        r"stopped at step (\d+) \(run/checkpoints/step-\1\); run the same command to resume", stopped["err"]
    )
    assert step
    assert 1 <= int(step[1]) < 60
    assert f"step-{step[1]}" in stopped["checkpoints"]
    assert not stopped["had_model"]


def test_a_stopped_run_can_be_used_and_says_so(stopped: dict[str, Any]) -> None:
    assert stopped["translation"].code == 0
    assert stopped["translation"].out.count("\n") == 1
    assert "run is not finished; using its newest checkpoint, step-" in stopped["translation"].err
    assert "/checkpoints/step-" in json.loads(stopped["info"].out)["folder"]


def test_a_stopped_run_goes_on_to_the_weights_it_would_have_had(stopped: dict[str, Any], trained: Any) -> None:
    assert stopped["resumed"].code == 0, stopped["resumed"].err
    assert "resuming from run/checkpoints/step-" in stopped["resumed"].err
    for name in ("model.safetensors", "optimizer.safetensors"):
        path = Path("checkpoints/step-60") / name
        assert (stopped["run"] / path).read_bytes() == (trained.run / path).read_bytes()


def test_a_stopped_run_ends_in_the_model_it_would_have_made(stopped: dict[str, Any], trained: Any) -> None:
    path = Path("model/model.safetensors")
    assert (stopped["run"] / path).read_bytes() == (trained.run / path).read_bytes()


def test_a_stopped_run_has_one_measurement_for_each_step(stopped: dict[str, Any], trained: Any) -> None:
    def curve(run: Path) -> list[tuple[int, float]]:
        return [(one["step"], one["loss"]) for one in metrics(run) if one["kind"] == "train"]

    assert [step for step, _ in curve(stopped["run"])] == list(range(1, 61))
    assert curve(stopped["run"]) == curve(trained.run)


# Translating

LINES = ["ba be", "", "gugu dada bibo baba", "  ", "x 汉 😀", "ba be", "gi"]


def test_translate_is_a_filter(transduce: Any, trained: Any) -> None:
    words = ("translate", "-m", "run", "--length-penalty", "3", "--max-extra", "3")  # it likes to say little
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


def test_translate_reads_files_one_after_the_other(transduce: Any, trained: Any, tmp_path: Path) -> None:
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


def test_a_prefix_begins_every_line(transduce: Any, trained: Any) -> None:
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


def test_input_that_is_not_utf8_is_refused_with_its_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    piped = transduce("translate", "-m", "run", stdin=b"ba\nbe\n\xff\xfe\n", cwd=trained.folder)
    assert "line 3: not UTF-8" in complaint(piped)
    (tmp_path / "in.txt").write_bytes(b"caf\xe9\n")
    named = transduce("translate", "-m", trained.run, "in.txt", cwd=tmp_path)
    assert "in.txt, line 1: not UTF-8" in complaint(named)


def test_a_closed_output_pipe_ends_translation_quietly(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("ba\n" * 4500)
    words = ("translate", "-m", trained.run, "--beam", "1", "--max-extra", "0", "many.txt")
    process = transduce.fresh(*words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline().endswith("\n")
    process.stdout.close()
    err = process.stderr.read()
    process.wait(120)
    assert err == ""


# Looking inside


def test_a_look_is_one_file_and_says_what_it_shows(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = ["--beam", "2", "--prefix", "gigo", "--off", "cross.1.2", "-o", tmp_path / "look.html"]
    outcome = transduce("inspect", "-m", "run", "babo dedu", *words, cwd=trained.folder)
    assert (outcome.code, outcome.err) == (0, "")
    source, output, _ = outcome.out.splitlines()
    assert source == "babo dedu"
    assert output.startswith("→ gigo")
    page = (tmp_path / "look.html").read_text(encoding="utf-8")
    held = base64.b64decode(re.search(r'<script type="text/plain" id="look">([^<]*)<', page)[1])
    header = json.loads(held[4 : 4 + int.from_bytes(held[:4], "little")])
    assert (header["text"], header["beam"], header["off"]) == ("babo dedu", 2, ["cross.1.2"])
    assert output == f"→ {header['translation']}"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([" "], "no text"),
        (["babo", "--off", "cross.1.9"], "head cross.1.9: this model has layers 1 to 1 there, with heads 1 to 2"),
        (["babo", "--beam", "99"], "beam must be at most 16"),
        (["babo " * 200], "at most 128 can be looked at at once"),
        (["babo", "-o", "nowhere/look.html"], "nowhere/look.html"),
    ],
)
def test_what_cannot_be_looked_at_is_one_line(transduce: Any, trained: Any, words: list[str], reason: str) -> None:
    assert reason in complaint(transduce("inspect", "-m", "run", *words, cwd=trained.folder))


# Scoring


def test_evaluate_scores_a_model(transduce: Any, trained: Any, tmp_path: Path) -> None:
    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    words = ("evaluate", "-m", trained.run, "--src", src, "--ref", ref, "--save", "out.txt", "--beam", "2")
    outcome = transduce(*words, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
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


def test_evaluate_takes_a_test_set_in_one_file(transduce: Any, trained: Any, tmp_path: Path) -> None:
    sides = [(trained.folder / f"valid.{side}").read_text().splitlines() for side in ("src", "tgt")]
    (tmp_path / "test.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in zip(*sides, strict=True)))
    (tmp_path / "hyp.txt").write_text("".join(f"{tgt}\n" for tgt in sides[1]))
    outcome = transduce("evaluate", "--test", "test.tsv", "--hyp", "hyp.txt", cwd=tmp_path)
    assert outcome.out.startswith("BLEU  100.00")


def test_evaluate_refuses_files_that_do_not_match(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("one\ntwo\n")
    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    by_output = complaint(transduce("evaluate", "--hyp", "short.txt", "--ref", ref, cwd=tmp_path))
    assert "short.txt" in by_output or "hypotheses" in by_output
    assert "2 lines, the reference 20" in by_output
    by_source = complaint(transduce("evaluate", "-m", trained.run, "--src", src, "--ref", "short.txt", cwd=tmp_path))
    assert "valid.src has 20 lines" in by_source
    assert "short.txt 2" in by_source


def test_evaluate_says_what_is_missing(transduce: Any, trained: Any) -> None:
    assert "--ref" in complaint(transduce("evaluate", "--hyp", "valid.src", cwd=trained.folder))
    assert "--hyp" in complaint(transduce("evaluate", "--ref", "valid.src", cwd=trained.folder))
    assert "--src" in complaint(transduce("evaluate", "-m", "run", "--ref", "valid.tgt", cwd=trained.folder))


# Saying what a model is


def test_info_says_what_a_model_is(transduce: Any, trained: Any) -> None:
    outcome = transduce("info", "-m", "run", cwd=trained.folder)
    assert (outcome.code, outcome.err) == (0, "")
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in outcome.out.splitlines())
    assert rows["folder"] == "run/model"
    assert (rows["d_model"], rows["steps"], rows["data: pairs"]) == ("32", "60", "300")


def test_info_gives_the_same_as_json(transduce: Any, trained: Any) -> None:
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


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["info", "-m", "run"], DATA_CHECK])
def test_commands_that_compute_nothing_do_not_import_torch(transduce: Any, trained: Any, words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "transduce", *words]
    done = subprocess.run(command, cwd=trained.folder, env=transduce.environment, capture_output=True, text=True)
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "transduce.cli.main" in imported
    assert not {"torch", "matplotlib", "fastapi"} & imported


# What a user does wrong


@pytest.mark.parametrize(
    ("words", "words_of_message"),
    [
        (["--src", "nothing.src", "--tgt", "valid.tgt"], ["nothing.src", "o such file"]),
        (["--src", "train.src", "--tgt", "valid.tgt"], ["train.src has 300 lines", "valid.tgt has 20"]),
        (["--src", "train.src"], ["1 source files but 0 target files"]),
        (["--train", "valid.src"], ["valid.src: cannot tell its format", ".tsv"]),
        ([], ["no training text", "--src"]),
        (["--src", "valid.src", "--tgt", "valid.tgt", "--preset", "tinny"], ["no preset tinny", "did you mean tiny?"]),
        (["--set", "train.stepz=5"], ["unknown key stepz", "did you mean steps?", "valid keys: accumulate"]),
        (["--set", "train.steps=many"], ["steps must be a whole number, not 'many'"]),
        (["--set", "train.steps=0"], ["steps must be at least 1"]),
        (["--set", "train.steps"], ["--set train.steps: write it as section.key=value"]),
        (["--src", "valid.src", "--tgt", "valid.tgt", "--set", "train.device=quantum"], ["device quantum"]),
        (["nothing.toml"], ["nothing.toml: no such file"]),
        (["valid.src"], ["valid.src: not valid TOML"]),
    ],
)
def test_a_mistake_in_training_is_one_line(
    transduce: Any, trained: Any, tmp_path: Path, words: list[str], words_of_message: list[str]
) -> None:
    message = complaint(transduce("train", *words, "--out", tmp_path / "run", cwd=trained.folder))
    for part in words_of_message:
        assert part in message


def test_training_without_a_place_is_refused(transduce: Any, trained: Any) -> None:
    words = ("train", "--src", "valid.src", "--tgt", "valid.tgt")
    assert "--out" in complaint(transduce(*words, cwd=trained.folder))


@pytest.mark.parametrize("command", ["translate", "info"])
@pytest.mark.parametrize(
    ("damage", "words_of_message"),
    [
        ("no folder", "run: no such folder"),
        ("empty folder", "no model here yet"),
        ("truncated weights", "model.safetensors"),
        ("empty weights", "model.safetensors"),
        ("no weights", "model.safetensors"),
        ("card of garbage", "model.json"),
        ("card of bytes", "model.json"),
        ("card of a list", "model.json"),
        ("card without sizes", "model.json"),
        ("card with a number for sizes", "model.json"),
        ("card of the future", "newer transduce"),
    ],
)
def test_a_damaged_model_is_one_line(
    transduce: Any, trained: Any, tmp_path: Path, command: str, damage: str, words_of_message: str
) -> None:
    model = tmp_path / "run" / "model"
    if damage != "no folder":
        model.mkdir(parents=True)
    if damage not in ("no folder", "empty folder"):
        shutil.copytree(trained.run / "model", model, dirs_exist_ok=True)
        card, weights = model / "model.json", model / "model.safetensors"
        whole = weights.read_bytes()
        {
            "truncated weights": lambda: weights.write_bytes(whole[: len(whole) // 2]),
            "empty weights": lambda: weights.write_bytes(b""),
            "no weights": weights.unlink,
            "card of garbage": lambda: card.write_text("garbage"),
            "card of bytes": lambda: card.write_bytes(b"\xff\x00"),
            "card of a list": lambda: card.write_text("[1]"),
            "card without sizes": lambda: card.write_text('{"format": 1}'),
            "card with a number for sizes": lambda: card.write_text(
                '{"format": 1, "architecture": "encoder_decoder", "vocab_size": 350, "model": 5}'
            ),
            "card of the future": lambda: card.write_text('{"format": 99}'),
        }[damage]()
    assert words_of_message in complaint(transduce(command, "-m", "run", stdin="ba\n", cwd=tmp_path))


@pytest.mark.parametrize(
    ("change", "words_of_message"),
    [
        ({"d_model": 64}, "model.safetensors: does not fit model.json"),
        ({"d_model": "wide"}, "d_model must be a whole number"),
        ({"width": 64}, "unknown key width"),
    ],
)
def test_weights_that_do_not_fit_the_card_are_one_line(
    transduce: Any, trained: Any, tmp_path: Path, change: dict[str, Any], words_of_message: str
) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    card = json.loads((model / "model.json").read_text())
    card["model"] |= change
    (model / "model.json").write_text(json.dumps(card))
    assert words_of_message in complaint(transduce("translate", "-m", "model", stdin="ba\n", cwd=tmp_path))


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_vocabulary_is_one_line(transduce: Any, trained: Any, tmp_path: Path, damage: bytes | None) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    if damage is None:
        (model / "tokenizer.model").unlink()
    else:
        (model / "tokenizer.model").write_bytes(damage)
    assert "tokenizer.model" in complaint(transduce("translate", "-m", "model", stdin="ba\n", cwd=tmp_path))


def test_a_bad_device_for_translating_is_one_line(transduce: Any, trained: Any) -> None:
    outcome = transduce("translate", "-m", "run", "--device", "quantum", stdin="ba\n", cwd=trained.folder)
    assert "device quantum cannot be used" in complaint(outcome)


@pytest.mark.parametrize("words", [["--beam", "0"], ["--sample", "--temperature", "0"], ["--max-extra", "-1"]])
def test_search_options_out_of_range_are_one_line(transduce: Any, trained: Any, words: list[str]) -> None:
    outcome = transduce("translate", "-m", "run", *words, stdin="ba\n", cwd=trained.folder)
    assert "must be" in complaint(outcome)


# Where the time goes


def test_a_profile_is_a_table_and_a_trace(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce(
        *trained.words, "--profile", "--set", "train.steps=16", "--out", tmp_path / "run", cwd=trained.folder
    )
    assert outcome.code == 0, outcome.err
    table = (tmp_path / "run" / "profile" / "table.txt").read_text()
    assert "ms a step on cpu" in table
    assert "aten::addmm" in table
    with gzip.open(tmp_path / "run" / "profile" / "trace.json.gz") as trace:
        assert json.load(trace)["traceEvents"]


def test_a_run_too_short_for_a_profile_says_so(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce(
        *trained.words, "--profile", "--set", "train.steps=2", "--out", tmp_path / "run", cwd=trained.folder
    )
    assert outcome.code == 0, outcome.err
    assert "no profile: it takes 15 steps, and there were 2" in outcome.err


# The same from Python


def test_python_users_need_five_lines(trained: Any, tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    pair = {"src": trained.folder / "train.src", "tgt": trained.folder / "train.tgt"}
    sizes = {"model.d_model": 32, "model.d_ff": 64, "train.batch_tokens": 256, "tokenizer.vocab_size": 350}

    from transduce import Translator, train

    outcome = train(tmp_path / "run", **pair, preset="tiny", settings={**sizes, "train.steps": 2})
    translator = Translator.load(tmp_path / "run", beam=2)
    outputs = translator.translate(["ba be", "gugu dada"])
    alone = translator.translate("ba be")

    assert (outcome.finished, outcome.step, outcome.stop_signal) == (True, 2, None)
    assert len(outputs) == 2
    assert outputs[0] == alone
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_the_public_names_are_there_and_no_others_are_promised() -> None:
    import transduce

    assert sorted(transduce.__all__) == transduce.__all__
    assert all(getattr(transduce, name) for name in transduce.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = transduce.nonsense


# One folder, one run


def test_a_second_process_in_the_same_folder_is_refused_and_names_the_first(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    run = copied(trained, tmp_path)
    with (run / ".lock").open("w") as lock:
        lock.write("4321")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = transduce(*trained.words, "--out", run, cwd=trained.folder)
    assert "is being trained already, by process 4321" in complaint(outcome)
    assert transduce(*trained.words, "--out", run, cwd=trained.folder).code == 0


def test_a_person_at_a_terminal_gets_each_line_at_once(transduce: Any, trained: Any) -> None:
    pipe = subprocess.PIPE
    with transduce.fresh(
        "translate", "-m", trained.run, cwd=trained.folder, stdin=(ends := os.openpty())[1], stdout=pipe
    ) as process:
        os.write(ends[0], b"babo\n")
        assert process.stdout.readline()
        os.write(ends[0], b"\x04")
        process.wait(60)
        os.close(ends[0])
        os.close(ends[1])
