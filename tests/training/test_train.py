"""`transduce train` and `transduce.train`: the files of a run, its messages, and the profile."""

import gzip
import hashlib
import json
import math
import os
import re
import shutil
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import complaint, content, copied, metrics, sets
from safetensors.numpy import load_file
from toy_run import TINY, as_sets

from transduce import train
from transduce.training.validation import Validation

# Training


def test_a_run_has_the_documented_files(trained: Any) -> None:
    run = trained.run
    assert sorted(path.name for path in run.iterdir()) == [
        ".lock",
        "checkpoints",
        "config.toml",
        "metrics.jsonl",
        "model",
        "outputs.jsonl",
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


def test_every_checkpoint_matches_its_manifest(trained: Any) -> None:
    for step in (20, 40, 60):
        folder = trained.run / "checkpoints" / f"step-{step}"
        manifest = json.loads((folder / "manifest.json").read_text())
        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        assert {"model.safetensors", "optimizer.safetensors", "state.json", "model.json"} <= manifest.keys()
        assert {name: digest for name, digest in digests.items() if name != "manifest.json"} == manifest


def test_the_resolved_settings_are_written(trained: Any) -> None:
    config = tomllib.loads((trained.run / "config.toml").read_text(encoding="utf-8"))
    assert config["data"]["train"] == [[str(trained.folder / "train.src"), str(trained.folder / "train.tgt")]]
    assert (config["model"]["d_model"], config["model"]["dropout"], config["train"]["steps"]) == (32, 0.1, 60)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the precision is measured on CPUs only")
def test_the_precision_is_measured_told_and_written(transduce: Any, trained: Any, tmp_path: Path) -> None:
    told = re.search(
        r"(?m)^precision: (\w+) \(a .* takes .* ms in float32 and .* ms in bfloat16\)", trained.outcome.err
    )
    assert told
    assert tomllib.loads((trained.run / "config.toml").read_text(encoding="utf-8"))["train"]["precision"] == told[1]
    other = {"float32": "bfloat16", "bfloat16": "float32"}[told[1]]
    outcome = transduce(*trained.words, *sets(precision=other), "--out", copied(trained, tmp_path), cwd=trained.folder)
    assert f"train.precision (there {told[1]}, here {other})" in complaint(outcome)


def test_every_measurement_is_written(trained: Any) -> None:
    records = metrics(trained.run)
    assert [record["step"] for record in records if record["kind"] == "train"] == list(range(1, 61))
    assert [record["step"] for record in records if record["kind"] == "valid"] == [20, 40, 60]
    assert [record["step"] for record in records if record["kind"] == "final"] == [60]
    losses = [record["loss"] for record in records if record["kind"] == "train"]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0] - 1


def test_training_prints_to_stderr_and_names_the_finished_model(trained: Any) -> None:
    assert trained.outcome.out == ""
    assert "300 pairs" in trained.outcome.err
    assert "step 60/60  loss " in trained.outcome.err
    assert re.search(
        r"finished: run/model \((the last checkpoint|mean of 3 checkpoints), valid loss ", trained.outcome.err
    )


def test_the_finished_model_is_the_mean_of_the_last_checkpoints(transduce: Any, trained: Any, tmp_path: Path) -> None:
    text = ["--src", trained.folder / "train.src", "--tgt", trained.folder / "train.tgt"]
    few = sets(steps=6, save_every=2)
    outcome = transduce("train", *text, "--preset", "tiny", *as_sets(TINY), *few, "--out", "run", cwd=tmp_path)
    assert "finished: run/model (mean of 3 checkpoints)" in outcome.err
    parts = [load_file(tmp_path / f"run/checkpoints/step-{step}/model.safetensors") for step in (2, 4, 6)]
    for name, mean in load_file(tmp_path / "run/model/model.safetensors").items():
        assert mean == pytest.approx(sum(part[name].astype("float64") for part in parts) / 3, abs=1e-6)


