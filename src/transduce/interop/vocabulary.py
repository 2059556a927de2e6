"""Vocabularies on their way between toolkits: files, markers and order of ids of imported ones, and exported ones.

An exported vocabulary is SentencePiece models and a list of pieces. A tag of a language is a reserved symbol of private
characters here; an exported one is written `<2de>`, so that people can type it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.files.languages import is_language_code
from transduce.interop.family import LANGUAGE_MODELS, MASKED_MODELS, Converted
from transduce.interop.imported_tokenizers import (
    ImportedTokenizer,
    LibraryTokenizer,
    SentencePiecePair,
    TokenOrder,
    import_tokenizers,
    parse_tokenizer,
)
from transduce.interop.multilingual import MULTILINGUAL, add_languages, listed_tokens, require_known_tags
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.transformer import TransformerConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.symbols import SPACE_MARK, language_tag
from transduce.tokenizers.tokenizer import Tokenizer, rename_pieces

NEVER = -1e4
"""Bias of a token that must not receive probability: e^-10,000 is 0 in float32."""
_MAX_SENTINELS = 1 << 16
_END_OF_DOCUMENT = "<|endoftext|>"
_NAMES = {
    "bert": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"},
    "gpt2": {"bos": _END_OF_DOCUMENT, "eos": _END_OF_DOCUMENT},
    "whisper": {"eos": _END_OF_DOCUMENT, "decoder_start": "<|startoftranscript|>"},
}
DEFAULT_NAMES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>"}
FindToken = Callable[[str], int | None]
"""The id of a token by its text."""
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How the tokenizer of Llama 3 splits a text into words."""
_FAIRSEQ_MODEL, _FAIRSEQ_MARKERS = "sentencepiece.bpe.model", ("<s>", "<pad>", "</s>", "<unk>")
_MAX_BYTES = 1 << 26


def reorder_vocabulary(converted: Converted, order: TokenOrder, source_order: TokenOrder | None = None) -> Converted:
    """The model with rows of its vocabulary in this order: PAD, UNK, BOS and EOS have the ids 0 to 3.

    Probabilities of all original tokens stay the same: a copied token gets a bias by which only the original receives
    probability. `source_order` is for the source, if it has a vocabulary of its own.
    """
    config, weights = converted[0], dict(converted[1])
    assert isinstance(config, TransformerConfig)
    orders = dict.fromkeys(("embedding.weight_VD", "output.weight_VD", "output.bias_V"), order)
    if source_order is not None:
        assert isinstance(config, EncoderDecoderConfig)
        orders["source_weight_VD"] = source_order
        config = replace(config, source_vocab_size=len(source_order.originals))
    for name, side_order in orders.items():
        if name in weights:
            rows, size = len(weights[name]), side_order.size
            if rows != size:
                raise ModelError(f"{name} has {rows} rows, but the vocabulary has {size} tokens")
            weights[name] = weights[name][torch.tensor(side_order.originals)]
    predicts_tokens = not (isinstance(config, EncoderOnlyConfig) and config.classes)
    if order.copies and predicts_tokens:
        bias_V: Tensor = weights.get("output.bias_V", torch.zeros(len(order.originals)))
        bias_V[order.copies] = NEVER
        config, weights["output.bias_V"] = replace(config, output_bias=True), bias_V
    return config, weights


@dataclass(frozen=True)
class ExportedVocabulary:
    """SentencePiece models and pieces, in the order of our ids."""

    source_spm: bytes
    target_spm: bytes
    pieces: Sequence[str]
    tags: Mapping[str, str]
    """The piece that selects each target language; empty if the model has no tags."""
    source_pieces: Sequence[str] | None = None
    """The pieces of the source, if it has a vocabulary of its own; `pieces` are then those of the target."""


