"""Export as a Hugging Face folder of Marian: weights, `MarianTokenizer` files, generation settings."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.interop.export.exporter import (
    SOURCE_EMBEDDING,
    Consumer,
    Exported,
    Exporter,
    position_table,
    require_exportable,
    to_halves,
    transformers_weights,
    write_json,
)
from transduce.interop.export.verify import OwnReader
from transduce.interop.huggingface import opus_sinusoids
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.model import Model
from transduce.models.weight_tensors import save_tensors
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "swish": "swish"}
_BATCH = 16


def check(model: Model) -> EncoderDecoder:
    """Post-norm with sinusoids, as Marian computes them."""
    found = require_exportable(
        model, "Hugging Face's Marian", norm=("post",), norm_epsilon=(1e-5,), activation=tuple(ACTIVATIONS),
        embedding=("scaled", "plain"), positions=("sinusoidal", "learned"),
    )  # fmt: skip
    table_TD = position_table(found, 1)
    if found.config.positions == "learned" and not torch.equal(table_TD, opus_sinusoids(*table_TD.shape)):
        raise ModelError("Hugging Face's Marian has sinusoidal positions, but the positions of this model are learned")
    return found


def marian_order(model: EncoderDecoder) -> list[int]:
    """Our ids in the order of OPUS-MT: end and unknown first, then all tokens, at the end BOS and padding.

    In OPUS-MT, a zero vector is both of the last two, and other converters rely on it. If outputs of this model start
    with a zero vector, it is the same here, and the vector of our padding is left out.
    """
    tokens = list(range(EOS + 1, model.vocab_size))
    if model.config.source_vocab_size is not None:  # the markers need the same ids on both sides
        return [EOS, UNK, *([BOS] if model.config.zero_start else [PAD, BOS]), *tokens]
    return [EOS, UNK, *tokens, BOS, *([] if model.config.zero_start else [PAD])]


def source_order(model: EncoderDecoder) -> list[int] | None:
    """Our ids of the source in the exported order, if it has a vocabulary of its own, which needs no BOS."""
    size = model.config.source_vocab_size
    return None if size is None else [EOS, UNK, PAD, *range(EOS + 1, size)]


def their_ids(order: Sequence[int]) -> dict[int, int]:
    """The exported id of each of ours."""
    ids = {ours: theirs for theirs, ours in enumerate(order)}
    return {PAD: ids[BOS], **ids}


def write(exported: Exported, folder: Path) -> None:
    model = exported.model
    order = marian_order(model)
    sinusoidal = model.config.positions == "sinusoidal"
    weights = transformers_weights(model, to_halves(model.config.d_model) if sinusoidal else None)
    for name in ("model.shared.weight", "lm_head.weight"):
        weights[name] = weights[name][order]
    weights["final_logits_bias"] = weights["final_logits_bias"][:, order]
    if model.config.tie_output:
        del weights["lm_head.weight"]
    if (source := source_order(model)) is not None:
        weights[SOURCE_EMBEDDING] = weights[SOURCE_EMBEDDING][source]
        weights["model.decoder.embed_tokens.weight"] = weights.pop("model.shared.weight")
    elif not model.config.tie_output:  # without tying, transformers looks for all embeddings
        for side in ("encoder", "decoder"):
            weights[f"model.{side}.embed_tokens.weight"] = weights["model.shared.weight"].clone()
    save_tensors(weights, folder / "model.safetensors")
    write_settings(exported, folder)


def write_settings(exported: Exported, folder: Path) -> None:
    """Write everything but the weights."""
    pieces, order = list(exported.vocabulary.pieces), marian_order(exported.model)
    if PAD not in order:
        pieces[BOS] = pieces[PAD]
    ids = their_ids(order)
    write_json(folder / "config.json", _settings(exported, ids))
    write_json(folder / "generation_config.json", _generation(exported, ids))
    vocabulary = {pieces[ours]: theirs for theirs, ours in enumerate(order)}
    of_source, source_pieces = source_order(exported.model), exported.vocabulary.source_pieces
    if of_source is not None and source_pieces is not None:
        write_json(folder / "target_vocab.json", vocabulary)
        vocabulary = {source_pieces[ours]: theirs for theirs, ours in enumerate(of_source)}
    write_json(folder / "vocab.json", vocabulary)
    source, target = exported.direction or (None, None)
    names = {"unk_token": pieces[UNK], "eos_token": pieces[EOS], "pad_token": pieces[PAD]}
    languages = {"source_lang": source, "target_lang": target, "separate_vocabs": of_source is not None}
    length = {"model_max_length": exported.max_source_length, "tokenizer_class": "MarianTokenizer"}
    write_json(folder / "tokenizer_config.json", names | languages | length)
    (folder / "source.spm").write_bytes(exported.vocabulary.source_spm)
    (folder / "target.spm").write_bytes(exported.vocabulary.target_spm)


def _settings(exported: Exported, ids: dict[int, int]) -> dict[str, Any]:
    config = exported.model.config
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": len(source_order(exported.model) or marian_order(exported.model)),
        "decoder_vocab_size": len(marian_order(exported.model)),
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "max_position_embeddings": len(position_table(exported.model)),
        "scale_embedding": config.embedding == "scaled",
        "share_encoder_decoder_embeddings": config.source_vocab_size is None,
        "tie_word_embeddings": config.tie_output,
        "is_encoder_decoder": True,
        "pad_token_id": ids[PAD],
        "bos_token_id": ids[BOS],
        "eos_token_id": ids[EOS],
        "forced_eos_token_id": None,
        "decoder_start_token_id": ids[BOS],
        "dtype": "float32",
    }


def _generation(exported: Exported, ids: dict[int, int]) -> dict[str, Any]:
    search = exported.search
    settings = {
        "num_beams": search.beam,
        "max_length": min(len(position_table(exported.model)), exported.max_source_length + search.max_extra),
        "min_new_tokens": search.min_length,
        "bad_words_ids": [[ids[marker]] for marker in (PAD, UNK, BOS)],
        "pad_token_id": ids[PAD],
        "bos_token_id": ids[BOS],
        "eos_token_id": ids[EOS],
        "decoder_start_token_id": ids[BOS],
        "forced_eos_token_id": None,
    }
    return settings | ({"length_penalty": search.length_penalty} if search.beam > 1 else {})


def limits(exported: Exported) -> list[str]:
    limits = [
        "Beam search of transformers divides log-probabilities by n^a, not by ((5 + n) / 6)^a, so some outputs of beam "
        "search differ. Greedy outputs are the same.",
        "Outputs end at `max_length` tokens (generation_config.json), however long the source is.",
    ]
    if not exported.model.config.zero_start:
        limits.append(
            "`ct2-transformers-converter` starts every output from a zero vector, which this model was not trained "
            "with: use `transduce export --to ctranslate2` instead."
        )
    return limits


def usage(exported: Exported, name: str) -> str:
    return f"""from transformers import MarianMTModel, MarianTokenizer

