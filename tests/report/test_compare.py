"""The comparison of runs."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from transduce.config import build, to_toml
from transduce.data.prepare import DataConfig
from transduce.errors import ConfigError, RunError
from transduce.models.config import DecoderOnlyConfig, EncoderDecoderConfig, ModelConfig
from transduce.report.compare import (
    different_settings,
    figures,
    read_outputs,
    read_runs,
    significance,
    write_comparison,
)
from transduce.report.run import Run
from transduce.training.metrics import Metrics
from transduce.training.recipe import Recipe
from transduce.training.train_config import TrainConfig


def make_run(folder: Path, bleu: float, warmup: int) -> Path:
    folder.mkdir(parents=True)
    recipe = Recipe(data=DataConfig(train=(("a.src", "a.tgt"),)), train=TrainConfig(warmup=warmup))
    (folder / "config.toml").write_text(to_toml(recipe))
    metrics = Metrics(folder / "metrics.jsonl", pytest.fail)
    for step in (50, 100):
        metrics.add("train", step=step, loss=300 / step, learning_rate=1e-3, tokens_per_second=1000.0, seconds=step)
        metrics.add("valid", step=step, loss=400 / step, perplexity=9.0, bleu=bleu * step / 100)
    return folder


def test_figures_and_different_settings(tmp_path: Path) -> None:
    runs = read_runs([make_run(tmp_path / "a", 20.0, 100), make_run(tmp_path / "b<i>", 30.0, TrainConfig().warmup)])
    rows = dict(figures(runs))
    assert rows["best BLEU of a checkpoint, validation set, greedy"] == ["20.00", "30.00 ★"]
    assert rows["best loss of a checkpoint, validation set"] == ["4.000", "4.000"]
    assert rows["training time"] == ["0:01:40", "0:01:40"]
    assert different_settings(runs) == [("train.warmup", ["100", "4000"])]
    page = tmp_path / "page.html"
    write_comparison(page, runs)
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html
    assert "<i>" not in html
    assert html.count('<polyline class="a"') == html.count('<polyline class="b"') > 4
    assert "step 100  a 20.00  b&lt;i&gt; 30.00" in html  # the crosshair has both


@pytest.mark.parametrize(
    ("task", "model", "key", "row"),
    [
        (
            "language_model",
            DecoderOnlyConfig(),
            "bits_per_character",
            "best Bits per character of a checkpoint, validation set",
        ),
        (
            "transcribe",
            EncoderDecoderConfig(source="audio", positions="learned"),
            "wer",
            "best Word error rate of a checkpoint, validation set, greedy",
        ),
    ],
)
def test_the_best_of_a_figure_may_be_the_lowest(
    tmp_path: Path, task: str, model: ModelConfig, key: str, row: str
) -> None:
    recipe = Recipe(task=task, model=model, data=DataConfig(train=(("a.txt",),)))
    (tmp_path / "config.toml").write_text(to_toml(recipe))
    metrics = Metrics(tmp_path / "metrics.jsonl", pytest.fail)
    for step in (50, 100):
        metrics.add("valid", step=step, loss=400 / step, perplexity=9.0, **{key: 200 / step})
    rows = dict(figures(read_runs([tmp_path])))
    assert rows[row] == ["2.00"]
    assert rows["best loss of a checkpoint, validation set"] == ["4.000"]


def test_the_best_checkpoint_is_one_of_those_with_the_same_examples(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(to_toml(Recipe(data=DataConfig(train=(("a.src", "a.tgt"),)))))
    metrics = Metrics(tmp_path / "metrics.jsonl", pytest.fail)
    for step, loss, bleu, scored in (
        (0, 1.0, 31.0, 100),
        (5, 3.0, 30.0, 100),
        (10, 4.0, 20.0, 39),
        (15, 5.0, 10.0, 39),
    ):
        metrics.add("valid", step=step, loss=loss, bleu=bleu, scored=scored)
    rows = dict(figures(read_runs([tmp_path])))
    assert rows["best BLEU of a checkpoint, validation set, greedy"] == ["20.00"]
    assert rows["best loss of a checkpoint, validation set"] == ["3.000"]


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / folder / "run", 1.0, 1) for folder in "ab"]
    assert [run.name for run in read_runs(paths)] == [str(path) for path in paths]


def test_an_unfinished_run_can_be_compared(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", 20.0, 100)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')  # being written
    assert dict(figures(read_runs([path])))["steps"] == ["100"]


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run: it has no config\.toml"):
        read_runs([tmp_path])
    with pytest.raises(ConfigError, match="at most 6 runs are compared at once, not 7"):
        read_runs([tmp_path] * 7)


def finish(folder: Path, bleu: float, outputs: list[str]) -> Path:
    """A run whose model is finished and has made these outputs."""
    make_run(folder, bleu, 100)
    Metrics(folder / "metrics.jsonl", pytest.fail).add("final", step=100, valid_bleu=bleu, valid_perplexity=5.0)
    lines = ({"source": f"s{n}", "reference": REFERENCES[n], "output": output} for n, output in enumerate(outputs))
    (folder / "outputs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


_WORDS = ("the", "a", "red", "small", "house", "cat", "sees", "has", "old", "man")
_CHANCE = random.Random(1)
REFERENCES = [" ".join(_CHANCE.choices(_WORDS, k=9)) for _ in range(60)]
ALMOST = [text.replace("cat", "dog") for text in REFERENCES]


def test_runs_with_equal_outputs_are_as_good_as_each_other(tmp_path: Path) -> None:
    runs = read_runs([finish(tmp_path / name, 80.0, ALMOST) for name in "ab"])
    sentence = significance(runs, read_outputs(runs))
    assert "is as good as b (BLEU " in sentence
    assert "significantly" not in sentence
    assert "p =" not in sentence


def test_a_clear_difference_is_significant_and_shown_side_by_side(tmp_path: Path) -> None:
    poor = [" ".join(reversed(text.split())) for text in REFERENCES]
    runs = read_runs([finish(tmp_path / "poor", 3.0, poor), finish(tmp_path / "good", 80.0, ALMOST)])
    sentence = significance(runs, read_outputs(runs))
    assert sentence.startswith("good (BLEU ")
    assert "is significantly better than poor (BLEU " in sentence
    assert "60 validation sentences" in sentence
    assert dict(figures(runs))["BLEU of the finished model, validation set, beam 4"] == ["3.00", "80.00 ★"]
    write_comparison(page := tmp_path / "page.html", runs)
    html = page.read_text(encoding="utf-8")
    assert "is significantly better than poor" in html
    table = html[html.index("Translations side by side") : html.index("<h2>Training")]
    assert table.count("<tr>") == 1 + 8
    assert table.count("★") == 8


def test_a_small_difference_is_not_significant(tmp_path: Path) -> None:
    other = [*ALMOST[:-1], ALMOST[-1] + " house"]
    runs = read_runs([finish(tmp_path / "a", 80.0, ALMOST), finish(tmp_path / "b", 79.9, other)])
    assert "a (BLEU " in (sentence := significance(runs, read_outputs(runs)))
    assert "is not significantly better than b (BLEU " in sentence


def test_outputs_of_other_sentences_are_not_compared(tmp_path: Path) -> None:
    paths = [finish(tmp_path / "a", 80.0, ALMOST), finish(tmp_path / "b", 80.0, ALMOST[:-1])]
    runs = read_runs(paths)
    assert significance(runs, read_outputs(runs)) == (
        "No test of significance: the runs have scored different validation sentences."
    )
    (tmp_path / "a" / "outputs.jsonl").write_text('{"source": 1')
    assert "a has no translations of a finished model" in significance(runs, read_outputs(runs))
    write_comparison(tmp_path / "page.html", runs)
    assert "side by side" not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("task", "model", "unit"),
    [
        ("translate", {}, "target tokens/s"),
        ("masked", {"architecture": "encoder_only"}, "tokens/s"),
        ("classify", {"architecture": "encoder_only", "source": "image", "classes": 2}, "images/s"),
        ("classify", {"architecture": "encoder_only", "classes": 2}, "texts/s"),
    ],
)
def test_the_speed_says_what_it_counts(task: str, model: dict[str, Any], unit: str, tmp_path: Path) -> None:
    data = {"train": [["a.txt", "b.txt"] if task == "translate" else ["a.txt"]]}
    recipe = build(Recipe, {"task": task, "model": model, "data": data}, "test")
    assert Run("run", tmp_path, recipe, []).counted_tokens == unit
