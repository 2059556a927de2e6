"""T5, BART, ViT, Whisper and Llama of Hugging Face, damaged at random and on purpose."""

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_injection import repetitions
from hostile import change_one_file, problems, try_all
from hostile_originals import byte_level, copy, edit_json, random_arrays
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as torch_save_file

from transduce.errors import ModelError
from transduce.interop.import_model import import_model

EACH = repetitions(2, 250)
"""Random changes of each model."""
WIDTH, INNER, POSITIONS = 16, 24, 12
WHISPER = ("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")
Shapes = dict[str, tuple[int, ...]]


def linear(shapes: Shapes, prefix: str, names: Sequence[str], shape: tuple[int, int], *, bias: bool) -> None:
    for name in names:
        shapes[f"{prefix}{name}.weight"] = shape
        if bias:
            shapes[f"{prefix}{name}.bias"] = shape[:1]


def norms(shapes: Shapes, prefix: str, names: Sequence[str], *, bias: bool = True) -> None:
    for name in names:
        shapes[f"{prefix}{name}.weight"] = (WIDTH,)
        if bias:
            shapes[f"{prefix}{name}.bias"] = (WIDTH,)


def t5_shapes(size: int) -> Shapes:
    shapes: Shapes = {"shared.weight": (size, WIDTH)}
    for side in ("encoder", "decoder"):
        block, cross = f"{side}.block.0.layer.", side == "decoder"
        shapes[f"{block}0.SelfAttention.relative_attention_bias.weight"] = (32, 2)
        linear(shapes, f"{block}0.SelfAttention.", "qkvo", (WIDTH, WIDTH), bias=False)
        if cross:
            linear(shapes, f"{block}1.EncDecAttention.", "qkvo", (WIDTH, WIDTH), bias=False)
        linear(shapes, f"{block}{1 + cross}.DenseReluDense.", ["wi"], (INNER, WIDTH), bias=False)
        linear(shapes, f"{block}{1 + cross}.DenseReluDense.", ["wo"], (WIDTH, INNER), bias=False)
        norms(shapes, block, [f"{number}.layer_norm" for number in range(2 + cross)], bias=False)
        norms(shapes, f"{side}.", ["final_layer_norm"], bias=False)
    return shapes


def fairseq_layers() -> Shapes:
    """The layers of BART and Whisper."""
    shapes: Shapes = {}
    for side in ("encoder", "decoder"):
        layer = f"model.{side}.layers.0."
        for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
            names = ["q_proj", "k_proj", "v_proj", "out_proj"]
            linear(shapes, f"{layer}{attention}.", names, (WIDTH, WIDTH), bias=True)
            norms(shapes, layer, [f"{attention}_layer_norm"])
        linear(shapes, layer, ["fc1"], (INNER, WIDTH), bias=True)
        linear(shapes, layer, ["fc2"], (WIDTH, INNER), bias=True)
        norms(shapes, layer, ["final_layer_norm"])
    return shapes


def bart_shapes(size: int) -> Shapes:
    shapes: Shapes = {"model.shared.weight": (size, WIDTH), "final_logits_bias": (1, size), **fairseq_layers()}
    for side in ("encoder", "decoder"):
        shapes[f"model.{side}.embed_positions.weight"] = (POSITIONS + 2, WIDTH)
        norms(shapes, f"model.{side}.", ["layernorm_embedding"])
    return shapes


def whisper_shapes(size: int) -> Shapes:
    shapes: Shapes = {
        "model.decoder.embed_tokens.weight": (size, WIDTH),
        "model.decoder.embed_positions.weight": (POSITIONS, WIDTH),
        "model.encoder.conv1.weight": (WIDTH, 80, 3),
        "model.encoder.conv1.bias": (WIDTH,),
        "model.encoder.conv2.weight": (WIDTH, WIDTH, 3),
        "model.encoder.conv2.bias": (WIDTH,),
        **fairseq_layers(),
    }
    norms(shapes, "model.", ["encoder.layer_norm", "decoder.layer_norm"])
    return shapes


def vit_shapes() -> Shapes:
    names, layer = "vit.embeddings.", "vit.encoder.layer.0."
    shapes: Shapes = {
        f"{names}cls_token": (1, 1, WIDTH),
        f"{names}position_embeddings": (1, 5, WIDTH),
        f"{names}patch_embeddings.projection.weight": (WIDTH, 3, 4, 4),
        f"{names}patch_embeddings.projection.bias": (WIDTH,),
    }
    attention = [
        f"attention.{name}" for name in ("attention.query", "attention.key", "attention.value", "output.dense")
    ]
    linear(shapes, layer, attention, (WIDTH, WIDTH), bias=True)
    linear(shapes, layer, ["intermediate.dense"], (INNER, WIDTH), bias=True)
    linear(shapes, layer, ["output.dense"], (WIDTH, INNER), bias=True)
    norms(shapes, layer, ["layernorm_before", "layernorm_after"])
    norms(shapes, "vit.", ["layernorm"])
    linear(shapes, "", ["classifier"], (3, WIDTH), bias=True)
    return shapes


