"""Writes English sentences for self-training: `python plain_text.py PAIRS.tsv.xz OUT.txt [COUNT]`.

They are the first distinct sentences of 5 to 40 words on the first side of the pairs.
"""

import sys
from itertools import islice
from pathlib import Path

from transduce.files.files import read_lines


def main(pairs: str, out: str, count: str = "100000") -> None:
    """Write the sentences."""
    sentences = (line.partition("\t")[0] for line in read_lines(Path(pairs)))
    chosen = (sentence for sentence in dict.fromkeys(sentences) if 5 <= len(sentence.split()) <= 40)
    Path(out).write_text("".join(f"{sentence}\n" for sentence in islice(chosen, int(count))), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
