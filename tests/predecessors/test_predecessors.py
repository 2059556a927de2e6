"""Recurrent and convolutional models against their definitions, and decoding against the whole forward pass."""

from typing import Any

import numpy as np
import pytest
import torch
from helpers import gradients, logits, packed_stream, random_sentences
from torch import Tensor
from torch.nn import functional as F

from transduce.data.batch import Batch, to_device
from transduce.data.packing import fill
from transduce.models.likelihood import cross_attention
from transduce.models.model import Model
from transduce.models.registry import build_config, create_model
from transduce.nn.loss import smoothed_cross_entropy
from transduce.nn.observe import observe_attention
from transduce.nn.segments import Segments
from transduce.predecessors.convolutional import ConvolutionalModel, GatedConvolution
from transduce.predecessors.recurrent import RecurrentModel, additive_scores
from transduce.predecessors.variants import masked_softmax
from transduce.search.beam import beam_search
from transduce.search.options import SearchConfig
from transduce.search.search import search
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.translation.task import Translate

V, D = 23, 16
SRC_LENGTHS, TGT_LENGTHS = [5, 1, 9, 3], [4, 7, 1, 6]
LAYERS = ("encoder_layers", "decoder_layers")
RECURRENT = [
    {"architecture": "recurrent", "cell": cell, "attention": attention} | dict.fromkeys(LAYERS, layers)
    for cell in ("gru", "lstm")
    for attention in ("additive", "dot")
    for layers in (1, 2)
]
CONVOLUTIONAL = [
    {"architecture": "convolutional", "kernel_width": width, "max_positions": 40} | dict.fromkeys(LAYERS, layers)
    for width, layers in ((3, 1), (5, 2), (1, 2))
]
SETTINGS: list[dict[str, Any]] = RECURRENT + CONVOLUTIONAL
ids = ["-".join(map(str, settings.values())) for settings in SETTINGS]
every_model = pytest.mark.parametrize("settings", SETTINGS, ids=ids)
some_models = pytest.mark.parametrize("settings", [SETTINGS[1], SETTINGS[6], SETTINGS[9]], ids=["gru", "lstm", "conv"])


def model_of(settings: dict[str, Any], dropout: float = 0.0) -> Any:
    table = {name: value for name, value in settings.items() if name != "architecture"}
    config = build_config(settings["architecture"], {**table, "d_model": D, "dropout": dropout}, "test")
    generator = torch.Generator().manual_seed(1)
    model = create_model(config, V)
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return model.double().eval()


def sources_and_targets() -> tuple[list[list[int]], list[list[int]]]:
    return random_sentences(SRC_LENGTHS, V, seed=1), random_sentences(TGT_LENGTHS, V, seed=2)


def hidden_of(model: Model, sources: list[list[int]], targets: list[list[int]]) -> list[Tensor]:
    """The hidden vectors of each pair."""
    hidden_MD = model(Batch.of(src=sources, tgt=targets))
    return list(hidden_MD.split([len(target) for target in targets]))


# Packing


@every_model
def test_the_sentences_of_a_batch_do_not_affect_each_other(settings: dict[str, Any]) -> None:
    model, (sources, targets) = model_of(settings), sources_and_targets()
    together = hidden_of(model, sources, targets)
    for hidden_TD, source, target in zip(together, sources, targets, strict=True):
        torch.testing.assert_close(hidden_TD, hidden_of(model, [source], [target])[0])


@every_model
def test_later_target_tokens_do_not_affect_earlier_ones(settings: dict[str, Any]) -> None:
    model, (sources, targets) = model_of(settings), sources_and_targets()
    whole = hidden_of(model, sources, targets)
    for hidden_TD, shorter_TD in zip(whole, hidden_of(model, sources, [ids[:1] for ids in targets]), strict=True):
        torch.testing.assert_close(hidden_TD[:1], shorter_TD)


@every_model
def test_filler_of_batches_of_fixed_size_changes_nothing(settings: dict[str, Any]) -> None:
    model, (sources, targets) = model_of(settings), sources_and_targets()
    packed = Translate().pack(list(zip(sources, targets, strict=True)))
    filled = fill(packed, tokens=50, max_sequences=7, longest=11)
    results = []
    for batch, longest in ((packed, None), (filled, 11)):
        on_device = to_device(batch, torch.device("cpu"), longest)
        sums = smoothed_cross_entropy(model(on_device), on_device.labels_L, model.output_weight_VD, 0.1)
        sums[0].backward()
        results.append((sums, gradients(model)))
    (plain_sums, plain_gradients), (filled_sums, filled_gradients) = results
    torch.testing.assert_close(plain_sums, filled_sums)
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(gradient, filled_gradients[name], msg=lambda m, n=name: f"{n}: {m}")
        assert gradient.abs().max() > 0, name


