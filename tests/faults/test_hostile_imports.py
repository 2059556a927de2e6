"""Models of other toolkits, damaged at random and on purpose: each is imported, or refused at low cost in one line."""

import io
import os
import random
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_injection import repetitions
from hostile import change_one_file, problems, try_all
from hostile_originals import (
    LEX,
    WIDTH,
    Arrays,
    binary_file,
    copy,
    edit_json,
    edit_weights,
    write_bert,
    write_exported,
    write_gguf,
    write_gpt2,
)
from marian_shortlists import MAGIC, marian_shortlist, with_checksum

EACH = repetitions(6, 250)
"""Random changes of each format."""
FORMATS = ("hf", "ctranslate2", "ctranslate2-int8", "marian", "firefox", "gpt2", "bert", "gguf")


@pytest.fixture(scope="module")
def originals(toy_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model in each format."""
    folder = tmp_path_factory.mktemp("originals")
    for name in ("hf", "ctranslate2", "ctranslate2-int8", "marian"):
        write_exported(name, toy_tokenizer, folder / name)
    shutil.copytree(folder / "marian", folder / "firefox")
    arrays = dict(np.load(folder / "marian" / "model.npz"))
    (folder / "firefox" / "model.npz").unlink()
    (folder / "firefox" / "model.bin").write_bytes(binary_file(arrays))
    (folder / "firefox" / LEX).write_bytes(marian_shortlist([[n, 5] for n in range(toy_tokenizer.vocab_size)], 20))
    write_gpt2(folder / "gpt2")
    write_bert(folder / "bert")
    write_gguf(folder / "gguf.gguf")
    return {name: folder / (f"{name}.gguf" if name == "gguf" else name) for name in FORMATS}


def test_randomly_damaged_models_are_imported_or_refused(
    transduce: Any, originals: dict[str, Path], tmp_path: Path
) -> None:
    cases: dict[str, Path] = {}
    for name, original in originals.items():
        cases[name] = copy(original, tmp_path / name)
        for number in range(EACH):
            path = copy(original, tmp_path / f"{name}-{number}")
            change_one_file(path, random.Random(f"{name} {number}"))
            cases[f"{name} {number}"] = path
    tried = try_all(transduce, [("import", path) for path in cases.values()], tmp_path)
    outcomes = dict(zip(cases, tried, strict=True))
    assert {name: outcomes[name][0] for name in originals} == dict.fromkeys(originals)
    found = {name: problems(outcomes[name], path, must_fail=False) for name, path in cases.items()}
    assert {name: one for name, one in found.items() if one} == {}


def edit_npz(change_arrays: Callable[[Arrays], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        arrays = dict(np.load(folder / "model.npz"))
        change_arrays(arrays)
        np.savez(folder / "model.npz", **arrays)

    return change


def edit_bin(change_arrays: Callable[[Arrays], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        arrays = dict(np.load(folder.parent / "arrays.npz"))
        change_arrays(arrays)
        (folder / "model.bin").write_bytes(binary_file(arrays))

    return change


def edit_shortlist(change_content: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Change a shortlist after its checksum, which is computed again."""

    def change(folder: Path) -> None:
        (folder / LEX).write_bytes(with_checksum(change_content((folder / LEX).read_bytes()[16:])))

    return change


def replace_bytes(name: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        file = path / name if name else path
        content = file.read_bytes()
        assert old in content
        file.write_bytes(content.replace(old, new, 1))

    return change


def false_npy_header(folder: Path) -> None:
    """An array of a terabyte, of which the file has a few bytes."""
    with zipfile.ZipFile(folder / "model.npz", "w") as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 38,)})
        archive.writestr("Wemb.npy", header.getvalue() + bytes(64))


def zip_bomb(folder: Path) -> None:
    """A gigabyte of zeros in an archive of a megabyte, with a size that the directory does not tell."""
    with zipfile.ZipFile(folder / "model.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Wemb.npy", bytes(1 << 27))
    content = (folder / "model.npz").read_bytes()
    (folder / "model.npz").write_bytes(content.replace((1 << 27).to_bytes(4, "little"), (99).to_bytes(4, "little")))


def row_of_scales(folder: Path) -> None:
    """A matrix of one row and thousands of scales, whose quotient would have gigabytes."""
    name = b"encoder/layer_0/ffn/linear_0/weight"
    variables = [(name, (1, 60_000), 1, bytes(60_000)), (name + b"_scale", (60_000,), 0, bytes(240_000))]
    content = struct.pack("<I", 6) + string(b"TransformerSpec") + struct.pack("<II", 7, len(variables))
    for key, shape, kind, data in variables:
        content += string(key) + struct.pack(f"<B{len(shape)}I", len(shape), *shape)
        content += struct.pack("<BI", kind, len(data)) + data
    (folder / "model.bin").write_bytes(content + struct.pack("<I", 0))


