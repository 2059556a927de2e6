"""Robustness to untidy text: BLEU on the same sentences in capitals, in title case, with emoji, with typing errors.

    python benchmarks/robustness.py --test test.tsv [--lines 200] [--model FOLDER] [--to de]

"case-insensitive" compares outputs and references in lower case. An emoji is added after source and reference.
Exchanged letters are two adjacent inner letters of one word of each sentence, or of every word of five letters or more.
"""

import os
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from setting import SEED, make_parser, print_setting, write_results

from transduce.corpora.demo.corpus import demo_corpus
from transduce.files.files import read_lines
from transduce.translation.scores import bleu
from transduce.translation.translator import Translator

EMOJI = "😀😂😍🤔😎🙏👍🎉🔥🌹"
LONG_WORD = re.compile(r"[^\W\d_]{5,}")


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--to", default="de")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--beam", type=int, default=4)
    options = parser.parse_args()
    if options.smoke:
        pairs: Sequence[Sequence[str]] = demo_corpus(SEED, train=3, valid=0, test=0).train
    elif options.test:
        pairs = [line.split("\t")[:2] for line in read_lines(options.test)][: options.lines]
    else:
        parser.error("--test is required")
    translator = Translator.load(options.model, threads=options.threads, beam=options.beam)
    setting = print_setting(
        model=options.model or "bundled",
        engine=translator.engine.description,
        lines=len(pairs),
        beam=options.beam,
        seed=SEED,
    )
    sources, references = map(list, zip(*pairs, strict=True))

    def measure(change: Callable[[str], str], *, folded: bool = False) -> float:
        outputs = translator.translate([change(source) for source in sources], to=options.to)
        sides = ([text.lower() for text in side] if folded else side for side in (outputs, references))
        return bleu(*sides)

    generator = random.Random(SEED)
    results = {
        "unchanged": measure(str),
        "unchanged, case-insensitive": measure(str, folded=True),
        "in capitals, case-insensitive": measure(str.upper, folded=True),
        "in title case, case-insensitive": measure(title, folded=True),
    }
    emoji = [generator.choice(EMOJI) for _ in sources]
    outputs = translator.translate([" ".join(pair) for pair in zip(sources, emoji, strict=True)], to=options.to)
    kept = sum(text.count(character) == 1 for text, character in zip(outputs, emoji, strict=True))
    with_emoji = [" ".join(pair) for pair in zip(references, emoji, strict=True)]
    print(f"emoji: kept in {kept} of {len(outputs)}")
    results["with an emoji"] = bleu(outputs, with_emoji)
    for name, change in (("one word", in_one_word), ("every word of five letters or more", in_all_words)):
        results[f"two letters exchanged in {name}"] = measure(partial(change, generator=generator))
    for name, score in results.items():
        print(f"{name}: BLEU {score:.1f}")
    write_results(options, setting, {name: {"BLEU": score} for name, score in results.items()})


def title(text: str) -> str:
    """The text with a capital at the start of every word."""
    return re.sub(r"[^\W\d_]+(?:['’][^\W\d_]+)*", lambda match: match[0][0].upper() + match[0][1:], text)


def exchanged(word: str, generator: random.Random) -> str:
    """The word with two adjacent inner letters exchanged."""
    at = generator.randrange(1, len(word) - 2)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def in_one_word(text: str, generator: random.Random) -> str:
    """The text with letters exchanged in a random word of at least four letters, if there is one."""
    words = list(re.finditer(r"[^\W\d_]{4,}", text))
    if not words:
        return text
    chosen = generator.choice(words)
    return text[: chosen.start()] + exchanged(chosen[0], generator) + text[chosen.end() :]


def in_all_words(text: str, generator: random.Random) -> str:
    """The text with letters exchanged in every word of at least five letters."""
    return LONG_WORD.sub(lambda match: exchanged(match[0], generator), text)


if __name__ == "__main__":
    main()
