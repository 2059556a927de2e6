"""Damaged models of every command but `translate`: each works or is refused, at low cost, in one line."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_injection import repetitions
from hostile import STRANGE, change_one_file, problems, try_all
from hostile_originals import edit_json
from safetensors.numpy import load_file, save_file
from toy_run import Pairs

from transduce.models.folder import save_model
from transduce.models.registry import build_config, create_model
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig

EACH = repetitions(6, 100)
"""Random changes of each model."""
SIZES = {"d_model": 16, "d_ff": 24, "num_heads": 2}
DEEP = {**SIZES, "encoder_layers": 1, "decoder_layers": 1}
SPEECH = {"prefix": [5], "languages": ["en"], "language_tokens": [6], "suppressed": [7], "seconds": 1}
LABELS = {"labels": ["a", "b"], "max_length": 20}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "translate": ("encoder_decoder", DEEP, {}),
    "generate": ("decoder_only", {**SIZES, "layers": 1}, {"task": "language_model", "max_length": 20}),
    "fill": ("encoder_only", {**SIZES, "layers": 1}, {"task": "masked", "max_length": 20}),
    "embed": ("encoder_only", {**SIZES, "layers": 1, "positions": "learned", "max_positions": 30}, {"task": "masked"}),
    "classify": ("encoder_only", {**SIZES, "layers": 1, "classes": 2}, {"task": "classify", **LABELS}),
    "classify_image": (
        "encoder_only",
        {**SIZES, "layers": 1, "classes": 2, "source": "image", "image_height": 8, "image_width": 8},
        {"task": "classify", **LABELS},
    ),
    "parse": ("encoder_decoder", DEEP, {"task": "parse", "search": {"beam": 2}}),
    "transcribe": (
        "encoder_decoder",
        {**DEEP, "source": "audio", "mel_bins": 8, "max_frames": 100, "positions": "learned", "max_positions": 9,
         "output_bias": True},
        {"task": "transcribe", "transcribe": SPEECH, "search": {"beam": 1}},
    ),
}  # fmt: skip
"""For each action: the architecture, its settings, and the facts of the card."""


@pytest.fixture(scope="module")
def folders(toy_pairs: Pairs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model for each action, with random weights."""
    symbols = ("\u2581(S", "\u2581)S")
    tokenizer = Tokenizer.train(
        (text for pair in toy_pairs for text in pair), TokenizerConfig(vocab_size=450, symbols=symbols)
    )
    folder = tmp_path_factory.mktemp("models")
    for action, (architecture, settings, facts) in MODELS.items():
        config = build_config(architecture, settings, action)
        save_model(folder / action, create_model(config, tokenizer.vocab_size).eval(), tokenizer, facts)
    return {action: folder / action for action in MODELS}


def change_card(folder: Path, draw: random.Random) -> None:
    """Set one setting, fact or field of a fact to a strange value."""
    card = json.loads((folder / "model.json").read_text())
    tables = [card["model"], card["facts"], *(one for one in card["facts"].values() if isinstance(one, dict))]
    table = draw.choice([table for table in tables if table])
    table[draw.choice([*table, "x"])] = draw.choice(STRANGE)
    (folder / "model.json").write_text(json.dumps(card))


