"""The tokenizer of the page finds the pieces of SentencePiece."""

import json
import lzma
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers import needs_node

from transduce.models.folder import BUNDLED
from transduce.tokenizers.symbols import RESERVED, language_tag, mark
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig

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


def run_tokenizer(tokenizer: Tokenizer, texts: list[str], ids: list[list[int]], folder: Path) -> dict[str, Any]:
    tokenizer.save(folder / "tokenizer.model")
    (folder / "input.json").write_text(json.dumps({"texts": texts, "ids": ids}), encoding="utf-8")
    command = ["node", str(SCRIPT), str(folder / "tokenizer.model"), str(folder / "input.json")]
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
    found = run_tokenizer(tokenizer, texts, ids, tmp_path)
    for text, pieces, expected in zip(texts, found["ids"], tokenizer.encode_all(texts, marked=True), strict=True):
        assert pieces == expected, repr(text)
    for tokens, text, decoded in zip(ids, found["texts"], tokenizer.decode_all(ids, marked=True), strict=True):
        assert text == decoded, tokenizer.pieces(tokens)
