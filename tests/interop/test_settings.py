"""Random settings of every config class: imported with the logits of transformers, or refused in one line.

FAULTS=full (see fault_injection.py) draws 500 settings of each type.
"""

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from fault_injection import repetitions
from torch import Tensor
from transformers_models import WHISPER_SPECIAL, byte_level, randomized, transformers

from transduce.data.batch import Batch
from transduce.errors import ModelError
from transduce.interop.family import CONVERTERS
from transduce.interop.import_model import import_model
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.folder import SavedModel, load_model
from transduce.nn.segments import Segments

CASES = repetitions(10, 500)
TOLERANCE = 1e-5
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "[CLS]", "[SEP]", *WHISPER_SPECIAL[1:]]
ACTIVATIONS = [
    "relu",
    "gelu",
    "gelu_new",
    "silu",
    "swish",
    "gelu_pytorch_tanh",
    "quick_gelu",
    "tanh",
    "relu2",
    "gelu_fast",
]
WIDE = {"encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
BOTH = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
FAIRSEQ = {**BOTH, **WIDE, "decoder_attention_heads": 2}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
LLAMA = {**SIZES, "max_position_embeddings": 20, "num_key_value_heads": 1}
TYPES: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "gpt2": ("GPT2Config", ["GPT2LMHeadModel"], {"n_positions": 20, "n_embd": 16, "n_layer": 2, "n_head": 2}),
    "llama": ("LlamaConfig", ["LlamaForCausalLM"], {**SIZES, "max_position_embeddings": 20}),
    "mistral": ("MistralConfig", ["MistralForCausalLM"], {**LLAMA, "sliding_window": 4}),
    "qwen2": ("Qwen2Config", ["Qwen2ForCausalLM"], {**LLAMA, "num_key_value_heads": 2}),
    "qwen3": ("Qwen3Config", ["Qwen3ForCausalLM"], {**LLAMA, "head_dim": 6}),
    "gemma2": (
        "Gemma2Config", ["Gemma2ForCausalLM"],
        {**LLAMA, "num_hidden_layers": 3, "head_dim": 6, "sliding_window": 3, "query_pre_attn_scalar": 9,
         "attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0},
    ),
    "gemma3_text": (
        "Gemma3TextConfig", ["Gemma3ForCausalLM"],
        {**LLAMA, "num_hidden_layers": 3, "head_dim": 6, "sliding_window": 3, "query_pre_attn_scalar": 9,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "bert": (
        "BertConfig", ["BertForMaskedLM", "BertForSequenceClassification"], {**SIZES, "max_position_embeddings": 20},
    ),
    "distilbert": (
        "DistilBertConfig", ["DistilBertForMaskedLM"],
        {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 20},
    ),
    "xlm-roberta": (
        "XLMRobertaConfig", ["XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"],
        {**SIZES, "max_position_embeddings": 24},
    ),
    "roberta": (
        "RobertaConfig", ["RobertaForMaskedLM", "RobertaForSequenceClassification"],
        {**SIZES, "max_position_embeddings": 24},
    ),
    "vit": ("ViTConfig", ["ViTForImageClassification"], {**SIZES, "image_size": 8, "patch_size": 4}),
    "t5": (
        "T5Config", ["T5ForConditionalGeneration"],
        {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 2},
    ),
    "bart": ("BartConfig", ["BartForConditionalGeneration"], {**FAIRSEQ, "max_position_embeddings": 20}),
    "marian": ("MarianConfig", ["MarianMTModel"], {**FAIRSEQ, "max_position_embeddings": 20}),
    "m2m_100": (
        "M2M100Config", ["M2M100ForConditionalGeneration"], {**FAIRSEQ, "max_position_embeddings": 20},
    ),
    "mbart": ("MBartConfig", ["MBartForConditionalGeneration"], {**FAIRSEQ, "max_position_embeddings": 20}),
    "whisper": (
        "WhisperConfig", ["WhisperForConditionalGeneration"],
        {**FAIRSEQ, "max_source_positions": 50, "max_target_positions": 20, "num_mel_bins": 8},
    ),
}  # fmt: skip
"""The config class, classes of models and small sizes of each type."""
PAIRS = ("t5", "bart", "marian", "m2m_100", "mbart")
"""Types that read one text and write another."""
DRAWN: dict[str, list[Any]] = {
    "activation_function": ACTIVATIONS, "hidden_act": ACTIVATIONS,
    "feed_forward_proj": [*ACTIVATIONS, "gated-gelu", "gated-silu", "gated-relu", "gated-gelu_new"],
    "rope_parameters": [
        {"rope_type": "default", "rope_theta": 500.0}, {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
        {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 16},
        {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 10},
        {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    ],
    "relative_attention_num_buckets": [4, 8, 15, 16, 64], "relative_attention_max_distance": [9, 20, 64, 1000],
    "image_size": [12, [8, 12], [12, 8]], "patch_size": [2, 8, [4, 4], [4, 2]], "problem_type": ["regression", None],
    "max_position_embeddings": [21, 30], "n_positions": [21, 30], "eos_token_id": [3, [3, 5], None],
    "id2label": [{0: "a", 1: "b", 2: "c"}], "layer_norm_eps": [1e-3, 0.5], "type_vocab_size": [1, 3],
}  # fmt: skip
"""Values of settings that a value of the default's type would seldom make sense for."""


def draw(name: str, default: Any, chance: random.Random) -> Any:
    if name in DRAWN:
        return chance.choice(DRAWN[name])
    if isinstance(default, bool) or default is None:
        return chance.choice([True, False, None])
    if isinstance(default, int):
        return chance.choice([0, 1, 2, 3, 4, 5, 8, 12, 32])
    if isinstance(default, float):
        return chance.choice([0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.3, 2.0])
    return chance.choice(["", "last", "relu", "tanh"]) if isinstance(default, str) else chance.choice([[], [1, 2], {}])


def write_original(
    kind: str, class_name: str, changed: dict[str, Any], folder: Path, vocabulary: dict[str, int]
) -> Any:
    """The model that transformers reads from the folder that it wrote with these settings; None if it refuses them."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = getattr(transformers, TYPES[kind][0])(**small_settings(kind, vocabulary) | changed)
            model = randomized(getattr(transformers, class_name)(config))
            model.save_pretrained(folder)
            model = type(model).from_pretrained(folder, dtype=torch.float32).eval()
            run(kind, model, vocabulary)
    except Exception:  # it has many ways to refuse settings
        return None
    return model


def small_settings(kind: str, vocabulary: dict[str, int]) -> dict[str, Any]:
    sizes = TYPES[kind][2]
    if kind == "vit":
        return sizes
    markers = {"bos_token_id": "<s>", "eos_token_id": "</s>", "pad_token_id": "<pad>"}
    settings = {**sizes, "vocab_size": len(vocabulary), **{name: vocabulary[piece] for name, piece in markers.items()}}
    if kind in ("roberta", "xlm-roberta", "m2m_100"):
        settings["pad_token_id"] = 1
    if kind in (*PAIRS, "whisper"):
        settings["decoder_start_token_id"] = vocabulary["<s>"]
    return settings


RAW = ("size mismatch", "Tensor", "NoneType", "object", "damaged")
"""Parts of messages of torch and Python, and of that for what no check foresees."""
IDS = [20, 31, 40, 90, 17, 55]
"""No id that is drawn as that of a marker: RoBERTa gives padding, which is never inside a text, no position."""


def run(kind: str, model: Any, vocabulary: dict[str, int]) -> Tensor:
    """The logits of transformers."""
    ids, target = torch.tensor([IDS]), torch.tensor([[vocabulary["<s>"], 9, 44, 8]])
    generator = torch.Generator().manual_seed(1)
    with torch.inference_mode():
        if kind == "vit":
            size = model.vit.embeddings.patch_embeddings.image_size
            pixels = torch.randint(0, 256, (*size, model.config.num_channels), generator=generator)
            logits = model(pixel_values=(pixels / 127.5 - 1).permute(2, 0, 1)[None]).logits
        elif kind == "whisper":
            frames = 2 * model.config.max_source_positions
            mel = torch.randn(1, model.config.num_mel_bins, frames, generator=generator)
            logits = model(input_features=mel, decoder_input_ids=target).logits
        elif kind in PAIRS:
            logits = model(input_ids=ids, decoder_input_ids=target).logits
        else:
            logits = model(input_ids=ids).logits
    assert logits.isfinite().all()
    return logits[0] if logits.dim() == 3 else logits


def run_ours(kind: str, saved: SavedModel, vocabulary: dict[str, int]) -> Tensor:
    """Our logits of the original tokens or of classes."""
    model, generator = saved.model, torch.Generator().manual_seed(1)
    config: Any = model.config
    with torch.inference_mode():
        if kind == "vit":
            pixels = torch.randint(
                0, 256, (config.image_height, config.image_width, config.channels), generator=generator
            )
            return model.logits(model(Batch.of(image=[pixels.flatten().tolist()])))
        order = saved.tokenizer.target.order  # type: ignore[attr-defined]
        target = [order.ids[token] for token in (vocabulary["<s>"], 9, 44, 8)]
        ids = [order.ids[token] for token in IDS]
        if kind == "whisper":
            assert isinstance(model, EncoderDecoder)
            mel = torch.randn(1, config.mel_bins, config.max_frames, generator=generator)
            frames = Segments.of_lengths([config.max_frames])
            memory = model.source_embedding.convolve(mel[0].T.contiguous(), frames)
            read = model._read_source
            model._read_source = lambda src: memory  # type: ignore[method-assign]
            try:
                hidden = model(Batch.of(src=[[0]], tgt=[target]))
            finally:
                model._read_source = read  # type: ignore[method-assign]
        elif kind in PAIRS:
            hidden = model(Batch.of(src=[ids], tgt=[target]))
        else:
            hidden = model(Batch.of(text=[ids]))
        logits = model.logits(hidden)
    return logits if config.architecture == "encoder_only" and config.classes else logits[:, order.ids]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return byte_level(SPECIAL)


def outcome(kind: str, model: Any, folder: Path, tokenizer: Any) -> str | float:
    """The message of a refusal, or the relative error of the logits."""
    tokenizer.save(str(folder / "tokenizer.json"))
    shutil.rmtree(folder.with_name("ours"), ignore_errors=True)
    try:
        import_model(folder, folder.with_name("ours"))
    except ModelError as error:
        message = str(error)
        assert message.startswith(f"{folder}: "), message
        assert "\n" not in message
        assert len(message) < 400
        assert not any(raw in message for raw in RAW), message
        return message.removeprefix(f"{folder}: ")
    ours = run_ours(kind, load_model(folder.with_name("ours")), tokenizer.get_vocab())
    theirs = run(kind, model, tokenizer.get_vocab())
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("kind", TYPES)
def test_random_settings(kind: str, tokenizer: Any, tmp_path: Path) -> None:
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    chance, cases, refused = random.Random(kind), 0, 0
    config_name, classes, _ = TYPES[kind]
    defaults = getattr(transformers, config_name)(**small_settings(kind, vocabulary)).to_dict()
    names = sorted(defaults.keys() - {"model_type", "transformers_version", "dtype", "architectures"})
    while cases < CASES:
        changed = {name: draw(name, defaults[name], chance) for name in chance.sample(names, chance.randint(1, 3))}
        model = write_original(kind, chance.choice(classes), changed, tmp_path / "original", vocabulary)
        if model is None:
            continue
        cases += 1
        result = outcome(kind, model, tmp_path / "original", tokenizer)
        refused += isinstance(result, str)
        assert isinstance(result, str) or result <= TOLERANCE, (changed, result)
    assert refused < 0.7 * CASES


@pytest.mark.parametrize(
    ("kind", "changed", "refusal"),
    [
        ("gpt2", {"tie_word_embeddings": False}, None),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, None),
        ("gpt2", {"scale_attn_weights": False}, None),
        ("gpt2", {"add_cross_attention": True}, "config.json: add_cross_attention = true cannot be imported"),
        ("llama", {"hidden_act": "gelu"}, "config.json: the activation 'gelu' is not supported; use gelu_new, "),
        ("llama", {"hidden_act": "gelu_new"}, None),
        ("llama", {"attention_bias": True}, None),
        ("llama", {"mlp_bias": True}, None),
        ("llama", {"rope_parameters": DRAWN["rope_parameters"][1]}, None),
        ("llama", {"rope_parameters": DRAWN["rope_parameters"][2]}, None),
        ("llama", {"rope_parameters": DRAWN["rope_parameters"][3]}, "config.json: rotary positions of type 'yarn' "),
        ("mistral", {"sliding_window": None}, None),
        ("mistral", {"sliding_window": 2}, None),
        ("qwen2", {}, None),
        ("qwen3", {"attention_bias": True}, None),
        ("gemma2", {}, None),
        ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": True}, None),
        ("gemma3_text", {}, None),
        (
            "gemma3_text",
            {"final_logit_softcapping": 30.0},
            "config.json: final_logit_softcapping = 30.0 is not a known",
        ),
        ("xlm-roberta", {}, None),
        ("distilbert", {}, None),
        ("distilbert", {"tie_word_embeddings": False}, None),
        ("bert", {"is_decoder": True}, "config.json: is_decoder = true cannot be imported, only false"),
        ("roberta", {"hidden_act": "gelu_new"}, "config.json: hidden_act = 'gelu_new' cannot be imported, only gelu"),
        ("vit", {"image_size": [8, 12]}, None),
        ("vit", {"qkv_bias": False}, None),
        ("t5", {"scale_decoder_outputs": None}, None),
        ("t5", {"relative_attention_max_distance": 64}, None),
        ("t5", {"relative_attention_num_buckets": 16}, None),
        (
            "t5",
            {"feed_forward_proj": "gated-relu"},
            "config.json: the activation 'relu' is not supported; use gelu_new",
        ),
        ("bart", {"scale_embedding": True}, None),
        ("bart", {"tie_word_embeddings": False}, None),
        ("bart", {"tie_word_embeddings": False, "scale_embedding": True}, None),
        ("bart", {"decoder_ffn_dim": 8}, "config.json: encoder_ffn_dim = 24 and decoder_ffn_dim = 8 cannot be"),
        ("marian", {"tie_word_embeddings": False}, None),
        ("m2m_100", {"scale_embedding": False}, None),
        ("m2m_100", {"tie_word_embeddings": False}, None),
        ("m2m_100", {"pad_token_id": 5}, "config.json: pad_token_id = 5 cannot be imported, only 1"),
        ("mbart", {"scale_embedding": True}, None),
        ("mbart", {"scale_embedding": True, "tie_word_embeddings": False}, None),
    ],
)
def test_settings_that_change_what_is_computed(
    kind: str, changed: dict[str, Any], refusal: str | None, tokenizer: Any, tmp_path: Path
) -> None:
    model = write_original(kind, TYPES[kind][1][0], changed, tmp_path / "original", tokenizer.get_vocab())
    result = outcome(kind, model, tmp_path / "original", tokenizer)
    if refusal is None:
        assert isinstance(result, float), result
        assert result <= TOLERANCE
    else:
        assert str(result).startswith(refusal)


def test_every_type_is_tested() -> None:
    assert TYPES.keys() == CONVERTERS.keys() - {"transformer"}


@pytest.mark.parametrize("name", ["ElectraModel", "DebertaV2Model", "BertForTokenClassification"])
def test_other_models_are_named(name: str, tokenizer: Any, tmp_path: Path) -> None:
    """Before the tokenizer is read, which is missing here."""
    kinds = {"ElectraModel": "electra", "DebertaV2Model": "deberta-v2"}
    config = transformers.AutoConfig.for_model(kinds.get(name, "bert"), vocab_size=20, **SIZES)
    getattr(transformers, name)(config).save_pretrained(tmp_path / "original")
    with pytest.raises(ModelError) as failed:
        import_model(tmp_path / "original", tmp_path / "ours")
    known = f"models of type {kinds[name]!r} cannot be imported" if name in kinds else f'["{name}"] cannot be imported'
    assert f"original: config.json: {known}" in str(failed.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalize_something": 3}, "normalize_something = 3 is not a known setting; remove it if it does not"),
        ({"position_embedding_type": "relative_key"}, 'position_embedding_type = "relative_key" cannot be imported'),
        ({"num_hidden_layers": "many"}, 'num_hidden_layers must be a whole number, not "many"'),
        ({"quantization_config": {"bits": 4}}, 'quantization_config = {"bits": 4} is not a known setting'),
    ],
)
def test_settings_that_no_class_has(change: dict[str, Any], message: str, tokenizer: Any, tmp_path: Path) -> None:
    assert write_original("bert", "BertModel", {}, tmp_path / "original", tokenizer.get_vocab()) is None  # no logits
    path = tmp_path / "original" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError) as failed:
        import_model(tmp_path / "original", tmp_path / "ours")
    assert f"original: config.json: {message}" in str(failed.value)
