"""Our recurrent layers with the weights of g2p_en 2.1.0, a GRU that turns spelling into phonemes.

`pip install --no-deps g2p_en==2.1.0`, or G2P_EN=FOLDER with the content of its wheel.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from transduce.nn.segments import pack_tokens
from transduce.predecessors.recurrent import Recurrence

LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
START, END, LONGEST = 2, 3, 20
Array = npt.NDArray[np.float32]


def folder() -> Path | None:
    if "G2P_EN" in os.environ:
        return Path(os.environ["G2P_EN"])
    spec = find_spec("g2p_en")
    return Path(spec.origin).parent if spec and spec.origin else None


@pytest.fixture(scope="module")
def package() -> Path:
    found = folder()
    if found is None or not (found / "checkpoint20.npz").exists():
        pytest.skip("needs the weights of g2p_en")
    return found


def words_of(package: Path) -> list[str]:
    """1,000 words: those of the package's list of homographs, and compounds of them."""
    lines = (package / "homographs.en").read_text(encoding="utf-8").splitlines()
    simple = sorted({line.split("|")[0].lower() for line in lines if line and not line.startswith("#")})
    words = [word for word in simple if word.isascii() and word.isalpha()]
    compounds = [first + second for first, second in zip(words, words[7:] + words[:7], strict=True)]
    return (words + compounds + [a + b + "s" for a, b in zip(words, words[11:], strict=False)])[:1000]


def gru_step(x: Array, h: Array, w_ih: Array, w_hh: Array, b_ih: Array, b_hh: Array) -> Array:
    """A GRU in numpy, from its equations (Cho et al., 2014, in torch's variant)."""
    (r_x, z_x, n_x), (r_h, z_h, n_h) = np.split(w_ih @ x + b_ih, 3), np.split(w_hh @ h + b_hh, 3)
    r, z = 1 / (1 + np.exp(-(r_x + r_h))), 1 / (1 + np.exp(-(z_x + z_h)))
    return (1 - z) * np.tanh(n_x + r * n_h) + z * h


def expected_phonemes(word: str, weights: dict[str, Array]) -> list[int]:
    encoder, decoder = (
        [weights[f"{side}_{name}"] for name in ("w_ih", "w_hh", "b_ih", "b_hh")] for side in ("enc", "dec")
    )
    h = np.zeros(encoder[1].shape[1], dtype=np.float32)
    for letter in [*word, "</s>"]:
        h = gru_step(weights["enc_emb"][LETTERS.index(letter)], h, *encoder)
    phonemes = [START]
    while len(phonemes) <= LONGEST:
        h = gru_step(weights["dec_emb"][phonemes[-1]], h, *decoder)
        phonemes.append(int(np.argmax(weights["fc_w"] @ h + weights["fc_b"])))
        if phonemes[-1] == END:
            return phonemes[1:-1]
    return phonemes[1:]


def recurrence(weights: dict[str, Array], side: str) -> Recurrence:
    width, width_in = weights[f"{side}_w_hh"].shape[1], weights[f"{side}_w_ih"].shape[1]
    layer = Recurrence("gru", width_in, width)
    names = {"weight_ih_l0": "w_ih", "weight_hh_l0": "w_hh", "bias_ih_l0": "b_ih", "bias_hh_l0": "b_hh"}
    layer.rnn.load_state_dict({ours: torch.from_numpy(weights[f"{side}_{name}"]) for ours, name in names.items()})
    return layer


@torch.inference_mode()
def our_phonemes(words: list[str], weights: dict[str, Any]) -> list[list[int]]:
    """All words in one packed batch."""
    token_N, segments = pack_tokens([[LETTERS.index(letter) for letter in [*word, "</s>"]] for word in words])
    letters, phonemes = (
        nn.Embedding.from_pretrained(torch.from_numpy(weights[name])) for name in ("enc_emb", "dec_emb")
    )
    encoder, decoder = recurrence(weights, "enc"), recurrence(weights, "dec")
    state = (encoder(letters(token_N), segments)[segments.offsets_B1[1:] - 1],)
    token_R, columns = torch.full((len(words),), START), []
    for _ in range(LONGEST):
        x_RD, state = decoder.step(phonemes(token_R), state)
        token_R = (x_RD @ torch.from_numpy(weights["fc_w"]).T + torch.from_numpy(weights["fc_b"])).argmax(-1)
        columns.append(token_R)
    rows = torch.stack(columns, dim=1).tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]


def test_the_weights_of_g2p_give_the_same_phonemes(package: Path) -> None:
    weights = dict(np.load(package / "checkpoint20.npz"))
    words = words_of(package)
    assert len(words) == 1000
    found = our_phonemes(words, weights)
    assert found == [expected_phonemes(word, weights) for word in words]
    assert len(set(map(tuple, found))) > 900
