"""How much of what is wrong `transduce data check` finds: errors are planted into a corpus, and counted.

    python benchmarks/data_check.py train.en-de.tsv.xz --foreign train.en-fr.tsv.xz [--pairs 100000]

Three pairs in a thousand are spoilt in each way. "found" is the share of these that --output leaves out, "named" the
share that is reported under its own name. What is found in pairs that nobody spoilt is not always a false alarm: look
at the examples that the command itself shows. Then the corpus is made to slip, once early and once near its end.
"""

import argparse
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from transduce.corpora.check.check import examine
from transduce.corpora.check.issues import ERRORS, ISSUES
from transduce.corpora.check.report import CheckResults
from transduce.text.pairs import Pair, ReadReport, pair_writer, read_pairs

RATE = 0.003

# How to spoil a pair, given another pair of the corpus and one of which the target is in a third language.
SPOIL: dict[str, Callable[[Pair, Pair, Pair], Pair]] = {
    "unrelated": lambda pair, other, foreign: (pair[0], other[1]),
    "length": lambda pair, other, foreign: (pair[0], pair[1][: len(pair[1]) // 3]),
    "swapped": lambda pair, other, foreign: (pair[1], pair[0]),
    "copied": lambda pair, other, foreign: (pair[0], pair[0]),
    "source_in_target_language": lambda pair, other, foreign: (other[1], pair[1]),
    "target_in_source_language": lambda pair, other, foreign: (pair[0], other[0]),
    "foreign_source": lambda pair, other, foreign: (foreign[1], pair[1]),
    "foreign_target": lambda pair, other, foreign: foreign,
}


def main() -> None:
    """Plant, look, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--foreign", required=True, help="pairs with the same source language and another target")
    parser.add_argument("--pairs", type=int, default=100_000)
    options = parser.parse_args()

    chance = random.Random(1)
    pairs = list(read_pairs([(options.corpus,)], ReadReport()))
    pairs = chance.sample(pairs, min(options.pairs, len(pairs)))
    foreign = list(read_pairs([(options.foreign,)], ReadReport()))
    clean = _flags(pairs)
    sources, targets = zip(*pairs, strict=True)
    print(f"{options.corpus}: {len(pairs):,} pairs; flagged before anything is planted:")
    for issue in ISSUES:
        if issue.left_out and clean[issue.name].any():
            print(f"  {issue.name:<28}{clean[issue.name].sum():6,}  {clean[issue.name].mean():.4%}")

    planted = [""] * len(pairs)
    for name, spoil in SPOIL.items():
        for n in chance.sample(range(len(pairs)), round(RATE * len(pairs))):
            if not planted[n]:
                planted[n], pairs[n] = name, spoil(pairs[n], chance.choice(pairs), chance.choice(foreign))
    flags = _flags(pairs)
    left_out = np.any([flags[issue.name] for issue in ISSUES if issue.left_out], axis=0)
    print("planted                       pairs   found   named")
    for name in SPOIL:
        spoilt = np.array([one == name for one in planted])
        print(f"  {name:<28}{spoilt.sum():6,}  {left_out[spoilt].mean():6.1%}  {flags[name][spoilt].mean():6.1%}")
    wrong = np.any([flags[issue.name] for issue in ERRORS], axis=0)
    untouched = np.array([not one for one in planted])
    print(f"  found wrong though not spoilt{wrong[untouched].sum():6,}  {wrong[untouched].mean():.4%}")
    for lost in (len(pairs) // 3, len(pairs) * 97 // 100):
        slipped = [*targets[:lost], *targets[lost + 1 :], targets[lost]]
        slips = _examined(list(zip(sources, slipped, strict=True))).shifts
        print(f"  target {lost:,} lost: {', '.join(f'{one.first:,} to {one.end:,} by {one.offset}' for one in slips)}")


def _flags(pairs: list[Pair]) -> dict[str, np.ndarray]:
    return _examined(pairs).findings.flags


def _examined(pairs: list[Pair]) -> CheckResults:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.jsonl"
        with pair_writer(path) as write:
            for pair in pairs:
                write(*pair)
        return examine([(str(path),)], [], None, lambda _: None)


if __name__ == "__main__":
    main()
