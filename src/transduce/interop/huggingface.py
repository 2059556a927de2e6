"""Hugging Face folders: reading them, and writing those of Marian (weights, `MarianTokenizer` files, settings)."""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.files.languages import is_language_code
from transduce.interop import multilingual_export
from transduce.interop.exchange import (
    ACTIVATIONS,
    SOURCE_EMBEDDING,
    Consumer,
    Exported,
    Exporter,
    Original,
    permute_width,
    position_table,
    require_exportable,
    scale_residuals,
    to_halves,
    transformers_weights,
    write_json,
)
from transduce.interop.family import complete_settings, opus_sinusoids
from transduce.interop.vocabulary import read_json, read_tokenizer
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.folder import read_notes
from transduce.models.model import Model
from transduce.models.weight_tensors import save_tensors
from transduce.models.weights_file import physical_memory
from transduce.nn.kinds import ADDED
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK

HUGGING_FACE = "Hugging Face"
_EPSILON = 1e-5
"""Number that the norms of Marian in transformers add to the variance."""
_WEIGHTS, _INDEX, _PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
_BATCH = 16


def read_huggingface(folder: Path, settings: Mapping[str, Any]) -> Original:
    """The model of a folder, given the content of its `config.json`."""
    complete = complete_settings(settings)
    generation = read_json(folder / "generation_config.json", {})
    if complete["model_type"] == "whisper":
        for name in ("suppress_tokens", "begin_suppress_tokens"):
            complete[name] = generation.get(name, complete.get(name))
    ends = generation.get("eos_token_id", complete.get("eos_token_id"))
    ends = ends if isinstance(ends, list) else [ends]
    size = complete.get("vocab_size", 4)  # a model of images has markers only
    options = read_json(folder / "tokenizer_config.json", {})
    languages = [str(options.get(f"{side}_lang")) for side in ("source", "target")]
    return Original(
        HUGGING_FACE,
        complete,
        _read_safetensors(folder),
        read_tokenizer(folder, complete, size),
        read_notes(folder),
        direction=(languages[0], languages[1]) if all(map(is_language_code, languages)) else None,
        ends=[token for token in ends if isinstance(token, int) and 0 <= token < size],
    )


def _read_safetensors(folder: Path) -> dict[str, Tensor]:
    """The weights of a folder, in one file or several that an index lists."""
    names = [_WEIGHTS]
    if (folder / _INDEX).exists():
        table = read_json(folder / _INDEX).get("weight_map")
        names = sorted(set(table.values())) if isinstance(table, dict) else []
        if not names or not all(isinstance(name, str) and name == Path(name).name for name in names):
            raise ModelError(f"{folder / _INDEX}: weight_map must list files of the folder")
    elif not (folder / _WEIGHTS).exists() and (folder / _PICKLE).exists():
        raise ModelError(
            f"{folder / _PICKLE} is a pickle, which can run any program when it is read; load it with transformers, if "
            f"you trust it, and write {_WEIGHTS} with save_pretrained"
        )
    weights: dict[str, Tensor] = {}
    room = physical_memory() // 2
    for name in names:
        require_file(folder / name, room, "this machine has memory for")
        room -= (folder / name).stat().st_size
        try:
            weights |= load_file(folder / name)
        except (OSError, ValueError, SafetensorError):
            raise ModelError(f"{folder / name}: not a safetensors file, or damaged; get it again") from None
    weights = {name: x for name, x in weights.items() if x.is_floating_point()}
    if (size := 4 * sum(x.numel() for x in weights.values())) > physical_memory():  # they are not in memory yet
        raise ModelError(f"{folder}: its weights in float32 have {size:,} bytes, more than this machine has memory for")
    return {name: x.float() for name, x in weights.items()}


def check(model: Model) -> EncoderDecoder:
    if getattr(model.config, "decoder_tag", False):
        return multilingual_export.check(model)
    return require_exportable(
        model, "Hugging Face's Marian", norm=("post",), activation=tuple(ACTIVATIONS), embedding=("scaled", "plain"),
        positions=ADDED,
    )  # fmt: skip


