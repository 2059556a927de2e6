"""`data check` judges text in any script: right lines with rare words stay, lines in a wrong language are found.

The languages are generated: each has words of its own, whose letters follow each other by rules of its own, and whose
frequencies are as uneven as those of real words.
"""

import json
import random
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

PAIRS = 1500
SCRIPTS = {
    "Latin": "abcdefghijklmnopqrstuvwxyz",
    "Chinese": "".join(map(chr, range(0x4E00, 0x4E00 + 1500))),
    "Japanese": "".join(map(chr, [*range(0x3041, 0x3090), *range(0x30A2, 0x30F0), *range(0x4E00, 0x4E00 + 400)])),
    "Hindi": "".join(map(chr, [*range(0x0905, 0x0915), *range(0x0915, 0x093A), *range(0x093E, 0x094D)])),
    "Thai": "".join(map(chr, [*range(0x0E01, 0x0E2F), *range(0x0E30, 0x0E3A), *range(0x0E40, 0x0E45)])),
    "Arabic": "".join(map(chr, range(0x0627, 0x064B))),
    "Korean": "".join(map(chr, range(0xAC00, 0xAC00 + 28 * 399, 28))),
    "Russian": "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "Greek": "αβγδεζηθικλμνξοπρστυφχψω",
}
WITHOUT_SPACES = {"Chinese", "Japanese", "Thai"}
LANGUAGE_ISSUES = (
    *("swapped", "source_in_target_language", "target_in_source_language", "foreign_source", "foreign_target"),
)


class Language:
    """A generated language in a script."""

    def __init__(self, script: str, seed: int) -> None:
        self._rng = random.Random(f"{script} {seed}")
        letters = list(SCRIPTS[script])
        self._rng.shuffle(letters)
        # A few letters follow each letter; in scripts of syllables or words, more.
        self._followers = {letter: self._rng.sample(letters, min(8, len(letters))) for letter in letters}
        self._letters, self._space = letters, "" if script in WITHOUT_SPACES else " "
        longest = 3 if len(letters) > 300 else 8
        self._words = [self._word(self._rng.randint(1, longest)) for _ in range(3000)]
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(len(self._words))))

    def _word(self, length: int) -> str:
        word = self._rng.choice(self._letters)
        while len(word) < length:
            word += self._rng.choice(self._followers[word[-1]])
        return word

    def sentence(self, words: int, rare: bool = False) -> str:
        weights = None if rare else self._weights
        return self._space.join(self._rng.choices(self._words, cum_weights=weights, k=words))


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name != "Latin"])
def test_right_lines_stay_and_lines_in_a_wrong_language_are_found(transduce: Any, tmp_path: Path, script: str) -> None:
    rng = random.Random(script)
    source, target = Language("Latin", 1), Language(script, 1)
    foreign = {"Latin": Language("Latin", 2), "script": Language("Greek" if script == "Russian" else "Russian", 2)}
    lengths = rng.choices(range(7, 13), k=PAIRS)
    pairs = [tuple(one.sentence(k, rare=n % 20 == 0) for one in (source, target)) for n, k in enumerate(lengths)]
    plants = {
        "swapped": lambda pair: (pair[1], pair[0]),
        "source_in_target_language": lambda pair: (target.sentence(9), pair[1]),
        "target_in_source_language": lambda pair: (pair[0], source.sentence(9)),
        "foreign_source": lambda pair: (foreign["Latin"].sentence(9), pair[1]),
        "foreign_target": lambda pair: (pair[0], foreign["script"].sentence(9)),
    }
    planted: dict[str, list[int]] = {}
    for n, name in zip(rng.sample(range(PAIRS), 10 * len(plants)), 10 * [*plants], strict=True):
        pairs[n] = plants[name](pairs[n])
        planted.setdefault(name, []).append(n)
    lines = [f"{source}\t{target}" for source, target in pairs]
    (tmp_path / "pairs.tsv").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    outcome = transduce("data", "check", "pairs.tsv", "--json", "--out", "clean.tsv", cwd=tmp_path)
    assert outcome.code in (0, 1), outcome.err
    findings = {one["issue"]: one["pairs"] for one in json.loads(outcome.out)["findings"]}
    found = {issue: findings.get(issue, 0) for issue in LANGUAGE_ISSUES}
    kept = set((tmp_path / "clean.tsv").read_text(encoding="utf-8").splitlines())
    missed = {name: [n for n in places if lines[n] in kept] for name, places in planted.items()}
    assert not [n for name, places in missed.items() for n in places if name != "foreign_source"], (found, missed)
    assert len(missed["foreign_source"]) <= 2
    assert sum(found.values()) <= 50, found  # none of the right pairs
    assert min(found.values()) >= 7, found
