"""Byte-level BPE vocabularies of imported language models, as the page reads them (web/package/src/byte_level.js)."""

import json
from typing import Any

from transduce.errors import ModelError
from transduce.interop.imported_tokenizers import BYTE_OF, LibraryTokenizer, parse_tokenizer

BYTE_LEVEL = "byte_level.json"
_SPACE, _OTHER = r"\p{White_Space}", r"[^\p{White_Space}\p{L}\p{N}]"
_WORDS = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?{_OTHER}+|{_SPACE}+(?!\P{{White_Space}})|{_SPACE}+"
"""How GPT-2 splits a text into words, for the flag `v` of JavaScript, whose \\s has other characters."""
_NO_EFFECT = {"trim_offsets"}
_SPLITS: list[tuple[dict[str, Any], str]] = [
    ({"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, _WORDS),
    ({"type": "Digits", "individual_digits": True}, r"\p{N}"),
]
"""Pre-tokenizers of the `tokenizers` library that the page has."""
_MODEL: dict[str, tuple[Any, ...]] = {
    "type": ("BPE",), "dropout": (None, 0.0), "continuing_subword_prefix": (None, ""), "end_of_word_suffix": (None, ""),
    "fuse_unk": (False,), "byte_fallback": (False,), "ignore_merges": (False,),
}  # fmt: skip
"""The settings of its BPE that the page has."""


def byte_level_vocabulary(tokenizer: LibraryTokenizer) -> bytes:
    """The content of the page's file for a vocabulary; a ModelError that names what the page does not have."""
    original = parse_tokenizer(tokenizer.text)
    described, added = json.loads(original.to_str()), original.get_added_tokens_decoder()
    model, ids = described["model"], tokenizer.order.ids
    splits = _splits(described)
    for setting, known in _MODEL.items():
        if model.get(setting, known[0]) not in known:
            raise _refusal(f"{setting} = {model[setting]!r:.40}")
    vocabulary = model["vocab"]
    bytes_in_order = sorted(BYTE_OF, key=lambda character: BYTE_OF[character])
    numbers = [vocabulary.get(byte, vocabulary.get(model["unk_token"])) for byte in bytes_in_order]
    if max([*vocabulary.values(), *added], default=0) >= tokenizer.order.size or tokenizer.before:
        raise _refusal("tokens before every text, or without weights")
    if stripped := [token.content for token in added.values() if token.single_word or token.lstrip or token.rstrip]:
        raise _refusal(f"added tokens that need spaces or other words around them ({stripped[0]!r:.40})")
    groups = [
        [[token.content, ids[number]] for number, token in added.items() if token.content and token.normalized == late]
        for late in (False, True)  # the library finds those that are normalized in what the others leave
    ]
    content = {
        "pieces": [tokenizer.raw_bytes(token).decode("latin-1") for token in range(tokenizer.vocab_size)],
        "bytes": [None if number is None else ids[number] for number in numbers],
        "merges": [ids[vocabulary[part]] for left, right in model["merges"] for part in (left, right, left + right)],
        "added": groups,
        "splits": splits,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _splits(described: dict[str, Any]) -> list[str]:
    """The patterns, one after the other, that split a text into words."""
    if described["normalizer"] is not None:
        raise _refusal(f"the normalizer {described['normalizer']['type']}")
    if (described["decoder"] or {}).get("type") != "ByteLevel":
        raise _refusal("a decoder other than ByteLevel")
    found = described["pre_tokenizer"] or {"type": "none"}
    patterns = []
    steps = found["pretokenizers"] if found["type"] == "Sequence" else [found]
    for step in steps:
        settings = {name: value for name, value in step.items() if name not in _NO_EFFECT}
        pattern = next((pattern for known, pattern in _SPLITS if known == settings), None)
        if pattern is None:
            raise _refusal(f"the pre-tokenizer {json.dumps(settings):.60}")
        patterns.append(pattern)
    if not steps or steps[-1]["type"] != "ByteLevel":
        raise _refusal("a pre-tokenizer that does not end with ByteLevel")
    return patterns


def _refusal(what: str) -> ModelError:
    return ModelError(f"the page has no vocabularies with {what}")
