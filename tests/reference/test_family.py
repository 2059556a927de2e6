"""Nine members of the family against transformers, with the same random weights: outputs and gradients."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transduce.config import build, to_table
from transduce.data.batch import Batch, Stream
from transduce.interop.huggingface import convert
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_only import EncoderOnly
from transduce.models.model import Model
from transduce.models.registry import config_class, create_model
from transduce.nn.attention import attend
from transduce.nn.frames import Frames
from transduce.nn.patches import Patches
from transduce.nn.segments import Segments, pack_tokens
from transduce.runs.recipe import read_style

transformers: Any = pytest.importorskip("transformers")

FAMILY_SETTINGS = (
    "architecture", "norm", "norm_type", "activation", "positions", "bias", "embedding", "tie_output",
    "share_positions", "source",
)  # fmt: skip

V = 50
LENGTHS = [7, 3, 9]
SMALL = {"vocab_size": V, "d_model": 32, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
LAYERS = {"encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
RELATIVE = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
WIDE = {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
BERT = {
    "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=16, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    return transformers.GPT2LMHeadModel(config)


def llama(**more: Any) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, rope_theta=50_000.0, **more,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def t5(**more: Any) -> Any:
    config = transformers.T5Config(
        vocab_size=V, d_model=32, d_kv=6, d_ff=48, num_layers=2, num_decoder_layers=3, num_heads=4, dropout_rate=0.0,
        **more,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def t5_untied() -> Any:
    model = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def bart() -> Any:
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(**SMALL, **LAYERS, **WIDE, max_position_embeddings=16)
    )


def marian() -> Any:
    config = transformers.MarianConfig(
        **SMALL, **LAYERS, **WIDE, max_position_embeddings=16, activation_function="swish", scale_embedding=True,
        pad_token_id=V - 1, decoder_start_token_id=V - 1, decoder_vocab_size=V,
    )  # fmt: skip
    return transformers.MarianMTModel(config)


def randomized(model: Any, seed: int = 0) -> Any:
    """The model with random weights everywhere, so that a norm or a bias that is left out shows."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "embed_positions" in name and parameter.requires_grad is False:
            continue  # sinusoids
        noise = torch.randn(parameter.shape, generator=generator) * 0.3
        parameter.data = (1 + noise if parameter.dim() == 1 and "norm" in name.lower() else noise).to(parameter.dtype)
    for name, buffer in model.named_buffers():
        if name == "final_logits_bias":
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return model.eval()


def ours_of(theirs: Any, folder: Path) -> Model:
    """Our model with the weights of a folder that transformers wrote."""
    theirs.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    config, weights = convert(settings, load_file(folder / "model.safetensors"))
    model = create_model(config, len(weights.get("embedding.weight_VD", ())))
    model.load_state_dict(weights)
    return model.eval()


def padded(sequences: list[list[int]], value: int = 0) -> tuple[Tensor, Tensor]:
    longest = max(map(len, sequences))
    ids = torch.tensor([sequence + [value] * (longest - len(sequence)) for sequence in sequences])
    return ids, torch.tensor([[1] * len(s) + [0] * (longest - len(s)) for s in sequences])


def texts(seed: int, lengths: list[int] = LENGTHS) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, V - 1, (length,), generator=generator).tolist() for length in lengths]


def probe(x: Tensor) -> Tensor:
    """A scalar with a gradient of every element."""
    return (x * torch.randn(x.shape, generator=torch.Generator().manual_seed(9))).sum()


