"""The binary format of inspections."""

import json
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from helpers import small_model

from transduce.inspect.inspection import Inspection, inspect_translation
from transduce.inspect.request import InspectionRequest
from transduce.inspect.serialize import serialize
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import EOS, Tokenizer
from transduce.translation.translator import Translator

TEXT = "bada gobi 汉 dudu"


def read(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Decode the header and the tables, as the page does."""
    length = int.from_bytes(data[:4], "little")
    header, block = json.loads(data[4 : 4 + length]), data[4 + length :]
    tables = {}
    for name, entry in header["tables"].items():
        size = math.prod(entry["shape"])
        tables[name] = np.frombuffer(block, np.uint8, size, entry["offset"]).reshape(entry["shape"])
    assert sum(table.size for table in tables.values()) == len(block)
    return header, tables


@pytest.fixture(scope="module")
def translator(toy_tokenizer: Tokenizer) -> Translator:
    return Translator(small_model(3, toy_tokenizer.vocab_size).eval(), toy_tokenizer)


@pytest.fixture(scope="module")
def inspection(translator: Translator) -> Inspection:
    return inspect_translation(translator, InspectionRequest(text=TEXT, off=["cross.1.1"], prefix=[300]))


@pytest.fixture(scope="module")
def decoded(inspection: Inspection, translator: Translator) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return read(serialize(inspection, translator))


def test_a_weight_is_stored_as_a_byte(inspection: Inspection, decoded: Any) -> None:
    tables = decoded[1]
    for stack in ("encoder", "cross"):
        assert np.array_equal(tables[stack], np.round(inspection.attention[stack].numpy() * 255))
    row, column = np.tril_indices(len(inspection.target))
    expected = np.round(inspection.attention["decoder"].numpy() * 255)[:, :, row, column]
    assert np.array_equal(tables["decoder"], expected)


def test_positional_encodings_are_bytes_around_128(inspection: Inspection, decoded: Any) -> None:
    positions_TD = inspection.positions_TD.numpy()
    read_TD = (decoded[1]["positions"].astype(float) - 128) / 127 * np.abs(positions_TD).max()
    assert np.abs(read_TD - positions_TD).max() <= 0.5 / 127 + 1e-6


def test_the_header_contains_the_inspection(inspection: Inspection, decoded: Any, translator: Translator) -> None:
    header = decoded[0]
    assert (header["source"], header["target"], header["prefix"]) == (inspection.source, inspection.target, [300])
    assert header["translation"] == translator.tokenizer.decode(inspection.best.tokens)
    assert (header["score"], header["log_prob"]) == (inspection.best.score, inspection.best.log_prob)
    assert header["tree"]["parent"] == [node.parent for node in inspection.tree]
    assert header["tree"]["log_prob"] == pytest.approx([node.log_prob for node in inspection.tree], abs=1e-6)
    assert header["next"]["token"] == inspection.layers[-1].token_TC.tolist()
    assert np.array(header["next"]["log_prob"]) == pytest.approx(inspection.layers[-1].log_prob_TC.numpy(), abs=1e-4)
    assert [layer["token"][0][0] for layer in header["lens"]] == [int(x.token_TC[0, 0]) for x in inspection.layers]
    assert inspection.ablation
    assert header["ablation"]["rescored"]["score"] == inspection.ablation.rescored.score


def test_the_header_has_the_piece_and_bytes_of_every_token(
    inspection: Inspection, decoded: Any, translator: Translator
) -> None:
    tokens = {int(token): entry for token, entry in decoded[0]["tokens"].items()}
    assert b"".join(bytes.fromhex(tokens[token][1]) for token in inspection.source).decode() == " " + TEXT
    assert tokens[EOS] == ["</s>", ""]
    written = {*inspection.source, *inspection.target, *(node.token for node in inspection.tree)}
    shown = {token for layer in inspection.layers for token in layer.token_TC.flatten().tolist()}
    assert tokens.keys() <= written | shown
    for token in written | set(inspection.layers[-1].token_TC.flatten().tolist()):
        assert tokens[token][0] == translator.tokenizer.pieces([token])[0]
    for token in written:
        assert bytes.fromhex(tokens[token][1]) == translator.tokenizer.raw_bytes(token)


class WideTokenizer(Tokenizer):
    """A vocabulary as large as the paper's, with pieces of typical length."""

    symbol_ids: ClassVar[dict[str, int]] = {}

    vocab_size = 37_000
    _all_pieces: ClassVar[list[str]] = []

    def encode_all(self, texts: Sequence[str], threads: int = 1, *, marked: bool = False) -> list[list[int]]:
        return [[30_000 + len(word) for word in text.split()] for text in texts]

    def decode_all(self, many_ids: Sequence[Sequence[int]], threads: int = 1, *, marked: bool = False) -> list[str]:
        return [" ".join(map(str, ids)) for ids in many_ids]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [f"▁t{token:06}" for token in ids]

    def raw_bytes(self, token: int) -> bytes:
        return f" t{token:06}".encode()


def test_64_by_64_tokens_of_a_base_model_take_at_most_600_kilobytes(toy_tokenizer: Tokenizer) -> None:
    """Random weights are the worst case: all heads and layers differ. The width of feed-forward layers is not sent."""
    torch.manual_seed(1)
    tokenizer = WideTokenizer(toy_tokenizer.model)
    model = EncoderDecoder(EncoderDecoderConfig(d_ff=64), tokenizer.vocab_size).eval()
    translator = Translator(model, tokenizer, config=SearchConfig(max_extra=0))
    inspection = inspect_translation(translator, InspectionRequest(text="word " * 63))
    assert len(inspection.source) == 64
    assert len(inspection.target) >= 64
    assert len(inspection.tree) > 7 * 64
    assert len(serialize(inspection, translator)) <= 600_000
