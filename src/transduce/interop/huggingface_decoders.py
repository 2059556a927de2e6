"""Converters of Hugging Face's decoder-only models: GPT-2 and Llama."""

from transduce.errors import ModelError
from transduce.interop.huggingface_weights import Converted, Settings, Source, Weights, activation_of
from transduce.models.decoder_only import DecoderOnlyConfig


def gpt2(settings: Settings, weights: Weights) -> Converted:
    """Convert GPT-2, whose matrices are stored transposed."""
    config = DecoderOnlyConfig(
        layers=settings["n_layer"],
        d_model=settings["n_embd"],
        d_ff=settings.get("n_inner") or 4 * settings["n_embd"],
        num_heads=settings["n_head"],
        dropout=settings.get("resid_pdrop", 0.1),
        positions="learned",
        max_positions=settings["n_positions"],
        norm="pre",
        norm_epsilon=settings.get("layer_norm_epsilon", 1e-5),
        activation=activation_of(settings.get("activation_function", "gelu_new")),
        embedding="plain",
    )
    source = Source(weights, "transformer.")
    ours = {"embedding.weight_VD": source["wte.weight"], "embedding.positions.table_TD": source["wpe.weight"]}
    for n in range(config.layers):
        layer = source.inside(f"h.{n}.")
        transposed = {  # these matrices are stored as (inputs, outputs)
            "self_attention.qkv": "attn.c_attn", "self_attention.out": "attn.c_proj",
            "feed_forward.inner": "mlp.c_fc", "feed_forward.outer": "mlp.c_proj",
        }  # fmt: skip
        for name, theirs in transposed.items():
            ours[f"decoder.{n}.{name}.weight"] = layer[f"{theirs}.weight"].T
            ours[f"decoder.{n}.{name}.bias"] = layer[f"{theirs}.bias"]
        ours |= layer.modules({f"decoder.{n}.residuals.{i}.norm": f"ln_{i + 1}" for i in range(2)})
    return config, ours | source.modules({"decoder_norm": "ln_f"})


def llama(settings: Settings, weights: Weights) -> Converted:
    """Convert Llama and models of its form."""
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if (kind := rope.get("rope_type", rope.get("type", "default"))) != "default":
        raise ModelError(f"config.json: rotary positions of type {kind!r:.40} cannot be imported")
    config = DecoderOnlyConfig(
        layers=settings["num_hidden_layers"],
        d_model=settings["hidden_size"],
        d_ff=settings["intermediate_size"],
        num_heads=settings["num_attention_heads"],
        kv_heads=settings.get("num_key_value_heads"),
        d_k=settings.get("head_dim"),
        d_v=settings.get("head_dim"),
        dropout=0.0,
        positions="rotary",
        max_positions=min(settings["max_position_embeddings"], 2**16),  # rotations have no limit
        rotary_base=rope.get("rope_theta") or settings.get("rope_theta", 10_000.0),
        norm="pre",
        norm_type="rms",
        norm_epsilon=settings["rms_norm_eps"],
        activation="swiglu",
        bias=False,
        embedding="plain",
        tie_output=settings.get("tie_word_embeddings", False),
    )
    source = Source(weights, "model.")
    ours = {"embedding.weight_VD": source["embed_tokens.weight"]}
    for n in range(config.layers):
        layer, name = source.inside(f"layers.{n}."), f"decoder.{n}"
        ours |= layer.joined(f"{name}.self_attention.qkv", [f"self_attn.{x}_proj" for x in "qkv"])
        ours |= layer.joined(f"{name}.feed_forward.inner", ["mlp.gate_proj", "mlp.up_proj"])
        ours |= layer.modules({
            f"{name}.self_attention.out": "self_attn.o_proj",
            f"{name}.feed_forward.outer": "mlp.down_proj",
            f"{name}.residuals.0.norm": "input_layernorm",
            f"{name}.residuals.1.norm": "post_attention_layernorm",
        })  # fmt: skip
    if not config.tie_output:
        ours["output.weight_VD"] = weights["lm_head.weight"]
    return config, ours | source.modules({"decoder_norm": "norm"})
