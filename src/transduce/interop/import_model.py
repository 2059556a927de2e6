"""Importing public weights: a Hugging Face folder, a GGUF file, a folder of CTranslate2 or Marian, or our export."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from transduce.disk import atomic_folder, require_file
from transduce.errors import ConfigError, ModelError
from transduce.fast.native.shortlist import Shortlist
from transduce.files.languages import is_language_code
from transduce.interop.ctranslate2_file import read_ctranslate2
from transduce.interop.export.exporter import CARD, ORIGINAL_NOTES, VOCABULARY, permute_width, to_halves
from transduce.interop.gguf_file import read_gguf
from transduce.interop.huggingface import Converted, convert, opus_sinusoids
from transduce.interop.marian_file import find_marian, read_marian
from transduce.interop.marian_shortlist import read_marian_shortlist
from transduce.interop.tokenizer_files import (
    ctranslate2_tokenizer,
    gguf_tokenizer,
    marian_tokenizer,
    read_json,
    read_tokenizer,
)
from transduce.interop.vocabulary import reorder_vocabulary, restore_vocabulary
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.folder import NOTES, read_card, read_notes, save_model
from transduce.models.model import Model, ModelConfig
from transduce.models.registry import build_config, create_model
from transduce.models.weights_file import physical_memory
from transduce.nn.skip_initialization import SkipInitialization
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.imported import ImportedTokenizer, SentencePiecePair, TokenOrder
from transduce.tokenizers.tokenizer import BOS, EOS

_WEIGHTS, _INDEX, _PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
_TASKS = {
    "gpt2": "language_model", "llama": "language_model", "bert": "masked", "roberta": "masked", "vit": "classify",
    "whisper": "transcribe",
}  # fmt: skip
_MULTILINGUAL = 51865
"""Number of tokens from which a Whisper model has several languages."""
_CONTEXT = 512
"""Longest input of an encoder-decoder that does not limit it."""


@dataclass(frozen=True)
class Original:
    """A model of another toolkit, in the form of a Hugging Face folder."""

    format: str
    settings: dict[str, Any]
    """The content of `config.json`."""
    weights: Mapping[str, Tensor]
    tokenizer: ImportedTokenizer | TokenizerPair
    notes: str = ""
    shortlist: Shortlist | None = None

    @property
    def order(self) -> TokenOrder:
        target = self.tokenizer.target
        assert isinstance(target, ImportedTokenizer)
        return target.order

    @property
    def source_order(self) -> TokenOrder | None:
        """The order of the ids of the source, if it has a vocabulary of its own."""
        source = self.tokenizer.source if isinstance(self.tokenizer, TokenizerPair) else None
        return source.order if isinstance(source, ImportedTokenizer) else None


def import_model(path: Path, out: Path, *, foreign: bool = False) -> None:
    """Write the model folder of public weights, which are untrusted, atomically as a new folder.

    A model that `transduce export` wrote becomes what it was, unless it is to be read like a `foreign` one.
    """
    if out.exists():
        raise ModelError(f"{out} exists already; name a folder that does not")
    tokenizer: AnyTokenizer
    try:
        original = _read(path)
        if (path / CARD).exists() and not foreign:
            _, foreign_weights = _converted(original)
            config, weights, tokenizer, facts = _restore(path, foreign_weights, original.tokenizer)
            model = _filled(config, weights, tokenizer.target.vocab_size)
            notes = original.notes.partition(ORIGINAL_NOTES)[2].strip()
            original = replace(original, notes=f"{notes}\n" if notes else "", shortlist=None)
        else:
            model, tokenizer = _model(original, path), original.tokenizer
            facts = _facts(original, model)
    except (ConfigError, ModelError) as error:
        message = str(error)
        raise ModelError(message if message.startswith(str(path)) else f"{path}: {message}") from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{path}: settings and weights do not fit each other: {reason:.300}") from None
    with atomic_folder(out) as work:
        save_model(work, model, tokenizer, facts)
        if original.notes:
            (work / NOTES).write_text(original.notes, encoding="utf-8")
        if original.shortlist:
            original.shortlist.save(work, tokenizer)


def _read(path: Path) -> Original:
    if path.suffix == ".gguf":
        settings, weights, fields = read_gguf(path)
        return Original("GGUF", settings, weights, gguf_tokenizer(fields, settings))
    if not (path / "config.json").exists() and (path / "model.bin").exists() and [*path.glob("*_vocabulary.txt")]:
        return _read_ctranslate2(path, {"decoder_start_token": "<s>"})  # of a version that wrote no config.json
    if marian := find_marian(path):
        settings, weights = read_marian(marian)
        original = Original("Marian", settings, weights, marian_tokenizer(path, settings), read_notes(path))
        return replace(original, shortlist=read_marian_shortlist(path, original.order, original.source_order))
    if not (path / "config.json").exists():
        if not path.exists():
            raise ModelError(f"{path}: no such file or folder")
        raise ModelError(f"{path}: neither a .gguf file nor a folder with a config.json or a model of Marian")
    settings = read_json(path / "config.json")
    if "model_type" not in settings and (path / "model.bin").exists():
        return _read_ctranslate2(path, settings)
    if settings.get("model_type") == "whisper":
        settings = read_json(path / "generation_config.json", {}) | settings
    if not isinstance(settings.get("model_type"), str):
        raise ModelError(f"{path / 'config.json'}: model_type is missing")
    size = settings.get("vocab_size", 4)
    if not isinstance(size, int):
        raise ModelError(f"{path / 'config.json'}: vocab_size is not a number")
    notes = read_notes(path)
    weights = _read_safetensors(path)
    return Original("Hugging Face", settings, weights, read_tokenizer(path, settings, size), notes)


def _read_ctranslate2(path: Path, options: dict[str, Any]) -> Original:
    settings, weights = read_ctranslate2(path / "model.bin")
    settings |= {
        "suppress_tokens": options.get("suppress_ids"),
        "layer_norm_epsilon": options.get("layer_norm_epsilon"),
    }
    tokenizer: ImportedTokenizer | TokenizerPair
    if settings["model_type"] == "whisper":
        tokenizer = read_tokenizer(path, settings, settings["vocab_size"])
    else:
        tokenizer = ctranslate2_tokenizer(path, settings, options)
    return Original("CTranslate2", settings, weights, tokenizer, read_notes(path))


def _read_safetensors(folder: Path) -> dict[str, Tensor]:
    """The weights of a folder, in one file or several that an index lists."""
    files = [_WEIGHTS]
    if (folder / _INDEX).exists():
        table = read_json(folder / _INDEX).get("weight_map")
        files = sorted(set(table.values())) if isinstance(table, dict) else []
        if not files or not all(isinstance(name, str) and name == Path(name).name for name in files):
            raise ModelError(f"{folder / _INDEX}: weight_map must list files of the folder")
    elif not (folder / _WEIGHTS).exists() and (folder / _PICKLE).exists():
        raise ModelError(
            f"{folder / _PICKLE} is a pickle, which can run any program when it is read; load it with transformers, if "
            f"you trust it, and write {_WEIGHTS} with save_pretrained"
        )
    elif not (folder / _WEIGHTS).exists() and [*folder.glob("*.onnx")]:
        raise ModelError(f"{folder} is an ONNX model, which is not imported; import the model that it was made of")
    weights: dict[str, Tensor] = {}
    room = physical_memory() // 2
    for name in files:
        require_file(folder / name, room, "this machine has memory for")
        room -= (folder / name).stat().st_size
        try:
            weights |= load_file(folder / name)
        except (OSError, ValueError, SafetensorError) as error:
            raise ModelError(f"{folder / name}: cannot be read: {error}") from None
    weights = {name: x for name, x in weights.items() if x.is_floating_point()}
    if (size := 4 * sum(x.numel() for x in weights.values())) > physical_memory():  # they are not in memory yet
        raise ModelError(f"{folder}: its weights in float32 have {size:,} bytes, more than this machine has memory for")
    return {name: x.float() for name, x in weights.items()}


def _converted(original: Original) -> Converted:
    converted = convert(original.settings, original.weights)
    config, weights = reorder_vocabulary(converted, original.order, original.source_order)
    if isinstance(config, EncoderDecoderConfig) and config.source == "text":
        start_D = weights["embedding.weight_VD"][BOS]
        if original.settings.get("start_from_zero"):
            start_D.zero_()
        config = replace(config, zero_start=not start_D.any())
    return config, weights


def _model(original: Original, path: Path) -> Model:
    order = original.order
    config, weights = _converted(original)
    if isinstance(config, EncoderOnlyConfig):
        pooling = read_json(path / "1_Pooling" / "config.json", {})  # of sentence-transformers
        if pooling.get("pooling_mode_mean_tokens"):
            config = replace(config, pooling="mean")
    required = config.min_parameters(len(order.originals))
    if required > (stored := sum(math.prod(x.shape) for x in weights.values())):
        raise ModelError(f"it has {stored:,} weights, but its settings require at least {required:,}")
    return _filled(config, weights, len(order.originals))


def _filled(config: ModelConfig, weights: Mapping[str, Tensor], vocab_size: int) -> Model:
    with SkipInitialization():
        model = create_model(config, vocab_size)
    model.load_state_dict(weights)
    for name, x in model.state_dict().items():
        if not x.isfinite().all():
            raise ValueError(f"{name} contains values that are not finite numbers")
    return model.eval()


def _facts(original: Original, model: Model) -> dict[str, Any]:
    """What the card tells: where the model comes from, its task, and what the task needs."""
    settings, kind = original.settings, original.settings["model_type"]
    longest = settings.get("max_position_embeddings", settings.get("n_positions", _CONTEXT))
    facts: dict[str, Any] = {
        "imported": f"{kind} ({original.format})",
        "task": _TASKS.get(kind, "translate"),
        "max_length": min(model.longest or longest, 2**16),
    }
    if isinstance(labels := settings.get("id2label"), dict) and getattr(model.config, "classes", False):
        facts |= {"task": "classify", "labels": [str(label) for label in labels.values()]}
    if kind in ("marian", "transformer"):
        facts["by_sentence"] = True
    if kind == "whisper":
        facts["transcribe"] = _transcription(original)
        facts["search"] = {"beam": 1}
    return facts


def _transcription(original: Original) -> dict[str, Any]:
    """What a transcription needs: the tokens that every output begins with, and those that it must not contain."""
    order, tokenizer, settings = original.order, original.tokenizer, original.settings
    named = {piece: token for token, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))}
    prefix = [f"<|{name}|>" for name in ("en", "transcribe", "notimestamps")]
    if order.size < _MULTILINGUAL:
        prefix = prefix[-1:]
    if missing := [piece for piece in prefix if piece not in named]:
        raise ModelError(f"the vocabulary of this Whisper model has no token {missing[0]}")
    first_time = order.originals[named[prefix[-1]]] + 1
    suppressed = [token for token in settings.get("suppress_tokens") or [] if 0 <= token < order.size]
    languages = {name[2:-2]: token for name, token in named.items() if name[:2] + name[-2:] == "<||>"}
    languages = {name: token for name, token in languages.items() if is_language_code(name) and len(prefix) > 1}
    never = {order.ids[token] for token in [*suppressed, *range(first_time, order.size)]}
    begin = [named[piece] for piece in prefix]
    return {
        "prefix": begin,
        "languages": list(languages),
        "language_tokens": list(languages.values()),
        "suppressed": sorted(never - {EOS, *begin}),
        "seconds": settings["max_source_positions"] // 50,
        "pad": True,
    }


def _restore(
    folder: Path, weights: Mapping[str, Tensor], tokenizer: ImportedTokenizer | TokenizerPair
) -> tuple[ModelConfig, dict[str, Tensor], AnyTokenizer, dict[str, Any]]:
    """Settings, weights, tokenizer and facts of the model that `transduce export` wrote to a folder.

    The card beside it tells what it was; weights and tokenizer are those of its files as a foreign model.
    """
    card = read_card(folder, CARD)
    config = build_config(card["architecture"], card["model"], str(folder / CARD))
    if not isinstance(config, EncoderDecoderConfig):
        raise ModelError(f"{folder / CARD}: {card['architecture']} models are not exported")
    restored, facts = dict(weights), card["facts"]
    if config.positions != "learned":
        table_TD = restored.pop("embedding.positions.table_TD")
        if torch.equal(table_TD, opus_sinusoids(*table_TD.shape)):
            restored = permute_width(restored, to_halves(config.d_model).argsort())
    if not config.output_bias:
        restored.pop("output.bias_V", None)
    markers = card["markers"]
    for name in VOCABULARY:
        if name in restored:
            restored[name][:EOS] = torch.tensor(markers[name])
    if "imported" in facts:
        return config, restored, tokenizer, facts
    languages = sorted({target for _, target in facts.get("directions", [])}) if facts.get("tagged") else []
    sides = (tokenizer.source, tokenizer.target) if isinstance(tokenizer, TokenizerPair) else (tokenizer,)
    found = []
    for side, tags in zip(sides, (languages, []), strict=False):  # tags begin sources
        if not isinstance(side, SentencePiecePair):
            raise ModelError(f"{folder}: the vocabulary is not the one that was exported")
        found.append(restore_vocabulary(side.models[0], tags))
    return config, restored, TokenizerPair(*found) if len(found) == 2 else found[0], facts
