"""Recall and precision of `transduce data check` on errors that are planted into a corpus.

    python benchmarks/data_check.py train.en-de.tsv.xz --foreign train.en-fr.tsv.xz [--pairs 100000]

Each kind of error is planted into three pairs in a thousand. "found" is the share of these pairs that --out leaves
out, "named" the share that is reported under its own name. A finding in a pair without a planted error is not always a
false alarm: see the examples that the command itself prints. Finally, one target is removed, early and near the end,
which misaligns every line after it.
"""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from setting import SEED, make_parser, print_setting, write_results

from transduce.corpora.check.check import examine
from transduce.corpora.check.report import ERRORS, ISSUES, CheckResults
from transduce.corpora.demo.corpus import demo_corpus
from transduce.files.pairs import Pair, ReadReport, pair_writer, read_pairs

RATE = 0.003

# How to plant an error into a pair, given another pair of the corpus and one whose target is in a third language.
PLANT: dict[str, Callable[[Pair, Pair, Pair], Pair]] = {
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
    """Plant errors, check the corpus, count what is found."""
    parser = make_parser(__doc__)
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("--foreign", help="pairs with the same source language and another target language")
    parser.add_argument("--pairs", type=int, default=100_000)
    options = parser.parse_args()
    if options.smoke:
        pairs = demo_corpus(SEED, train=2000, valid=0, test=0).train
        foreign = [(source, target[::-1]) for source, target in pairs]
    elif options.corpus and options.foreign:
        pairs, foreign = (list(read_pairs([(name,)], ReadReport())) for name in (options.corpus, options.foreign))
    else:
        parser.error("give a corpus and --foreign, or --smoke")
    chance = random.Random(SEED)
    pairs = chance.sample(pairs, min(options.pairs, len(pairs)))
    corpus, planting = options.corpus or "demo", f"{RATE:.1%} of each kind"
    setting = print_setting(corpus=corpus, pairs=len(pairs), planted=planting, seed=SEED)
    results: dict[str, dict[str, float]] = {}

    clean = _flags(pairs)
    sources, targets = zip(*pairs, strict=True)
    print("flagged before any error is planted:")
    for issue in ISSUES:
        if issue.left_out and clean[issue.name].any():
            print(f"  {issue.name:<28}{clean[issue.name].sum():6,}  {clean[issue.name].mean():.4%}")

    planted = [""] * len(pairs)
    for name, plant in PLANT.items():
        for n in chance.sample(range(len(pairs)), round(RATE * len(pairs))):
            if not planted[n]:
                planted[n], pairs[n] = name, plant(pairs[n], chance.choice(pairs), chance.choice(foreign))
    flags = _flags(pairs)
    left_out = np.any([flags[issue.name] for issue in ISSUES if issue.left_out], axis=0)
    print("planted                       pairs   found   named")
    for name in PLANT:
        harmed = np.array([error == name for error in planted])
        print(f"  {name:<28}{harmed.sum():6,}  {left_out[harmed].mean():6.1%}  {flags[name][harmed].mean():6.1%}")
        results[name] = {
            "pairs": int(harmed.sum()),
            "% found": 100 * float(left_out[harmed].mean()),
            "% named": 100 * float(flags[name][harmed].mean()),
        }
    wrong = np.any([flags[issue.name] for issue in ERRORS], axis=0)
    untouched = np.array([not error for error in planted])
    print(f"  flagged without a planted error{wrong[untouched].sum():6,}  {wrong[untouched].mean():.4%}")
    results["no error"] = {"pairs": int(untouched.sum()), "% named": 100 * float(wrong[untouched].mean())}
    for removed in (len(pairs) // 3, len(pairs) * 97 // 100):
        misaligned = [*targets[:removed], *targets[removed + 1 :], targets[removed]]
        shifts = _examined(list(zip(sources, misaligned, strict=True))).shifts
        print(f"  target {removed:,} removed: {', '.join(f'{s.first:,} to {s.end:,} by {s.offset}' for s in shifts)}")
    write_results(options, setting, results)


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
