"""Inspections of texts that language models and encoders read, against the definitions."""

import json
import math
from typing import Any

import pytest
import torch
from helpers import randomize
from torch import Tensor

from transduce.data.batch import Batch
from transduce.encoders.text_encoder import TextEncoder, mask_id
from transduce.errors import DataError
from transduce.inspect.inspection import TextInspection, inspect_text
from transduce.inspect.serialize import serialize_text
from transduce.language_model.generator import Generator
from transduce.models.registry import build_config, create_model
from transduce.nn.multi_head_attention import SelfAttention
from transduce.tokenizers.tokenizer import BOS, EOS, Tokenizer
from transduce.training.recipe import read_style

TEXT = "dedu babo gigo babo"
SIZES: dict[str, Any] = {
    "layers": 3, "d_model": 16, "d_ff": 24, "num_heads": 4, "dropout": 0.0, "max_positions": 64,
}  # fmt: skip


def make_reader(style: str, tokenizer: Tokenizer, **settings: Any) -> Generator | TextEncoder:
    table = {**read_style(style)["model"], **SIZES, **({"kv_heads": 2} if style == "llama" else {}), **settings}
    model = create_model(build_config(table.pop("architecture"), table, "test"), tokenizer.vocab_size)
    randomize(model, 5)
    model.eval()
    return TextEncoder(model, tokenizer) if style == "bert" else Generator(model, tokenizer)


@pytest.fixture(params=["gpt2", "llama", "bert"])
def reader(request: pytest.FixtureRequest, toy_tokenizer: Tokenizer) -> Generator | TextEncoder:
    return make_reader(request.param, toy_tokenizer)


def defined_weights(attention: SelfAttention, x_TD: Tensor) -> Tensor:
    """softmax(q·k / sqrt(d_k)) of one pair of positions after the other, with rotations as complex numbers."""
    heads, T = attention.heads, len(x_TD)
    projected_TC = x_TD @ attention.qkv.weight.T + (0 if attention.qkv.bias is None else attention.qkv.bias)
    q_THK = projected_TC[:, : heads.num_heads * heads.d_k].reshape(T, heads.num_heads, heads.d_k)
    k_TGK = projected_TC[:, heads.num_heads * heads.d_k :][:, : heads.kv_heads * heads.d_k]
    k_TGK = k_TGK.reshape(T, heads.kv_heads, heads.d_k)
    weights_HTT = torch.zeros(heads.num_heads, T, T)
    for head in range(heads.num_heads):
        shared = head // (heads.num_heads // heads.kv_heads)
        for query in range(T):
            keys = range(query + 1 if attention.causal else T)
            score_S = torch.stack(
                [_product(attention, q_THK[query, head], query, k_TGK[key, shared], key) for key in keys]
            )
            weights_HTT[head, query, : len(keys)] = (score_S / math.sqrt(heads.d_k)).softmax(0)
    return weights_HTT


def _product(attention: SelfAttention, q_K: Tensor, query: int, k_K: Tensor, key: int) -> Tensor:
    if attention.rotary is None:
        return q_K @ k_K
    half = len(q_K) // 2
    rate = 10_000.0 ** (-torch.arange(half) / half)
    q, k = torch.complex(q_K[:half], q_K[half:]), torch.complex(k_K[:half], k_K[half:])
    return (q * torch.polar(torch.ones(half), (query - key) * rate) * k.conj()).real.sum()


def test_the_weights_of_every_head_are_those_of_the_definition(reader: Generator | TextEncoder) -> None:
    inspection = inspect_text(reader, TEXT)
    modules = [module for module in reader.model.modules() if isinstance(module, SelfAttention)]
    inputs: list[Tensor] = []
    handles = [one.register_forward_pre_hook(lambda _, args: inputs.append(args[0])) for one in modules]
    with torch.inference_mode():
        reader.model(Batch.of(text=[inspection.tokens]))
        for handle in handles:
            handle.remove()
        expected_LHTT = torch.stack(list(map(defined_weights, modules, inputs)))
    T = len(inspection.tokens)
    assert inspection.attention_LHTT.shape == (3, 4, T, T)
    torch.testing.assert_close(inspection.attention_LHTT, expected_LHTT, atol=1e-5, rtol=1e-4)