def export_vocabulary(tokenizer: AnyTokenizer, languages: Sequence[str]) -> ExportedVocabulary:
    """The vocabulary, with the tags of these languages in a form that can be typed."""
    if isinstance(tokenizer, ImportedTokenizer) and tokenizer.languages:
        names = {code: name for code, name in tokenizer.languages.items() if code in languages}
        return ExportedVocabulary(b"", b"", (), names)  # its own exporter writes the original files
    if isinstance(tokenizer, TokenizerPair):
        source, target = export_vocabulary(tokenizer.source, languages), export_vocabulary(tokenizer.target, [])
        return ExportedVocabulary(source.source_spm, target.target_spm, target.pieces, source.tags, source.pieces)
    if isinstance(tokenizer, SentencePiecePair) and not tokenizer.before:
        return ExportedVocabulary(*tokenizer.models, tokenizer.names, {})
    if not isinstance(tokenizer, Tokenizer):
        raise ModelError("a vocabulary that is no SentencePiece model cannot be exported")
    tags = {code: typed_tag(code) for code in languages}
    names = {language_tag(code): tag for code, tag in tags.items()}
    if taken := [tag for tag in tags.values() if tag in tokenizer.names]:
        raise ModelError(f"the vocabulary has the piece {taken[0]} already, which would be the tag of a language")
    spm = rename_pieces(tokenizer.model, names)
    return ExportedVocabulary(spm, spm, [names.get(piece, piece) for piece in tokenizer.names], tags)


def restore_vocabulary(spm: bytes, languages: Sequence[str]) -> Tokenizer:
    """The tokenizer whose vocabulary was exported: the inverse of `export_vocabulary`."""
    return Tokenizer(rename_pieces(spm, {typed_tag(code): language_tag(code) for code in languages}))


def typed_tag(code: str) -> str:
    """The exported tag of a language."""
    assert is_language_code(code)
    return f"<2{code}>"


def read_tokenizer(folder: Path, settings: Mapping[str, Any], size: int) -> ImportedTokenizer | TokenizerPair:
    """The tokenizer of a Hugging Face folder, for a model with `size` tokens."""
    kind, options = settings["model_type"], read_json(folder / "tokenizer_config.json", {})
    names = _names(kind, options, read_json(folder / "special_tokens_map.json", {}))
    if kind == "vit":
        return _markers_only()
    require_known_tags(kind, options)
    if (folder / "source.spm").exists():
        vocabulary = _read_ids(folder / "vocab.json")
        if settings.get("share_encoder_decoder_embeddings", True):
            return shared_vocabulary(folder, ("source.spm", "target.spm"), list(vocabulary), settings, names)
        target = folder / "target_vocab.json"
        lists = list(vocabulary), list(_read_ids(target) if target.exists() else vocabulary)
        sizes = settings["vocab_size"], settings.get("decoder_vocab_size") or settings["vocab_size"]
        return separate_vocabularies(folder, ("source.spm", "target.spm"), lists, sizes, settings, names)
    if (folder / "tokenizer.json").exists():
        text = read_bytes(folder / "tokenizer.json").decode(errors="replace")
    elif (folder / "vocab.txt").exists():
        tokens = read_bytes(folder / "vocab.txt").decode(errors="replace").split("\n")
        text = _word_piece(tokens, options, _NAMES["bert"].values())
    elif (folder / "merges.txt").exists():
        vocabulary = _read_ids(folder / "vocab.json")
        lines = read_bytes(folder / "merges.txt").decode(errors="replace").splitlines()
        merges = [line for line in lines if line and not line.startswith("#version")]
        text = byte_level_bpe(vocabulary, merges, {name: True for name in names.values() if name in vocabulary})
    elif kind in MULTILINGUAL and (folder / _FAIRSEQ_MODEL).exists():
        return _fairseq_vocabulary(folder, settings, names)
    elif (folder / "spiece.model").exists():
        return shared_vocabulary(folder, ("spiece.model", "spiece.model"), None, settings, names)
    else:
        raise ModelError(
            f"{folder}: no vocabulary; it needs tokenizer.json, vocab.txt, vocab.json and merges.txt, spiece.model, "
            "sentencepiece.bpe.model, or source.spm, target.spm and vocab.json"
        )
    try:
        tokenizer = parse_tokenizer(text)
    except ValueError as error:
        raise ModelError(f"{folder / 'tokenizer.json'}: {error}") from None
    begins = tokenizer.encode("").ids[:1] != []
    order = TokenOrder(find_markers(settings, names, tokenizer.token_to_id, size, begins=begins), size)
    first = tokenizer.token_to_id(names["bos"]) if kind == "bart" else None  # the only one trained with BOS in sources
    read = LibraryTokenizer(text, order, [] if first is None else [order.ids[first]])
    if kind in MULTILINGUAL:
        add_languages(kind, read, {piece: token for piece, token in tokenizer.get_vocab().items() if token < size})
    return read


