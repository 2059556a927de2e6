"""Reading the vocabularies of other toolkits, and finding the tokens that play the roles of our markers."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.interop.marian_file import read_vocabulary
from transduce.tokenizers.any_tokenizer import TokenizerPair
from transduce.tokenizers.imported import (
    ImportedTokenizer,
    LibraryTokenizer,
    SentencePiecePair,
    TokenOrder,
    import_tokenizers,
    parse_tokenizer,
)
from transduce.tokenizers.tokenizer import Tokenizer

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
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How the tokenizer of Llama 3 splits a text into words."""
_MAX_BYTES = 1 << 26


def read_tokenizer(folder: Path, settings: Mapping[str, Any], size: int) -> ImportedTokenizer | TokenizerPair:
    """The tokenizer of a Hugging Face folder, for a model with `size` tokens."""
    kind, options = settings["model_type"], read_json(folder / "tokenizer_config.json", {})
    names = _names(kind, options, read_json(folder / "special_tokens_map.json", {}))
    if kind == "vit":
        return _markers_only()
    if (folder / "source.spm").exists():
        vocabulary = _read_ids(folder / "vocab.json")
        if settings.get("share_encoder_decoder_embeddings", True):
            return _shared_vocabulary(folder, ("source.spm", "target.spm"), list(vocabulary), settings, names)
        target = folder / "target_vocab.json"
        lists = list(vocabulary), list(_read_ids(target) if target.exists() else vocabulary)
        sizes = settings["vocab_size"], settings.get("decoder_vocab_size") or settings["vocab_size"]
        return _separate_vocabularies(folder, ("source.spm", "target.spm"), lists, sizes, settings, names)
    if (folder / "tokenizer.json").exists():
        text = read_bytes(folder / "tokenizer.json").decode(errors="replace")
    elif (folder / "vocab.txt").exists():
        tokens = read_bytes(folder / "vocab.txt").decode(errors="replace").split("\n")
        text = _word_piece(tokens, options, _NAMES["bert"].values())
    elif (folder / "merges.txt").exists():
        vocabulary = _read_ids(folder / "vocab.json")
        lines = read_bytes(folder / "merges.txt").decode(errors="replace").splitlines()
        merges = [line for line in lines if line and not line.startswith("#version")]
        text = _byte_level_bpe(vocabulary, merges, {name: True for name in names.values() if name in vocabulary})
    elif (folder / "spiece.model").exists():
        return _shared_vocabulary(folder, ("spiece.model", "spiece.model"), None, settings, names)
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
    order = TokenOrder(_markers(settings, names, tokenizer.token_to_id, size, begins=begins), size)
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
        return _shared_vocabulary(folder, files, _read_list(shared), settings, names)
    paths = [shared] * 2 if shared.exists() else [_listed(folder, kind) for kind in ("source", "target")]
    lists = [_read_list(path) for path in paths]
    sizes = settings["source_vocab_size"], settings["vocab_size"]
    return _separate_vocabularies(folder, files, (lists[0], lists[1]), sizes, settings, names)


def _listed(folder: Path, kind: str) -> Path:
    """The list of tokens of CTranslate2: JSON, or text as older versions wrote it."""
    text = folder / f"{kind}_vocabulary.txt"
    return text if text.exists() and not text.with_suffix(".json").exists() else text.with_suffix(".json")


def marian_tokenizer(folder: Path, settings: Mapping[str, Any]) -> ImportedTokenizer | TokenizerPair:
    """The vocabulary of a Marian model: `.spm` models and a `.yml` list of tokens, or `.spm` models by themselves.

    If source and target have vocabularies of their own, the names of the files tell whose they are.
    """
    lists, roles = sorted(folder.glob("*vocab*.yml")), {**_DEFAULT_NAMES, "decoder_start": "<s>"}
    if "source_vocab_size" in settings:
        spm, yml = _source_and_target(folder.glob("*.spm")), _source_and_target(lists)
        if spm is None or (lists and yml is None):
            raise ModelError(
                f"{folder}: source and target of this model have vocabularies of their own; the folder needs a file "
                "srcvocab.spm and a file trgvocab.spm, or source.spm, target.spm, source.vocab.yml, target.vocab.yml"
            )
        tokens = [read_vocabulary(path) for path in yml] if yml else [Tokenizer.load(path).names for path in spm]
        sizes = settings["source_vocab_size"], settings["vocab_size"]
        return _separate_vocabularies(
            folder, (spm[0].name, spm[1].name), (tokens[0], tokens[1]), sizes, settings, roles
        )
    if len(lists) == 1 and (folder / "source.spm").exists():
        return _shared_vocabulary(folder, ("source.spm", "target.spm"), read_vocabulary(lists[0]), settings, roles)
    models = sorted(folder.glob("*.spm"))
    if len(models) != 1:
        raise ModelError(
            f"{folder}: no vocabulary; it needs one .spm file, or source.spm, target.spm and a file named *vocab*.yml"
        )
    names = Tokenizer.load(models[0]).names
    return _shared_vocabulary(folder, (models[0].name, models[0].name), names, settings, roles)


