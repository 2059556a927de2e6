"""English sentences for the teacher to translate: every one once, none from a validation or test set.

    python recipes/bundled/sources.py OUT --europarl FILE... --everyday FILE... --without FILE...

Files are .tsv with English first, plain or compressed.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from transduce.text.pairs import ReadReport, read_pairs


def english(files: list[str]) -> Iterator[str]:
    """The English sides of files."""
    return (source for source, _ in read_pairs([(name,) for name in files], ReadReport()))


def letters(text: str) -> str:
    """A sentence without case, space and punctuation: what makes two of them the same."""
    return "".join(filter(str.isalnum, text.casefold()))


def main() -> None:
    """Write the sentences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    for name in ("--europarl", "--everyday", "--without"):
        parser.add_argument(name, nargs="+", required=True, metavar="FILE")
    words = parser.parse_args()
    seen = {letters(text) for text in english(words.without)}
    words.out.parent.mkdir(parents=True, exist_ok=True)
    with words.out.open("w", encoding="utf-8") as file:
        for text in english(words.everyday + words.europarl):
            if (key := letters(text)) not in seen:
                seen.add(key)
                file.write(text.strip() + "\n")


if __name__ == "__main__":
    main()
