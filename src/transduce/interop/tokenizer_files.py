"""Reading the tokenizers of other toolkits, and finding the tokens that play the roles of our markers."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.errors import ModelError
from transduce.interop.marian_file import read_vocabulary
from transduce.interop.tokenizer_json import byte_level_bpe, markers_only, word_piece
from transduce.interop.vocabulary_files import read_bytes, read_ids, read_json, read_list
from transduce.tokenizers.any_tokenizer import TokenizerPair
from transduce.tokenizers.imported import (
    ImportedTokenizer,
    LibraryTokenizer,
    SentencePiecePair,
    TokenOrder,
    parse_tokenizer,
)

_MAX_SENTINELS = 1 << 16
_END_OF_DOCUMENT = "<|endoftext|>"
_NAMES = {
    "bert": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"},
    "gpt2": {"bos": _END_OF_DOCUMENT, "eos": _END_OF_DOCUMENT},
    "whisper": {"eos": _END_OF_DOCUMENT, "decoder_start": "<|startoftranscript|>"},
}
_DEFAULT_NAMES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>"}
_CONTROL, _USER_DEFINED = 3, 4
"""GGUF's types of special tokens and of other tokens that are recognized as a whole."""

_SIDES = (r"src|source", r"trg|tgt|target")
"""What the names of files of source and target contain."""

FindToken = Callable[[str], int | None]
"""The id of a token by its text."""


def read_tokenizer(folder: Path, settings: Mapping[str, Any], size: int) -> ImportedTokenizer | TokenizerPair:
    """The tokenizer of a Hugging Face folder, for a model with `size` tokens."""
    kind, options = settings["model_type"], read_json(folder / "tokenizer_config.json", {})
    names = _names(kind, options, read_json(folder / "special_tokens_map.json", {}))
    if kind == "vit":
        return markers_only()
    if (folder / "source.spm").exists():
        vocabulary = read_ids(folder / "vocab.json")
        if settings.get("share_encoder_decoder_embeddings", True):
            return _pair(folder, ("source.spm", "target.spm"), list(vocabulary), settings, names)
        own = folder / "target_vocab.json"
        lists = list(vocabulary), list(read_ids(own) if own.exists() else vocabulary)
        sizes = settings["vocab_size"], settings.get("decoder_vocab_size") or settings["vocab_size"]
        return _two(folder, ("source.spm", "target.spm"), lists, sizes, settings, names)
    if (folder / "tokenizer.json").exists():
        text = read_bytes(folder / "tokenizer.json").decode(errors="replace")
    elif (folder / "vocab.txt").exists():
        tokens = read_bytes(folder / "vocab.txt").decode(errors="replace").split("\n")
        text = word_piece(tokens, options, _NAMES["bert"].values())
    elif (folder / "merges.txt").exists():
        vocabulary = read_ids(folder / "vocab.json")
        lines = read_bytes(folder / "merges.txt").decode(errors="replace").splitlines()
        merges = [line for line in lines if line and not line.startswith("#version")]
        text = byte_level_bpe(vocabulary, merges, {name: True for name in names.values() if name in vocabulary})
    elif (folder / "spiece.model").exists():
        return _pair(folder, ("spiece.model", "spiece.model"), None, settings, names)
    else:
        raise ModelError(
            f"{folder}: no vocabulary; it needs tokenizer.json, vocab.txt, vocab.json and merges.txt, spiece.model, or "
            "source.spm, target.spm and vocab.json"
        )
    try:
        tokenizer = parse_tokenizer(text)
    except ValueError as error:
        raise ModelError(f"{folder / 'tokenizer.json'}: {error}") from None
    begins = tokenizer.encode("").ids[:1] != []
    order = TokenOrder(markers(settings, names, tokenizer.token_to_id, size, begins=begins), size)
    return LibraryTokenizer(text, order, _before(kind, names, tokenizer.token_to_id, order))


