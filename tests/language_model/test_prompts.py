"""Fine-tuning of a language model on prompts and answers, with all weights and with low-rank updates."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import metrics
from toy_run import as_sets, write_lines

from transduce.errors import ModelError
from transduce.language_model.generator import Generator
from transduce.models.folder import read_card, write_fact
from transduce.tokenizers.any_tokenizer import load_tokenizer

BASE: dict[str, Any] = {
    "tokenizer.type": "char", "tokenizer.vocab_size": 100, "data.max_length": 24,
    "model.layers": 1, "model.d_model": 32, "model.d_ff": 64, "model.num_heads": 2, "model.dropout": 0.0,
    "train.batch_tokens": 240, "train.steps": 5, "train.warmup": 5, "train.learning_rate": 0.01,
    "train.device": "cpu", "train.samples": 2, "train.average": 1,
}  # fmt: skip
TUNE: dict[str, Any] = {
    "language_model.answers_only": "true", "data.max_length": 24, "train.start_from": "base", "train.steps": 60,
    "train.warmup": 5, "train.learning_rate": 0.02, "train.batch_tokens": 240, "train.save_every": 60,
    "train.samples": 2,
}  # fmt: skip
PROMPTS = {f"{first}{second}=": second for first in "abcdefgh" for second in "xyz"}


@pytest.fixture(scope="module")
def folder(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prompts")
    (folder / "text.txt").write_text("".join(f"{prompt}{answer}\n" for prompt, answer in PROMPTS.items()) * 4)
    write_lines(folder / "pairs.tsv", [f"{prompt}\t{answer}" for prompt, answer in PROMPTS.items()])
    outcome = transduce("train", "--text", "text.txt", *as_sets(BASE), "--out", "base", cwd=folder)
    assert outcome.code == 0, outcome.err
    write_fact(folder / "base/model", "ends", load_tokenizer(folder / "base/model").encode_document("h"))
    return folder


def test_an_output_ends_at_any_of_several_tokens_or_texts(folder: Path) -> None:
    base = Generator.load(folder / "base")
    whole = base.generate("ax=", max_tokens=20, temperature=0)
    first, second = whole[2], whole[5]
    ids = [base.tokenizer.encode_document(character)[0] for character in (first, second)]
    end = min(whole.index(first), whole.index(second))
    assert 0 < len(whole[:end]) < len(whole) or end == 0
    several = Generator(base.model, base.tokenizer, context=base.context, ends=ids)
    assert several.generate("ax=", max_tokens=20, temperature=0) == whole[:end]
    assert base.generate("ax=", max_tokens=20, temperature=0, stop=[second, first]) == whole[:end]
    for ends in (5, ["a"], [3], [1000]):
        with pytest.raises(ModelError, match=r"facts\.ends"):
            Generator(base.model, base.tokenizer, ends=ends)  # type: ignore[arg-type]


@pytest.mark.parametrize("lora", [0, 4])
def test_answers_are_learned_and_end(transduce: Any, folder: Path, lora: int) -> None:
    words = ["train", "--task", "language_model", "--train", "pairs.tsv", "--valid", "pairs.tsv", *as_sets(TUNE)]
    outcome = transduce(*words, "--set", f"train.lora={lora}", "--out", f"tuned-{lora}", cwd=folder)
    assert outcome.code == 0, outcome.err
    valid = [record for record in metrics(folder / f"tuned-{lora}") if record["kind"] == "valid"]
    assert valid[-1]["loss"] < 0.5 * valid[0]["loss"]
    assert {sample["source"] for sample in valid[-1]["samples"]} <= PROMPTS.keys()
    answers = Generator.load(folder / f"tuned-{lora}").generate(list(PROMPTS), max_tokens=5, temperature=0)
    right = sum(found == expected for found, expected in zip(answers, PROMPTS.values(), strict=True))
    assert right > 12, answers
    assert (
        read_card(folder / f"tuned-{lora}/model")["facts"]["ends"] == read_card(folder / "base/model")["facts"]["ends"]
    )
    scored = transduce("evaluate", "-m", f"tuned-{lora}", "--test", "text.txt", "--json", cwd=folder)
    assert json.loads(scored.out)["documents"] == 1
    scored = transduce("evaluate", "-m", f"tuned-{lora}", "--test", "pairs.tsv", "--json", cwd=folder)
    figures = json.loads(scored.out)
    assert figures["answers"] == len(PROMPTS)
    assert figures["loss"] == pytest.approx(valid[-1]["loss"], rel=1e-3)


def test_answers_that_are_too_long_count_in_no_figure_of_validation(transduce: Any, folder: Path) -> None:
    pairs = (folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    write_lines(folder / "longer.tsv", [*pairs, f"ax=\t{'x' * 300}"])
    valid = []
    for name in ("pairs", "longer"):
        words = ["train", "--task", "language_model", "--train", "pairs.tsv", "--valid", f"{name}.tsv"]
        few = as_sets(TUNE | {"train.steps": 2, "train.save_every": 2})
        outcome = transduce(*words, *few, "--out", f"few-{name}", cwd=folder)
        assert outcome.code == 0, outcome.err
        assert ("validation: left out 1 answer that exceed" in outcome.err) is (name == "longer")
        valid.append([record for record in metrics(folder / f"few-{name}") if record["kind"] == "valid"][-1])
    assert valid[0]["bits_per_character"] == pytest.approx(valid[1]["bits_per_character"])


def test_what_does_not_fit_is_one_line(transduce: Any, folder: Path) -> None:
    words = ["train", "--task", "language_model", *as_sets(TUNE), "--out", "new"]
    for more, message in (
        (["--train", "text.txt"], "text.txt"),
        (["--train", "pairs.tsv", "--set", "data.max_length=2"], "every pair has more than 2 tokens"),
        (["--train", "pairs.tsv", "--set", "data.reverse=true"], "data.reverse: for pairs of texts"),
    ):
        outcome = transduce(*words, *more, cwd=folder)
        assert outcome.code == 2, more
        assert message in outcome.err.splitlines()[-1], more
