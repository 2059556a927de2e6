"""Fine-tuning with `train.start_from` on the command line."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import complaint
from safetensors.torch import load_file
from toy_run import TINY, as_sets, write_lines

from transduce.data.batch import Batch
from transduce.models.folder import find_model, load_model, read_card, save_model
from transduce.training.mistakes import warn
from transduce.training.recipe import load_recipe

ONE_SMALL_STEP = ["--set", "train.steps=1", "--set", "train.learning_rate_scale=1e-6"]


def other_text(folder: Path) -> list[str]:
    """A corpus that is unrelated to the toy language."""
    for side in ("src", "tgt"):
        write_lines(folder / f"other.{side}", [f"entirely other words {side} {n}" for n in range(40)])
    return ["--src", "other.src", "--tgt", "other.tgt"]


def fine_tune(transduce: Any, cwd: Path, *words: str) -> Any:
    return transduce("train", *other_text(cwd), "--preset", "tiny", *as_sets(TINY), "--out", "tuned", *words, cwd=cwd)


def test_training_starts_from_the_weights_and_vocabulary_of_a_model(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    words = ["--set", f"train.start_from={trained.run}", *ONE_SMALL_STEP]
    outcome = fine_tune(transduce, tmp_path, *words)
    assert outcome.code == 0, outcome.err
    tuned = tmp_path / "tuned"
    assert (tuned / "tokenizer.model").read_bytes() == (trained.run / "tokenizer.model").read_bytes()
    start, end = (load_file(run / "model" / "model.safetensors") for run in (trained.run, tuned))
    for name, weight in start.items():
        torch.testing.assert_close(end[name], weight, atol=1e-6, rtol=0)


def test_a_run_resumes_without_the_model_it_started_from(transduce: Any, trained: Any, tmp_path: Path) -> None:
    start = shutil.copytree(trained.run / "model", tmp_path / "start")
    words = ["--set", "train.start_from=start", *ONE_SMALL_STEP]
    assert fine_tune(transduce, tmp_path, *words).code == 0
    shutil.rmtree(start)
    again = fine_tune(transduce, tmp_path, *words, "--set", "train.steps=2")
    assert again.code == 0, again.err
    assert "resuming from" in again.err
    without = fine_tune(transduce, tmp_path, *ONE_SMALL_STEP)
    assert without.code == 2
    assert "train.start_from (there start, here not set)" in without.err.splitlines()[-1]


def test_languages_are_those_of_the_model_unless_they_are_named(transduce: Any, trained: Any, tmp_path: Path) -> None:
    saved = load_model(trained.run / "model")
    save_model(tmp_path / "start", saved.model, saved.tokenizer, saved.facts | {"directions": [["en", "ja"]]})
    words = ["--set", "train.start_from=start", *ONE_SMALL_STEP]
    outcome = fine_tune(transduce, tmp_path, *words)
    assert outcome.code == 0, outcome.err
    assert "data: en to ja, as start (data.src_lang and data.tgt_lang set it)" in outcome.err
    assert read_card(tmp_path / "tuned" / "model")["facts"]["directions"] == [["en", "ja"]]
    shutil.rmtree(tmp_path / "start")
    assert fine_tune(transduce, tmp_path, *words, "--set", "train.steps=2").code == 0
    shutil.rmtree(tmp_path / "tuned")
    save_model(tmp_path / "start", saved.model, saved.tokenizer, saved.facts | {"directions": [["en", "ja"]]})
    other = fine_tune(transduce, tmp_path, *words, "--set", "data.tgt_lang=de")
    assert "warning: this run translates en to de, but start, which it starts from, en to ja" in other.err
    assert read_card(tmp_path / "tuned" / "model")["facts"]["directions"] == [["en", "de"]]


def test_sizes_and_vocabulary_are_those_of_the_model(transduce: Any, trained: Any, tmp_path: Path) -> None:
    other_text(tmp_path)
    words = ["train", "--src", "other.src", "--tgt", "other.tgt", "--start-from", trained.run, "--out", "tuned"]
    words += ["--set", "model.dropout=0.25", *ONE_SMALL_STEP]
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert f"starting from {trained.run}/model, with its sizes and vocabulary (not those of the preset)" in outcome.err
    config = tomllib.loads((tmp_path / "tuned" / "config.toml").read_text(encoding="utf-8"))
    assert config["tokenizer"]["vocab_size"] == TINY["tokenizer.vocab_size"]
    assert (config["model"]["d_model"], config["model"]["dropout"]) == (TINY["model.d_model"], 0.25)
    assert config["train"]["batch_tokens"] == 4096  # of the preset
    facts = json.loads((tmp_path / "tuned" / "model" / "model.json").read_text())["facts"]
    assert facts["start_from"] == str(trained.run)
    further = transduce(*words, "--set", "train.steps=2", cwd=tmp_path)
    assert further.code == 0, further.err


def test_the_model_keeps_its_slots_unless_the_user_sets_them(transduce: Any, trained: Any, tmp_path: Path) -> None:
    saved = load_model(trained.run / "model")
    save_model(
        tmp_path / "start", saved.model, saved.tokenizer, saved.facts | {"augment": {"spans": 0.3, "upper": 0.1}}
    )
    words = ["--set", "train.start_from=start", *ONE_SMALL_STEP]
    assert fine_tune(transduce, tmp_path, *words).code == 0
    facts = read_card(tmp_path / "tuned" / "model")["facts"]
    assert (facts["augment"]["spans"], facts["augment"]["upper"]) == (0.3, 0.0)
    shutil.rmtree(tmp_path / "start")
    resumed = fine_tune(transduce, tmp_path, *words, "--set", "train.steps=2")
    assert resumed.code == 0, resumed.err
    assert read_card(tmp_path / "tuned" / "model")["facts"]["augment"]["spans"] == 0.3
    shutil.rmtree(tmp_path / "tuned")
    save_model(tmp_path / "start", saved.model, saved.tokenizer, saved.facts | {"augment": {"spans": 0.3}})
    without = fine_tune(transduce, tmp_path, *words, "--set", "augment.spans=0")
    assert "augment.spans=0.3" not in without.err
    assert read_card(tmp_path / "tuned" / "model")["facts"]["augment"]["spans"] == 0.0


@pytest.mark.parametrize(("steps", "warns"), [(20, False), (4000, True)])
def test_a_high_learning_rate_gives_a_warning_if_it_is_reached(steps: int, warns: bool) -> None:
    table = {"data": {"train": [["a", "b"]]}, "train": {"start_from": "model", "steps": steps}}
    lines: list[str] = []
    warn(load_recipe(None, "small", table, []), 1, lines.append)
    assert any("give a lower one, e.g. train.learning_rate=1e-4" in line for line in lines) is warns


def test_gains_are_of_equally_many_sentences(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = ["--valid-src", "other.src", "--valid-tgt", "other.tgt", "--set", f"train.start_from={trained.run}"]
    words += ["--set", "train.save_every=2", "--set", "search.beam=2"]

    def log_until(step: int, sentences: int) -> tuple[str, str]:
        sets = ["--set", f"train.steps={step}", "--set", f"train.valid_sentences={sentences}"]
        outcome = fine_tune(transduce, tmp_path, *words, *sets)
        assert outcome.code == 0, outcome.err
        lines = outcome.err.splitlines()
        return next(line for line in lines if line.startswith(f"step {step}  ")), lines[-1]

    change, loss_gain, bleu_gain = r"BLEU \S+ \([-+]", r"valid loss \S+ \([-+]", "gains greedy"
    last, finished = log_until(2, 20)
    assert re.search(change, last)
    assert re.search(loss_gain, finished)
    assert bleu_gain in finished
    last, finished = log_until(4, 5)
    assert "BLEU" in last
    assert not re.search(change, last)
    assert re.search(loss_gain, finished)
    assert not re.search(r"bleu \S+ \([-+]", finished)
    assert bleu_gain not in finished
    last, finished = log_until(6, 5)
    assert re.search(change, last)


def test_a_smaller_model_starts_from_some_layers_of_a_larger_one(transduce: Any, trained: Any, tmp_path: Path) -> None:
    deep = ["--set", "model.encoder_layers=4", "--set", "model.decoder_layers=3", "--set", "train.steps=1"]
    words = ["train", *other_text(tmp_path), "--preset", "tiny", *as_sets(TINY), *deep, "--out", "deep"]
    assert transduce(*words, cwd=tmp_path).code == 0
    shallow = ["--set", "train.start_from=deep", "--set", "model.encoder_layers=2", "--set", "model.decoder_layers=1"]
    outcome = fine_tune(transduce, tmp_path, *shallow, *ONE_SMALL_STEP)
    assert outcome.code == 0, outcome.err
    assert "encoder: layers 1, 4 of 4 are kept" in outcome.err
    assert "decoder: layers 1 of 3 are kept" in outcome.err
    start, end = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("deep", "tuned"))
    kept = {"encoder.1.": "encoder.3."}
    for name, weight in end.items():
        stack = name[: len("encoder.1.")]
        there = kept.get(stack, stack) + name[len(stack) :]
        torch.testing.assert_close(weight, start[there], atol=1e-6, rtol=0)
    more = fine_tune(transduce, tmp_path, *shallow, *ONE_SMALL_STEP, "--set", "train.steps=2")
    assert more.code == 0, more.err


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_new_layers_of_a_deeper_model_pass_on_what_they_read(
    norm: str, transduce: Any, trained: Any, tmp_path: Path
) -> None:
    norms = ["--set", f"model.norm={norm}"]
    words = ["train", *other_text(tmp_path), "--preset", "tiny", *as_sets(TINY), *norms, "--out", "shallow"]
    words += ["--set", "model.encoder_layers=2", "--set", "train.steps=20"]
    assert transduce(*words, cwd=tmp_path).code == 0
    deep = ["--set", "train.start_from=shallow", "--set", "model.encoder_layers=4", "--set", "model.decoder_layers=3"]
    outcome = fine_tune(transduce, tmp_path, *norms, *deep, *ONE_SMALL_STEP)
    assert outcome.code == 0, outcome.err
    assert "encoder: layers 1, 4 of 4 have weights, the others are new" in outcome.err
    shallow, deeper = (load_model(tmp_path / run / "model").model.eval() for run in ("shallow", "tuned"))
    batch = Batch.of(src=[[5, 6, 7, 2], [9, 10, 2]], tgt=[[1, 11, 12], [1, 13, 14, 15, 16]])
    with torch.inference_mode():
        expected_LD, found_LD = shallow(batch), deeper(batch)
    if norm == "pre":  # exactly, but for the small step
        torch.testing.assert_close(found_LD, expected_LD, atol=1e-4, rtol=0)
    else:
        assert torch.cosine_similarity(found_LD, expected_LD, dim=-1).min() > 0.98


def test_the_weights_before_training_have_a_share_in_the_finished_model(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    start = shutil.copytree(trained.run / "model", tmp_path / "start")
    words = ["--set", "train.start_from=start", "--set", "train.steps=3", "--set", "train.save_every=3"]
    words += ["--set", "train.average=1", "--set", "train.start_share=0.25", "--set", 'tokenizer.symbols=["<name>"]']
    first = fine_tune(transduce, tmp_path, *words)
    assert first.code == 0, first.err
    assert "finished: tuned/model (the last checkpoint, mixed with 0.25 of the weights before" in first.err
    shutil.rmtree(start)
    assert fine_tune(transduce, tmp_path, *words, "--set", "train.steps=6").code == 0  # resumed without the model
    tuned = tmp_path / "tuned"
    before = load_file(trained.run / "model" / "model.safetensors")
    after = load_file(tuned / "checkpoints" / "step-6" / "model.safetensors")
    for name, weight in load_file(tuned / "model" / "model.safetensors").items():
        mixed, known = after[name].clone(), len(before[name])
        mixed[:known] = 0.25 * before[name] + 0.75 * after[name][:known]  # the embedding of the new symbol is after[-1]
        torch.testing.assert_close(weight, mixed)
    assert "start_share needs start_from" in complaint(
        transduce("train", *other_text(tmp_path), "--set", "train.start_share=0.5", "--out", "x", cwd=tmp_path)
    )


def test_training_starts_from_the_bundled_model(transduce: Any, tmp_path: Path) -> None:
    other_text(tmp_path)
    write_lines(tmp_path / "mine.de-en.tsv", [f"Wort {n}\tword {n}" for n in range(40)])
    fewer = {"encoder_layers": 1, "decoder_layers": 1}  # which takes half the time
    layers = [word for name, count in fewer.items() for word in ("--set", f"model.{name}={count}")]
    tail = ["--start-from", "bundled", "--out", "tuned", *layers, *ONE_SMALL_STEP]
    unnamed = transduce("train", "--src", "other.src", "--tgt", "other.tgt", *tail, cwd=tmp_path)
    assert "bundled is multilingual: name the languages of your text with data.src_lang" in complaint(unnamed)
    assert not (tmp_path / "tuned").exists()
    words = ["train", "--train", "mine.de-en.tsv", "--set", "data.reverse=true", *tail]
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    config = tomllib.loads((tmp_path / "tuned" / "config.toml").read_text(encoding="utf-8"))
    assert list(config["data"]["directions"]) == ["en-de"]
    assert config["data"]["directions"]["en-de"]["reverse"] is True
    bundled = find_model(None)
    card, tuned = (json.loads((folder / "model.json").read_text()) for folder in (bundled, tmp_path / "tuned/model"))
    assert (card["model"] | fewer).items() <= tuned["model"].items()  # the bundled card is older than some settings
    assert tuned["vocab_size"] == card["vocab_size"]
    assert tuned["facts"]["by_sentence"] == card["facts"]["by_sentence"]
    assert config["data"]["truecase"] is tuned["facts"]["truecase"] is True
    assert {name: share for name, share in tuned["facts"]["augment"].items() if share} == {
        "spans": card["facts"]["augment"]["spans"],
        "formality": card["facts"]["augment"]["formality"],
    }
    kept = "data.by_sentence=true, data.truecase=true, augment.spans=0.2, augment.formality=0.2"
    assert f"with its sizes and vocabulary (not those of the preset), {kept}\n" in outcome.err
    assert (tmp_path / "tuned/tokenizer.model").read_bytes() == (bundled / "tokenizer.model").read_bytes()
    assert tuned["facts"]["start_from"] == "bundled"
    assert (tuned["facts"]["tagged"], tuned["facts"]["directions"]) == (True, [["en", "de"]])
    further = transduce(*words, "--set", "train.steps=2", cwd=tmp_path)
    assert further.code == 0, further.err


def test_a_style_that_differs_from_the_model_is_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    start = ["--set", f"train.start_from={trained.run}", *ONE_SMALL_STEP]
    outcome = fine_tune(transduce, tmp_path, *start, "--style", "t5")
    assert f"{trained.run} is not of the style t5: model.norm (there post), " in complaint(outcome)
    assert fine_tune(transduce, tmp_path, *start, "--style", "paper").code == 0


def test_models_that_training_cannot_start_from_are_errors(transduce: Any, trained: Any, tmp_path: Path) -> None:
    for words, message in (
        (
            [f"train.start_from={trained.run}", "model.d_ff=96"],
            "has other sizes: model.d_ff (there 64); leave them out; only the numbers of layers may differ",
        ),
        ([f"train.start_from={trained.run}", "model.d_k=4"], "has other sizes: model.d_k (there "),
        (["train.start_from=nowhere"], "nowhere: no such folder"),
        (
            [f"train.start_from={trained.run}", "tokenizer.vocab_size=4000"],
            "tokenizer.vocab_size=4000 has no effect beside train.start_from: the vocabulary is that of",
        ),
        ([f"train.start_from={trained.run}", "tokenizer.type=unigram"], "tokenizer.type=unigram has no effect"),
    ):
        sets = [word for setting in words for word in ("--set", setting)]
        outcome = fine_tune(transduce, tmp_path, *sets, *ONE_SMALL_STEP)
        assert outcome.code == 2
        assert message in outcome.err.splitlines()[-1]
        assert not (tmp_path / "tuned").exists()
