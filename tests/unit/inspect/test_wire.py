"""What goes over the wire: the numbers of a look, a byte a weight."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from helpers import small_model

from transduce.inspect.look import Look, LookRequest, look
from transduce.inspect.wire import to_bytes
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import EOS, Tokenizer
from transduce.translator import Translator

TEXT = "bada gobi 汉 dudu"


def read(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the tables, as the page reads them."""
    length = int.from_bytes(data[:4], "little")
    header, block = json.loads(data[4 : 4 + length]), data[4 + length :]
    tables = {}
    for name, place in header["blocks"].items():
        size = math.prod(place["shape"])
        tables[name] = np.frombuffer(block, np.uint8, size, place["at"]).reshape(place["shape"])
    assert sum(table.size for table in tables.values()) == len(block)
    return header, tables


@pytest.fixture(scope="module")
def translator(toy_tokenizer: Tokenizer) -> Translator:
    return Translator(small_model(3, toy_tokenizer.vocab_size).eval(), toy_tokenizer)


@pytest.fixture(scope="module")
def found(translator: Translator) -> Look:
    return look(translator, LookRequest(text=TEXT, off=["cross.1.1"], prefix=[300]))


@pytest.fixture(scope="module")
def wire(found: Look, translator: Translator) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return read(to_bytes(found, translator))


def test_a_weight_is_a_byte(found: Look, wire: Any) -> None:
    tables = wire[1]
    for stack in ("encoder", "cross"):
        assert np.array_equal(tables[stack], np.round(found.attention[stack].numpy() * 255))
    row, column = np.tril_indices(len(found.target))
    expected = np.round(found.attention["decoder"].numpy() * 255)[:, :, row, column]
    assert np.array_equal(tables["decoder"], expected)


def test_places_are_bytes_around_128(found: Look, wire: Any) -> None:
    positions_TD = found.positions_TD.numpy()
    read_TD = (wire[1]["positions"].astype(float) - 128) / 127 * np.abs(positions_TD).max()
    assert np.abs(read_TD - positions_TD).max() <= 0.5 / 127 + 1e-6


def test_the_header_says_what_the_look_says(found: Look, wire: Any, translator: Translator) -> None:
    header = wire[0]
    assert (header["source"], header["target"], header["prefix"]) == (found.source, found.target, [300])
    assert header["translation"] == translator.tokenizer.decode(found.best.tokens)
    assert (header["score"], header["log_prob"]) == (found.best.score, found.best.log_prob)
    assert header["tree"]["parent"] == [node.parent for node in found.tree]
    assert header["tree"]["log_prob"] == pytest.approx([node.log_prob for node in found.tree], abs=1e-6)
    assert header["next"]["token"] == found.layers[-1].token_TC.tolist()
    assert np.array(header["next"]["log_prob"]) == pytest.approx(found.layers[-1].log_prob_TC.numpy(), abs=1e-4)
    assert [layer["token"][0][0] for layer in header["lens"]] == [int(x.token_TC[0, 0]) for x in found.layers]
    assert found.unchanged
    assert header["unchanged"]["silenced"]["score"] == found.unchanged.silenced.score


def test_every_token_comes_with_its_piece_and_bytes(found: Look, wire: Any, translator: Translator) -> None:
    tokens = {int(token): entry for token, entry in wire[0]["tokens"].items()}
    assert b"".join(bytes.fromhex(tokens[token][1]) for token in found.source).decode() == " " + TEXT
    assert tokens[EOS] == ["</s>", ""]
    said = {*found.source, *found.target, *(node.token for node in found.tree)}
    shown = {token for layer in found.layers for token in layer.token_TC.flatten().tolist()}
    assert tokens.keys() <= said | shown
    for token in said | set(found.layers[-1].token_TC.flatten().tolist()):
        assert tokens[token][0] == translator.tokenizer.pieces([token])[0]
    for token in said:
        assert bytes.fromhex(tokens[token][1]) == translator.tokenizer.raw_bytes(token)


class WideTokenizer(Tokenizer):
    """As many tokens as the paper's, with pieces of a usual length."""

    vocab_size = 37_000

    def encode(self, text: str) -> list[int]:
        return [30_000 + len(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [f"▁t{token:06}" for token in ids]

    def raw_bytes(self, token: int) -> bytes:
        return f" t{token:06}".encode()


def test_a_look_at_64_by_64_tokens_of_a_base_model_takes_at_most_600_kilobytes(toy_tokenizer: Tokenizer) -> None:
    """A model with random weights is the hardest: all its heads and layers say different things."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    tokenizer = WideTokenizer(toy_tokenizer.model)
    model = EncoderDecoder(EncoderDecoderConfig(), tokenizer.vocab_size).eval()
    translator = Translator(model, tokenizer, config=SearchConfig(max_extra=0))
    found = look(translator, LookRequest(text="word " * 63))
    assert len(found.source) == 64
    assert len(found.target) >= 64
    assert len(found.tree) > 7 * 64
    assert len(to_bytes(found, translator)) <= 600_000
