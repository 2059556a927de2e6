"""Joins sentences with their machine translations, without those that a model lost or repeated.

python recipes/bundled/synthetic.py OUT.tsv ENGLISH OTHER [ENGLISH OTHER ...]
"""

import re
import sys
from pathlib import Path

_NUMBERS = re.compile(r"\d+")


def is_plausible(one: str, other: str) -> bool:
    """Whether the lengths are similar, no word is repeated four times in a row, and the numbers are the same."""
    words = other.split()
    repeated = any(len(set(words[start : start + 4])) == 1 for start in range(len(words) - 3))
    ratio = (len(other) + 15) / (len(one) + 15)
    numbers = sorted("".join(_NUMBERS.findall(one))) == sorted("".join(_NUMBERS.findall(other)))
    return bool(words) and 0.5 <= ratio <= 2.0 and not repeated and numbers and one != other


def main() -> None:
    """Write the pairs that are plausible."""
    out, *names = map(Path, sys.argv[1:])
    kept = total = 0
    with out.open("w", encoding="utf-8") as file:
        for english, other in zip(names[::2], names[1::2], strict=True):
            with english.open(encoding="utf-8") as left, other.open(encoding="utf-8") as right:
                for one, translation in zip(left, right, strict=True):
                    total += 1
                    if is_plausible(one.strip(), translation.strip()):
                        kept += 1
                        file.write(f"{one.strip()}\t{translation.strip()}\n")
    print(f"{out}: {kept} of {total}")


if __name__ == "__main__":
    main()
