"""A glossary: the share of its terms that outputs contain, and what it costs in BLEU and in CPU time.

    python benchmarks/glossary.py --train train.tsv --test test.tsv [--model FOLDER] [--to de] [--terms 500]

The terms are words of the test sources with the word that goes with them most often in the training pairs (Dice
coefficient), if at least half of the references of the test lines with the term contain it. The test lines are
translated without and with the glossary in turn; CPU time is that of all threads. A term counts as used if the output
contains its translation as often as the source has terms with this translation: in any capitalisation, and either as a
whole word or with an ending.
"""

import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from setting import SEED, make_parser, print_setting, write_results

from transduce.corpora.demo.corpus import demo_corpus
from transduce.files.files import read_lines
from transduce.translation.scores import bleu
from transduce.translation.stages.glossary import Glossary
from transduce.translation.translator import Translator

Pairs = Sequence[Sequence[str]]
WORD = re.compile(r"[^\W\d_]{3,}")


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--to", default="de")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--terms", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.smoke:
        corpus = demo_corpus(SEED, train=300, valid=0, test=0)
        train: Pairs = corpus.train
        test, rounds = train[:4], 1
    elif options.train and options.test:
        train, test, rounds = read(options.train), read(options.test), options.rounds
    else:
        parser.error("--train and --test are required")
    translator = Translator.load(options.model, threads=options.threads, beam=options.beam)
    terms = find_terms(train, test, options.terms)
    facts = {"engine": translator.engine.description, "lines": len(test), "terms": len(terms), "rounds": rounds}
    setting = print_setting(model=options.model or "bundled", beam=options.beam, seed=SEED, **facts)
    results: dict[str, dict[str, float]] = {}

    sources, references = map(list, zip(*test, strict=True))
    outputs: dict[str, list[str]] = {}
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(rounds):
        for name, glossary in (("without", None), ("with", terms)):
            start = time.process_time()
            outputs[name] = translator.translate(sources, to=options.to, glossary=glossary)
            seconds[name].append(time.process_time() - start)
    matches = [[translation for _, translation in Glossary(terms).matches(source)] for source in sources]
    print(f"lines with a term: {sum(map(bool, matches))}")
    total = sum(map(len, matches))
    for name, texts in outputs.items():
        row = results[f"{name} the glossary"] = {}
        for kind, ending in (("used", ""), ("used as a whole word", r"(?!\w)")):
            found = sum(count_used(words, text, ending) for words, text in zip(matches, texts, strict=True))
            print(f"{name}: {kind} {found} of {total} ({found / total:.1%})")
            row[f"% of terms {kind}"] = 100 * found / total
        row |= {"BLEU": bleu(texts, references), "CPU time, s": statistics.median(seconds[name])}
        time_used = f"{statistics.median(seconds[name]):.2f} s of CPU time ({range_of(seconds[name])})"
        print(f"{name}: BLEU {row['BLEU']:.2f}, {time_used}")
    ratios = [b / a for a, b in zip(seconds["without"], seconds["with"], strict=True)]
    print(f"time with / without: {statistics.median(ratios):.2f} ({range_of(ratios)})")
    write_results(options, setting, results)


def read(path: Path) -> Pairs:
    """The pairs of a .tsv file, which may be compressed."""
    return [line.split("\t")[:2] for line in read_lines(path)]


def find_terms(train: Pairs, test: Pairs, most: int) -> dict[str, str]:
    """Terms and their translations, those with the highest Dice coefficient first."""
    wanted = {word for source, _ in test for word in WORD.findall(source) if word.islower()}
    src_counts: Counter[str] = Counter()
    tgt_counts: Counter[str] = Counter()
    both: Counter[tuple[str, str]] = Counter()
    for source, target in [*train, *test]:
        src, tgt = wanted.intersection(WORD.findall(source)), {*WORD.findall(target)}
        src_counts.update(src)
        tgt_counts.update(tgt)
        both.update((a, b) for a in src for b in tgt)
    dice = {(a, b): 2 * n / (src_counts[a] + tgt_counts[b]) for (a, b), n in both.items()}
    best: dict[str, str] = {}
    for a, b in sorted(dice, key=lambda pair: (-dice[pair], pair)):
        if a not in best:
            own = [{*WORD.findall(target)} for source, target in test if a in WORD.findall(source)]
            best[a] = b if 2 * sum(b in words for words in own) >= len(own) else ""
    return dict([(a, b) for a, b in best.items() if b][:most])


def count_used(translations: Sequence[str], text: str, ending: str) -> int:
    """The number of terms whose translations the text contains."""
    return sum(
        min(times, len(re.findall(rf"(?<!\w){re.escape(word)}{ending}", text, re.IGNORECASE)))
        for word, times in Counter(translations).items()
    )


def range_of(values: Sequence[float]) -> str:
    """The lowest and the highest value."""
    return f"{min(values):.3g} to {max(values):.3g}"


if __name__ == "__main__":
    main()