def _to_marian(weights: dict[str, Tensor], config: EncoderDecoderConfig) -> dict[str, Tensor]:
    """Weights with sines and cosines of positions side by side, and residuals that fit to the epsilon of norms."""
    if config.positions == "sinusoidal":
        weights = permute_width(weights, to_halves(config.d_model))
    if config.norm_epsilon == _EPSILON:
        return weights
    return scale_residuals(weights, config, math.sqrt(_EPSILON / config.norm_epsilon))


def from_marian(weights: dict[str, Tensor], config: EncoderDecoderConfig) -> dict[str, Tensor]:
    """The inverse of `_to_marian`, but for rounding if residuals are scaled."""
    if config.norm_epsilon != _EPSILON:
        weights = scale_residuals(weights, config, math.sqrt(config.norm_epsilon / _EPSILON))
    return permute_width(weights, to_halves(config.d_model).argsort()) if config.positions == "sinusoidal" else weights


def _positions(model: EncoderDecoder) -> Tensor | None:
    """The table of positions to store; None if the library computes the same one."""
    table_TD = position_table(model)
    opus_TD = opus_sinusoids(*table_TD.shape)
    if model.config.positions == "sinusoidal":
        table_TD = opus_TD
    if model.config.norm_epsilon == _EPSILON and torch.equal(table_TD, opus_TD):
        return None
    return table_TD * math.sqrt(_EPSILON / model.config.norm_epsilon)


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
    if model.config.decoder_tag:
        multilingual_export.write(exported, folder)
        return
    order = marian_order(model)
    weights = transformers_weights(model, lambda ours: _to_marian(ours, model.config))
    if (table_TD := _positions(model)) is not None:
        weights |= {f"model.{side}.embed_positions.weight": table_TD.clone() for side in ("encoder", "decoder")}
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
        "architectures": ["MarianMTModel"], "model_type": "marian",
        "vocab_size": len(source_order(exported.model) or marian_order(exported.model)),
        "decoder_vocab_size": len(marian_order(exported.model)), "d_model": config.d_model,
        "encoder_layers": config.encoder_layers, "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.num_heads, "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff, "decoder_ffn_dim": config.d_ff,
        "activation_function": ACTIVATIONS[config.activation], "dropout": config.dropout,
        "attention_dropout": config.attention_dropout, "activation_dropout": 0.0,
        "max_position_embeddings": len(position_table(exported.model)),
        "scale_embedding": config.embedding == "scaled",
        "share_encoder_decoder_embeddings": config.source_vocab_size is None, "tie_word_embeddings": config.tie_output,
        "is_encoder_decoder": True, "pad_token_id": ids[PAD], "bos_token_id": ids[BOS], "eos_token_id": ids[EOS],
        "forced_eos_token_id": None, "decoder_start_token_id": ids[BOS], "dtype": "float32",
    }  # fmt: skip


def _generation(exported: Exported, ids: dict[int, int]) -> dict[str, Any]:
    search = exported.search
    settings = {
        "num_beams": search.beam,
        "max_length": min(len(position_table(exported.model)), exported.max_source_length + search.max_extra),
        "min_new_tokens": search.min_length, "bad_words_ids": [[ids[marker]] for marker in (PAD, UNK, BOS)],
        "pad_token_id": ids[PAD], "bos_token_id": ids[BOS], "eos_token_id": ids[EOS],
        "decoder_start_token_id": ids[BOS], "forced_eos_token_id": None,
    }  # fmt: skip
    return settings | ({"length_penalty": search.length_penalty} if search.beam > 1 else {})


def consumer(exported: Exported, folder: Path) -> Consumer | None:
    try:
        import transformers
    except ImportError:
        return None
    if exported.model.config.decoder_tag:
        return multilingual_export.MultilingualConsumer(transformers, folder, exported)
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


def limits(exported: Exported) -> list[str]:
    found: list[str] = []
    if exported.model.config.decoder_tag:
        return found
    if not exported.model.config.zero_start:
        found.append(
            "`ct2-transformers-converter` starts every output from a zero vector, which this model was not trained "
            "with: use `transduce export --to ctranslate2` instead."
        )
    if _positions(exported.model) is not None:
        found.append(
            "The positions are those of the file. `save_pretrained` of transformers leaves them out: after fine-tuning "
            "there, copy both `embed_positions.weight` to the new `model.safetensors`."
        )
    return found


HF = Exporter("hf", check, write, consumer, limits)
