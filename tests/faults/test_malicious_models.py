"""Malicious model folders: each is rejected with a one-line error, within two seconds of CPU time and 500 MB."""

import json
import os
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_injection import repetitions
from hostile import try_all
from safetensors.numpy import load_file, save_file

from transduce.cli.shrink import shrink_model
from transduce.disk import write_manifest
from transduce.models.weights_file import physical_memory

Weights = dict[str, np.ndarray]

EMBEDDING = "embedding.weight_VD"
LARGEST = f"{EMBEDDING}.largest"


def edit_card(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    card = json.loads((folder / "model.json").read_text())
    change(card)
    (folder / "model.json").write_text(json.dumps(card))


def edit_weights(folder: Path, change: Callable[[Weights], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def set_sizes(**sizes: object) -> Callable[[Path], None]:
    return lambda folder: edit_card(folder, lambda card: card["model"].update(sizes))


def set_card(**values: object) -> Callable[[Path], None]:
    return lambda folder: edit_card(folder, lambda card: card.update(values))


def set_facts(**values: object) -> Callable[[Path], None]:
    return lambda folder: edit_card(folder, lambda card: card["facts"].update(values))


def set_numbers(number: float) -> Callable[[Path], None]:
    def set_one(weights: Weights) -> None:
        weights["embedding.weight_VD"][7, 3] = number

    return lambda folder: edit_weights(folder, set_one)


def write_header(folder: Path, header: bytes, claimed: int | None = None, tail: bytes = b"") -> None:
    size = struct.pack("<Q", len(header) if claimed is None else claimed)
    (folder / "model.safetensors").write_bytes(size + header + tail)


def tensor(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


class Payload:
    """Runs a command in the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch unpickled",)


def replace_by_link(name: str, target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


def sparse_weights(folder: Path) -> None:
    """A sparse file of a terabyte, with a consistent header and card."""
    width = 250_000_000
    vocabulary = json.loads((folder / "model.json").read_text())["vocab_size"]
    set_sizes(d_model=width)(folder)
    size = 4 * vocabulary * width
    write_header(folder, json.dumps({"embedding.weight_VD": tensor([vocabulary, width], 0, size)}).encode())
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size + size)


def many_tensors(folder: Path) -> None:
    header = {f"../../{n}": tensor([0], 0, 0) for n in range(200_000)}
    write_header(folder, json.dumps(header).encode())


def fifo(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


def with_manifest(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Change a folder after its manifest is written."""

    def write_and_change(folder: Path) -> None:
        write_manifest(folder)
        change(folder)

    return write_and_change


def in_8_bits(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Apply the change to the 8-bit form of the folder."""

    def shrink_and_change(folder: Path) -> None:
        small = folder.with_name(f"{folder.name}-small")
        shrink_model(folder, small)
        shutil.rmtree(folder)
        small.rename(folder)
        change(folder)

    return shrink_and_change


def set_weights(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    return lambda folder: edit_weights(folder, lambda weights: weights.update({name: change(weights[name])}))


def set_largest(number: float) -> Callable[[Path], None]:
    def set_one(largest: np.ndarray) -> np.ndarray:
        largest[7] = number
        return largest

    return in_8_bits(set_weights(LARGEST, set_one))


def sparse_8_bits(folder: Path) -> None:
    """Weights that fit in memory in 8 bits, but not in float32."""
    os.truncate(folder / "model.safetensors", physical_memory() // 3)


CHANGES: dict[str, Callable[[Path], object]] = {
    "names with ..": lambda folder: edit_weights(
        folder, lambda weights: weights.update({"../../../etc/passwd": weights.pop("embedding.weight_VD")})
    ),
    "an additional absolute name": lambda folder: edit_weights(
        folder, lambda weights: weights.update({"/etc/passwd": np.zeros(3, np.float32)})
    ),
    "a header of 2^60 bytes": lambda folder: write_header(folder, b"{}", claimed=1 << 60),
    "a header of 99 million bytes": lambda folder: write_header(folder, b" " * 99_000_000),
    "200,000 tensors": many_tensors,
    "a nested header": lambda folder: write_header(folder, b'{"a":' * 100_000),
    "offsets beyond the end": lambda folder: write_header(
        folder, json.dumps({"embedding.weight_VD": tensor([1 << 40], 0, 1 << 42)}).encode()
    ),
    "shapes that overflow": lambda folder: write_header(
        folder, json.dumps({"embedding.weight_VD": tensor([1 << 62, 1 << 62], 0, 4)}).encode(), tail=b"1234"
    ),
    "overlapping tensors": lambda folder: write_header(
        folder, json.dumps({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}).encode(), tail=bytes(12)
    ),
    "a sparse terabyte": sparse_weights,
    "wrong shapes": lambda folder: edit_weights(
        folder, lambda weights: weights.update({"embedding.weight_VD": weights["embedding.weight_VD"].T.copy()})
    ),
    "integer weights": lambda folder: edit_weights(
        folder, lambda weights: weights.update({n: x.astype(np.int32) for n, x in weights.items()})
    ),
    "NaN weights": set_numbers(np.nan),
    "infinite weights": set_numbers(-np.inf),
    "a pickle for weights": lambda folder: (folder / "model.safetensors").write_bytes(pickle.dumps(Payload())),
    "a pickle for a vocabulary": lambda folder: (folder / "tokenizer.model").write_bytes(pickle.dumps(Payload())),
    "a pickle for a card": lambda folder: (folder / "model.json").write_bytes(pickle.dumps(Payload())),
    "a card nested too deeply": lambda folder: (folder / "model.json").write_text("[" * 100_000),
    "a card of 100 MB": lambda folder: (folder / "model.json").write_text('{"format": 1}' + " " * 100_000_000),
    "absurd width": set_sizes(d_model=10**12, num_heads=1),
    "a width above 64 bits": set_sizes(d_model=10**30, num_heads=1),
    "absurd inner width": set_sizes(d_ff=2**62),
    "a billion layers": set_sizes(encoder_layers=10**9),
    "a billion positions": set_sizes(max_positions=10**9),
    "a negative width": set_sizes(d_model=-32),
    "an infinite dropout": set_sizes(dropout=float("inf")),
    "a billion heads": set_sizes(num_heads=10**9, d_k=8, d_v=8),
    "a billion tokens": set_card(vocab_size=10**9),
    "a vocabulary size above 64 bits": set_card(vocab_size=10**400),
    "a smaller size than the vocabulary": set_card(vocab_size=5),
    "facts of the wrong type": set_facts(search=["beam", 4]),
    "an absurd length": set_facts(max_length=10**15),
    "an absurd beam": set_facts(search={"beam": -1}),
    "an endless vocabulary": replace_by_link("tokenizer.model", "/dev/zero"),
    "an endless card": replace_by_link("model.json", "/dev/zero"),
    "endless weights": replace_by_link("model.safetensors", "/dev/zero"),
    "a FIFO for a vocabulary": fifo("tokenizer.model"),
    "a FIFO for a manifest": fifo("manifest.json"),
    "an endless manifest": replace_by_link("manifest.json", "/dev/zero"),
    "a FIFO for weights behind a manifest": with_manifest(fifo("model.safetensors")),
    "endless weights behind a manifest": with_manifest(replace_by_link("model.safetensors", "/dev/zero")),
    "a beam of a million": set_facts(search={"beam": 10**6}),
    "outputs of four billion tokens": set_facts(search={"max_extra": 2**32}),
    "float64 weights beyond float32": set_weights(EMBEDDING, lambda x: x.astype(np.float64) * 1e300),
    "8 bits in the card, but not in the weights": set_card(precision="int8"),
    "8 bits in the weights, but not in the card": in_8_bits(set_card(precision="float32")),
    "an unknown precision": set_card(precision="int4"),
    "a precision of the wrong type": set_card(precision=["int8"]),
    "8 bits without magnitudes": in_8_bits(lambda folder: edit_weights(folder, lambda weights: weights.pop(LARGEST))),
    "fewer magnitudes than rows": in_8_bits(set_weights(LARGEST, lambda x: x[:-1].copy())),
    "magnitudes in a matrix": in_8_bits(set_weights(LARGEST, lambda x: x[:, None].copy())),
    "magnitudes in 8 bits": in_8_bits(set_weights(LARGEST, lambda x: x.astype(np.int8))),
    "magnitudes of a matrix that does not exist": in_8_bits(
        lambda folder: edit_weights(folder, lambda weights: weights.update({"x.largest": np.zeros(3, np.float32)}))
    ),
    "NaN magnitudes": set_largest(np.nan),
    "infinite magnitudes": set_largest(np.inf),
    "magnitudes beyond float32": in_8_bits(set_weights(LARGEST, lambda x: x.astype(np.float64) * 1e300)),
    "one matrix in 16 bits": in_8_bits(set_weights(EMBEDDING, lambda x: x.astype(np.int16))),
    "one matrix in float32": in_8_bits(set_weights(EMBEDDING, lambda x: x.astype(np.float32))),
    "a bias in 8 bits": in_8_bits(set_weights("encoder.0.self_attention.out.bias", lambda x: x.astype(np.int8))),
    "8 bits of the wrong shape": in_8_bits(set_weights(EMBEDDING, lambda x: x.T.copy())),
    "8 bits that exceed the memory in float32": in_8_bits(sparse_8_bits),
    "absurd width in 8 bits": in_8_bits(set_sizes(d_model=10**12, num_heads=1)),
}  # fmt: skip

STRANGE: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, float("nan"), "", "x" * 100, "\x1b[2J", [], {}, [[]],
]  # fmt: skip
RANDOM = repetitions(8, 220)
"""Number of folders with random changes; with the CHANGES above, more than 200 in `make faults`."""


def random_change(number: int) -> Callable[[Path], None]:
    """A change of one setting or fact to a strange value, or of a few bytes of a file."""
    draw = random.Random(number)

    def change(folder: Path) -> None:
        if number % 3:
            card = json.loads((folder / "model.json").read_text())
            table = draw.choice([card, card["model"], card["facts"], card["facts"].setdefault("search", {"beam": 4})])
            table[draw.choice([*table, "x"])] = draw.choice(STRANGE)
            (folder / "model.json").write_text(json.dumps(card))
            return
        path = folder / draw.choice(["model.safetensors", "model.safetensors", "tokenizer.model", "model.json"])
        content = bytearray(path.read_bytes())
        for _ in range(draw.randint(1, 5)):
            content[draw.randrange(min(len(content), 4000))] = draw.randrange(256)
        path.write_bytes(content[: draw.randrange(len(content))] if draw.random() < 0.3 else content)

    return change


def test_every_malicious_folder_is_rejected_with_one_line_at_low_cost(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    assert len(CHANGES) >= 20
    changes = CHANGES | {f"random {number}": random_change(number) for number in range(RANDOM)}
    folders = []
    for number, (name, make) in enumerate(changes.items()):
        folders.append(shutil.copytree(trained.run / "model", tmp_path / f"{name.split()[0]}-{number}"))
        make(folders[-1])
    # A folder with a random change may be a valid model, which then has to translate.
    cases = [("translate" if "random" in folder.name else "load", Path(folder)) for folder in folders]
    problems: list[Any] = []
    results = dict(zip(changes, try_all(transduce, cases, tmp_path), strict=True))
    for change, folder in zip(changes, folders, strict=True):
        message, seconds, memory = results[change]
        if message is None and change.startswith("random"):
            continue  # it is a valid model, and it has translated a text
        assert message is not None, change
        problems += [
            (change, problem, message, seconds, memory)
            for problem, is_so in {
                "crash": message.startswith("CRASH"),
                "no path": str(folder) not in message,
                "several lines": "\n" in message,
                "long": len(message) >= (2000 if change.startswith("random") else 400),
                "slow": seconds >= 2,
                "memory": memory >= 400e6,
            }.items()
            if is_so
        ]
    assert problems == []
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("change", ["a pickle for weights", "a billion layers", "NaN weights", "names with .."])
def test_the_command_line_reports_it_in_one_line(transduce: Any, trained: Any, tmp_path: Path, change: str) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    CHANGES[change](model)
    outcome = transduce("translate", "-m", model, stdin="ba\n", cwd=tmp_path)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert str(model) in outcome.err


def test_endless_notes_are_rejected(transduce: Any, trained: Any, tmp_path: Path) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    (model / "README.md").symlink_to("/dev/zero")
    outcome = transduce("info", "-m", model, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"transduce: {model / 'README.md'}: not a plain file\n"
