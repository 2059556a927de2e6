"""Models for Bergamot, the engine of Firefox Translations, run by Bergamot itself (WebAssembly, in Node)."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_run import TINY, as_sets, make_toy_pairs, write_lines

from transduce.errors import ModelError
from transduce.interop.marian import read_binary, write_binary
from transduce.models.folder import load_model

BERGAMOT = Path(__file__).parents[1] / "bergamot"
CONVENTIONS = {
    **TINY, "tokenizer.vocab_size": 448, "model.d_model": 64, "model.d_ff": 128, "model.positions": "marian",
    "model.zero_start": "true", "model.norm_epsilon": "1e-6", "model.output_bias": "true", "train.steps": 200,
    "train.save_every": 200, "train.seed": 2,
}  # fmt: skip
"""Small models that Marian can express, with sizes that its 8-bit products allow."""
VARIANTS = {
    "ssru, one vocabulary": {"model.decoder_cell": "ssru", "model.activation": "swish"},
    "attention, two vocabularies": {"tokenizer.separate": "true"},
}


@pytest.fixture(scope="session")
def bergamot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script that translates, beside the package of Bergamot, which npm installs."""
    if not shutil.which("npm"):
        pytest.skip("Node is not installed")
    folder = shutil.copytree(BERGAMOT, tmp_path_factory.mktemp("bergamot") / "bergamot")
    installed = subprocess.run(["npm", "ci", "--silent"], cwd=folder, capture_output=True, text=True, timeout=300)
    if installed.returncode:
        pytest.skip(f"npm cannot install Bergamot: {installed.stderr.strip()[:200]}")
    return folder / "translate.cjs"


@pytest.fixture(scope="module", params=VARIANTS)
def folder(
    request: pytest.FixtureRequest, transduce: Any, trained: Any, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with the run of a model with Marian's conventions, and its exports `float32` and `int8`."""
    folder = tmp_path_factory.mktemp("conventions")
    files = trained.words[1 : trained.words.index("--preset")]
    settings = {**CONVENTIONS, **VARIANTS[request.param]}
    outcome = transduce("train", *files, "--preset", "tiny", *as_sets(settings), "--out", "run", cwd=folder)
    assert outcome.code == 0, outcome.err
    for kind in ("float32", "int8"):
        words = ("--to", "marian", "--quantization", kind, "--out", kind)
        outcome = transduce("export", "-m", "run", *words, cwd=folder)
        assert outcome.code == 0, outcome.err
    return folder


def test_bergamot_translates_as_we_do(transduce: Any, folder: Path, bergamot: Path) -> None:
    lines = write_lines(folder / "lines.txt", [source for source, _ in make_toy_pairs(40, seed=7)])
    vocabularies = sorted((folder / "int8").glob("*vocab.spm"))  # that of the source comes first
    theirs = subprocess.run(
        ["node", bergamot, folder / "int8" / "model.intgemm8.bin", "-", *vocabularies],
        input=lines.read_text(), capture_output=True, text=True, timeout=300, check=True,
    ).stdout.splitlines()  # fmt: skip
    ours = transduce("translate", "-m", "run", "--beam", "1", "--engine", "plain", "lines.txt", cwd=folder)
    assert ours.code == 0, ours.err
    same = sum(a == b for a, b in zip(ours.out.splitlines(), theirs, strict=True))
    assert len(set(theirs)) > 20
    assert same >= 24, same  # Bergamot rounds activations to 8 bits, and this model is not sure of its outputs


def test_8_bit_weights_are_the_nearest(transduce: Any, folder: Path) -> None:
    exact = np.load(folder / "float32" / "model.npz")
    arrays = read_binary(folder / "int8" / "model.intgemm8.bin")
    assert arrays.keys() == set(exact.files)
    for name, array in arrays.items():
        if name.endswith("Wemb") or "_W" in name[-3:]:
            assert np.abs(array - exact[name]).max() <= np.abs(exact[name]).max() / 127 / 2 * 1.001
        elif not name.startswith("special"):
            assert np.array_equal(array, exact[name])
    outcome = transduce("import", "int8", "--out", "imported", cwd=folder)
    assert outcome.code == 0, outcome.err
    assert load_model(folder / "imported").model.config == load_model(folder / "run" / "model").model.config


@pytest.mark.parametrize(
    ("name", "shape", "sizes"),
    [("Wemb", (450, 64), "Wemb has 64 and 450"), ("encoder_l1_ffn_W1", (60, 128), "encoder_l1_ffn_W1 has 60 and 128")],
)
def test_sizes_that_8_bit_products_do_not_allow_are_refused(
    name: str, shape: tuple[int, int], sizes: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=f"multiples of 64 and outputs in multiples of 8; {sizes}"):
        write_binary(tmp_path / "model.bin", {name: np.ones(shape, np.float32)})