def ctranslate2_tokenizer(
    folder: Path, settings: Mapping[str, Any], options: Mapping[str, Any]
) -> ImportedTokenizer | TokenizerPair:
    """The SentencePiece models beside a Transformer of CTranslate2, and its vocabulary; `options` is config.json."""
    files = ("source.spm", "target.spm")
    if (folder / "sentencepiece.model").exists():
        files = ("sentencepiece.model", "sentencepiece.model")
    if missing := [name for name in files if not (folder / name).exists()]:
        raise ModelError(f"{folder}: the folder has no {missing[0]}; copy the model's SentencePiece files there")
    roles = {"unk": "unk_token", "eos": "eos_token", "decoder_start": "decoder_start_token"}
    names = {role: options[option] for role, option in roles.items() if isinstance(options.get(option), str)}
    names = {**_DEFAULT_NAMES, **names}
    shared = _listed(folder, "shared")
    if "source_vocab_size" not in settings:
        return _pair(folder, files, read_list(shared), settings, names)
    paths = [shared] * 2 if shared.exists() else [_listed(folder, kind) for kind in ("source", "target")]
    lists = [read_list(path) for path in paths]
    sizes = settings["source_vocab_size"], settings["vocab_size"]
    return _two(folder, files, (lists[0], lists[1]), sizes, settings, names)


def _listed(folder: Path, kind: str) -> Path:
    """The list of tokens of CTranslate2: JSON, or text as older versions wrote it."""
    text = folder / f"{kind}_vocabulary.txt"
    return text if text.exists() and not text.with_suffix(".json").exists() else text.with_suffix(".json")


def marian_tokenizer(folder: Path, settings: Mapping[str, Any]) -> ImportedTokenizer | TokenizerPair:
    """The vocabulary of a Marian model: `.spm` models and a `.yml` list of tokens, or `.spm` models by themselves.

    If source and target have vocabularies of their own, the names of the files tell whose they are.
    """
    from transduce.tokenizers.tokenizer import Tokenizer

    lists, roles = sorted(folder.glob("*vocab*.yml")), {**_DEFAULT_NAMES, "decoder_start": "<s>"}
    if "source_vocab_size" in settings:
        spm, yml = _sides(folder.glob("*.spm")), _sides(lists)
        if spm is None or (lists and yml is None):
            raise ModelError(
                f"{folder}: source and target of this model have vocabularies of their own; the folder needs a file "
                "srcvocab.spm and a file trgvocab.spm, or source.spm, target.spm, source.vocab.yml, target.vocab.yml"
            )
        own = [read_vocabulary(path) for path in yml] if yml else [Tokenizer.load(path).names for path in spm]
        sizes = settings["source_vocab_size"], settings["vocab_size"]
        return _two(folder, (spm[0].name, spm[1].name), (own[0], own[1]), sizes, settings, roles)
    if len(lists) == 1 and (folder / "source.spm").exists():
        return _pair(folder, ("source.spm", "target.spm"), read_vocabulary(lists[0]), settings, roles)
    models = sorted(folder.glob("*.spm"))
    if len(models) != 1:
        raise ModelError(
            f"{folder}: no vocabulary; it needs one .spm file, or source.spm, target.spm and a file named *vocab*.yml"
        )
    names = Tokenizer.load(models[0]).names
    return _pair(folder, (models[0].name, models[0].name), names, settings, roles)


def markers(
    settings: Mapping[str, Any], names: Mapping[str, str], find: FindToken, size: int, *, begins: bool
) -> tuple[int, int, int, int]:
    """The ids of the tokens that play the roles of PAD, UNK, BOS and EOS; `begins`: the tokenizer adds a BOS.

    A role that the model does not have is played by its end marker.
    """

    def of_role(role: str) -> int | None:
        value = settings.get(f"{role}_token_id")
        value = value[0] if isinstance(value, list) and value else value
        if not isinstance(value, int) or not 0 <= value < size:
            value = find(names[role]) if role in names else None
        return value if value is not None and value < size else None

    kind = settings["model_type"]
    if kind in ("bert", "roberta"):
        bos, eos = of_role("cls"), of_role("sep")
    elif kind in ("gpt2", "llama"):
        bos, eos = of_role("bos"), of_role("eos")
        if not begins and (document := find(_END_OF_DOCUMENT)) is not None:
            bos = document  # what precedes a document in training, if texts do not begin with BOS
    else:
        bos, eos = of_role("decoder_start"), of_role("eos")
        bos = bos if bos is not None else eos if kind == "bart" else of_role("pad")
    if eos is None:
        raise ModelError("config.json: the model has no end marker (eos_token_id)")
    pad, unk = of_role("pad"), of_role("unk")
    return tuple(eos if one is None else one for one in (pad, unk, bos, eos))  # type: ignore[return-value]