# Decoding


@every_model
def test_step_by_step_logits_are_those_of_the_whole_pass(settings: dict[str, Any]) -> None:
    model = model_of(settings)
    sources, targets = random_sentences(SRC_LENGTHS, V, seed=1), random_sentences([6] * 4, V, seed=2)
    whole = logits(model, model(Batch.of(src=sources, tgt=targets))).view(4, 6, V)
    state = model.start(packed_stream(sources))
    for t in range(6):
        logits_RV, state = model.step(torch.tensor(targets)[:, t], state)
        torch.testing.assert_close(logits_RV, whole[:, t])


@every_model
def test_reordered_rows_continue_as_their_ancestors(settings: dict[str, Any]) -> None:
    model, sources = model_of(settings), random_sentences([4, 2, 6], V, seed=1)
    token = torch.tensor([5, 6, 7])
    _, state = model.step(token, model.start(packed_stream(sources)))
    state = model.reorder(state, torch.tensor([[0, 0], [1, 1], [2, 2]]))  # two rows for each sentence
    _, state = model.step(torch.tensor([8, 9, 10, 11, 12, 13]), state)
    state = model.reorder(state, torch.tensor([[1, 0], [5, 5]]))  # the second sentence is finished
    found, _ = model.step(torch.tensor([14, 15, 16, 17]), state)
    inputs = [(0, [5, 9, 14]), (0, [5, 8, 15]), (2, [7, 13, 16]), (2, [7, 13, 17])]
    for row, (source, target) in enumerate(inputs):
        torch.testing.assert_close(found[row], logits(model, hidden_of(model, [sources[source]], [target])[0])[-1])


@some_models
def test_beam_search_finds_the_probabilities_of_the_whole_pass(settings: dict[str, Any]) -> None:
    model, sources = model_of(settings), random_sentences([4, 2, 6], V, seed=3)
    found = beam_search(model, packed_stream(sources), [5, 5, 5], beam=3, alpha=0.6, nbest=3)
    for source, hypotheses in zip(sources, found, strict=True):
        assert len(hypotheses) == 3
        for hypothesis in hypotheses:
            log_prob_TV = logits(model, hidden_of(model, [source], [[BOS, *hypothesis.tokens]])[0]).log_softmax(-1)
            expected = log_prob_TV[range(len(log_prob_TV)), [*hypothesis.tokens, EOS]].sum().item()
            assert hypothesis.log_prob == pytest.approx(expected, rel=1e-5)
    greedy = search(model, packed_stream(sources), [5, 5, 5], SearchConfig(beam=1))
    assert [len(hypotheses) for hypotheses in greedy] == [1, 1, 1]


# Attention weights


@every_model
def test_attention_weights_are_observed(settings: dict[str, Any]) -> None:
    model, (sources, targets) = model_of(settings), sources_and_targets()
    with observe_attention(model) as recorded:
        hidden_of(model, sources, targets)
    layers = settings["decoder_layers"] if settings["architecture"] == "convolutional" else 1
    assert len(recorded) == layers
    for weights_BHTS in recorded.values():
        assert weights_BHTS.shape == (4, 1, max(TGT_LENGTHS), max(SRC_LENGTHS))
        for weights_TS, rows, columns in zip(weights_BHTS[:, 0], TGT_LENGTHS, SRC_LENGTHS, strict=True):
            torch.testing.assert_close(weights_TS.sum(-1)[:rows], torch.ones(rows).double())
            assert weights_TS[rows:].sum() == 0
            assert weights_TS[:, columns:].sum() == 0
    assert cross_attention(model, sources, targets).shape == (4, max(TGT_LENGTHS) + 1, max(SRC_LENGTHS) + 1)


@pytest.mark.parametrize("settings", [RECURRENT[0], CONVOLUTIONAL[0]], ids=["recurrent", "convolutional"])
def test_attention_on_one_source_token_passes_its_vector_on(settings: dict[str, Any]) -> None:
    model = model_of(settings)
    with observe_attention(model) as recorded:
        hidden_of(model, [[7]], [[5, 6]])
    (weights_BHTS,) = recorded.values()
    torch.testing.assert_close(weights_BHTS, torch.ones(1, 1, 2, 1).double())


