"""The peers of the decoding benchmark, with our weights: Hugging Face generate and CTranslate2."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peers import HuggingFaceMarian

from transduce.models.encoder_decoder import EncoderDecoder
from transduce.tokenizers.tokenizer import BOS, EOS

Decode = Callable[[Sequence[list[int]], int], list[list[int]]]
"""Takes sources without markers and a beam; returns outputs as long as the sources with their end marker."""


def hugging_face(model: EncoderDecoder, device: str, dtype: torch.dtype) -> Decode:
    """MarianMTModel.generate with scaled dot-product attention."""
    marian = HuggingFaceMarian(model.config, model.vocab_size).eval()
    marian.load_state_dict(_marian_weights(model, marian.state_dict()))
    marian.to(device=device, dtype=dtype)

    def decode(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        src_BS = torch.tensor([[*source, EOS] for source in sources], device=device)
        length = src_BS.shape[1]
        with torch.inference_mode():
            result = marian.model.generate(
                src_BS, attention_mask=torch.ones_like(src_BS), num_beams=beam, do_sample=False,
                min_new_tokens=length, max_new_tokens=length, bad_words_ids=None,
            )  # fmt: skip
        return result[:, 1:].tolist()

    return decode


def _marian_weights(model: EncoderDecoder, theirs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    ours = {name: weight.detach() for name, weight in model.state_dict().items()}
    result: dict[str, torch.Tensor] = {}

    def take(name: str, weight: str, rows: slice = slice(None)) -> None:
        for kind in ("weight", "bias"):
            result[f"model.model.{name}.{kind}"] = ours[f"{weight}.{kind}"][rows]

    D = model.config.d_model
    for side, layers in (("encoder", model.config.encoder_layers), ("decoder", model.config.decoder_layers)):
        result[f"model.model.{side}.embed_tokens.weight"] = ours["embedding.weight_VD"]
        result[f"model.model.{side}.embed_positions.weight"] = model.embedding.positions.table_TD[:1024]
        for i in range(layers):
            layer = f"{side}.layers.{i}"
            for n, part in enumerate(("q_proj", "k_proj", "v_proj")):
                take(f"{layer}.self_attn.{part}", f"{side}.{i}.self_attention.qkv", slice(n * D, (n + 1) * D))
            take(f"{layer}.self_attn.out_proj", f"{side}.{i}.self_attention.out")
            norms = ["self_attn_layer_norm", "final_layer_norm"]
            if side == "decoder":
                norms.insert(1, "encoder_attn_layer_norm")
                take(f"{layer}.encoder_attn.q_proj", f"{side}.{i}.cross_attention.q")
                take(f"{layer}.encoder_attn.k_proj", f"{side}.{i}.cross_attention.kv", slice(0, D))
                take(f"{layer}.encoder_attn.v_proj", f"{side}.{i}.cross_attention.kv", slice(D, 2 * D))
                take(f"{layer}.encoder_attn.out_proj", f"{side}.{i}.cross_attention.out")
            take(f"{layer}.fc1", f"{side}.{i}.feed_forward.inner")
            take(f"{layer}.fc2", f"{side}.{i}.feed_forward.outer")
            for n, norm in enumerate(norms):
                take(f"{layer}.{norm}", f"{side}.{i}.residuals.{n}.norm")
    result["model.model.shared.weight"] = result["model.lm_head.weight"] = ours["embedding.weight_VD"]
    result["model.final_logits_bias"] = torch.zeros_like(theirs["model.final_logits_bias"])
    return {name: weight.clone() for name, weight in result.items()}


def save_for_ctranslate2(model: EncoderDecoder, folder: Path, quantization: str | None) -> Path:
    """Write our weights in CTranslate2's format."""
    from ctranslate2.specs import Activation, TransformerSpec

    config, (d_k, d_v) = model.config, model.config.head_widths
    assert (d_k, config.norm) == (d_v, "post")
    ours = {name: weight.detach().float().cpu().numpy() for name, weight in model.state_dict().items()}
    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers), config.num_heads, pre_norm=False, activation=Activation.RELU
    )

    def fill(target: Any, name: str) -> None:
        target.weight, target.bias = ours[f"{name}.weight"], ours[f"{name}.bias"]

    def norm(target: Any, name: str) -> None:
        target.gamma, target.beta = ours[f"{name}.norm.weight"], ours[f"{name}.norm.bias"]

    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embeddings.weight, embeddings.multiply_by_sqrt_depth = ours["embedding.weight_VD"], True
        stack.scale_embeddings = True
        stack.position_encodings.encodings = model.embedding.positions.table_TD.float().cpu().numpy()
        for i, layer in enumerate(stack.layer):
            prefix = f"{side}.{i}"
            fill(layer.self_attention.linear[0], f"{prefix}.self_attention.qkv")
            fill(layer.self_attention.linear[1], f"{prefix}.self_attention.out")
            norm(layer.self_attention.layer_norm, f"{prefix}.residuals.0")
            if side == "decoder":
                fill(layer.attention.linear[0], f"{prefix}.cross_attention.q")
                fill(layer.attention.linear[1], f"{prefix}.cross_attention.kv")
                fill(layer.attention.linear[2], f"{prefix}.cross_attention.out")
                norm(layer.attention.layer_norm, f"{prefix}.residuals.1")
            fill(layer.ffn.linear_0, f"{prefix}.feed_forward.inner")
            fill(layer.ffn.linear_1, f"{prefix}.feed_forward.outer")
            norm(layer.ffn.layer_norm, f"{prefix}.residuals.{2 if side == 'decoder' else 1}")
    spec.decoder.projection.weight = ours["embedding.weight_VD"]
    tokens = [str(token) for token in range(model.vocab_size)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token, spec.config.eos_token, spec.config.decoder_start_token = str(BOS), str(EOS), str(BOS)
    spec.config.add_source_eos, spec.config.unk_token = False, "1"
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    return folder


def ctranslate2(model: EncoderDecoder, folder: Path, device: str, compute_type: str, threads: int = 0) -> Decode:
    """CTranslate2 at this precision."""
    import ctranslate2 as peer

    saved = save_for_ctranslate2(model, folder / compute_type, compute_type if compute_type != "float32" else None)
    translator = peer.Translator(str(saved), device=device, compute_type=compute_type, intra_threads=threads)

    def decode(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        length = len(sources[0]) + 1
        result = translator.translate_batch(
            [[str(token) for token in (*source, EOS)] for source in sources], beam_size=beam, length_penalty=0.6,
            max_decoding_length=length, min_decoding_length=length, return_scores=True,
        )  # fmt: skip
        return [[int(token) for token in one.hypotheses[0]] for one in result]

    return decode