def gguf_tokenizer(fields: Mapping[str, Any], settings: Mapping[str, Any]) -> ImportedTokenizer:
    """The byte-level BPE vocabulary of a GGUF file, given its metadata."""
    if (model := fields.get("tokenizer.ggml.model")) != "gpt2":
        raise ModelError(f"a GGUF vocabulary of type {model!r:.40} cannot be imported; use one of type gpt2")
    tokens, merges = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.merges"]
    types = fields.get("tokenizer.ggml.token_type", [])
    added = {
        token: kind == _CONTROL for token, kind in zip(tokens, types, strict=False) if kind in (_CONTROL, _USER_DEFINED)
    }
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelError("the GGUF vocabulary has a token twice")
    text = byte_level_bpe(vocabulary, merges, added, fields.get("tokenizer.ggml.pre", "default"))
    roles = {"pad": "padding", "unk": "unknown", "bos": "bos", "eos": "eos"}
    ids = {f"{ours}_token_id": fields.get(f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in roles.items()}
    begins = bool(fields.get("tokenizer.ggml.add_bos_token"))
    found = markers({**settings, **ids}, {}, vocabulary.get, len(tokens), begins=begins)
    return LibraryTokenizer(text, TokenOrder(found, len(tokens)))


def _names(kind: str, *tables: Mapping[str, Any]) -> dict[str, str]:
    """The texts of special tokens by role, of which later tables have the last word."""
    names = dict(_NAMES.get(kind, _DEFAULT_NAMES))
    for table in tables:
        for role in _DEFAULT_NAMES:
            value = table.get(f"{role}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                names[role] = value
    return names


def _before(kind: str, names: Mapping[str, str], find: FindToken, order: TokenOrder) -> list[int]:
    """The tokens before every source: an encoder-decoder has no BOS there, but BART was trained with <s>."""
    token = find(names["bos"]) if kind == "bart" else None
    return [] if token is None else [order.ids[token]]


def _pair(
    folder: Path,
    files: tuple[str, str],
    pieces: Sequence[str] | None,
    settings: Mapping[str, Any],
    names: Mapping[str, str],
) -> SentencePiecePair:
    """A tokenizer of SentencePiece models; without a list of pieces, it is that of the model, and T5's sentinels."""
    source, target = (read_bytes(folder / name) for name in files)
    size = settings["vocab_size"]
    if pieces is None:
        from transduce.tokenizers.tokenizer import Tokenizer

        own = Tokenizer.load(folder / files[0])
        pieces = own.pieces(range(own.vocab_size))
        sentinels = settings.get("extra_ids", 100)
        if sentinels > (most := min(size, _MAX_SENTINELS)):
            raise ModelError(f"config.json: {sentinels:,} sentinels (extra_ids) are more than the {most:,} allowed")
        pieces = [*pieces, *(f"<extra_id_{sentinels - 1 - n}>" for n in range(sentinels))]
    ids = {piece: number for number, piece in enumerate(pieces)}
    order = TokenOrder(markers(settings, names, ids.get, size, begins=False), size)
    return SentencePiecePair(source, target, pieces, order)


def _two(
    folder: Path,
    files: tuple[str, str],
    lists: tuple[Sequence[str], Sequence[str]],
    sizes: tuple[int, int],
    settings: Mapping[str, Any],
    names: Mapping[str, str],
) -> TokenizerPair:
    """The tokenizers of source and target, given the file, the pieces and the size of each.

    The ids of markers in the settings are those of the target; the source finds its own by their names.
    """
    of_source = {"model_type": settings["model_type"], "vocab_size": sizes[0]}
    of_target = {**settings, "vocab_size": sizes[1]}
    source, target = (
        _pair(folder, (file, file), pieces, own, names)
        for file, pieces, own in zip(files, lists, (of_source, of_target), strict=True)
    )
    return TokenizerPair(source, target)


def _sides(paths: Iterable[Path]) -> tuple[Path, Path] | None:
    """The file of the source and that of the target, by their names; None unless there is one of each."""
    found = list(paths)
    source, target = ([path for path in found if re.search(side, path.name)] for side in _SIDES)
    return (source[0], target[0]) if len(source) == len(target) == 1 else None