def test_the_predictions_of_a_layer_are_those_of_a_model_that_ends_there(reader: Generator | TextEncoder) -> None:
    inspection = inspect_text(reader, TEXT if isinstance(reader, Generator) else "dedu <mask> gigo <mask>")
    stack = "decoder" if isinstance(reader, Generator) else "encoder"
    layers = getattr(reader.model, stack)
    assert len(inspection.layers) == 3
    for depth, layer in enumerate(inspection.layers, start=1):
        setattr(reader.model, stack, layers[:depth])
        with torch.inference_mode():
            hidden_TD = reader.model(Batch.of(text=[inspection.tokens]))
            log_prob_PV = reader.model.logits(hidden_TD).log_softmax(-1)[inspection.places]
        torch.testing.assert_close(layer.log_prob_TC, log_prob_PV.gather(1, layer.token_TC), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(layer.log_prob_TC[:, 0], log_prob_PV.max(1).values, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("style", ["gpt2", "llama"])
def test_a_language_model_predicts_every_token_and_the_one_after_the_text(style: str, toy_tokenizer: Tokenizer) -> None:
    generator = make_reader(style, toy_tokenizer)
    assert isinstance(generator, Generator)
    inspection = inspect_text(generator, TEXT)
    assert inspection.tokens == [BOS, *toy_tokenizer.encode_document(TEXT)]
    assert inspection.places == list(range(len(inspection.tokens)))
    assert inspection.expected == [*inspection.tokens[1:], None]
    (score,) = generator.score([TEXT])
    assert inspection.layers[-1].written_T[:-1].tolist() == pytest.approx(score.token_log_probs, rel=1e-4)
    assert inspection.log_prob == pytest.approx(score.log_prob, rel=1e-5)


def test_an_encoder_predicts_masks_only(toy_tokenizer: Tokenizer) -> None:
    encoder = make_reader("bert", toy_tokenizer)
    assert isinstance(encoder, TextEncoder)
    plain, masked = inspect_text(encoder, TEXT), inspect_text(encoder, "dedu <mask> gigo")
    assert (plain.tokens, plain.places, plain.layers) == ([BOS, *toy_tokenizer.encode(TEXT), EOS], [], [])
    (place,) = masked.places
    assert masked.tokens[place] == mask_id(toy_tokenizer)
    assert (masked.expected, masked.log_prob) == ([None], None)
    best = encoder.fill("dedu <mask> gigo", top=1)[0][0].probability
    assert masked.layers[-1].log_prob_TC[0].exp().tolist()[0] >= best - 1e-6


def test_a_classifier_has_attention_only(toy_tokenizer: Tokenizer) -> None:
    inspection = inspect_text(make_reader("bert", toy_tokenizer, classes=2), "dedu <mask> gigo")
    assert inspection.places == []
    assert inspection.attention_LHTT.shape[:2] == (3, 4)
    assert header_of(inspection)["next"] is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [(" ", "the text is empty"), ("babo " * 70, "tokens with markers; at most 64 can"), ("\udc80", "lone surrogate"),
     ("ba" * 6000, "at most 10,000 can")],
)  # fmt: skip
def test_a_text_that_cannot_be_inspected_is_refused(text: str, reason: str, toy_tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=reason):
        inspect_text(make_reader("gpt2", toy_tokenizer), text)


def header_of(inspection: TextInspection) -> dict[str, Any]:
    data = serialize_text(inspection)
    header: dict[str, Any] = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    return header


def test_the_page_gets_weights_as_bytes_and_unknown_tokens_as_null(reader: Generator | TextEncoder) -> None:
    inspection = inspect_text(reader, "dedu <mask> gigo")
    data, header = serialize_text(inspection), header_of(inspection)
    T = len(inspection.tokens)
    table = header["tables"]["encoder"]
    assert table == {"offset": 0, "shape": [3, 4, T, T]}
    start = 4 + int.from_bytes(data[:4], "little")
    shown = torch.frombuffer(bytearray(data[start : start + 12 * T * T]), dtype=torch.uint8).reshape(3, 4, T, T)
    torch.testing.assert_close(shown / 255, inspection.attention_LHTT, atol=0.5 / 255 + 1e-6, rtol=0)
    assert header["tables"]["cross"]["shape"][0] == header["tables"]["decoder"]["shape"][0] == 0
    assert header["target"][-1] is header["next"]["written"][-1] is header["lens"][0]["written"][-1] is None
    assert header["kind"] == ("language_model" if isinstance(reader, Generator) else "encoder")
    if isinstance(reader, TextEncoder):
        assert header["tokens"][str(inspection.tokens[inspection.places[0]])][0] == "<mask>"
