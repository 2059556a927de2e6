"""The model against torch.nn.Transformer with the same weights, and against itself on batches cut another way."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers import gradients, logits, paper_sinusoids, random_sentences, small_model, use_attention
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.data.batch import Batch, Stream
from transduce.data.packing import PackedBatch, fill
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.attention import attend, reference
from transduce.nn.loss import smoothed_cross_entropy
from transduce.nn.segments import Segments
from transduce.translation.task import Translate

V = 23
SRC_LENGTHS, TGT_LENGTHS = [5, 1, 9, 3], [4, 7, 1, 6]
Attention = Callable[..., Tensor]
IMPLEMENTATIONS = [reference, attend]
NORMS = ["post", "pre"]


def sources_and_targets() -> tuple[list[list[int]], list[list[int]]]:
    return random_sentences(SRC_LENGTHS, V, seed=1), random_sentences(TGT_LENGTHS, V, seed=2)


def model_with(attention: Attention, norm: str, **settings: object) -> EncoderDecoder:
    model = small_model(seed=4, norm=norm, **settings)
    use_attention(model, attention)
    return model.double()


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


# torch.nn.Transformer


def torch_parameters(model: EncoderDecoder) -> dict[str, list[str]]:
    """Our names to torch's. Where torch keeps queries, keys and values in one matrix, ours may be two, in order."""
    names: dict[str, list[str]] = {}
    for stack in ("encoder", "decoder"):
        for n in range(len(getattr(model, stack))):
            there = f"{stack}.layers.{n}"
            pairs = {
                f"{there}.self_attn.in_proj_": ["self_attention.qkv."],
                f"{there}.self_attn.out_proj.": ["self_attention.out."],
                f"{there}.linear1.": ["feed_forward.inner."],
                f"{there}.linear2.": ["feed_forward.outer."],
                f"{there}.norm1.": ["residuals.0.norm."],
                f"{there}.norm2.": ["residuals.1.norm."],
            }
            if stack == "decoder":
                pairs |= {
                    f"{there}.multihead_attn.in_proj_": ["cross_attention.q.", "cross_attention.kv."],
                    f"{there}.multihead_attn.out_proj.": ["cross_attention.out."],
                    f"{there}.norm3.": ["residuals.2.norm."],
                }
            for theirs, ours in pairs.items():
                for kind in ("weight", "bias"):
                    names[theirs + kind] = [f"{stack}.{n}.{part}{kind}" for part in ours]
        if model.config.norm == "pre":
            for kind in ("weight", "bias"):
                names[f"{stack}.norm.{kind}"] = [f"{stack}_norm.{kind}"]
    return names


def torch_twin(model: EncoderDecoder) -> nn.Transformer:
    """torch's Transformer with the same sizes and weights."""
    config = model.config
    twin = nn.Transformer(
        d_model=config.d_model,
        nhead=config.num_heads,
        num_encoder_layers=config.encoder_layers,
        num_decoder_layers=config.decoder_layers,
        dim_feedforward=config.d_ff,
        dropout=0.0,
        batch_first=True,
        norm_first=config.norm == "pre",
    ).double()
    if config.norm == "post":  # torch adds a norm to the end of each stack, which the paper does not have
        twin.encoder.norm = twin.decoder.norm = None
    ours = dict(model.named_parameters())
    theirs = dict(twin.named_parameters())
    names = torch_parameters(model)
    assert names.keys() == theirs.keys()
    with torch.no_grad():
        for name, parts in names.items():
            theirs[name].copy_(torch.cat([ours[part] for part in parts]))
    return twin


