"""Denoising through the command line, and translation that starts from it."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import complaint, copied_until, metrics
from toy_run import TINY, Pairs, as_sets, write_lines

from transduce.models.folder import load_model, save_model

SETTINGS: dict[str, Any] = TINY | {
    "tokenizer.vocab_size": 520,
    "train.steps": 12,
    "train.save_every": 6,
    "train.log_every": 6,
}


def test_denoising_starts_from_a_translator_with_slots_and_truecasing(
    transduce: Any, trained: Any, folder: Path, tmp_path: Path
) -> None:
    saved = load_model(trained.run / "model")
    of_pairs = {"augment": {"spans": 0.3}, "truecase": True}
    save_model(tmp_path / "start", saved.model, saved.tokenizer, saved.facts | of_pairs)
    words = ["train", "--task", "denoise", "--text", folder / "one.txt", "--start-from", "start", "--out", "run"]
    sets = {"denoise.kind": "bart", "train.steps": 1, "train.batch_tokens": 256}
    outcome = transduce(*words, *as_sets(sets), cwd=tmp_path)
    assert outcome.code == 0, outcome.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toy_pairs: Pairs) -> Path:
    folder = tmp_path_factory.mktemp("denoise")
    write_lines(folder / "one.txt", [source for source, _ in toy_pairs])
    write_lines(folder / "two.txt", [target for _, target in toy_pairs])
    write_lines(folder / "valid.txt", [source for source, _ in toy_pairs[:20]])
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in toy_pairs), encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_a_translation_model_starts_from_a_denoised_one(transduce: Any, folder: Path, kind: str) -> None:
    words = ["train", "--task", "denoise", "--text", "one.txt", "--text", "two.txt", "--valid", "valid.txt"]
    words += ["--preset", "tiny", "--set", f"denoise.kind={kind}", *as_sets(SETTINGS)]
    outcome = transduce(*words, "--out", kind, cwd=folder)
    assert outcome.code == 0, outcome.err
    valid = [record for record in metrics(folder / kind) if record["kind"] == "valid"]
    assert valid[-1]["loss"] < valid[0]["loss"]
    assert valid[-1]["criterion"] == "loss"
    card = json.loads((folder / kind / "model" / "model.json").read_text(encoding="utf-8"))
    assert (card["facts"]["task"], card["facts"]["data"]["texts"]) == ("denoise", 600)
    refused = transduce("translate", "-m", kind, "ba bo", cwd=folder)
    assert "was trained for the task denoise; train a translation model from it" in complaint(refused)

    resumed = copied_until(folder / kind, folder / f"{kind}-resumed", 6)
    outcome = transduce(*words, "--out", resumed, cwd=folder)
    assert f"resuming from {resumed}/checkpoints/step-6" in outcome.err
    for name in ("model", "optimizer"):
        runs = (folder / kind, resumed)
        first, second = ((run / f"checkpoints/step-12/{name}.safetensors").read_bytes() for run in runs)
        assert first == second

    words = ["train", "--train", "pairs.tsv", "--start-from", kind, "--set", "train.learning_rate=1e-3"]
    words += as_sets({key: value for key, value in SETTINGS.items() if key.startswith("train.s")})
    outcome = transduce(*words, "--out", f"{kind}-translate", cwd=folder)
    assert outcome.code == 0, outcome.err
    tokenizers = [(folder / run / "tokenizer.model").read_bytes() for run in (kind, f"{kind}-translate")]
    assert tokenizers[0] == tokenizers[1]
    assert transduce("translate", "-m", f"{kind}-translate", "ba bo", cwd=folder).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "denoise.kind=t6"], "kind must be one of t5, bart, not 't6'"),
        (["--set", "model.architecture=decoder_only"], "the task denoise needs model.architecture=encoder_decoder"),
        (["--set", "data.reverse=true"], "data.reverse: for pairs of texts; the task denoise has none"),
    ],
)
def test_mistakes_are_one_line(transduce: Any, folder: Path, words: list[str], message: str) -> None:
    outcome = transduce("train", "--task", "denoise", "--text", "one.txt", *words, "--out", "new", cwd=folder)
    assert message in complaint(outcome)