def _fairseq_vocabulary(folder: Path, settings: Mapping[str, Any], names: Mapping[str, str]) -> SentencePiecePair:
    """A tokenizer of a SentencePiece model, whose pieces follow the markers of fairseq, and tags of languages."""
    kind, size, files = settings["model_type"], settings["vocab_size"], (_FAIRSEQ_MODEL, _FAIRSEQ_MODEL)
    if (folder / "vocab.json").exists():
        pieces = list(_read_ids(folder / "vocab.json"))
    else:
        model = Tokenizer.load(folder / _FAIRSEQ_MODEL)
        pieces = [*_FAIRSEQ_MARKERS, *model.pieces(range(3, model.vocab_size))]
    pieces += listed_tokens(kind) + ([] if kind == "m2m_100" else ["<mask>"])
    if len(pieces) > size:
        raise ModelError(
            f"the vocabulary has {len(pieces):,} tokens with those of languages, but the model has {size:,}"
        )
    tokenizer = shared_vocabulary(folder, files, pieces, settings, names)
    add_languages(kind, tokenizer, {piece: number for number, piece in enumerate(pieces)})
    return tokenizer


def find_markers(
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
    if kind in MASKED_MODELS:
        bos, eos = of_role("cls"), of_role("sep")
    elif kind in LANGUAGE_MODELS:
        bos, eos = of_role("bos"), of_role("eos")
        if not begins and (document := find(_END_OF_DOCUMENT)) is not None:
            bos = document  # what precedes a document in training, if texts do not begin with BOS
    else:
        bos, eos = of_role("decoder_start"), of_role("eos")
        bos = bos if bos is not None else eos if kind in ("bart", *MULTILINGUAL) else of_role("pad")
    if eos is None:
        raise ModelError("config.json: the model has no end marker (eos_token_id)")
    pad, unk, bos = (eos if token is None else token for token in (of_role("pad"), of_role("unk"), bos))
    return pad, unk, bos, eos


def _names(kind: str, *tables: Mapping[str, Any]) -> dict[str, str]:
    """The texts of special tokens by role, of which later tables have the last word."""
    names = dict(_NAMES.get(kind, DEFAULT_NAMES))
    for table in tables:
        for role in DEFAULT_NAMES:
            value = table.get(f"{role}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                names[role] = value
    return names


def shared_vocabulary(
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
    order = TokenOrder(find_markers(settings, names, ids.get, size, begins=False), size)
    return SentencePiecePair(source, target, pieces, order)


def separate_vocabularies(
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
        shared_vocabulary(folder, (file, file), pieces, side, names)
        for file, pieces, side in zip(files, lists, (of_source, of_target), strict=True)
    )
    return TokenizerPair(source, target)


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


def byte_level_bpe(
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


def scored_bpe(
    vocabulary: Mapping[str, int], scores: Mapping[str, float], added: Mapping[str, bool], unknown: str, *, prefix: bool
) -> str:
    """The `tokenizer.json` of SentencePiece's BPE, in which the pair whose union has the highest score is joined first.

    `added` is as in `byte_level_bpe`, `unknown` the unknown token; with `prefix`, a space is added before every text.
    """
    library = import_tokenizers()
    pairs = [
        (-score, piece[:end], piece[end:])
        for piece, score in scores.items()
        for end in range(1, len(piece))
        if piece[:end] in scores and piece[end:] in scores
    ]
    pairs.sort(key=lambda pair: (pair[0], vocabulary[pair[1]], vocabulary[pair[2]]))
    model = library.models.BPE(
        dict(vocabulary), [pair[1:] for pair in pairs], unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    tokenizer, normalizers, decoders = library.Tokenizer(model), library.normalizers, library.decoders
    marked = normalizers.Replace(" ", SPACE_MARK)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), marked]) if prefix else marked
    steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    tokenizer.add_special_tokens([token for token, special in added.items() if special])
    tokenizer.add_tokens([
        library.AddedToken(token, normalized=SPACE_MARK in token) for token, special in added.items() if not special
    ])  # fmt: skip
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
    content = parse_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a JSON object")
    return content


def parse_json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON: {error}") from None


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
