"""`transduce shortlist`, and translations with --shortlist."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import complaint

from transduce.models.folder import save_model
from transduce.models.registry import create_model
from transduce.predecessors.recurrent import RecurrentConfig
from transduce.tokenizers.any_tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def listed(transduce: Any, trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained model with a shortlist."""
    folder = tmp_path_factory.mktemp("listed")
    model = shutil.copytree(trained.run / "model", folder / "model")
    sides = [(trained.folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("src", "tgt")]
    pairs = "".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True))
    (folder / "train.tsv").write_text(pairs, encoding="utf-8")
    words = ("--train", "train.tsv", "--frequent", "3", "--per-token", "3")
    outcome = transduce("shortlist", "-m", "model", *words, cwd=folder)
    assert outcome.code == 0, outcome
    assert outcome.out.startswith("model/shortlist.safetensors: learned from 300 pairs; ")
    return model


def test_a_translation_has_only_tokens_of_the_list(transduce: Any, trained: Any, listed: Path) -> None:
    words = ("--engine", "native", "--jsonl", trained.folder / "valid.src")
    outputs = [
        [json.loads(line) for line in transduce("translate", "-m", listed, *words, *more, cwd=listed).out.splitlines()]
        for more in ((), ("--shortlist",))
    ]
    texts = [[line["translations"][0]["text"] for line in lines] for lines in outputs]
    scores = [[line["translations"][0]["score"] for line in lines] for lines in outputs]
    assert len(texts[0]) == len(texts[1]) == 20
    assert scores[0] != scores[1]  # the probabilities of fewer tokens are larger
    tokenizer = load_tokenizer(listed)
    from transduce.fast.native.shortlist import read_shortlist

    shortlist = read_shortlist(listed / "shortlist.safetensors", tokenizer)
    for line in outputs[1]:
        source = tokenizer.encode(line["source"])
        allowed = {*tokenizer.pieces(sorted(shortlist.tokens(source)))}
        assert {*line["translations"][0]["tokens"]} <= allowed
        assert len(allowed) < tokenizer.vocab_size / 2


def test_prefixes_and_terms_outside_the_list_are_used(transduce: Any, listed: Path, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("babo\txylophon\n", encoding="utf-8")
    words = ("translate", "-m", listed, "--engine", "native", "--shortlist")
    prefixed = transduce(*words, "--prefix", "xyz", "gigo babo", cwd=tmp_path)
    assert (prefixed.code, prefixed.out[:3]) == (0, "xyz")
    term = transduce(*words, "--glossary", "terms.tsv", "gigo babo dedu", cwd=tmp_path)
    assert term.code == 0
    assert "xylophon" in term.out
    protected = transduce(*words, "gigo https://example.org/xyz dedu", cwd=tmp_path)
    assert protected.code == 0
    assert "https://example.org/xyz" in protected.out


def test_scores_and_shrunk_models_use_it(transduce: Any, trained: Any, listed: Path, tmp_path: Path) -> None:
    assert transduce("shrink", "-m", listed, "--out", "small", cwd=tmp_path).code == 0
    name = "shortlist.safetensors"
    assert (tmp_path / "small" / name).read_bytes() == (listed / name).read_bytes()
    files = ("--src", trained.folder / "valid.src", "--ref", trained.folder / "valid.tgt")
    outcome = transduce("evaluate", "-m", "small", *files, "--engine", "native", "--shortlist", cwd=tmp_path)
    assert outcome.code == 0, outcome


def test_what_has_no_shortlist_refuses_it_in_one_line(transduce: Any, trained: Any, listed: Path) -> None:
    words = ("translate", "--shortlist", "babo", "-m")
    hint = "; a shortlist needs the engine native on a CPU and a model that has one (make it with: transduce shortlist)"
    message = complaint(transduce(*words, trained.run, "--engine", "native", cwd=listed))
    assert message == "engine native has no lexical shortlist for this model" + hint
    message = complaint(transduce(*words, listed, "--engine", "plain", cwd=listed))
    assert message == "engine plain has no lexical shortlist for this model" + hint
    message = complaint(transduce(*words, listed, "--engine", "native", "--no-repeat", "3", cwd=listed))
    assert message == "engine native has no blocking of repeated n-grams" + hint
    message = complaint(transduce("serve", "--shortlist", "-m", trained.run, "--port", "0", cwd=listed))
    assert message == "engine native has no lexical shortlist for this model" + hint


def test_mistakes_are_reported(transduce: Any, trained: Any, listed: Path, tmp_path: Path) -> None:
    model = shutil.copytree(listed, tmp_path / "model")
    (tmp_path / "empty.tsv").write_text("\n", encoding="utf-8")
    checkpoint = max((trained.run / "checkpoints").glob("step-*"))
    for words, expected in (
        (("-m", model, "--train", "empty.tsv"), "empty.tsv: no usable sentence pair"),
        (("-m", model, "--train", "missing.tsv"), "missing.tsv"),
        (("-m", checkpoint, "--train", "empty.tsv"), "is a checkpoint, which cannot be changed"),
    ):
        outcome = transduce("shortlist", *words, cwd=tmp_path)
        assert outcome.code == 2
        assert expected in outcome.err.splitlines()[-1]
    assert (model / "shortlist.safetensors").read_bytes() == (listed / "shortlist.safetensors").read_bytes()
    (model / "shortlist.safetensors").write_bytes(b"12345678")
    assert transduce("translate", "-m", model, "babo", cwd=tmp_path).code == 0  # it is not read if it is not used
    message = complaint(transduce("translate", "-m", model, "--shortlist", "babo", cwd=tmp_path))
    assert message.startswith(f"{model / 'shortlist.safetensors'}: cannot be read: ")


def test_models_that_cannot_use_it_are_named(transduce: Any, trained: Any, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(trained.run / "model")
    recurrent = create_model(RecurrentConfig(d_model=16), tokenizer.vocab_size)
    for name, facts, message in (
        ("gru", {}, "gru: the architecture is recurrent, which the engine native"),
        ("parser", {"task": "parse"}, "parser was trained for the task parse; use it with: transduce parse"),
    ):
        save_model(tmp_path / name, recurrent, tokenizer, facts)
        words = ("shortlist", "-m", name, "--train", "train.tsv")
        assert message in complaint(transduce(*words, cwd=tmp_path))