def _markers(
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
    pad, unk, bos = (eos if token is None else token for token in (of_role("pad"), of_role("unk"), bos))
    return pad, unk, bos, eos


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
    text = _byte_level_bpe(vocabulary, merges, added, fields.get("tokenizer.ggml.pre", "default"))
    roles = {"pad": "padding", "unk": "unknown", "bos": "bos", "eos": "eos"}
    ids = {f"{ours}_token_id": fields.get(f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in roles.items()}
    begins = bool(fields.get("tokenizer.ggml.add_bos_token"))
    found = _markers({**settings, **ids}, {}, vocabulary.get, len(tokens), begins=begins)
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


def _shared_vocabulary(
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
        tokenizer = Tokenizer.load(folder / files[0])
        pieces = tokenizer.pieces(range(tokenizer.vocab_size))
        sentinels = settings.get("extra_ids", 100)
        if sentinels > (most := min(size, _MAX_SENTINELS)):
            raise ModelError(f"config.json: {sentinels:,} sentinels (extra_ids) are more than the {most:,} allowed")
        pieces = [*pieces, *(f"<extra_id_{sentinels - 1 - n}>" for n in range(sentinels))]
    ids = {piece: number for number, piece in enumerate(pieces)}
    order = TokenOrder(_markers(settings, names, ids.get, size, begins=False), size)
    return SentencePiecePair(source, target, pieces, order)


def _separate_vocabularies(
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
        _shared_vocabulary(folder, (file, file), pieces, side, names)
        for file, pieces, side in zip(files, lists, (of_source, of_target), strict=True)
    )
    return TokenizerPair(source, target)


def _source_and_target(paths: Iterable[Path]) -> tuple[Path, Path] | None:
    """The file of the source and that of the target, by their names; None unless there is one of each."""
    found = list(paths)
    source, target = ([path for path in found if re.search(side, path.name)] for side in _SIDES)
    return (source[0], target[0]) if len(source) == len(target) == 1 else None


def _word_piece(tokens: Sequence[str], options: Mapping[str, Any], special: Iterable[str]) -> str:
    """The `tokenizer.json` of BERT's `vocab.txt`; `special` tokens are recognized as a whole."""
    library = import_tokenizers()
    tokens = [token.rstrip("\r") for token in tokens]
    vocabulary = {token: number for number, token in enumerate(tokens) if token}
    tokenizer = library.Tokenizer(library.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = library.normalizers.BertNormalizer(
        lowercase=bool(options.get("do_lower_case", True)),
        strip_accents=options.get("strip_accents"),
        handle_chinese_chars=bool(options.get("tokenize_chinese_chars", True)),
    )
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = library.decoders.WordPiece("##", True)
    tokenizer.add_special_tokens([*special, "[MASK]"])
    return str(tokenizer.to_str())


def _byte_level_bpe(
    vocabulary: Mapping[str, int], merges: Sequence[str], added: Mapping[str, bool], split: str = "gpt-2"
) -> str:
    """The `tokenizer.json` of byte-level BPE (GPT-2).

    `added` are tokens that are recognized as a whole, and whether they are special; `split` is GGUF's name of the way
    in which a text is split into words.
    """
    library = import_tokenizers()
    pairs = [tuple(merge.split(" ")) for merge in merges]
    try:
        model = library.models.BPE(dict(vocabulary), pairs, ignore_merges=split == "llama-bpe")
    except Exception as error:  # the library raises no other type
        raise ModelError(f"the merges do not fit the vocabulary: {error}") from None
    tokenizer, before = library.Tokenizer(model), library.pre_tokenizers
    byte_level = before.ByteLevel(add_prefix_space=False)
    ways = {
        "default": byte_level,
        "gpt-2": byte_level,
        "smollm": before.Sequence([before.Digits(individual_digits=True), byte_level]),
        "llama-bpe": before.Sequence([
            before.Split(library.Regex(_LLAMA3), "isolated"), before.ByteLevel(add_prefix_space=False, use_regex=False)
        ]),
    }  # fmt: skip
    if split not in ways:
        raise ModelError(f"a vocabulary that splits texts like {split!r:.40} cannot be imported; use {', '.join(ways)}")
    tokenizer.pre_tokenizer, tokenizer.decoder = ways[split], library.decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token, special in added.items() if special])
    tokenizer.add_tokens([token for token, special in added.items() if not special])
    return str(tokenizer.to_str())


def _markers_only() -> LibraryTokenizer:
    """The vocabulary of a model without text."""
    library = import_tokenizers()
    names = ["<pad>", "<unk>", "<s>", "</s>"]
    model = library.models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>")
    return LibraryTokenizer(library.Tokenizer(model).to_str(), TokenOrder((0, 1, 2, 3), 4))


def read_json(path: Path, default: Any = None) -> Any:
    """The object in a JSON file; the default, if there is one, for a missing file."""
    if default is not None and not path.exists():
        return default
    content = _parse_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a JSON object")
    return content


def _parse_json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON: {error}") from None


def _read_list(path: Path) -> list[str]:
    """The texts in a JSON list, or the lines of a `.txt` file."""
    if path.suffix == ".txt":
        try:
            return read_bytes(path).decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise ModelError(f"{path}: not UTF-8: {error}") from None
    content = _parse_json(path)
    if not isinstance(content, list) or not all(isinstance(text, str) for text in content):
        raise ModelError(f"{path}: not a list of texts")
    return content


def _read_ids(path: Path) -> dict[str, int]:
    """The tokens of a `vocab.json`, in the order of their ids."""
    vocabulary = read_json(path)
    by_id = {number: token for token, number in vocabulary.items() if isinstance(number, int)}
    if by_id.keys() != set(range(len(vocabulary))):
        raise ModelError(f"{path}: the ids of its tokens are not 0, 1, 2 and so on")
    return {by_id[number]: number for number in range(len(by_id))}


def read_bytes(path: Path) -> bytes:
    """The content of a file, which may not be larger than vocabularies are."""
    require_file(path, _MAX_BYTES, "such a file can have")
    return path.read_bytes()