def llama_shapes(size: int) -> Shapes:
    layer, shapes = "model.layers.0.", Shapes({"model.embed_tokens.weight": (size, WIDTH)})
    linear(shapes, f"{layer}self_attn.", ["q_proj", "o_proj"], (WIDTH, WIDTH), bias=False)
    linear(shapes, f"{layer}self_attn.", ["k_proj", "v_proj"], (WIDTH // 2, WIDTH), bias=False)
    linear(shapes, f"{layer}mlp.", ["gate_proj", "up_proj"], (INNER, WIDTH), bias=False)
    linear(shapes, f"{layer}mlp.", ["down_proj"], (WIDTH, INNER), bias=False)
    norms(shapes, "model.", ["layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"], bias=False)
    return shapes


SEVERAL: dict[str, Any] = {
    "d_model": WIDTH, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "t5": {
        "d_model": WIDTH, "d_kv": WIDTH // 2, "d_ff": INNER, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1,
        "feed_forward_proj": "relu", "decoder_start_token_id": 0, "extra_ids": 3,
    },
    "bart": {**SEVERAL, "max_position_embeddings": POSITIONS},
    "whisper": {
        **SEVERAL, "max_source_positions": 50, "max_target_positions": POSITIONS, "num_mel_bins": 80,
        "suppress_tokens": [1, 2],
    },
    "vit": {
        "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": 8, "patch_size": 4, "id2label": {"0": "a", "1": "b", "2": "c"},
    },
    "llama": {
        "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
    },
}  # fmt: skip
SHAPES: dict[str, Callable[[int], Shapes]] = {
    "t5": t5_shapes, "bart": bart_shapes, "whisper": whisper_shapes, "vit": lambda _: vit_shapes(),
    "llama": llama_shapes,
}  # fmt: skip


def write_original(kind: str, folder: Path, toy_tokenizer: Any) -> None:
    """A small model with random weights."""
    folder.mkdir()
    settings, size = {"model_type": kind, **SETTINGS[kind]}, 4
    if kind == "t5":  # its vocabulary is a SentencePiece model
        toy_tokenizer.save(folder / "spiece.model")
        size = toy_tokenizer.vocab_size + settings["extra_ids"]
        settings |= {"vocab_size": size, "eos_token_id": 3, "pad_token_id": 0}
    elif kind != "vit":
        tokenizer = byte_level(*(WHISPER if kind == "whisper" else ["<s>"]))
        tokenizer.save(str(folder / "tokenizer.json"))
        size, end = tokenizer.get_vocab_size(), tokenizer.token_to_id("<|endoftext|>")
        settings |= {"vocab_size": size, "eos_token_id": end, "bos_token_id": end, "decoder_start_token_id": end + 1}
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(random_arrays(SHAPES[kind](size)), folder / "model.safetensors")


@pytest.fixture(scope="module")
def originals(toy_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("originals")
    for kind in SETTINGS:
        write_original(kind, folder / kind, toy_tokenizer)
    return {kind: folder / kind for kind in SETTINGS}


def setting(**values: object) -> Callable[[Path], None]:
    return edit_json("config.json", **values)


def edit_first(start: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Replace the first array whose name begins so."""

    def edit(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        name = next(name for name in sorted(weights) if name.startswith(start))
        weights[name] = change(weights[name])
        save_file(weights, folder / "model.safetensors")

    return edit


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def two_files(*names: object) -> Callable[[Path], object]:
    """An index of the files with these names."""
    table = {f"weight {number}": name for number, name in enumerate(names)}
    return lambda folder: (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))


def not_finite(value: float) -> Callable[[Any], Any]:
    return lambda array: np.full(array.shape, value, np.float64)  # 1e300 is finite only in this type


HUGE = 10**12
UNUSED = ("decoder_start_token_id", "extra_ids", "max_position_embeddings", "tie_word_embeddings")
"""Settings that are bounded, replaced or not needed, whatever they are."""
GENERIC: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{f"{kind}: NaN": (kind, edit_first("", not_finite(np.nan))) for kind in SETTINGS},
    **{f"{kind}: 1e300 in float64": (kind, edit_first("", not_finite(1e300))) for kind in SETTINGS},
    **{f"{kind}: integers": (kind, edit_first("", lambda x: x.astype(np.int64))) for kind in SETTINGS},
    **{f"{kind}: a dimension more": (kind, edit_first("", lambda x: x[None])) for kind in SETTINGS},
    **{f"{kind}: a scalar": (kind, edit_first("", lambda x: np.ones((), np.float32))) for kind in SETTINGS},
    **{f"{kind}: nothing": (kind, edit_first("", lambda x: x[:0])) for kind in SETTINGS},
    **{f"{kind}: no weights": (kind, without("model.safetensors")) for kind in SETTINGS},
    **{f"{kind}: no settings": (kind, without("config.json")) for kind in SETTINGS},
    **{
        f"{kind}: nested settings": (kind, lambda folder: (folder / "config.json").write_text('{"a":' * 10**5))
        for kind in SETTINGS
    },
    **{
        f"{kind}: {name} = {value}": (kind, setting(**{name: value}))
        for kind, settings in SETTINGS.items()
        for name, old in settings.items()
        if isinstance(old, int) and name not in UNUSED
        for value in (HUGE, -1)
    },
}  # fmt: skip
"""What is done to every model; the normal test suite does one in six."""
OWN: dict[str, tuple[str, Callable[[Path], object]]] = {
    "t5: an activation of another type": ("t5", setting(feed_forward_proj=["relu"])),
    "t5: gated without gates": ("t5", setting(feed_forward_proj="gated-gelu")),
    "t5: an absurd number of sentinels": ("t5", setting(extra_ids=HUGE, vocab_size=HUGE)),
    "t5: a billion sentinels": ("t5", setting(extra_ids=10**9)),
    "t5: buckets of one head": ("t5", edit_first("encoder.block.0.layer.0.SelfAttention.rel", lambda x: x[:, :1])),
    "t5: no vocabulary": ("t5", without("spiece.model")),
    "bart: no positions but those of padding": ("bart", edit_first("model.encoder.embed_positions", lambda x: x[:2])),
    "bart: positions of different lengths": ("bart", edit_first("model.decoder.embed_positions", lambda x: x[:5])),
    "bart: different widths": ("bart", setting(decoder_ffn_dim=99)),
    "bart: different heads": ("bart", setting(decoder_attention_heads=4)),
    "bart: wide queries": (
        "bart", edit_first("model.encoder.layers.0.self_attn.q_proj.weight", lambda x: np.ones((60_000, WIDTH), "f4")),
    ),
    "whisper: a vocabulary without its tokens": (
        "whisper", lambda folder: byte_level("a", "b", "c", "d").save(str(folder / "tokenizer.json")),
    ),
    "whisper: tokens of other types": ("whisper", setting(suppress_tokens=[1, "a", None])),
    "whisper: two billion frames": ("whisper", setting(max_source_positions=10**9)),
    "whisper: a flat kernel": ("whisper", edit_first("model.encoder.conv1.weight", lambda x: x[:, :, 0])),
    "whisper: a FIFO for options": ("whisper", lambda folder: os.mkfifo(folder / "generation_config.json")),
    "vit: patches larger than the image": ("vit", setting(patch_size=16)),
    "vit: patches that do not fit": ("vit", setting(patch_size=3)),
    "vit: an image of two sizes": ("vit", setting(image_size=[8, 16])),
    "vit: labels in a list": ("vit", setting(id2label=["a", "b"])),
    "vit: a million labels": ("vit", setting(id2label={str(number): "x" for number in range(10**5)})),
    "vit: positions without a first dimension": ("vit", edit_first("vit.embeddings.position", lambda x: x[0, 0])),
    "llama: heads that do not fit groups": ("llama", setting(num_key_value_heads=3)),
    "llama: a base of rotations of 0": ("llama", setting(rope_theta=-1.0)),
    "llama: scaled rotations": ("llama", setting(rope_scaling={"type": "linear"})),
    "llama: rotations of another type": ("llama", setting(rope_scaling=[1])),
    "llama: weights in a folder outside": ("llama", two_files("../model.safetensors")),
    "llama: weights in a number": ("llama", two_files(3)),
    "llama: weights in a missing file": ("llama", two_files("model.safetensors", "other.safetensors")),
}  # fmt: skip


def test_hostile_models_of_hugging_face_are_refused_with_one_line_at_low_cost(
    transduce: Any, originals: dict[str, Path], tmp_path: Path
) -> None:
    """Those on purpose are refused; those with random damages are refused or imported."""
    paths, changes = dict(originals), OWN | dict(list(GENERIC.items())[:: repetitions(6, 1)])
    for number, (name, (kind, change)) in enumerate(changes.items()):
        paths[name] = copy(originals[kind], tmp_path / f"{kind}-{number}")
        change(paths[name])
    for kind, original in originals.items():
        for number in range(EACH):
            name = f"{kind} at random {number}"
            paths[name] = copy(original, tmp_path / name)
            change_one_file(paths[name], random.Random(name))
    outcomes = try_all(transduce, [("import", path) for path in paths.values()], tmp_path)
    results = dict(zip(paths, outcomes, strict=True))
    assert {kind: results[kind][0] for kind in originals} == dict.fromkeys(originals)
    found = {name: problems(results[name], path, must_fail=name in changes) for name, path in paths.items()}
    assert {name: one for name, one in found.items() if one} == {}


def test_weights_must_fit_into_memory_as_float32(
    originals: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy(originals["llama"], tmp_path / "llama")
    path = folder / "model.safetensors"
    weights = {name: torch.from_numpy(x).to(torch.float8_e4m3fn) for name, x in load_file(path).items()}
    torch_save_file(weights, path)
    import_model(folder, tmp_path / "imported")
    numbers = sum(x.numel() for x in weights.values())
    assert 2 * path.stat().st_size < 4 * numbers
    monkeypatch.setattr("transduce.interop.huggingface.physical_memory", lambda: 4 * numbers - 1)
    with pytest.raises(ModelError, match=f"its weights in float32 have {4 * numbers:,} bytes, more than this machine"):
        import_model(folder, tmp_path / "again")
