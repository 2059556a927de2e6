"""Three toy languages, for tests of directions and of multilingual models."""

import json
from pathlib import Path
from typing import Any

from toy_run import TINY

# A word of one language is a sentence of each of the others, which a tiny model learns by heart in seconds.
WORDS = ["ba", "do", "gi", "ku"]
SENTENCES = {"de": "das ist ein wort wie {}", "fr": "VOICI LE MOT {}", "en": "{}"}
ENOUGH = {
    **TINY,
    "model.dropout": 0.0,
    "train.learning_rate_scale": 0.3,
    "train.steps": 100,
    "train.save_every": 50,
    "train.average": 1,
    "train.log_every": 40,
}


def sentence(language: str, word: str) -> str:
    return SENTENCES[language].format(word.upper() if language == "fr" else word)


def write_pairs(path: Path, first: str, second: str, repeats: int = 1) -> Path:
    rows = [f"{sentence(first, word)}\t{sentence(second, word)}\n" for word in WORDS * repeats]
    path.write_text("".join(rows), encoding="utf-8")
    return path


def evaluate(transduce: Any, cwd: Path, *words: str | Path) -> tuple[float, str]:
    """BLEU, and what was said about the direction."""
    outcome = transduce("evaluate", *words, "--json", cwd=cwd)
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)[0]["value"], outcome.err