tokenizer, model = MarianTokenizer.from_pretrained("{name}"), MarianMTModel.from_pretrained("{name}")
batch = tokenizer([{exported.example!r}], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
"""


def consumer(exported: Exported, folder: Path) -> Consumer:
    try:
        import transformers
    except ImportError:
        return OwnReader(folder)
    return _Transformers(transformers, folder, exported.model)


class _Transformers:
    def __init__(self, library: Any, folder: Path, model: EncoderDecoder) -> None:
        self.name = f"transformers {library.__version__}"
        library.utils.logging.disable_progress_bar()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a hint to install sacremoses, which only its method `normalize` uses
            self._tokenizer = library.MarianTokenizer.from_pretrained(folder)
        self._model = library.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
        self._ours = marian_order(model)
        self._theirs = their_ids(self._ours)

    def logits(self, text: str, output: Sequence[int]) -> Tensor:
        batch = self._tokenizer([text], return_tensors="pt")
        decoder = torch.tensor([[self._theirs[token] for token in (BOS, *output)]])
        with torch.inference_mode():
            logits_TV: Tensor = self._model(**batch, decoder_input_ids=decoder).logits[0]
        return logits_TV[:, [self._theirs[token] for token in range(len(self._theirs))]]

    def translate(self, texts: Sequence[str], limits: Sequence[int]) -> list[list[int]]:
        """Sentences of similar length share a batch."""
        outputs: dict[int, list[int]] = {}
        order = sorted(range(len(texts)), key=lambda n: limits[n])
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            batch = self._tokenizer([texts[n] for n in chosen], return_tensors="pt", padding=True)
            longest = max(limits[n] for n in chosen)
            with torch.inference_mode():
                generated = self._model.generate(**batch, num_beams=1, max_length=None, max_new_tokens=longest + 1)
            for n, tokens in zip(chosen, generated.tolist(), strict=True):
                ours = [self._ours[token] for token in tokens[1:]]
                outputs[n] = ours[: ours.index(EOS)] if EOS in ours else ours
        return [outputs[n] for n in range(len(texts))]


HF = Exporter("Hugging Face (Marian)", check, write, consumer, limits, usage)