def test_settings_that_are_likely_mistakes_give_warnings(transduce: Any, trained: Any, tmp_path: Path) -> None:
    text = ["--src", trained.folder / "train.src", "--tgt", trained.folder / "train.tgt"]
    few = sets(steps=2, warmup=20)
    outcome = transduce("train", *text, "--preset", "tiny", *as_sets(TINY), *few, "--out", "run", cwd=tmp_path)
    assert "no validation text: " in outcome.err
    assert "train.steps (2) is less than train.warmup (20): " in outcome.err
    assert "no validation text" not in trained.outcome.err
    assert "train.warmup" not in trained.outcome.err


def test_if_the_mean_is_worse_the_finished_model_is_the_last_checkpoint(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    any_difference = "import transduce.training.milestones as milestones; milestones._CLEARLY_WORSE = 0"
    outcome = transduce(*trained.words, "--out", tmp_path / "run", cwd=trained.folder, before=any_difference)
    assert "the mean of the last 3 checkpoints (valid loss " in outcome.err
    assert "/model (the last checkpoint, valid loss " in outcome.err
    last = load_file(tmp_path / "run/checkpoints/step-60/model.safetensors")
    for name, weight in load_file(tmp_path / "run/model/model.safetensors").items():
        assert (weight == last[name]).all()


@pytest.mark.parametrize(("of_mean", "of_last", "averaged"), [(2.0, 2.1, 2), (2.0, 1.95, 2), (2.0, 1.85, 1)])
def test_the_mean_is_used_unless_it_is_clearly_worse(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_mean: float, of_last: float, averaged: int
) -> None:
    losses = iter([5.0, 4.0, of_last, of_mean, 1.0])  # of two checkpoints, of both candidates, of the finished model
    monkeypatch.setattr(Validation, "measure", lambda *_: {"loss": next(losses), "perplexity": 1.0})
    text = {name: trained.folder / f"train.{name}" for name in ("src", "tgt")}
    text |= {f"valid_{name}": trained.folder / f"valid.{name}" for name in ("src", "tgt")}
    train(tmp_path / "run", **text, preset="tiny", settings=TINY | {"train.steps": 2, "train.save_every": 1})
    assert json.loads((tmp_path / "run/model/model.json").read_text())["facts"]["averaged"] == averaged


def test_the_same_command_does_not_train_a_finished_run_again(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    outcome = transduce(*trained.words, "--out", run, cwd=tmp_path)
    assert outcome.code == 0
    assert "finished" in outcome.err
    assert "step 60/60" not in outcome.err
    before, after = content(trained.run), content(run)
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {"metrics.jsonl", "report.html"}


def test_the_same_command_does_not_change_a_finished_run(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    transduce(*trained.words, "--out", run, cwd=tmp_path)
    assert content(run) == content(trained.run)


def test_a_finished_run_continues_when_steps_are_raised(transduce: Any, trained: Any, tmp_path: Path) -> None:
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
        'preset = "tiny"\n[data]\ntrain = "pairs.tsv"\nreverse = true\n[tokenizer]\nvocab_size = 420\n'
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


def test_changed_settings_are_an_error_in_the_same_folder(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    words = [*sets(seed=5, steps=80), "--set", "tokenizer.symbols=<a>"]
    outcome = transduce(*trained.words, *words, "--out", run, cwd=tmp_path)
    message = complaint(outcome)
    assert "train.seed (there 1, here 5)" in message
    assert 'tokenizer.symbols (there [], here ["<a>"])' in message
    assert "train.steps" not in message
    assert "another --out" in message
    assert content(run) == content(trained.run)


def test_changed_text_is_an_error_in_the_same_folder(
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


def test_a_folder_with_other_files_is_an_error(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/dear.txt").write_text("Dear")
    outcome = transduce(*trained.words, "--out", "letters", cwd=tmp_path)
    assert "letters contains other files and no run" in complaint(outcome)
    assert content(tmp_path / "letters") == {"dear.txt": b"Dear"}


def test_a_mistyped_file_name_can_be_corrected_in_the_same_folder(transduce: Any, trained: Any, tmp_path: Path) -> None:
    mistyped = [word.replace("train.src", "trian.src") for word in trained.words]
    assert "trian.src" in complaint(transduce(*mistyped, "--out", "run", cwd=tmp_path))
    outcome = transduce(*trained.words, *sets(steps=1), "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err


def test_training_that_diverges_fails_and_keeps_only_finite_checkpoints(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    changes = sets(steps=10, log_every=10, save_every=5)
    explode = "import transduce.training.schedule as ending; ending.scheduled_rate = lambda *_: 1e30"
    outcome = transduce(*trained.words, *changes, "--out", "run", cwd=tmp_path, before=explode)
    assert outcome.code == 2, outcome.err
    assert "train.learning_rate_scale" in outcome.err.splitlines()[-1]
    for path in (tmp_path / "run/checkpoints").glob("step-*/model.safetensors"):
        assert all(math.isfinite(float(x.sum())) for x in load_file(path).values())


def test_validation_text_with_only_too_long_pairs_does_not_crash(transduce: Any, trained: Any, tmp_path: Path) -> None:
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


def test_bpe_dropout_never_exceeds_the_positions_of_the_model(transduce: Any, trained: Any, tmp_path: Path) -> None:
    positions = ["--set", "data.max_length=12", "--set", "model.max_positions=13"]
    outcome = transduce(*trained.words, *sets(steps=3, bpe_dropout=0.9), *positions, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err


def test_runs_with_bpe_dropout_are_equal_bit_for_bit(transduce: Any, trained: Any, tmp_path: Path) -> None:
    models = []
    for name in ("one", "two"):
        outcome = transduce(*trained.words, *sets(steps=8, bpe_dropout=0.3), "--out", name, cwd=tmp_path)
        assert outcome.code == 0, outcome.err
        models.append((tmp_path / name / "model/model.safetensors").read_bytes())  # the card has the time
    assert models[0] == models[1]


# Profile


def test_a_profile_is_a_table_and_a_trace(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce(
        *trained.words,
        "--profile",
        "--set",
        "train.device=cpu",
        "--set",
        "train.steps=16",
        "--out",
        tmp_path / "run",
        cwd=trained.folder,
    )
    assert outcome.code == 0, outcome.err
    table = (tmp_path / "run" / "profile" / "table.txt").read_text()
    assert "ms per step on cpu" in table
    assert "aten::addmm" in table
    with gzip.open(tmp_path / "run" / "profile" / "trace.json.gz") as trace:
        assert json.load(trace)["traceEvents"]


def test_a_run_too_short_for_a_profile_prints_a_message(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce(
        *trained.words, "--profile", "--set", "train.steps=2", "--out", tmp_path / "run", cwd=trained.folder
    )
    assert outcome.code == 0, outcome.err
    assert "no profile: it needs 15 steps, and there were 2" in outcome.err


# From Python


def test_python_users_need_five_lines(trained: Any, tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    pair = {"src": trained.folder / "train.src", "tgt": trained.folder / "train.tgt"}
    sizes = {"model.d_model": 32, "model.d_ff": 64, "train.batch_tokens": 256, "tokenizer.vocab_size": 450}

    from transduce import train
    from transduce.translation.translator import Translator

    outcome = train(tmp_path / "run", **pair, preset="tiny", settings={**sizes, "train.steps": 2})
    translator = Translator.load(tmp_path / "run", beam=2)
    outputs = translator.translate(["ba be", "gugu dada"])
    single = translator.translate("ba be")

    assert (outcome.finished, outcome.step, outcome.stop_signal) == (True, 2, None)
    assert len(outputs) == 2
    assert outputs[0] == single
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_settings_of_python_may_be_inside_of_sections(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("babo\tdego\n" * 20)
    directions = {f"data.directions.{name}.train": str(tmp_path / "pairs.tsv") for name in ("en-de", "en-fr")}
    outcome = train(tmp_path / "run", preset="tiny", settings={**TINY, "train.steps": 1, **directions})
    assert outcome.finished
    facts = json.loads((tmp_path / "run" / "model" / "model.json").read_text())["facts"]
    assert facts["directions"] == [["en", "de"], ["en", "fr"]]


def test_the_public_names_exist_and_unknown_ones_raise() -> None:
    import transduce

    assert sorted(transduce.__all__) == transduce.__all__
    assert all(getattr(transduce, name) for name in transduce.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = transduce.nonsense