def test_randomly_damaged_models_work_or_are_refused(transduce: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    cases: dict[str, tuple[str, Path]] = {}
    for action, original in folders.items():
        cases[action] = action, original
        for number in range(EACH):
            draw = random.Random(f"{action} {number}")
            folder = Path(shutil.copytree(original, tmp_path / f"{action}-{number}"))
            (change_card if draw.random() < 0.6 else change_one_file)(folder, draw)
            cases[f"{action} {number}"] = action, folder
    outcomes = dict(zip(cases, try_all(transduce, list(cases.values()), tmp_path), strict=True))
    assert {action: outcomes[action][0] for action in folders} == dict.fromkeys(folders)
    found = {name: problems(outcomes[name], path, must_fail=False) for name, (_, path) in cases.items()}
    assert {name: one for name, one in found.items() if one} == {}


def set_model(**values: object) -> Callable[[Path], None]:
    return lambda folder: _edit(folder, "model", values)


def set_facts(**values: object) -> Callable[[Path], None]:
    return lambda folder: _edit(folder, "facts", values)


def _edit(folder: Path, table: str, values: dict[str, Any]) -> None:
    card = json.loads((folder / "model.json").read_text())
    card[table] |= values
    (folder / "model.json").write_text(json.dumps(card))


def set_number(name: str, number: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights[name].reshape(-1)[3] = number
        save_file(weights, folder / "model.safetensors")

    return change


def set_sinusoids(folder: Path) -> None:
    """Positions without a limit, in a model whose weights agree with it."""
    set_model(positions="sinusoidal")(folder)
    weights = load_file(folder / "model.safetensors")
    del weights["embedding.positions.table_TD"]
    save_file(weights, folder / "model.safetensors")


CHANGES: list[tuple[str, str, Callable[[Path], object]]] = [
    ("generate", "a billion layers", set_model(layers=10**9)),
    ("generate", "absurd width", set_model(d_ff=2**62)),
    ("generate", "65,536 positions", set_model(positions="learned", max_positions=2**16)),
    ("generate", "NaN weights", set_number("embedding.weight_VD", np.nan)),
    ("generate", "an absurd context", set_facts(max_length=2**40)),
    ("fill", "an absurd context", set_facts(max_length=[1])),
    ("fill", "a context that is true", set_facts(max_length=True)),
    ("embed", "a number that is too large for a float", set_model(norm_epsilon=10**400)),
    ("embed", "another number of positions", set_model(max_positions=2**16)),
    ("classify", "a trillion classes", set_model(classes=10**12)),
    ("classify", "a hundred million classes", set_model(classes=10**8)),
    ("classify", "other labels", set_facts(labels=["a"] * 9)),
    ("classify", "labels of another type", set_facts(labels={"a": 1})),
    ("classify_image", "images of a terabyte", set_model(image_height=2**20, image_width=2**20)),
    ("classify_image", "many patches", set_model(image_height=20_000, image_width=20_000, patch_size=1)),
    ("classify_image", "a patch of a terabyte", set_model(image_height=2**20, image_width=2**20, patch_size=2**20)),
    ("classify_image", "a billion channels", set_model(channels=10**9)),
    ("classify_image", "no height", set_model(image_height=0)),
    ("parse", "a beam of a million", set_facts(search={"beam": 10**6})),
    ("parse", "another task", set_facts(task="translate")),
    ("transcribe", "tokens beyond the vocabulary", set_facts(transcribe={**SPEECH, "prefix": [2**40]})),
    ("transcribe", "a negative token", set_facts(transcribe={**SPEECH, "suppressed": [-1]})),
    ("transcribe", "parts of a year", set_facts(transcribe={**SPEECH, "seconds": 31_536_000})),
    ("transcribe", "a prefix of a thousand tokens", set_facts(transcribe={**SPEECH, "prefix": [5] * 1000})),
    ("transcribe", "sinusoids", set_sinusoids),
    ("transcribe", "relative positions", set_model(positions="relative")),
    ("transcribe", "NaN weights", set_number("source_embedding.first.weight", np.inf)),
    ("transcribe", "a million bins", set_model(mel_bins=10**6)),
    ("transcribe", "a million frames", set_model(max_frames=10**6)),
    ("transcribe", "a model that reads text", set_model(source="text")),
    ("translate", "a model that reads sound", set_model(source="audio")),
    ("translate", "no such architecture", edit_json("model.json", architecture="x" * 100)),
]


def test_hostile_models_are_refused_with_one_line_at_low_cost(
    transduce: Any, folders: dict[str, Path], tmp_path: Path
) -> None:
    cases = {}
    for number, (action, name, change) in enumerate(CHANGES):
        folder = Path(shutil.copytree(folders[action], tmp_path / f"{action}-{number}"))
        change(folder)
        cases[f"{action}: {name}"] = action, folder
    outcomes = try_all(transduce, list(cases.values()), tmp_path)
    found = {name: problems(one, path) for (name, (_, path)), one in zip(cases.items(), outcomes, strict=True)}
    assert {name: one for name, one in found.items() if one} == {}
