"""The tokenizers of the page find the pieces of SentencePiece and of the library `tokenizers`."""

import json
import lzma
import os
import random
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from byte_level_vocabularies import SPACES, SPLITS, byte_level_tokenizer, lines_of_languages
from helpers import needs_node

from transduce.errors import ModelError
from transduce.models.folder import BUNDLED
from transduce.tokenizers.symbols import RESERVED, language_tag, mark
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig
from transduce.web.byte_level import BYTE_LEVEL, byte_level_vocabulary

pytestmark = needs_node

SCRIPT = Path(__file__).with_name("run_tokenizer.mjs")
WORDS = ["where", "is", "the", "station", "the", "green", "house", "of", "my", "uncle", "stands", "on", "a", "hill"]
HOSTILE = [
    *("", " ", "  two  spaces  ", "\t\n\r\x0b", "▁ ▁▁ a▁b", "\u00a0\u3000\u2028x", "\ufeffBOM", "e\u0301 é ﬁ ① Ⅻ"),
    *("\U0001f468\u200d\U0001f469 \U0001f3f3\ufe0f\u200d\U0001f308", "\U0010ffff\ufffe\ufdd0", "\u202eleft\u202c"),
    *(
        "مرحبا بالعالم",
        "日本語の文。中文。",
        "ไทย",
        "a" * 500,
        "\ue100 \ue111 \ue011s",
        "<s></s><unk><pad>",
        "<0x41><0xE6>",
    ),
    *("\x01\x02\x7f", "a\u0300\u0301\u0302\u0303" * 20, "ß ẞ İ ı"),
]


def random_texts(seed: int, count: int) -> list[str]:
    """Texts of words, spaces, symbols and any characters of Unicode."""
    draw = random.Random(seed)
    special = [" ", "  ", "▁", *RESERVED[:3], language_tag("de"), "\u00a0", "🙂", "ß", "e\u0301"]

    def character() -> str:
        code = draw.choice([draw.randrange(32, 0x250), draw.randrange(0x10000), draw.randrange(0x110000)])
        return chr(code) if code and not 0xD800 <= code < 0xE000 else "x"

    parts = [lambda: draw.choice(WORDS) + " ", lambda: draw.choice(special), character]
    return ["".join(draw.choice(parts)() for _ in range(draw.randint(0, 30))) for _ in range(count)]


def run_tokenizer(file: Path, texts: list[str], ids: list[list[int]]) -> dict[str, Any]:
    inputs = file.with_name("input.json")
    inputs.write_text(json.dumps({"texts": texts, "ids": ids}), encoding="utf-8")
    command = ["node", str(SCRIPT), str(file), str(inputs)]
    return dict[str, Any](json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


@pytest.mark.parametrize("kind", ["bundled", "bpe", "unigram", "char"])
def test_pieces_and_texts_are_those_of_sentencepiece(kind: str, tmp_path: Path) -> None:
    draw = random.Random(1)
    if kind == "bundled":
        tokenizer = Tokenizer.load(BUNDLED / "tokenizer.model")
    else:
        sentences = [" ".join(draw.choices(WORDS, k=9)) + draw.choice(".!?") for _ in range(200)]
        config = TokenizerConfig(vocab_size=450, type=kind)  # type: ignore[arg-type]
        tokenizer = Tokenizer.train(sentences, config).with_symbols([language_tag("de")])
    texts = [*HOSTILE, *(mark(text, "de") for text in HOSTILE), *random_texts(2, 300)]
    if (corpora := os.environ.get("CORPORA")) and kind == "bundled":
        for path in corpora.split(":"):
            with lzma.open(path, "rt", encoding="utf-8") as file:
                texts += [column for line in file for column in line.rstrip("\n").split("\t")][:20_000]
    ids = [draw.choices(range(4, tokenizer.vocab_size), k=draw.randint(0, 12)) for _ in range(300)]
    ids += [draw.choices(range(4, 300), k=draw.randint(0, 12)) for _ in range(300)]  # bytes, in most vocabularies
    tokenizer.save(tmp_path / "tokenizer.model")
    found = run_tokenizer(tmp_path / "tokenizer.model", texts, ids)
    for text, pieces, expected in zip(texts, found["ids"], tokenizer.encode_all(texts, marked=True), strict=True):
        assert pieces == expected, repr(text)
    for tokens, text, decoded in zip(ids, found["texts"], tokenizer.decode_all(ids, marked=True), strict=True):
        assert text == decoded, tokenizer.pieces(tokens)


@pytest.mark.parametrize("split", SPLITS)
def test_byte_level_ids_and_texts_are_those_of_the_library(split: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    tokenizer = byte_level_tokenizer(split)
    (tmp_path / BYTE_LEVEL).write_bytes(byte_level_vocabulary(tokenizer))
    draw = random.Random(1)
    texts = [*HOSTILE, *lines_of_languages(), "it's we'LL 'd ''s", "12 345,6 ½ ٣٤ Ⅻ x1"]
    texts += [*SPACES, "a\x85 \x1c\u180eb \r\n\n  c  "]
    texts += ["<|start|>er <|start|><|end|> über all es über  all es", "über alles <|end", "a" * 20_000, "\n" * 50]
    # Versions of Unicode differ in characters that were added since.
    assigned = [[c for c in text if unicodedata.category(c) != "Cn"] for text in random_texts(2, 300)]
    texts += map("".join, assigned)
    ids = [draw.choices(range(tokenizer.vocab_size), k=draw.randint(0, 12)) for _ in range(300)]
    found = run_tokenizer(tmp_path / BYTE_LEVEL, texts, ids)
    assert len(texts) > 500
    for text, pieces, expected in zip(texts, found["ids"], tokenizer.encode_all(texts), strict=True):
        assert pieces == expected, repr(text)
    for tokens, text, decoded in zip(ids, found["texts"], tokenizer.decode_all(ids), strict=True):
        assert text == decoded, tokenizer.pieces(tokens)


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
REFUSED: dict[str, dict[str, Any]] = {
    'the pre-tokenizer {"type": "ByteLevel", "add_prefix_space": true': {
        "pre_tokenizer": {**BYTES, "add_prefix_space": True, "use_regex": True}
    },
    'the pre-tokenizer {"type": "Split"': {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated", "invert": False},
                BYTES,
            ],
        }
    },
    "a pre-tokenizer that does not end with ByteLevel": {
        "pre_tokenizer": {"type": "Digits", "individual_digits": True}
    },
    "the normalizer NFC": {"normalizer": {"type": "NFC"}},
    "a decoder other than ByteLevel": {"decoder": {"type": "BPEDecoder", "suffix": ""}},
    "ignore_merges = True": {"model": {"type": "BPE", "vocab": {}, "merges": [], "ignore_merges": True}},
    "added tokens that need spaces or other words around them ('<m>')": {
        "added_tokens": [
            {"id": 5, "content": "<m>", "single_word": False, "lstrip": True, "rstrip": False, "normalized": False,
             "special": True},
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_other_byte_level_vocabularies_are_refused_by_name(reason: str) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(ModelError) as refusal:
        byte_level_vocabulary(byte_level_tokenizer(**REFUSED[reason]))
    assert str(refusal.value).startswith(f"the page has no vocabularies with {reason}")
