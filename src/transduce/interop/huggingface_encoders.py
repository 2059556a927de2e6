"""Converters of Hugging Face's encoder-only models: BERT, RoBERTa and ViT."""

from transduce.errors import ModelError
from transduce.interop.huggingface_weights import Converted, Settings, Source, Weights, activation_of, classes_of
from transduce.models.encoder_only import EncoderOnlyConfig


def bert(settings: Settings, weights: Weights) -> Converted:
    """Convert BERT, RoBERTa and models of their form, with a head for masked tokens, for classes, or none."""
    kind = settings["model_type"]
    source = Source(weights, f"{kind}.")
    classifier = "classifier.weight" in weights or "classifier.out_proj.weight" in weights
    masked = "cls.predictions.bias" in weights or "lm_head.bias" in weights
    offset = 2 if kind == "roberta" else 0  # its first positions are for padding
    table_TD = source["embeddings.position_embeddings.weight"][offset:]
    segment_D = source["embeddings.token_type_embeddings.weight"][0]
    if table_TD.shape[1:] != segment_D.shape:
        raise ModelError("the embeddings of positions and segments have different widths")
    config = EncoderOnlyConfig(
        layers=settings["num_hidden_layers"],
        d_model=settings["hidden_size"],
        d_ff=settings["intermediate_size"],
        num_heads=settings["num_attention_heads"],
        dropout=settings.get("hidden_dropout_prob", 0.1),
        positions="learned",
        max_positions=len(table_TD),
        norm_epsilon=settings.get("layer_norm_eps", 1e-12),
        activation=activation_of(settings.get("hidden_act", "gelu")),
        embedding="normalized",
        output_bias=masked,
        masked_head=masked,
        classes=classes_of(settings) if classifier else 0,
        pooler=classifier,
    )
    ours = {
        "embedding.weight_VD": source["embeddings.word_embeddings.weight"],
        "embedding.positions.table_TD": table_TD + segment_D,
        **source.modules({"embedding.norm": "embeddings.LayerNorm"}),
    }
    for n in range(config.layers):
        layer, name = source.inside(f"encoder.layer.{n}."), f"encoder.{n}"
        ours |= layer.joined(f"{name}.self_attention.qkv", [f"attention.self.{x}" for x in ("query", "key", "value")])
        ours |= layer.modules({
            f"{name}.self_attention.out": "attention.output.dense",
            f"{name}.residuals.0.norm": "attention.output.LayerNorm",
            f"{name}.feed_forward.inner": "intermediate.dense",
            f"{name}.feed_forward.outer": "output.dense",
            f"{name}.residuals.1.norm": "output.LayerNorm",
        })  # fmt: skip
    everything = Source(weights, "")
    if masked and kind == "roberta":
        ours |= everything.modules({"head.linear": "lm_head.dense", "head.norm": "lm_head.layer_norm"})
        ours["output.bias_V"] = weights["lm_head.bias"]
    elif masked:
        transform = "cls.predictions.transform"
        ours |= everything.modules({"head.linear": f"{transform}.dense", "head.norm": f"{transform}.LayerNorm"})
        ours["output.bias_V"] = weights["cls.predictions.bias"]
    elif classifier:
        pooler, output = "bert.pooler.dense", "classifier"
        if kind == "roberta":
            pooler, output = "classifier.dense", "classifier.out_proj"
        ours |= everything.modules({"head.pooler": pooler})
        ours |= {"head.weight_CD": weights[f"{output}.weight"], "head.bias_C": weights[f"{output}.bias"]}
    return config, ours


def vit(settings: Settings, weights: Weights) -> Converted:
    """Convert a Vision Transformer with its head for classes."""
    source = Source(weights, "vit.")
    size, patch = settings["image_size"], settings["patch_size"]
    config = EncoderOnlyConfig(
        layers=settings["num_hidden_layers"],
        d_model=settings["hidden_size"],
        d_ff=settings["intermediate_size"],
        num_heads=settings["num_attention_heads"],
        dropout=settings.get("hidden_dropout_prob", 0.0),
        norm="pre",
        norm_epsilon=settings.get("layer_norm_eps", 1e-12),
        activation=activation_of(settings.get("hidden_act", "gelu")),
        source="image",
        classes=classes_of(settings),
        image_height=size,
        image_width=size,
        channels=settings.get("num_channels", 3),
        patch_size=patch,
    )
    ours = {
        "embedding.class_token_D": source["embeddings.cls_token"].flatten(),
        "embedding.positions_TD": source["embeddings.position_embeddings"][0],
        "embedding.project.weight": source["embeddings.patch_embeddings.projection.weight"].flatten(1),
        "embedding.project.bias": source["embeddings.patch_embeddings.projection.bias"],
        **source.modules({"encoder_norm": "layernorm"}),
        "head.weight_CD": weights["classifier.weight"],
        "head.bias_C": weights["classifier.bias"],
    }
    for n in range(config.layers):
        layer, name = source.inside(f"encoder.layer.{n}."), f"encoder.{n}"
        ours |= layer.joined(
            f"{name}.self_attention.qkv", [f"attention.attention.{x}" for x in ("query", "key", "value")]
        )
        ours |= layer.modules({
            f"{name}.self_attention.out": "attention.output.dense",
            f"{name}.residuals.0.norm": "layernorm_before",
            f"{name}.feed_forward.inner": "intermediate.dense",
            f"{name}.feed_forward.outer": "output.dense",
            f"{name}.residuals.1.norm": "layernorm_after",
        })  # fmt: skip
    return config, ours
