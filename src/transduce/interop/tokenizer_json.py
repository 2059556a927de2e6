"""Making the `tokenizer.json` of vocabularies that are stored in another way."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transduce.errors import ModelError
from transduce.tokenizers.imported import LibraryTokenizer, TokenOrder, import_tokenizers

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How the tokenizer of Llama 3 splits a text into words."""


def word_piece(tokens: Sequence[str], options: Mapping[str, Any], special: Iterable[str]) -> str:
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


def markers_only() -> LibraryTokenizer:
    """The vocabulary of a model without text."""
    library = import_tokenizers()
    names = ["<pad>", "<unk>", "<s>", "</s>"]
    model = library.models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>")
    return LibraryTokenizer(library.Tokenizer(model).to_str(), TokenOrder((0, 1, 2, 3), 4))
