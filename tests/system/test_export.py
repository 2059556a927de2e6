"""`transduce export` and back, through the command line, with the toolkits that read the exports."""

from pathlib import Path
from typing import Any

import pytest
import torch
from commands import complaint
from conftest import make_toy_pairs, write_lines

from transduce.models.saved import load_model


def assert_same_model(original: Path, restored: Path) -> None:
    """Settings, weights, tokenizer and facts are the same, bit for bit."""
    ours, theirs = load_model(original), load_model(restored)
    assert ours.model.config == theirs.model.config
    assert ours.facts == theirs.facts
    assert ours.tokenizer.model == theirs.tokenizer.model
    weights, others = ours.model.state_dict(), theirs.model.state_dict()
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def greedy(transduce: Any, model: Path, folder: Path) -> list[str]:
    """Our greedy translations of at most eight tokens."""
    words = ("--engine", "plain", "--beam", "1", "--max-length", "8", "lines.txt")
    outcome = transduce("translate", "-m", model, *words, cwd=folder)
    assert outcome.code == 0, outcome.err
    return outcome.out.splitlines()


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    texts = [source for source, _ in make_toy_pairs(30, seed=7)]
    write_lines(tmp_path / "lines.txt", texts)
    return texts


def test_hugging_face(transduce: Any, trained: Any, tmp_path: Path, lines: list[str]) -> None:
    transformers = pytest.importorskip("transformers")
    outcome = transduce("export", "-m", trained.run, "--to", "hf", "--out", "hf", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("hf: Hugging Face (Marian), verified by transformers")
    assert "100 of 100 greedy outputs identical" in outcome.out
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "hf")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf")
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    theirs = tokenizer.batch_decode(model.generate(**batch, num_beams=1, max_new_tokens=8), skip_special_tokens=True)
    assert greedy(transduce, trained.run, tmp_path) == theirs
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "n^a" in card
    assert "n^a" in outcome.err

    outcome = transduce("import", "hf", "--out", "back", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert_same_model(trained.run / "model", tmp_path / "back")


def test_unknown_formats_and_precisions_are_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce("export", "-m", trained.run, "--to", "gguf", "--out", "x", cwd=tmp_path)
    assert complaint(outcome).startswith("--to must be one of hf, ")
    outcome = transduce("export", "-m", trained.run, "--to", "hf", "--quantization", "int8", "--out", "x", cwd=tmp_path)
    assert complaint(outcome) == "--quantization of hf must be float32"
    assert list(tmp_path.iterdir()) == []
