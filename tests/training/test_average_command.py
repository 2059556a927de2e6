"""`transduce average`: a model folder with the mean of several models' weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import complaint
from helpers import small_model
from safetensors.numpy import load_file

from transduce.models.folder import load_model, save_model
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig


def test_weights_are_the_mean(transduce: Any, trained: Any, tmp_path: Path) -> None:
    folders = [trained.run / "checkpoints" / f"step-{step}" for step in (20, 40, 60)]
    outcome = transduce("average", *folders, "-o", "deep/mean", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"deep/mean: the mean of {', '.join(map(str, folders))}\n"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["mean"]
    weights = [load_file(folder / "model.safetensors") for folder in folders]
    for name, x in load_file(tmp_path / "deep" / "mean" / "model.safetensors").items():
        expected = sum(one[name].astype(np.float64) for one in weights) / 3
        np.testing.assert_array_equal(x, expected.astype(np.float32))


def test_facts_are_those_of_the_last_without_its_scores(transduce: Any, trained: Any, tmp_path: Path) -> None:
    early = trained.run / "checkpoints" / "step-20"
    assert transduce("average", early, trained.run, "-o", "mean", cwd=tmp_path).code == 0
    last, mean = (json.loads((f / "model.json").read_text()) for f in (trained.run / "model", tmp_path / "mean"))
    assert last["facts"].pop("scores")
    last["facts"]["averaged"] = 2
    assert mean == last


def test_8_bit_models_are_averaged_too(transduce: Any, trained: Any, tmp_path: Path) -> None:
    assert transduce("shrink", "-m", trained.run, "--out", "small", cwd=tmp_path).code == 0
    shutil.copytree(tmp_path / "small", tmp_path / "copy")
    assert transduce("average", "small", "copy", "-o", "mean", cwd=tmp_path).code == 0
    small, mean = (load_model(tmp_path / name).model.state_dict() for name in ("small", "mean"))
    assert all((small[name] == x).all() for name, x in mean.items())


@pytest.mark.parametrize(
    "words", [("average", "there", "back", "-o", "mean"), ("translate", "-m", "there", "-m", "back", "babo")]
)
def test_models_of_other_directions_are_not_combined(
    transduce: Any, trained: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    model = load_model(trained.run / "model")
    for name, direction in (("there", ["en", "de"]), ("back", ["de", "en"])):
        save_model(tmp_path / name, model.model, model.tokenizer, model.facts | {"directions": [direction]})
    assert complaint(transduce(*words, cwd=tmp_path)) == (
        "there translates en to de, and back de to en; name models of the same direction"
    )
    shutil.rmtree(tmp_path / "back")
    save_model(tmp_path / "back", model.model, model.tokenizer, model.facts | {"reverse": True})
    assert "there and back translate in opposite directions, as only one" in complaint(transduce(*words, cwd=tmp_path))
    assert not (tmp_path / "mean").exists()


def test_what_cannot_be_averaged_is_refused_and_nothing_is_written(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    model = load_model(trained.run / "model")
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "d_ff": 48, "num_heads": 2}
    wide = small_model(0, model.tokenizer.vocab_size, **sizes)
    save_model(tmp_path / "wide", wide, model.tokenizer, {})
    tokenizer = Tokenizer.train(["xaxo zeze qiqa xexe"] * 50, TokenizerConfig(vocab_size=400))
    save_model(tmp_path / "other", small_model(0, tokenizer.vocab_size), tokenizer, {})
    shutil.copytree(tmp_path / "other", tmp_path / "mean")
    before = sorted(path.name for path in tmp_path.iterdir())
    run = trained.run
    for words, message in (
        ((run, "wide"), f"{run}/model and wide differ in d_ff (64 and 48); only models of the same sizes"),
        ((run, "other"), f"{run}/model and other have different vocabularies"),
        ((run,), "an average needs two or more; name several checkpoints"),
        ((run, "nowhere"), "nowhere: no such folder"),
        ((run, run), f"{run}/model is given twice; name each once"),
        (
            (run / "checkpoints/best", *sorted(run.glob("checkpoints/step-*"))),
            f"{run}/checkpoints/best and {(run / 'checkpoints/best').resolve()} are the same model; name each once",
        ),
    ):
        assert message in complaint(transduce("average", *words, "-o", "new", cwd=tmp_path))
    refused = transduce("average", run, run, "-o", "mean", cwd=tmp_path)
    assert complaint(refused) == "mean exists already; name a folder that does not"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_classifiers_of_other_labels_are_not_averaged(transduce: Any, trained: Any, tmp_path: Path) -> None:
    model = load_model(trained.run / "model")
    for name, labels in (("a", ["no", "yes"]), ("b", ["yes", "no"])):
        save_model(tmp_path / name, model.model, model.tokenizer, {"labels": labels})
    outcome = transduce("average", "a", "b", "-o", "mean", cwd=tmp_path)
    assert complaint(outcome) == "a and b have different classes; name classifiers of the same labels"
    assert not (tmp_path / "mean").exists()
