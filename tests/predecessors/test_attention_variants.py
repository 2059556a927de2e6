"""Scores and restrictions of attention against their formulas, one query and key at a time."""

import math

import pytest
import torch
from torch import Tensor

from transduce.data.batch import Batch
from transduce.errors import ConfigError
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.nn.attention import attend, attention_weights, reference
from transduce.nn.kinds import AttentionVariant
from transduce.nn.segments import Segments
from transduce.predecessors.variants import restricted_attention, scores, variant_weights, weighted_values

LENGTHS = [3, 1, 6, 0, 4]
H, K = 2, 4


def inputs(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(sum(LENGTHS), H, K, generator=generator, dtype=torch.float64) for _ in range(count)]


@pytest.mark.parametrize("causal", [False, True])
def test_without_options_it_is_the_papers_attention(causal: bool) -> None:
    (q, k, v), segments = inputs(3), Segments.of_lengths(LENGTHS)
    weights = variant_weights(q, k, segments, segments, AttentionVariant(), causal=causal)
    found = weighted_values(weights, v, segments, segments)
    torch.testing.assert_close(found, reference(q, k, v, segments, segments, causal))
    weights = variant_weights(q, k, segments, segments, AttentionVariant(), causal=causal)
    torch.testing.assert_close(weights, attention_weights(q, k, segments, segments, causal))


@pytest.mark.parametrize("neighbourhood", [None, 1, 2, 3, 100])
@pytest.mark.parametrize("score", ["scaled", "unscaled", "additive"])
@pytest.mark.parametrize("causal", [False, True])
def test_every_weight_is_its_formula(score: str, causal: bool, neighbourhood: int | None) -> None:
    (q, k), segments = inputs(2), Segments.of_lengths(LENGTHS)
    v_HK = torch.randn(H, K, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    variant = AttentionVariant(score, neighbourhood)
    weights_BHTS = variant_weights(q, k, segments, segments, variant, v_HK, causal=causal)
    start = 0
    for weights_HTS, length in zip(weights_BHTS, LENGTHS, strict=True):
        expected = torch.zeros_like(weights_HTS)
        for h in range(H):
            for t in range(length):
                row = {}
                for s in range(length):
                    if (causal and s > t) or (neighbourhood is not None and abs(s - t) > neighbourhood // 2):
                        continue
                    query, key = q[start + t, h], k[start + s, h]
                    if score == "additive":
                        row[s] = sum(v_HK[h, i] * math.tanh(query[i] + key[i]) for i in range(K)).item()
                    else:
                        row[s] = (query @ key).item() / (math.sqrt(K) if score == "scaled" else 1)
                total = sum(math.exp(x) for x in row.values())
                for s, x in row.items():
                    expected[h, t, s] = math.exp(x) / total
        torch.testing.assert_close(weights_HTS, expected)
        start += length


@pytest.mark.parametrize("neighbourhood", [1, 2, 4, 7, 40])
def test_windows_give_what_the_mask_gives(neighbourhood: int) -> None:
    q, k, v = (torch.randn(13, 1, K, generator=torch.Generator().manual_seed(n)).double() for n in range(3))
    segments = Segments.of_lengths([13])
    weights = variant_weights(q, k, segments, segments, AttentionVariant(neighbourhood=neighbourhood))
    expected = weighted_values(weights, v, segments, segments)[:, 0]
    torch.testing.assert_close(restricted_attention(q[:, 0], k[:, 0], v[:, 0], neighbourhood), expected)


def test_scores_have_the_gradients_of_their_formula() -> None:
    q, k = (torch.randn(1, 1, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    v_HK = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *args: scores(args[0], args[1], "additive", args[2]), (q, k, v_HK))


def test_attention_with_pair_bias_and_gate() -> None:
    """AlphaFold's row attention: each pair of positions adds a bias to its score, a gate scales the output."""
    generator = torch.Generator().manual_seed(0)
    B, T, H, K = 2, 5, 3, 4
    q, k, v, gate = (torch.randn(B * T, H, K, generator=generator) for _ in range(4))
    bias_BHTT = torch.randn(B, H, T, T, generator=generator)
    segments = Segments.of_lengths([T] * B)
    found = torch.sigmoid(gate) * attend(q, k, v, segments, segments, False, score_bias_BHTS=bias_BHTT)
    for b in range(B):
        rows = slice(b * T, (b + 1) * T)
        for h in range(H):
            scores = torch.tensor(
                [[q[rows][i, h] @ k[rows][j, h] / K**0.5 + bias_BHTT[b, h, i, j] for j in range(T)] for i in range(T)]
            )
            expected = torch.sigmoid(gate[rows, h]) * (scores.softmax(dim=-1) @ v[rows, h])
            torch.testing.assert_close(found[rows, h], expected)


def small_model(**settings: object) -> EncoderDecoder:
    torch.manual_seed(3)
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 2, "dropout": 0.0}
    return EncoderDecoder(EncoderDecoderConfig(**{**sizes, **settings}), vocab_size=20).eval().double()


BATCH = {"src": [[5, 6, 7, 3], [8, 3], [9, 10, 11, 12, 13, 3]], "tgt": [[2, 4, 5, 6], [2, 7, 8, 9], [2, 9, 4, 7]]}


@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "additive"},
        {"attention": "unscaled"},
        {"neighbourhood": 3},
        {"attention": "additive", "neighbourhood": 2},
    ],
)
def test_steps_give_the_logits_of_the_whole_target(settings: dict[str, object]) -> None:
    model = small_model(**settings)
    batch = Batch.of(**BATCH)
    with torch.no_grad():
        expected_MV = model.logits(model(batch))
        state, found = model.start(batch["src"]), []
        for position in range(4):
            logits_RV, state = model.step(torch.tensor([row[position] for row in BATCH["tgt"]]), state)
            found.append(logits_RV)
    torch.testing.assert_close(torch.stack(found, 1).flatten(0, 1), expected_MV)


def test_a_neighbourhood_of_all_positions_is_the_papers_attention() -> None:
    batch = Batch.of(**BATCH)
    with torch.no_grad():
        torch.testing.assert_close(small_model(neighbourhood=100)(batch), small_model()(batch))
        assert not torch.allclose(small_model(neighbourhood=1)(batch), small_model()(batch))
        assert not torch.allclose(small_model(attention="unscaled")(batch), small_model()(batch))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "additive", "positions": "rotary"}, 'attention = "additive" needs positions'),
        ({"neighbourhood": 0}, "neighbourhood must be at least 1"),
        ({"neighbourhood": 4, "kv_heads": 1}, "neighbourhood needs kv_heads = num_heads"),
    ],
)
def test_combinations_without_meaning_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small_model(**settings)