def assert_equal(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


def assert_same_gradients(ours: Model, theirs: Any, names: dict[str, Callable[[Any], Tensor]]) -> None:
    parameters = dict(ours.named_parameters())
    for name, of_theirs in names.items():
        gradient = parameters[name].grad
        assert gradient is not None
        assert_equal(gradient, of_theirs(theirs))


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
    assert_equal(logits_NV, expected_NV)

    probe(expected_NV).backward()
    probe(logits_NV).backward()
    assert_same_gradients(ours, theirs, gradients)


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("lengths", [[7, 3, 9], [4, 4], [1, 5], [1, 1]])
def test_generation_with_a_prefilled_cache(make: Callable[[], Any], lengths: list[int], tmp_path: Path) -> None:
    """Prompts of different lengths, then some tokens; rows are copied and removed on the way."""
    ours = ours_of(randomized(make()), tmp_path)
    assert isinstance(ours, DecoderOnly)
    prompts = texts(2, lengths)
    rows = prompts
    state = ours.start(Stream(*pack_tokens([prompt[:-1] for prompt in prompts])))
    for new in range(4):
        logits_RV, state = ours.step(torch.tensor([row[-1] for row in rows]), state)
        for row, logits_V in zip(rows, logits_RV, strict=True):
            assert_equal(logits_V, ours.logits(ours(Batch.of(text=[row])))[-1])
        if new == 1:
            state = ours.reorder(state, torch.tensor([[1, 1], [0, 0]]))  # the first two prompts, two rows for each
            rows = [rows[1], rows[1], rows[0], rows[0]]
        rows = [[*row, 5 + new + number] for number, row in enumerate(rows)]


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
    sources, targets = texts(3), texts(4, [4, 8, 2])
    (source_ids, mask), (target_ids, _) = padded(sources), padded(targets)
    logits_BTV = theirs(input_ids=source_ids, attention_mask=mask, decoder_input_ids=target_ids).logits
    batch = Batch.of(src=sources, tgt=targets)
    logits_NV = ours.logits(ours(batch))
    expected_NV = batch["tgt"].segments.layout.unpad(logits_BTV)
    assert_equal(logits_NV, expected_NV)

    probe(expected_NV).backward()
    probe(logits_NV).backward()
    their_gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert_same_gradients(ours, theirs, {name: lambda _, n=own: their_gradients[n] for name, own in names.items()})


@pytest.mark.parametrize("make", [bart, marian, t5])
def test_encoder_decoder_step_by_step(make: Callable[[], Any], tmp_path: Path) -> None:
    ours = ours_of(randomized(make()), tmp_path)
    assert isinstance(ours, EncoderDecoder)
    sources, targets = texts(5), texts(6, [6, 6, 6])
    complete_BTV = ours.logits(ours(Batch.of(src=sources, tgt=targets))).unflatten(0, (3, 6))
    state = ours.start(Batch.of(src=sources)["src"])
    for t in range(6):
        logits_RV, state = ours.step(torch.tensor([target[t] for target in targets]), state)
        assert_equal(logits_RV, complete_BTV[:, t])


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
    assert_equal(mine, expected)

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
    assert_equal(mine, expected)
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
    x, segments = front.convolve(mel_BMT.transpose(1, 2).flatten(0, 1), Segments.of_lengths([100, 100]))
    for layer in ours.encoder:
        x = layer(x, segments)
    hidden = ours.encoder_norm(x[0])
    theirs.config._attn_implementation = "eager"
    expected = theirs.model.encoder(mel_BMT).last_hidden_state
    assert_equal(hidden, expected.flatten(0, 1))
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
    mel, frames = Frames(80, 32, 3000, 0.0).log_mel(samples + 2**15, Segments.of_lengths([len(samples)]))
    assert len(frames) == 1
    assert_equal(mel, expected, 1e-4)


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
            assert_equal(found[rows, h], expected)


@pytest.mark.parametrize("style", ["gpt2", "llama", "t5", "bart", "marian"])
def test_a_style_is_what_its_converter_gives(style: str) -> None:
    """The settings of a style, apart from sizes, are those of the model that transformers' has been converted to."""
    tied = {"tie_word_embeddings": True}
    makers = {"gpt2": gpt2, "llama": lambda: llama(**tied), "t5": t5_untied, "bart": bart, "marian": marian}
    theirs = randomized(makers[style]())
    config, _ = convert(theirs.config.to_dict(), theirs.state_dict())
    wanted = read_style(style)["model"]
    given = to_table(config)
    if style == "marian":  # its sinusoids, whose halves lie side by side, are imported as a table
        given["positions"] = "sinusoidal"
    complete = to_table(build(config_class(wanted), wanted, style))
    assert {name: given.get(name) for name in FAMILY_SETTINGS} == {name: complete.get(name) for name in FAMILY_SETTINGS}
