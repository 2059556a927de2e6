"""What the paper states in formulas and tables, against formulas and tables written out here."""

import math

import pytest
import torch
from helpers import logits, paper_sinusoids, random_sentences, small_model
from torch import Tensor, nn

from transduce.data.batch import Batch
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.nn.embedding import Embedding
from transduce.nn.layers import DecoderLayer, EncoderLayer, LayerConfig, NormPlacement, Residual
from transduce.nn.linear import Linear
from transduce.nn.multi_head_attention import HeadSizes
from transduce.nn.positions import Positions, sinusoids
from transduce.nn.segments import Segments
from transduce.training.recipe import load_recipe
from transduce.training.schedule import learning_rate

PAD = 0

# Vaswani et al. 2017 (arXiv 1706.03762), Table 3: all rows that state a parameter count.
# N, d_model, d_ff, h, d_k, d_v, millions of parameters.
TABLE_3 = {
    "base": (6, 512, 2048, 8, 64, 64, 65),
    "B d_k=16": (6, 512, 2048, 8, 16, 64, 58),
    "B d_k=32": (6, 512, 2048, 8, 32, 64, 60),
    "C N=2": (2, 512, 2048, 8, 64, 64, 36),
    "C N=4": (4, 512, 2048, 8, 64, 64, 50),
    "C N=8": (8, 512, 2048, 8, 64, 64, 80),
    "C d_model=256": (6, 256, 2048, 8, 32, 32, 28),
    "C d_model=1024": (6, 1024, 2048, 8, 128, 128, 168),
    "C d_ff=1024": (6, 512, 1024, 8, 64, 64, 53),
    "C d_ff=4096": (6, 512, 4096, 8, 64, 64, 90),
}
TABLE_3_BIG = (6, 1024, 4096, 16, 64, 64, 213)


# Positions (section 3.5)


@pytest.mark.parametrize("d_model", [2, 7, 16, 512])
def test_sinusoids_are_the_papers_interleaved_sines_and_cosines(d_model: int) -> None:
    expected_TD = torch.tensor(paper_sinusoids(120, d_model), dtype=torch.float64)
    found_TD = sinusoids(120, d_model)
    assert found_TD.dtype == torch.float32
    torch.testing.assert_close(found_TD.double(), expected_TD, rtol=0, atol=1e-7)


def test_a_table_of_sinusoids_grows_to_any_length_and_keeps_its_values() -> None:
    positions = Positions("sinusoidal", 10, 16)
    positions.require(37)
    found_TD = positions(torch.arange(37))
    torch.testing.assert_close(found_TD.double(), torch.tensor(paper_sinusoids(37, 16)).double(), rtol=0, atol=1e-7)


# Embeddings (section 3.4)


@pytest.mark.parametrize("d_model", [16, 512])
def test_an_embedding_is_the_tokens_row_times_the_root_of_d_model_plus_its_position(d_model: int) -> None:
    torch.manual_seed(0)
    embedding = Embedding(11, Positions("sinusoidal", 20, d_model), d_model, dropout=0.0)
    token_N, position_N = [5, 0, 10, 5], [0, 3, 7, 19]
    found_ND = embedding(torch.tensor(token_N), torch.tensor(position_N))
    table = paper_sinusoids(20, d_model)
    for row, (token, position) in enumerate(zip(token_N, position_N, strict=True)):
        expected_D = math.sqrt(d_model) * embedding.weight_VD[token] + torch.tensor(table[position])
        torch.testing.assert_close(found_ND[row], expected_D, rtol=1e-6, atol=1e-6)


def test_dropout_falls_on_the_sum_of_embedding_and_position() -> None:
    torch.manual_seed(0)
    embedding = Embedding(11, Positions("sinusoidal", 20, 64), 64, dropout=0.25)
    token_N, position_N = torch.arange(4, 11), torch.arange(7)
    whole_ND = embedding.eval()(token_N, position_N)
    dropped_ND = embedding.train()(token_N, position_N)
    is_zero_ND = dropped_ND == 0
    assert 0.15 < is_zero_ND.float().mean() < 0.35
    torch.testing.assert_close(dropped_ND, (whole_ND / 0.75).masked_fill(is_zero_ND, 0.0))


def test_the_projection_before_the_softmax_is_the_embedding_itself() -> None:
    model = small_model()
    hidden_MD = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    logits_MV = logits(model, hidden_MD)
    for row in range(5):
        for word in range(23):
            dot = sum(
                a * b for a, b in zip(hidden_MD[row].tolist(), model.embedding.weight_VD[word].tolist(), strict=True)
            )
            assert logits_MV[row, word].item() == pytest.approx(dot, abs=1e-5)
    assert [name for name, x in model.named_parameters() if 23 in x.shape] == ["embedding.weight_VD"]


# Sub-layers (section 3.1, dropout of section 5.4)


