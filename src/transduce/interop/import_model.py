"""Importing public weights: Hugging Face, GGUF, CTranslate2, Argos, Marian, or what `transduce export` wrote."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.disk import atomic_folder
from transduce.errors import ConfigError, ModelError
from transduce.files.languages import LANGUAGES, Direction, base_language, directions_of, is_language_code
from transduce.interop.argos import find_argos, read_argos
from transduce.interop.ctranslate2 import read_ctranslate2
from transduce.interop.exchange import CARD, ORIGINAL_NOTES, VOCABULARY, Original
from transduce.interop.family import LANGUAGE_MODELS, MASKED_MODELS, convert
from transduce.interop.gguf import read_gguf
from transduce.interop.huggingface import HUGGING_FACE, from_marian, read_huggingface
from transduce.interop.imported_tokenizers import ImportedTokenizer, SentencePiecePair
from transduce.interop.marian import find_marian, read_marian
from transduce.interop.multilingual import MULTILINGUAL
from transduce.interop.onnx import ENCODER, read_onnx
from transduce.interop.vocabulary import read_json, reorder_vocabulary, restore_vocabulary
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.folder import NOTES, read_card, save_model
from transduce.models.model import Model, ModelConfig
from transduce.models.registry import build_config, create_model
from transduce.nn.skip_initialization import SkipInitialization
from transduce.search.decoder import Decoder
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.tokenizer import BOS, EOS

_TASKS = {
    **dict.fromkeys(LANGUAGE_MODELS, "language_model"), **dict.fromkeys(MASKED_MODELS, "masked"), "vit": "classify",
    "whisper": "transcribe",
}  # fmt: skip
_MULTILINGUAL = 51865
"""Number of tokens from which a Whisper model has several languages."""
_CONTEXT = 512
"""Longest input of an encoder-decoder that does not limit it."""
_NAMED_DIRECTION = re.compile(r"(?:^|[-_./])([a-z]{2,3})[-_]([a-z]{2,3})$")
"""The languages in the name of a model of OPUS-MT: opus-mt-en-fr."""
_POOLING = {
    "cls_token": "first", "cls": "first", "mean_tokens": "mean", "mean": "mean", "mean_sqrt_len_tokens": "mean",
    "mean_sqrt_len": "mean", "max_tokens": "max", "max": "max", "lasttoken": "last",
}  # fmt: skip
"""The ways of sentence-transformers to make one vector of those of the tokens. A mean divided by another number has the
same direction, and vectors of texts have the length 1 here."""


def import_model(path: Path, out: Path, *, foreign: bool = False, direction: Direction | None = None) -> None:
    """Write the model folder of public weights, which are untrusted, atomically as a new folder.

    A model that `transduce export` wrote becomes what it was, unless it is to be read like a `foreign` one. The
    languages of a translation model are those of `direction`, or those that its files or its name tell.
    """
    if out.exists():
        raise ModelError(f"{out} exists already; name a folder that does not")
    tokenizer: AnyTokenizer
    try:
        original = _read(path)
        config, weights, tokenizer = _converted(original)
        if (path / CARD).exists() and not foreign:
            config, weights, tokenizer, facts = _restore(path, original.format, weights, tokenizer)
            model = _filled(config, weights, tokenizer.target.vocab_size)
            notes = original.notes.partition(ORIGINAL_NOTES)[2].strip()
            original = replace(original, notes=f"{notes}\n" if notes else "", shortlist=None)
        else:
            model = _filled(config, weights, tokenizer.target.vocab_size)
            facts = _facts(original, model, path)
        _set_direction(facts, direction or original.direction, path, named=direction is not None)
    except (ConfigError, ModelError) as error:
        message = str(error)
        raise ModelError(message if message.startswith(str(path)) else f"{path}: {message}") from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        raise ModelError(f"{path}: its files are damaged: settings, weights and vocabulary do not fit") from None
    with atomic_folder(out) as work:
        save_model(work, model, tokenizer, facts)
        if original.notes:
            (work / NOTES).write_text(original.notes, encoding="utf-8")
        if original.shortlist:
            original.shortlist.save(work, tokenizer)


def _read(path: Path) -> Original:
    if path.suffix == ".gguf":
        return read_gguf(path)
    if argos := find_argos(path):
        return read_argos(argos)
    has_settings = (path / "config.json").exists()
    if not has_settings and (path / "model.bin").exists() and [*path.glob("*_vocabulary.txt")]:
        return read_ctranslate2(path, {})  # of a version that wrote no config.json
    if marian := find_marian(path):
        return read_marian(marian)
    if not has_settings:
        if not path.exists():
            raise ModelError(f"{path}: no such file or folder")
        if (path / "index.html").exists():
            raise ModelError(f"{path} is a page, which cannot be imported; use the model that was exported to it")
        raise ModelError(
            f"{path}: neither a .gguf or .argosmodel file nor a folder with a config.json or a model of Marian"
        )
    settings = read_json(path / "config.json")
    if "model_type" not in settings and (path / "model.bin").exists():
        return read_ctranslate2(path, settings)
    return read_onnx(path, settings) if (path / ENCODER).exists() else read_huggingface(path, settings)


def _converted(original: Original) -> tuple[ModelConfig, dict[str, Tensor], ImportedTokenizer | TokenizerPair]:
    """Settings, weights and vocabulary of our model that computes the same."""
    config, weights = convert(original.settings, original.weights)
    tokenizer = original.tokenizer
    if "source_weight_VD" in weights and isinstance(tokenizer, ImportedTokenizer):
        original = replace(original, tokenizer=TokenizerPair(tokenizer, tokenizer))
    config, weights = reorder_vocabulary((config, weights), original.order, original.source_order)
    if isinstance(config, EncoderDecoderConfig) and config.source == "text":
        start_D = weights["embedding.weight_VD"][BOS]
        if original.settings.get("start_from_zero"):
            start_D.zero_()
        has_tags = isinstance(tokenizer, ImportedTokenizer) and bool(tokenizer.languages)
        config = replace(config, zero_start=not start_D.any(), decoder_tag=has_tags)
    return config, weights, original.tokenizer


def _filled(config: ModelConfig, weights: Mapping[str, Tensor], vocab_size: int) -> Model:
    required = config.min_parameters(vocab_size)
    if required > (stored := sum(math.prod(x.shape) for x in weights.values())):
        raise ModelError(f"it has {stored:,} weights, but its settings require at least {required:,}")
    with SkipInitialization():
        model = create_model(config, vocab_size)
    for name, expected in model.state_dict().items():
        if name not in weights or (shape := weights[name].shape) != expected.shape:
            found = f"has the shape {tuple(shape)}" if name in weights else "is missing"
            raise ModelError(f"{name} {found}, but its settings require {tuple(expected.shape)}")
        if not weights[name].isfinite().all():
            raise ModelError(f"{name} contains values that are not finite numbers")
    model.load_state_dict(weights)
    return model.eval()


def _facts(original: Original, model: Model, path: Path) -> dict[str, Any]:
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
    if isinstance(model.config, EncoderOnlyConfig):
        facts |= _sentence_encoder(path, facts["max_length"])
    if kind in ("marian", "transformer", *MULTILINGUAL):
        facts["by_sentence"] = True
    if isinstance(original.tokenizer, ImportedTokenizer) and original.tokenizer.languages:
        facts |= {"tagged": True, "source_tags": True, "languages": dict(original.tokenizer.languages)}
    if kind == "whisper":
        facts["transcribe"] = _transcription(original)
        facts["search"] = {"beam": 1}
    ends = sorted({original.order.ids[token] for token in original.ends} - {EOS})
    if ends and isinstance(model, Decoder):
        if facts["task"] != "language_model":
            raise ModelError(f"config.json: eos_token_id = {[*original.ends]} cannot be imported, only one end marker")
        facts["ends"] = ends
    return facts


def _sentence_encoder(path: Path, longest: int) -> dict[str, Any]:
    """How sentence-transformers makes the vector of a text, if the folder tells."""
    facts: dict[str, Any] = {}
    if not (path / "modules.json").exists() and not (path / "1_Pooling").exists():
        return facts
    if (path / "2_Dense").exists():
        raise ModelError(f"{path / '2_Dense'}: a layer after the pooling cannot be imported")
    pooling = read_json(path / "1_Pooling" / "config.json", {})
    ways = [name.removeprefix("pooling_mode_") for name, value in pooling.items() if value is True]
    ways = [name for name in ways if name != "include_prompt"]
    if isinstance(named := pooling.get("pooling_mode"), str):
        ways = [named]
    if len(ways) > 1 or not all(name in _POOLING for name in ways):
        raise ModelError(f"{path / '1_Pooling'}: the pooling {' and '.join(ways):.60} cannot be imported")
    if ways:
        facts["pooling"] = _POOLING[ways[0]]
    limit = read_json(path / "sentence_bert_config.json", {}).get("max_seq_length")
    if isinstance(limit, int) and limit > 2:
        facts["max_length"] = min(limit - 2, longest)  # it counts both markers
    return facts


def _set_direction(facts: dict[str, Any], direction: Direction | None, path: Path, *, named: bool) -> None:
    """Write the languages of a translation model to its facts, unless it knows them."""
    if facts.get("task", "translate") != "translate":
        if named:
            raise ModelError(f"a model for the task {facts['task']} has no source and target language")
        return
    match = _NAMED_DIRECTION.search(path.resolve().name)
    if direction is None and match and all(base_language(code) in LANGUAGES for code in match.groups()):
        direction = match[1], match[2]
    if known := directions_of(facts):
        if named and known != [direction]:
            raise ModelError("the model knows its languages; leave out --src-lang and --tgt-lang")
    elif direction and ("imported" in facts or named):
        facts["directions"] = [list(direction)]


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
    languages = {name[2:-2]: token for name, token in named.items() if name[:2] + name[-2:] == "<||>"}
    languages = {name: token for name, token in languages.items() if is_language_code(name) and len(prefix) > 1}
    begin = [named[piece] for piece in prefix]
    found: dict[str, Any] = {
        "prefix": begin,
        "languages": list(languages),
        "language_tokens": list(languages.values()),
        "seconds": settings["max_source_positions"] // 50,
        "pad": True,
    }
    for name, theirs in (("suppressed", "suppress_tokens"), ("begin_suppressed", "begin_suppress_tokens")):
        tokens = {order.ids[token] for token in settings.get(theirs) or [] if 0 <= token < order.size}
        found[name] = sorted(tokens - ({EOS} if name == "suppressed" else set()))
    roles = {"translate": "translate", "nospeech": "no_speech", "nocaptions": "no_speech", "startofprev": "previous"}
    for piece, name in roles.items():
        if f"<|{piece}|>" in named and (name != "translate" or len(prefix) > 1):
            found[name] = named[f"<|{piece}|>"]
    if first_time < order.size:
        found["first_time"] = order.ids[first_time]
    return found


def _restore(
    folder: Path, format_name: str, weights: Mapping[str, Tensor], tokenizer: ImportedTokenizer | TokenizerPair
) -> tuple[ModelConfig, dict[str, Tensor], AnyTokenizer, dict[str, Any]]:
    """Settings, weights, tokenizer and facts of the model that `transduce export` wrote to a folder.

    The card beside it tells what it was; weights and tokenizer are those of its files as a foreign model.
    """
    card = read_card(folder, CARD)
    config = build_config(card["architecture"], card["model"], str(folder / CARD))
    if not isinstance(config, EncoderDecoderConfig):
        raise ModelError(f"{folder / CARD}: {card['architecture']} models are not exported")
    restored, facts = dict(weights), card["facts"]
    if config.decoder_tag:
        restored["embedding.weight_VD"][:EOS] = torch.tensor(card["markers"]["embedding.weight_VD"])
        return config, restored, tokenizer, facts
    if format_name == HUGGING_FACE:
        restored = from_marian(restored, config)
    if config.positions != "learned":
        del restored["embedding.positions.table_TD"]
    if not config.output_bias:
        restored.pop("output.bias_V", None)
    markers = card["markers"]
    for name in VOCABULARY:
        if name in restored:
            restored[name][:EOS] = torch.tensor(markers[name])
    if "imported" in facts:
        return config, restored, tokenizer, facts
    languages = sorted({target for _, target in directions_of(facts)}) if facts.get("tagged") else []
    sides = (tokenizer.source, tokenizer.target) if isinstance(tokenizer, TokenizerPair) else (tokenizer,)
    found = []
    for side, tags in zip(sides, (languages, []), strict=False):  # tags begin sources
        if not isinstance(side, SentencePiecePair):
            raise ModelError(f"{folder}: the vocabulary is not the one that was exported")
        found.append(restore_vocabulary(side.models[0], tags))
    return config, restored, TokenizerPair(*found) if len(found) == 2 else found[0], facts
