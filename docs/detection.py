"""Writes rules/detection.txt, the most frequent trigrams and words of languages, by which `translate` detects them.

python docs/detection.py TEXTS

TEXTS is a folder with a file such as de.txt for each language: sentences of Common Voice (CC0, server/data of
common-voice/common-voice), and for lt, ms and ru also of Tatoeba (CC BY 2.0 FR, data/dev of
Helsinki-NLP/Tatoeba-Challenge), at most 600,000 characters of each in random order.
"""

import sys
from collections import Counter
from pathlib import Path

from transduce.translation.detection import LANGUAGES_OF_SCRIPTS, trigrams, words

OUT = Path(__file__).parents[1] / "src" / "transduce" / "translation" / "rules" / "detection.txt"
TRIGRAMS, WORDS = 600, 300


def main(texts: Path) -> None:
    lines = []
    for code in sorted(code for codes in LANGUAGES_OF_SCRIPTS.values() if " " in codes for code in codes.split()):
        found = [
            word for line in (texts / f"{code}.txt").read_text(encoding="utf-8").split("\n") for word in words(line)
        ]
        frequent = [*most_frequent(Counter(trigrams(found)), TRIGRAMS), *most_frequent(Counter(found), WORDS)]
        lines.append(" ".join([code, *frequent]) + "\n")
    OUT.write_text("".join(lines), encoding="utf-8")


def most_frequent(counts: Counter[str], size: int) -> list[str]:
    return sorted(counts, key=lambda item: (-counts[item], item))[:size]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