# Definitions


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def written_out_cell(x: Tensor, state: tuple[Tensor, ...], weights: list[Tensor]) -> tuple[Tensor, ...]:
    """One step of a GRU or an LSTM, from the equations in torch's documentation."""
    w_ih, w_hh, b_ih, b_hh = weights
    own, other = w_ih @ x + b_ih, w_hh @ state[0] + b_hh
    if len(state) == 1:
        (h,), width = state, len(state[0])
        r, z = sigmoid((own + other)[:width]), sigmoid((own + other)[width : 2 * width])
        n = torch.tanh(own[2 * width :] + r * other[2 * width :])
        return ((1 - z) * n + z * h,)
    h, c = state
    i, f, g, o = (own + other).chunk(4)
    c = sigmoid(f) * c + sigmoid(i) * torch.tanh(g)
    return sigmoid(o) * torch.tanh(c), c


def written_out_rnn(x: list[Tensor], state: tuple[Tensor, ...], rnn: torch.nn.RNNBase) -> list[Tensor]:
    weights, outputs = list(rnn.parameters()), []
    for vector in x:
        state = written_out_cell(vector, state, weights)
        outputs.append(state[0])
    return outputs


def written_out_recurrent(model: RecurrentModel, source: list[int], target: list[int]) -> Tensor:
    """The hidden vectors of one pair, step by step."""
    parts = 2 if model.config.cell == "lstm" else 1
    embedded = model.embedding_VD * D**0.5
    x = [embedded[token] for token in source]
    for number, layer in enumerate(model.encoder):
        zeros = (torch.zeros(D // 2).double(),) * parts
        onward = written_out_rnn(x, zeros, layer.forwards.rnn)
        back = written_out_rnn(x[::-1], zeros, layer.backwards.rnn)[::-1]
        y = [torch.cat(pair) for pair in zip(onward, back, strict=True)]
        x = [a + b for a, b in zip(x, y, strict=True)] if number else y
    states = torch.tanh(model.bridge.weight @ x[0][D // 2 :] + model.bridge.bias).split(D)
    attention, cell = model.attentive.attention, list(model.attentive.cell.parameters())
    state, outputs, contexts = tuple(states[:parts]), [], []
    for token in target:
        scores = []
        for memory in x:
            key = attention.key(memory)
            if model.config.attention == "additive":
                scores.append(attention.v_K @ torch.tanh(attention.query.weight @ state[0] + key))
            else:
                scores.append(state[0] @ key)
        weights = torch.stack(scores).softmax(0)
        contexts.append(sum(weight * memory for weight, memory in zip(weights, x, strict=True)))
        state = written_out_cell(torch.cat([embedded[token], contexts[-1]]), state, cell)
        outputs.append(state[0])
    for number, layer in enumerate(model.decoder, 1):
        initial = tuple(states[number * parts : (number + 1) * parts])
        outputs = [a + b for a, b in zip(outputs, written_out_rnn(outputs, initial, layer.rnn), strict=True)]
    rows = [torch.cat([s, c, embedded[t]]) for s, c, t in zip(outputs, contexts, target, strict=True)]
    return torch.tanh(torch.stack(rows) @ model.readout.weight.T + model.readout.bias)


@pytest.mark.parametrize("settings", RECURRENT, ids=ids[: len(RECURRENT)])
def test_the_recurrent_model_is_its_definition(settings: dict[str, Any]) -> None:
    model, (sources, targets) = model_of(settings), sources_and_targets()
    for hidden_TD, source, target in zip(hidden_of(model, sources, targets), sources, targets, strict=True):
        torch.testing.assert_close(hidden_TD, written_out_recurrent(model, source, target))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [1, 3, 5])
def test_a_gated_convolution_is_the_sum_over_its_taps(width: int, causal: bool) -> None:
    torch.manual_seed(1)
    convolution = GatedConvolution(4, width, dropout=0.0, causal=causal).double()
    lengths = [1, 6, 2, 0, 7]
    x_ND = torch.randn(sum(lengths), 4).double()
    found = convolution(x_ND, Segments.of_lengths(lengths)).split(lengths)
    kernel = convolution.taps.weight.view(8, width, 4)
    first = 1 - width if causal else -(width // 2)
    for x_TD, y_TD in zip(x_ND.split(lengths), found, strict=True):
        for t in range(len(x_TD)):
            z = convolution.taps.bias.clone()
            for tap in range(width):
                if 0 <= t + first + tap < len(x_TD):
                    z = z + kernel[:, tap] @ x_TD[t + first + tap]
            torch.testing.assert_close(y_TD[t], z[:4] * sigmoid(z[4:]))
        if len(x_TD):
            around = (width - 1, 0) if causal else (width // 2, width // 2)
            z_1CT = F.conv1d(F.pad(x_TD.T[None], around), kernel.transpose(1, 2), convolution.taps.bias)
            torch.testing.assert_close(y_TD, F.glu(z_1CT[0].T))


def written_out_convolutional(model: ConvolutionalModel, source: list[int], target: list[int]) -> Tensor:
    """The hidden vectors of one pair, by torch's convolution and attention without masks."""
    width, half = model.config.kernel_width, 0.5**0.5

    def glu(convolution: GatedConvolution, x_TD: Tensor, before: int, after: int) -> Tensor:
        kernel = convolution.taps.weight.view(2 * D, width, D).transpose(1, 2)
        return F.glu(F.conv1d(F.pad(x_TD.T, (before, after))[None], kernel, convolution.taps.bias)[0].T)

    source_SD = model.embedding_VD[source] + model.src_positions_TD[: len(source)]
    z_SD = source_SD
    for convolution in model.encoder:
        z_SD = half * (z_SD + glu(convolution, z_SD, width // 2, width // 2))
    values_SD = half * (z_SD + source_SD)
    target_TD = model.embedding_VD[target] + model.tgt_positions_TD[: len(target)]
    x_TD = target_TD
    for block in model.decoder:
        y_TD = glu(block.convolution, x_TD, width - 1, 0)
        d_TD = half * (block.attention.query(y_TD) + target_TD)
        context_TD = len(source) ** 0.5 * (d_TD @ z_SD.T).softmax(-1) @ values_SD
        x_TD = half * (x_TD + half * (y_TD + block.attention.out(context_TD)))
    return x_TD


@pytest.mark.parametrize("settings", CONVOLUTIONAL, ids=ids[len(RECURRENT) :])
def test_the_convolutional_model_is_its_definition(settings: dict[str, Any]) -> None:
    model, (sources, targets) = model_of(settings), sources_and_targets()
    for hidden_TD, source, target in zip(hidden_of(model, sources, targets), sources, targets, strict=True):
        torch.testing.assert_close(hidden_TD, written_out_convolutional(model, source, target))


def test_additive_scores_are_their_formula() -> None:
    generator = np.random.default_rng(1)
    q, k, v = (torch.from_numpy(generator.normal(size=size)) for size in ((2, 3, 5), (2, 4, 5), (5,)))
    scores = additive_scores(q, k, v)
    for b, t, s in np.ndindex(2, 3, 4):
        expected = sum(float(v[i] * torch.tanh(q[b, t, i] + k[b, s, i])) for i in range(5))
        assert scores[b, t, s].item() == pytest.approx(expected)


def test_a_softmax_without_any_key_is_zero_and_has_no_gradient() -> None:
    scores = torch.randn(2, 1, 3, requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[[True, True, False]], [[False, False, False]]]))
    assert weights[1].tolist() == [[0.0, 0.0, 0.0]]
    torch.testing.assert_close(weights[0, 0, :2], scores[0, 0, :2].softmax(-1))
    (weights**2).sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert scores.grad[1].abs().sum() == 0


# Settings


@every_model
def test_the_lower_bound_on_parameters_is_close(settings: dict[str, Any]) -> None:
    model = model_of(settings)
    bound = model.config.min_parameters(V)
    assert 0.7 * model.parameters_count < bound <= model.parameters_count


@pytest.mark.parametrize(
    ("architecture", "table", "message"),
    [
        ("recurrent", {"d_model": 15}, "must be even"),
        ("recurrent", {"cell": "rnn"}, "cell must be one of gru, lstm"),
        ("recurrent", {"attention": "none"}, "attention must be one of additive, dot"),
        ("recurrent", {"decoder_layers": 0}, "decoder_layers must be at least 1"),
        ("convolutional", {"kernel_width": 4}, "kernel_width must be odd"),
        ("convolutional", {"dropout": 1.0}, "dropout must be"),
        ("convolutional", {"num_heads": 4}, "unknown key num_heads"),
    ],
)
def test_mistakes_in_settings_are_named(architecture: str, table: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        build_config(architecture, table, "settings")