def layer_norm(x_ND: Tensor, norm: nn.LayerNorm) -> Tensor:
    mean_N1 = x_ND.mean(dim=1, keepdim=True)
    variance_N1 = ((x_ND - mean_N1) ** 2).mean(dim=1, keepdim=True)
    return (x_ND - mean_N1) / (variance_N1 + 1e-5).sqrt() * norm.weight + norm.bias


def make_residual(dropout: float, norm: NormPlacement = "post") -> Residual:
    heads = HeadSizes(num_heads=4, d_k=3, d_v=3, kv_heads=4)
    return Residual(LayerConfig(d_model=12, d_ff=24, heads=heads, dropout=dropout, norm=norm))


def random_residual(norm: NormPlacement, dropout: float) -> tuple[Residual, Tensor, Linear]:
    """The wrapper with a random norm, an input, and the projection that a sub-layer ends in."""
    generator = torch.Generator().manual_seed(3)
    residual = make_residual(dropout, norm)
    with torch.no_grad():
        residual.norm.weight.copy_(torch.randn(12, generator=generator))
        residual.norm.bias.copy_(torch.randn(12, generator=generator))
    out = Linear(12, 12)
    out.weight.data, out.bias.data = torch.randn(12, 12, generator=generator), torch.randn(12, generator=generator)
    return residual, torch.randn(9, 12, generator=generator), out


def watched(dropout: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """A list that fills with what goes into the dropout and what comes out."""
    seen: list[tuple[Tensor, Tensor]] = []
    dropout.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    return seen


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_sub_layer_is_layer_norm_of_x_plus_dropout_of_its_output(dropout: float) -> None:
    residual, x_ND, out = random_residual("post", dropout)
    seen = watched(residual.dropout)
    found_ND = residual(x_ND, lambda x: out(x.sin()))
    ((whole_ND, dropped_ND),) = seen
    assert (dropped_ND == 0).any() == (dropout > 0)
    torch.testing.assert_close(whole_ND, x_ND.sin() @ out.weight.T + out.bias)
    torch.testing.assert_close(found_ND, layer_norm(x_ND + dropped_ND, residual.norm), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_pre_norm_sub_layer_is_x_plus_dropout_of_its_output_on_the_normed_x(dropout: float) -> None:
    residual, x_ND, out = random_residual("pre", dropout)
    seen = watched(residual.dropout)
    found_ND = residual(x_ND, lambda x: out(x.sin()))
    ((whole_ND, dropped_ND),) = seen
    assert (dropped_ND == 0).any() == (dropout > 0)
    expected_ND = layer_norm(x_ND, residual.norm).sin() @ out.weight.T + out.bias
    torch.testing.assert_close(whole_ND, expected_ND, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found_ND, x_ND + dropped_ND)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.99])
def test_dropout_zeroes_each_number_with_its_probability_and_scales_up_the_rest(p: float) -> None:
    dropout = make_residual(p).dropout
    x = torch.randn(501, 403, generator=torch.Generator().manual_seed(0)).abs().add(0.1).requires_grad_()
    torch.manual_seed(1)
    dropped, other = dropout(x), dropout(x)
    is_zero = dropped == 0
    torch.testing.assert_close(dropped, (x / (1 - p)).masked_fill(is_zero, 0.0))
    deviation = math.sqrt(p * (1 - p) / x.numel())
    assert abs(is_zero.double().mean() - p) < 5 * deviation
    assert not torch.equal(is_zero, other == 0), "each call draws anew"
    # Whether a number falls says nothing about the next one, in any direction: both fall with probability p * p.
    flat = is_zero.flatten()
    for distance in (1, 2, 3, 4, 403):
        both = (flat[distance:] & flat[:-distance]).double().mean()
        assert abs(both - p * p) < 10 * deviation
    (grad,) = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(grad, torch.full_like(x, 1 / (1 - p)).masked_fill(is_zero, 0.0))


def test_dropout_does_nothing_outside_training_and_follows_the_seed_inside_it() -> None:
    dropout = make_residual(0.5).dropout
    x = torch.randn(7, 12, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(3)
    first = dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout.eval()(x), x)


def test_no_dropout_falls_inside_attention_or_the_feed_forward_network() -> None:
    heads = HeadSizes(num_heads=4, d_k=4, d_v=4, kv_heads=4)
    config = LayerConfig(d_model=16, d_ff=32, heads=heads, dropout=0.5)
    layers = [EncoderLayer(config), DecoderLayer(config)]
    x_ND, segments = torch.randn(9, 16, generator=torch.Generator().manual_seed(0)), Segments.of_lengths([4, 5])
    for layer in layers:
        layer.train()
        assert torch.equal(layer.self_attention(x_ND, segments), layer.self_attention(x_ND, segments))
        assert torch.equal(layer.feed_forward(x_ND), layer.feed_forward(x_ND))
    cross = layers[1].cross_attention
    assert torch.equal(cross(x_ND, segments, x_ND, segments), cross(x_ND, segments, x_ND, segments))