def string(text: bytes) -> bytes:
    return struct.pack("<H", len(text) + 1) + text + b"\0"


def gguf_array(count: int, kind: int = 0) -> Callable[[Path], None]:
    """Metadata that begin with an array of this many numbers, none of which is there."""

    def change(path: Path) -> None:
        field = struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", 9, kind, count)
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + field)

    return change


WIDE = np.ones((450, 60_000), np.float32)
CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "hf: a billion layers": ("hf", edit_json("config.json", encoder_layers=10**9)),
    "hf: absurd width": ("hf", edit_json("config.json", d_model=10**12)),
    "hf: a table of positions of gigabytes": (
        "hf",
        lambda folder: (
            edit_json("config.json", d_model=60_000, max_position_embeddings=65_536)(folder),
            edit_weights(model__shared__weight=np.ones((4, 60_000), np.float32))(folder),
        ),
    ),
    "hf: a billion positions": ("hf", edit_json("config.json", max_position_embeddings=10**9)),
    "hf: a trillion tokens": ("hf", edit_json("config.json", vocab_size=10**12)),
    "hf: negative heads": ("hf", edit_json("config.json", encoder_attention_heads=-4)),
    "hf: a name that controls the terminal": ("hf", edit_json("config.json", model_type="\x1b[2J\n\ud800")),
    "hf: a list for settings": ("hf", lambda folder: (folder / "config.json").write_text("[" * 100_000)),
    "hf: NaN weights": ("hf", edit_weights(model__shared__weight=np.full((450, WIDTH), np.nan, np.float32))),
    "hf: a FIFO for weights": (
        "hf", lambda folder: ((folder / "model.safetensors").unlink(), os.mkfifo(folder / "model.safetensors")),
    ),
    "hf: an endless vocabulary": (
        "hf", lambda folder: ((folder / "source.spm").unlink(), (folder / "source.spm").symlink_to("/dev/zero")),
    ),
    "gpt2: a billion positions": ("gpt2", edit_json("config.json", n_positions=10**9)),
    "gpt2: an inner width of a trillion": ("gpt2", edit_json("config.json", n_inner=10**12)),
    "bert: positions of one column": (
        "bert",
        edit_weights(
            bert__embeddings__position_embeddings__weight=np.ones((60_000, 1), np.float32),
            bert__embeddings__token_type_embeddings__weight=np.ones((2, 60_000), np.float32),
        ),
    ),
    "bert: no segments": (
        "bert", edit_weights(bert__embeddings__token_type_embeddings__weight=np.ones((0, WIDTH), np.float32))
    ),
    "ctranslate2: more scales than rows": ("ctranslate2", row_of_scales),
    "ctranslate2: 2^32 variables": (
        "ctranslate2", lambda folder: (folder / "model.bin").write_bytes(
            struct.pack("<I", 6) + string(b"TransformerSpec") + struct.pack("<II", 7, 2**32 - 1)
        ),
    ),
    "ctranslate2: absurd shape": (
        "ctranslate2", lambda folder: (folder / "model.bin").write_bytes(
            struct.pack("<I", 6) + string(b"TransformerSpec") + struct.pack("<II", 7, 1) + string(b"a")
            + struct.pack("<B4I", 4, *[2**31] * 4) + struct.pack("<BI", 0, 4) + bytes(4) + bytes(4)
        ),
    ),
    "marian: a terabyte in the header of an array": ("marian", false_npy_header),
    "marian: a false size in the directory": ("marian", zip_bomb),
    "marian: a pickle": (
        "marian", lambda folder: np.savez(folder / "model.npz", Wemb=np.array([{}], object))
    ),
    "marian: wide embeddings": ("marian", edit_npz(lambda arrays: arrays.update(Wemb=WIDE))),
    "marian: settings of other bytes": (
        "marian", edit_npz(lambda arrays: arrays.update({"special:model.yml": np.full(9, -3, np.int8)}))
    ),
    "marian: no settings": ("marian", edit_npz(lambda arrays: arrays.pop("special:model.yml"))),
    "marian: numbers of depth": (
        "marian", edit_npz(lambda arrays: arrays.update({
            "special:model.yml": np.frombuffer(
                bytes(arrays["special:model.yml"]).replace(b"enc-depth: 1", b"enc-depth: 99999999999"), np.int8
            )
        })),
    ),
    "firefox: 2^60 arrays": (
        "firefox", lambda folder: (folder / "model.bin").write_bytes(struct.pack("<QQ", 1, 2**60))
    ),
    "firefox: a name of 2^60 bytes": (
        "firefox",
        lambda folder: (folder / "model.bin").write_bytes(struct.pack("<QQ4Q", 1, 1, 2**60, 0x404, 1, 4) + bytes(90)),
    ),
    "firefox: 2^60 dimensions": (
        "firefox",
        lambda folder: (folder / "model.bin").write_bytes(struct.pack("<QQ4Q", 1, 1, 2, 0x404, 2**60, 4) + bytes(90)),
    ),
    "firefox: a gap of 2^63 bytes": (
        "firefox",
        lambda folder: (folder / "model.bin").write_bytes(
            struct.pack("<QQ4Q", 1, 1, 2, 0x404, 1, 4) + b"a\0" + struct.pack("<iQ", 1, 2**63) + bytes(9)
        ),
    ),
    "firefox: a scale of zero": (
        "firefox",
        lambda folder: (folder / "model.bin").write_bytes(
            struct.pack("<QQ4Q", 1, 1, 5, 0x4101, 2, 5) + b"Wemb\0" + struct.pack("<iiQ", 1, 1, 0) + bytes(5)
        ),
    ),
    "firefox: a shortlist of 2^60 offsets and tokens": (
        "firefox",
        lambda folder: (folder / LEX).write_bytes(with_checksum(struct.pack("<4Q", 20, 2, 2**60, 2**60) + bytes(90))),
    ),
    "firefox: a shortlist whose size overflows 64 bits": (
        "firefox", lambda folder: (folder / LEX).write_bytes(with_checksum(struct.pack("<4Q", 20, 2, 2**61, 2**62))),
    ),
    "firefox: a shortlist of 2^64 frequent tokens": (
        "firefox", edit_shortlist(lambda content: struct.pack("<Q", 2**64 - 1) + content[8:])
    ),
    "firefox: a shortlist with an offset of 2^63": (
        "firefox", edit_shortlist(lambda content: content[:40] + struct.pack("<Q", 2**63) + content[48:])
    ),
    "firefox: a shortlist of tokens that do not exist": (
        "firefox", edit_shortlist(lambda content: content[:-8] + b"\xff" * 8)
    ),
    "firefox: a shortlist with another checksum": (
        "firefox",
        lambda folder: (folder / LEX).write_bytes(struct.pack("<QQ", MAGIC, 1) + (folder / LEX).read_bytes()[16:]),
    ),
    "firefox: another file for a shortlist": ("firefox", lambda folder: (folder / LEX).write_bytes(bytes(1 << 20))),
    "firefox: an endless shortlist": (
        "firefox", lambda folder: ((folder / LEX).unlink(), (folder / LEX).symlink_to("/dev/zero"))
    ),
    "gguf: an array of 2^60 numbers": ("gguf", gguf_array(2**60)),
    "gguf: an array of 2^60 texts": ("gguf", gguf_array(2**60, kind=8)),
    "gguf: an array of arrays": ("gguf", gguf_array(2**20, kind=9)),
    "gguf: 2^60 fields": (
        "gguf", lambda path: path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60) + bytes(64))
    ),
    "gguf: 2^60 tensors": (
        "gguf", lambda path: path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0) + bytes(64))
    ),
    "gguf: empty": ("gguf", lambda path: path.write_bytes(b"")),
    "gguf: a width of 2^31": (
        "gguf", replace_bytes("", b"gpt2.embedding_length" + struct.pack("<II", 4, WIDTH),
                              b"gpt2.embedding_length" + struct.pack("<II", 4, 2**31)),
    ),
}  # fmt: skip


def test_hostile_models_are_refused_with_one_line_at_low_cost(
    transduce: Any, originals: dict[str, Path], tmp_path: Path
) -> None:
    paths = {}
    for number, (name, (format_name, change)) in enumerate(CHANGES.items()):
        paths[name] = copy(originals[format_name], tmp_path / f"{format_name}-{number}")
        change(paths[name])
    outcomes = try_all(transduce, [("import", path) for path in paths.values()], tmp_path)
    found = {name: problems(one, path) for (name, path), one in zip(paths.items(), outcomes, strict=True)}
    assert {name: one for name, one in found.items() if one} == {}
    assert [path for path in tmp_path.iterdir() if path.name.endswith("-imported")] == []