def padded_batch(sentences: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids (B, T) and a mask that is True where nothing stands (torch's way round)."""
    longest = max(map(len, sentences))
    ids_BT = torch.tensor([[*sentence, *[0] * (longest - len(sentence))] for sentence in sentences])
    empty_BT = torch.tensor([[place >= len(sentence) for place in range(longest)] for sentence in sentences])
    return ids_BT, empty_BT


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attention", IMPLEMENTATIONS)
def test_outputs_and_all_gradients_are_those_of_torch_nn_transformer(
    attention: Attention, norm: str, positions: str
) -> None:
    model = model_with(attention, norm, positions=positions, encoder_layers=2, decoder_layers=3)
    twin = torch_twin(model)
    sources, targets = sources_and_targets()
    probe_MV = torch.randn(sum(TGT_LENGTHS), V, generator=torch.Generator().manual_seed(0)).double()

    hidden_MD = model(Batch.of(src=sources, tgt=targets))
    logits_MV = logits(model, hidden_MD)
    (logits_MV * probe_MV).sum().backward()
    ours = gradients(model)

    weight_VD = model.embedding.weight_VD.detach().clone().requires_grad_()
    if positions == "learned":
        table_TD = model.embedding.positions.table_TD.detach().clone().requires_grad_()
    else:
        table_TD = torch.tensor(paper_sinusoids(20, 16), dtype=torch.float64)
    embedded = []
    for sentences in (sources, targets):
        ids_BT, empty_BT = padded_batch(sentences)
        embedded.append((weight_VD[ids_BT] * math.sqrt(16) + table_TD[: ids_BT.shape[1]], empty_BT))
    (src_BSD, src_empty_BS), (tgt_BTD, tgt_empty_BT) = embedded
    T = tgt_BTD.shape[1]
    expected_BTD = twin(
        src_BSD,
        tgt_BTD,
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        src_key_padding_mask=src_empty_BS,
        tgt_key_padding_mask=tgt_empty_BT,
        memory_key_padding_mask=src_empty_BS,
    )
    expected_MD = expected_BTD[~tgt_empty_BT]
    expected_MV = expected_MD @ weight_VD.T
    (expected_MV * probe_MV).sum().backward()

    torch.testing.assert_close(hidden_MD, expected_MD, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits_MV, expected_MV, rtol=1e-5, atol=1e-5)
    theirs = {name: parameter.grad for name, parameter in twin.named_parameters()}
    found = {name: torch.cat([ours.pop(part) for part in parts]) for name, parts in torch_parameters(model).items()}
    assert_same(found, theirs)
    expected_left = {"embedding.weight_VD": weight_VD.grad}
    if positions == "learned":
        expected_left["embedding.positions.table_TD"] = table_TD.grad
    assert_same(ours, expected_left)


# A batch is its sentences, each by itself


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attention", IMPLEMENTATIONS)
def test_a_packed_batch_equals_its_sentences_one_at_a_time(attention: Attention, norm: str) -> None:
    model = model_with(attention, norm, d_k=3, d_v=5)
    sources, targets = sources_and_targets()
    probe_MD = torch.randn(sum(TGT_LENGTHS), 16, generator=torch.Generator().manual_seed(0)).double()

    hidden_MD = model(Batch.of(src=sources, tgt=targets))
    (hidden_MD * probe_MD).sum().backward()
    together = gradients(model)

    alone_MD = torch.cat([model(Batch.of(src=[src], tgt=[tgt])) for src, tgt in zip(sources, targets, strict=True)])
    (alone_MD * probe_MD).sum().backward()
    torch.testing.assert_close(hidden_MD, alone_MD, rtol=1e-5, atol=1e-5)
    assert_same(together, gradients(model))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attention", IMPLEMENTATIONS)
def test_a_target_token_changes_nothing_before_it_and_something_from_it_on(attention: Attention, norm: str) -> None:
    model = model_with(attention, norm)
    sources, targets = random_sentences([6, 4], V, seed=3), random_sentences([8, 5], V, seed=4)
    before_MD = model(Batch.of(src=sources, tgt=targets))
    for place in range(8):
        changed = [list(target) for target in targets]
        changed[0][place] = 4 + (changed[0][place] - 4 + 1) % (V - 4)
        after_MD = model(Batch.of(src=sources, tgt=changed))
        torch.testing.assert_close(after_MD[:place], before_MD[:place], rtol=0, atol=1e-12)
        moved_N = (after_MD[place:8] - before_MD[place:8]).abs().amax(dim=1)
        assert (moved_N > 1e-6).all(), "every later token should see the change"


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attention", IMPLEMENTATIONS)
def test_every_target_token_sees_every_source_token(attention: Attention, norm: str) -> None:
    model = model_with(attention, norm)
    sources, targets = random_sentences([5, 3], V, seed=3), random_sentences([4, 6], V, seed=4)
    before_MD = model(Batch.of(src=sources, tgt=targets))
    for place in range(5):
        changed = [list(source) for source in sources]
        changed[0][place] = 4 + (changed[0][place] - 4 + 1) % (V - 4)
        after_MD = model(Batch.of(src=changed, tgt=targets))
        assert ((after_MD[:4] - before_MD[:4]).abs().amax(dim=1) > 1e-6).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attention", IMPLEMENTATIONS)
def test_changing_one_sentence_changes_no_other(attention: Attention, norm: str) -> None:
    model = model_with(attention, norm)
    sources, targets = sources_and_targets()
    other_sources, other_targets = [list(s) for s in sources], [list(s) for s in targets]
    other_sources[1] = random_sentences([12], V, seed=8)[0]  # of another length too, so that padding differs
    other_targets[1] = random_sentences([11], V, seed=9)[0]
    before = model(Batch.of(src=sources, tgt=targets)).split([len(t) for t in targets])
    after = model(Batch.of(src=other_sources, tgt=other_targets)).split([len(t) for t in other_targets])
    for number in (0, 2, 3):
        torch.testing.assert_close(after[number], before[number], rtol=0, atol=1e-12)


# Filler


def run_batch(model: EncoderDecoder, batch: PackedBatch, longest: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden vectors, loss and negative log-likelihood of a batch."""
    streams = {
        name: Stream(
            torch.from_numpy(stream.ids_N),
            Segments(
                torch.from_numpy(stream.offsets_B1),
                longest or int(np.diff(stream.offsets_B1).max()),
                int(stream.offsets_B1[-1]),
            ),
        )
        for name, stream in batch.streams.items()
    }
    hidden_MD = model(Batch(streams, torch.from_numpy(batch.labels_L), batch.count))
    loss, nll = smoothed_cross_entropy(
        hidden_MD, torch.from_numpy(batch.labels_L), model.embedding.weight_VD, smoothing=0.1
    )
    return hidden_MD, loss, nll


# Tokens with their markers: 5 + 2 + 6 = 13 on the source side, 3 + 8 + 4 = 15 on the target side.
FILLER_PAIRS = ([4, 1, 5], [2, 7, 3])


@pytest.mark.parametrize(
    ("src_lengths", "tgt_lengths", "tokens"),
    [
        pytest.param(*FILLER_PAIRS, 40, id="room on both sides"),
        pytest.param(*FILLER_PAIRS, 15, id="target side full"),
        pytest.param(FILLER_PAIRS[1], FILLER_PAIRS[0], 15, id="source side full"),
        pytest.param([4, 4], [4, 4], 10, id="both sides full"),
        pytest.param([1, 1], [1, 1], 30, id="more filler than tokens"),
    ],
)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attention", IMPLEMENTATIONS)
def test_filler_changes_no_real_token_nor_loss_nor_gradient(
    attention: Attention, norm: str, src_lengths: list[int], tgt_lengths: list[int], tokens: int
) -> None:
    model = small_model(seed=4, norm=norm)
    use_attention(model, attention)
    pairs = zip(random_sentences(src_lengths, V, 5), random_sentences(tgt_lengths, V, 6), strict=True)
    batch = Translate().pack(list(pairs))
    filled = fill(batch, tokens, max_sequences=5, longest=9)

    hidden_MD, loss, nll = run_batch(model, batch, longest=None)
    loss.backward()
    expected = gradients(model)
    filled_MD, filled_loss, filled_nll = run_batch(model, filled, longest=9)
    filled_loss.backward()

    assert len(filled_MD) == tokens
    assert torch.isfinite(filled_MD).all()
    torch.testing.assert_close(filled_MD[: len(hidden_MD)], hidden_MD, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close((filled_loss, filled_nll), (loss, nll), rtol=1e-5, atol=1e-5)
    assert_same(gradients(model), expected)


@pytest.mark.parametrize("attention", IMPLEMENTATIONS)
def test_what_the_filler_holds_does_not_matter(attention: Attention) -> None:
    model = small_model(seed=4)
    use_attention(model, attention)
    src, tgt = FILLER_PAIRS
    batch = Translate().pack(list(zip(random_sentences(src, V, 5), random_sentences(tgt, V, 6), strict=True)))
    filled = fill(batch, 30, max_sequences=5, longest=9)
    _, loss, _ = run_batch(model, filled, longest=9)
    filled["src"].ids_N[len(batch["src"].ids_N) :] = 7
    filled["tgt"].ids_N[len(batch["tgt"].ids_N) :] = 11
    _, other_loss, _ = run_batch(model, filled, longest=9)
    torch.testing.assert_close(other_loss, loss, rtol=1e-6, atol=1e-6)


def test_the_loss_of_a_model_is_torchs_cross_entropy_of_its_logits() -> None:
    model = small_model(seed=4)
    src, tgt = FILLER_PAIRS
    batch = Translate().pack(list(zip(random_sentences(src, V, 5), random_sentences(tgt, V, 6), strict=True)))
    hidden_MD, loss, _ = run_batch(model, batch, longest=None)
    logits_MV, labels_M = hidden_MD @ model.embedding.weight_VD.T, torch.from_numpy(batch.labels_L)
    expected = F.cross_entropy(logits_MV, labels_M, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
