"""`transduce shrink`: the same model in 8 bits, a quarter of the size."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file


def test_a_shrunk_model_is_smaller_and_translates_the_same(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce("shrink", "-m", trained.run, "--out", tmp_path / "sizes" / "small", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    before, after = (line.rpartition(": ") for line in outcome.out.splitlines())
    assert (before[0], after[0]) == (str(trained.run / "model"), str(tmp_path / "sizes" / "small"))
    assert float(after[2].removesuffix(" MB")) < float(before[2].removesuffix(" MB"))
    assert [path.name for path in (tmp_path / "sizes").iterdir()] == ["small"]

    words = ("--engine", "native", "--jsonl", "--nbest", "4", trained.folder / "valid.src")
    outputs = [
        [
            json.loads(line)["translations"]
            for line in transduce("translate", "-m", m, *words, cwd=tmp_path).out.split("\n")[:-1]
        ]
        for m in (trained.run, "sizes/small")
    ]
    for ours, theirs in zip(*outputs, strict=True):
        assert [(one["text"], one["score"]) for one in ours] == [(one["text"], one["score"]) for one in theirs]
    assert transduce("translate", "-m", "sizes/small", "--engine", "plain", "babo", cwd=tmp_path).code == 0


def test_matrices_are_stored_in_8_bits_as_the_card_states(transduce: Any, trained: Any, tmp_path: Path) -> None:
    assert transduce("shrink", "-m", trained.run, "--out", "small", cwd=tmp_path).code == 0
    weights = load_file(tmp_path / "small" / "model.safetensors")
    types = {x.ndim: {y.dtype for y in weights.values() if y.ndim == x.ndim} for x in weights.values()}
    assert types == {2: {np.dtype("int8")}, 1: {np.dtype("float32")}}
    cards = [json.loads((folder / "model.json").read_text()) for folder in (trained.run / "model", tmp_path / "small")]
    assert [card.pop("precision") for card in cards] == ["float32", "int8"]
    assert cards[0] == cards[1]
    facts = [json.loads(transduce("info", "-m", m, "--json", cwd=tmp_path).out) for m in (trained.run, "small")]
    assert [(one.pop("stored as"), bool(one.pop("folder"))) for one in facts] == [("float32", True), ("int8", True)]
    assert facts[0] == facts[1]  # including the number of parameters


def test_the_notes_of_a_model_are_copied(transduce: Any, trained: Any, tmp_path: Path) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    (model / "README.md").write_text("# Babo\n\nLicence: CC BY 2.0 für alle\n", encoding="utf-8")
    assert transduce("shrink", "-m", "model", "--out", "small", cwd=tmp_path).code == 0
    assert (tmp_path / "small" / "README.md").read_bytes() == (model / "README.md").read_bytes()
    assert transduce("info", "-m", "small", cwd=tmp_path).out.startswith("# Babo\n\nLicence: CC BY 2.0 für alle\n\n")


def test_an_existing_folder_is_not_overwritten(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    outcome = transduce("shrink", "-m", trained.run, "--out", "small", cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "transduce: small exists already; name a folder that does not\n"
    assert list((tmp_path / "small").iterdir()) == []
