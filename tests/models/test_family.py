"""Nine members of the family against transformers, with the same random weights: outputs and gradients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers_family import V, bart, gpt2, llama, marian, ours_of, t5, t5_untied, texts
from transformers_models import assert_close, randomized, transformers

from transduce.classification.classifier import Patches
from transduce.data.batch import Batch
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnly
from transduce.models.model import Model
from transduce.nn.segments import Segments
from transduce.speech.sound import Frames

RELATIVE = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
BERT = {
    "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def padded(sequences: list[list[int]], value: int = 0) -> tuple[Tensor, Tensor]:
    """The sequences as a matrix, and the mask of what is not padding."""
    longest = max(map(len, sequences))
    ids = torch.tensor([sequence + [value] * (longest - len(sequence)) for sequence in sequences])
    return ids, torch.tensor([[1] * len(s) + [0] * (longest - len(s)) for s in sequences])


def probe(x: Tensor) -> Tensor:
    """A scalar with a gradient of every element."""
    return (x * torch.randn(x.shape, generator=torch.Generator().manual_seed(9))).sum()


def assert_same_gradients(ours: Model, theirs: Any, names: dict[str, Callable[[Any], Tensor]]) -> None:
    parameters = dict(ours.named_parameters())
    for name, of_theirs in names.items():
        gradient = parameters[name].grad
        assert gradient is not None
        assert_close(gradient, of_theirs(theirs))


@pytest.mark.parametrize(
    ("make", "gradients"),
    [
        (gpt2, {
            "embedding.weight_VD": lambda m: m.transformer.wte.weight.grad,
            "decoder.1.self_attention.qkv.weight": lambda m: m.transformer.h[1].attn.c_attn.weight.grad.T,
            "decoder.0.feed_forward.inner.bias": lambda m: m.transformer.h[0].mlp.c_fc.bias.grad,
            "embedding.positions.table_TD": lambda m: m.transformer.wpe.weight.grad,
        }),
        (llama, {
            "embedding.weight_VD": lambda m: m.model.embed_tokens.weight.grad,
            "output.weight_VD": lambda m: m.lm_head.weight.grad,
            "decoder.0.residuals.0.norm.weight": lambda m: m.model.layers[0].input_layernorm.weight.grad,
            "decoder.2.self_attention.qkv.weight": lambda m: torch.cat(
                [getattr(m.model.layers[2].self_attn, f"{x}_proj").weight.grad for x in "qkv"]
            ),
            "decoder.1.feed_forward.inner.weight": lambda m: torch.cat(
                [m.model.layers[1].mlp.gate_proj.weight.grad, m.model.layers[1].mlp.up_proj.weight.grad]
            ),
        }),
        (lambda: llama(tie_word_embeddings=True), {"embedding.weight_VD": lambda m: m.lm_head.weight.grad}),
    ],
)  # fmt: skip
def test_decoder_only(make: Callable[[], Any], gradients: dict[str, Any], tmp_path: Path) -> None:
    theirs, sentences = randomized(make()), texts(1)
    ours = ours_of(theirs, tmp_path)
    assert isinstance(ours, DecoderOnly)
    ids, mask = padded(sentences)
    logits_BTV = theirs(input_ids=ids, attention_mask=mask).logits
    batch = Batch.of(text=sentences)
    logits_NV = ours.logits(ours(batch))
    expected_NV = batch["text"].segments.layout.unpad(logits_BTV)
    assert_close(logits_NV, expected_NV)

    probe(expected_NV).backward()
    probe(logits_NV).backward()
    assert_same_gradients(ours, theirs, gradients)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (bart, {
            "embedding.weight_VD": "model.shared.weight",
            "decoder.1.cross_attention.out.weight": "model.decoder.layers.1.encoder_attn.out_proj.weight",
            "source_embedding.norm.weight": "model.encoder.layernorm_embedding.weight",
        }),
        (marian, {
            "embedding.weight_VD": "model.shared.weight",
            "encoder.0.feed_forward.outer.weight": "model.encoder.layers.0.fc2.weight",
        }),
        (t5, {
            "decoder.2.feed_forward.outer.weight": "decoder.block.2.layer.2.DenseReluDense.wo.weight",
            "encoder.1.residuals.0.norm.weight": "encoder.block.1.layer.0.layer_norm.weight",
        }),
        (t5_untied, {
            "encoder_relative.weight_BH": f"encoder.{RELATIVE}",
            "decoder_relative.weight_BH": f"decoder.{RELATIVE}",
            "output.weight_VD": "lm_head.weight",
        }),
    ],
)  # fmt: skip
def test_encoder_decoder(make: Callable[[], Any], names: dict[str, str], tmp_path: Path) -> None:
    theirs = randomized(make())
    ours = ours_of(theirs, tmp_path)
    assert isinstance(ours, EncoderDecoder)
    for model in (ours, theirs):  # in float32, gradients of these large weights have few exact digits
        model.double()
    sources, targets = texts(3), texts(4, [4, 8, 2])
    (source_ids, mask), (target_ids, _) = padded(sources), padded(targets)
    logits_BTV = theirs(input_ids=source_ids, attention_mask=mask, decoder_input_ids=target_ids).logits
    batch = Batch.of(src=sources, tgt=targets)
    logits_NV = ours.logits(ours(batch))
    expected_NV = batch["tgt"].segments.layout.unpad(logits_BTV)
    assert_close(logits_NV, expected_NV)

    probe(expected_NV).backward()
    probe(logits_NV).backward()
    their_gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert_same_gradients(ours, theirs, {name: lambda _, n=own: their_gradients[n] for name, own in names.items()})


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("head", ["ForMaskedLM", "ForSequenceClassification", "Model"])
def test_bert(kind: str, head: str, tmp_path: Path) -> None:
    prefix = {"bert": "Bert", "roberta": "Roberta"}[kind]
    config = getattr(transformers, f"{prefix}Config")(**BERT, max_position_embeddings=18, num_labels=5)
    more = {} if head != "Model" else {"add_pooling_layer": False}
    theirs = randomized(getattr(transformers, prefix + head)(config, **more))
    if kind == "roberta":
        theirs.config.pad_token_id = 1
    ours = ours_of(theirs, tmp_path)
    assert isinstance(ours, EncoderOnly)
    sentences = texts(7)
    ids, mask = padded(sentences, value=1)
    output = theirs(input_ids=ids, attention_mask=mask)
    batch = Batch.of(text=sentences)
    unpad = batch["text"].segments.layout.unpad
    if head == "Model":
        mine, expected = ours(batch), unpad(output.last_hidden_state)
    else:
        mine = ours.logits(ours(batch))
        expected = unpad(output.logits) if head == "ForMaskedLM" else output.logits
    assert_close(mine, expected)

    probe(expected).backward()
    probe(mine).backward()
    body = getattr(theirs, kind, theirs)
    word = body.embeddings.word_embeddings.weight.grad
    assert_same_gradients(ours, theirs, {"embedding.weight_VD": lambda _: word})


def test_vit(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=12, patch_size=4,
        num_channels=3, num_labels=5,
    )  # fmt: skip
    theirs = randomized(transformers.ViTForImageClassification(config))
    ours = ours_of(theirs, tmp_path)
    assert isinstance(ours, EncoderOnly)
    assert isinstance(ours.embedding, Patches)
    pixels = torch.randint(0, 256, (2, 12, 12, 3), generator=torch.Generator().manual_seed(0))
    batch = Batch.of(image=[image.flatten().tolist() for image in pixels])
    expected = theirs(pixel_values=(pixels / 127.5 - 1).permute(0, 3, 1, 2)).logits
    mine = ours.logits(ours(batch))
    assert_close(mine, expected)
    probe(expected).backward()
    probe(mine).backward()
    patches = theirs.vit.embeddings.patch_embeddings.projection.weight.grad
    assert_same_gradients(ours, theirs, {"embedding.project.weight": lambda _: patches.flatten(1)})


def test_whisper(tmp_path: Path) -> None:
    config = transformers.WhisperConfig(
        vocab_size=V, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=50,
        max_target_positions=16, num_mel_bins=20, dropout=0.0, pad_token_id=0, bos_token_id=2, eos_token_id=3,
        decoder_start_token_id=2,
    )  # fmt: skip
    theirs = randomized(transformers.WhisperForConditionalGeneration(config))
    ours = ours_of(theirs, tmp_path)
    assert isinstance(ours, EncoderDecoder)
    front = ours.source_embedding
    assert isinstance(front, Frames)
    mel_BMT = torch.randn(2, 20, 100, generator=torch.Generator().manual_seed(0))
    x_ND, segments = front.convolve(mel_BMT.transpose(1, 2).flatten(0, 1), Segments.of_lengths([100, 100]))
    for layer in ours.encoder:
        x_ND = layer(x_ND, segments)
    hidden = ours.encoder_norm(x_ND)
    theirs.config._attn_implementation = "eager"
    expected = theirs.model.encoder(mel_BMT).last_hidden_state
    assert_close(hidden, expected.flatten(0, 1))
    probe(hidden).backward()
    probe(expected).backward()
    first = theirs.model.encoder.conv1.weight.grad.transpose(1, 2).flatten(1)
    assert_same_gradients(ours, theirs, {"source_embedding.first.weight": lambda _: first})


def test_log_mel_frames() -> None:
    """Against Whisper's feature extractor, which pads every sound to 30 seconds."""
    seconds = 2
    samples = torch.randint(-3000, 3000, (30 * 16_000,), generator=torch.Generator().manual_seed(0))
    samples[seconds * 16_000 :] = 0
    extractor = transformers.WhisperFeatureExtractor()
    expected = extractor(samples.numpy() / 2**15, sampling_rate=16_000, return_tensors="pt").input_features[0].T
    mel, frames = Frames(EncoderDecoderConfig(d_model=32)).log_mel(samples + 2**15, Segments.of_lengths([len(samples)]))
    assert len(frames) == 1
    assert_close(mel, expected, 1e-4)
