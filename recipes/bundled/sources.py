"""Sentences for the teacher to translate: every one once, none very long, none from a validation or test set.

    python recipes/bundled/sources.py OUT --tsv FILE... --without FILE... --most en=N de=N fr=N

Files are named *.en-xx.*.tsv, with English first. Writes OUT.en, OUT.de and OUT.fr; English sentences of all files, at
most N of each language, those of the first files first.
"""

import argparse
from itertools import islice
from pathlib import Path

from transduce.files.languages import direction_of_entry
from transduce.files.pairs import ReadReport, read_pairs

_LONGEST = 420
"""Number of characters above which a sentence is left out."""


def letters(text: str) -> str:
    """A sentence without case, space and punctuation: what makes two of them the same."""
    return "".join(filter(str.isalnum, text.casefold()))


def main() -> None:
    """Write the sentences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    for name, metavar in (("--tsv", "FILE"), ("--without", "FILE"), ("--most", "LANGUAGE=N")):
        parser.add_argument(name, nargs="+", required=True, metavar=metavar)
    words = parser.parse_args()
    seen = {letters(text) for name in words.without for pair in read_pairs([(name,)], ReadReport()) for text in pair}
    texts: dict[str, list[str]] = {}
    for name in words.tsv:
        languages = direction_of_entry([name])
        assert languages, name
        for pair in read_pairs([(name,)], ReadReport()):
            for language, text in zip(languages, pair, strict=True):
                if len(text) <= _LONGEST and (key := letters(text)) not in seen:
                    seen.add(key)
                    texts.setdefault(language, []).append(text.strip())
    words.out.parent.mkdir(parents=True, exist_ok=True)
    most = {language: int(number) for language, _, number in (word.partition("=") for word in words.most)}
    for language, lines in texts.items():
        with Path(f"{words.out}.{language}").open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in islice(lines, most[language]))


if __name__ == "__main__":
    main()