def test_attention_dropout_falls_on_every_attention_in_training_only() -> None:
    model = small_model(dropout=0.0, attention_dropout=0.5, encoder_layers=1, decoder_layers=1)
    x_ND, segments = torch.randn(9, 16, generator=torch.Generator().manual_seed(0)), Segments.of_lengths([4, 5])
    encoder, decoder = model.encoder[0], model.decoder[0]
    attentions = [
        lambda: encoder.self_attention(x_ND, segments),
        lambda: decoder.self_attention(x_ND, segments),
        lambda: decoder.cross_attention(x_ND, segments, x_ND, segments),
    ]
    for attend in attentions:
        model.train()
        assert not torch.equal(attend(), attend())
        model.eval()
        assert torch.equal(attend(), attend())


def test_dropout_falls_on_every_sub_layer_of_both_stacks() -> None:
    model = small_model(dropout=0.5, encoder_layers=3, decoder_layers=2)
    seen = [watched(module) for name, module in model.named_modules() if name.endswith("dropout")]
    model.train()(Batch.of(src=random_sentences([3, 4], 23, 0), tgt=random_sentences([5, 2], 23, 1)))
    assert sum(map(len, seen)) == (1 + 3 * 2) + (1 + 2 * 3)  # an embedding, then the sub-layers, for each stack


# Sizes (Table 3)


def parameters(sizes: tuple[int, ...], vocab_size: int) -> int:
    N, d_model, d_ff, h, d_k, d_v, _ = sizes
    config = EncoderDecoderConfig(
        encoder_layers=N, decoder_layers=N, d_model=d_model, d_ff=d_ff, num_heads=h, d_k=d_k, d_v=d_v
    )
    with torch.device("meta"):
        return EncoderDecoder(config, vocab_size).parameters_count


@pytest.mark.parametrize("row", TABLE_3)
def test_parameter_counts_are_those_of_table_3(row: str) -> None:
    assert round(parameters(TABLE_3[row], vocab_size=40_960) / 1e6) == TABLE_3[row][-1]


def test_the_big_model_has_the_parameters_of_table_3() -> None:
    assert parameters(TABLE_3_BIG, vocab_size=37_000) / 1e6 == pytest.approx(TABLE_3_BIG[-1], rel=0.01)


@pytest.mark.parametrize(
    ("preset", "sizes", "dropout", "steps", "average"),
    [("base", TABLE_3["base"], 0.1, 100_000, 5), ("big", TABLE_3_BIG, 0.3, 300_000, 20)],
)
def test_presets_are_the_papers_models_and_training(
    preset: str, sizes: tuple[int, ...], dropout: float, steps: int, average: int
) -> None:
    N, d_model, d_ff, h, d_k, d_v, _ = sizes
    recipe = load_recipe(None, preset, {}, [])
    model, train, search = recipe.model, recipe.train, recipe.search
    assert (model.encoder_layers, model.decoder_layers) == (N, N)
    assert (model.d_model, model.d_ff, model.num_heads, model.head_widths) == (d_model, d_ff, h, (d_k, d_v))
    assert (model.dropout, model.norm, model.positions) == (dropout, "post", "sinusoidal")
    assert recipe.tokenizer.vocab_size == 37_000
    assert (train.steps, train.batch_tokens, train.warmup, train.learning_rate_scale) == (steps, 25_000, 4000, 1.0)
    assert (train.beta1, train.beta2, train.epsilon, train.label_smoothing) == (0.9, 0.98, 1e-9, 0.1)
    assert (train.clip_norm, train.bpe_dropout, train.accumulate) == (0.0, 0.0, 1)
    assert train.average == average <= train.keep
    assert (search.beam, search.length_penalty, search.max_extra, search.sample) == (4, 0.6, 50, False)


# Learning rate (section 5.3)


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (1024, 4000), (256, 7)])
@pytest.mark.parametrize("step", [1, 2, 6, 7, 8, 3999, 4000, 4001, 100_000])
def test_the_learning_rate_follows_the_papers_formula(step: int, d_model: int, warmup: int) -> None:
    rising, falling = step / math.sqrt(warmup) ** 3, 1 / math.sqrt(step)
    expected = min(rising, falling) / math.sqrt(d_model)
    assert learning_rate(step, d_model, warmup) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(step, d_model, warmup, scale=2.5) == pytest.approx(2.5 * expected, rel=1e-12)


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_the_learning_rate_peaks_at_the_end_of_warm_up(d_model: int, peak: float) -> None:
    rates = {step: learning_rate(step, d_model, 4000) for step in range(1, 20_000)}
    assert max(rates, key=rates.__getitem__) == 4000
    assert rates[4000] == pytest.approx(peak, rel=1e-3)
