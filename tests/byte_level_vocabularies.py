"""Byte-level BPE vocabularies of imported language models, trained on lines in many languages."""

import json
from pathlib import Path
from typing import Any

import transduce.translation.rules
from transduce.interop.imported_tokenizers import LibraryTokenizer, TokenOrder

SPLITS: dict[str, list[dict[str, Any]]] = {
    "gpt2": [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}],
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}
"""Pre-tokenizers as `tokenizer.json` describes them."""
SPACES = ["a\x85 \x85 \x85  b", "!\ufeff!\ufeff!   \ufeff!"]
"""Characters that are a space here and not for JavaScript, and the reverse."""
RULES = Path(transduce.translation.rules.__file__).parent


def lines_of_languages() -> list[str]:
    """Lines of the rule files, which are in 26 languages."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.toml"))]
    return [line for text in texts for line in text.splitlines() if not line.isascii()]


def byte_level_tokenizer(split: str = "gpt2", **changes: Any) -> LibraryTokenizer:
    """A vocabulary of about 600 tokens; `changes` are other parts of its `tokenizer.json`.

    That of SmolLM2 has no tokens for bytes that it was not trained on, and so has the one here.
    """
    import tokenizers

    library: Any = tokenizers
    before, added = library.pre_tokenizers, library.AddedToken
    alphabet = before.ByteLevel.alphabet() if split == "gpt2" else []
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = before.ByteLevel(add_prefix_space=False), library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|end|>", "<|start|>", "<|start|>er"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator([*lines_of_languages()[::5], *100 * SPACES], trainer)
    tokenizer.add_tokens([added("über all", normalized=False), added("all es", normalized=True), "  "])
    content = json.loads(tokenizer.to_str())
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": SPLITS[split]}
    content |= changes
    return LibraryTokenizer(json.dumps(content), TokenOrder((0, 1, 1, 0), tokenizer.get_vocab_size() + 3))
