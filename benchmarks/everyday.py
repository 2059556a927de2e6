"""Quality on everyday text: chrF by category and direction, and every output beside its reference, for the eye.

    python benchmarks/everyday.py [--model FOLDER] [--outputs outputs.md]

The 300 sentences are in tests/data/everyday.tsv, in English, German and French, 15 in each of 20 categories; the
sources of the category typing-errors are in everyday.typed.tsv. "numbers" is the share of outputs with the numbers of
the source, "names intact" the share of outputs of the category names with all words that source and reference share,
"200 names" that of the sentences in tests/data/names.tsv (people, companies, towns) whose name is copied.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from setting import SEED, make_parser, print_setting, write_results

from transduce.files.files import read_lines
from transduce.translation.scores import chrf
from transduce.translation.translator import Translator

DATA = Path(__file__).parents[1] / "tests" / "data"
DIRECTIONS = [("en", "de"), ("en", "fr"), ("de", "en"), ("fr", "en")]
_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"\w[\w'’-]*\w")


class Sentence(NamedTuple):
    """A source and its reference."""

    category: str
    source: str
    reference: str


def main() -> None:
    """Translate, print the scores, and write the outputs."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--outputs", type=Path, help="write sources, outputs and references to this Markdown file")
    options = parser.parse_args()
    translator = Translator.load(options.model, threads=options.threads)
    directions = DIRECTIONS[:1] if options.smoke else DIRECTIONS
    sets = {pair: list(sentences(*pair, each=1 if options.smoke else 15)) for pair in directions}
    setting = print_setting(
        model=options.model or "bundled",
        engine=translator.engine.description,
        sentences=len(sets["en", "de"]),
        beam=translator.config.beam,
        seed=SEED,
    )
    outputs = {
        (source, to): translator.translate([sentence.source for sentence in rows], to=to)
        for (source, to), rows in sets.items()
    }
    results: dict[str, dict[str, float]] = {}
    for pair, rows in sets.items():
        for name, chosen in {"all": rows, **by_category(rows)}.items():
            found = [outputs[pair][rows.index(sentence)] for sentence in chosen]
            results.setdefault(name, {})["-".join(pair)] = chrf(found, [sentence.reference for sentence in chosen])
        results.setdefault("numbers", {})["-".join(pair)] = 100 * share(rows, outputs[pair], _DIGITS)
        names = [(sentence, output) for sentence, output in zip(rows, outputs[pair], strict=True) if is_name(sentence)]
        results.setdefault("names intact", {})["-".join(pair)] = 100 * share(*zip(*names, strict=True), _WORD)
        if pair[0] == "en":
            named = _rows(DATA / "names.tsv")[:: 20 if options.smoke else 1]
            found = translator.translate([row["sentence"] for row in named], to=pair[1])
            intact = [row["name"] in output for row, output in zip(named, found, strict=True)]
            results.setdefault("200 names", {})["-".join(pair)] = 100 * sum(intact) / len(intact)
    print(f"{'chrF':20}" + "".join(f"{name:>8}" for name in next(iter(results.values()))))
    for name, scores in results.items():
        print(f"{name:20}" + "".join(f"{score:8.1f}" for score in scores.values()))
    if options.outputs:
        options.outputs.write_text("".join(listed(sets, outputs)), encoding="utf-8")
    write_results(options, setting, results)


def sentences(source: str, target: str, *, each: int) -> Iterator[Sentence]:
    """The sentences of a direction, `each` of every category."""
    typed, clean = (_rows(DATA / name) for name in ("everyday.typed.tsv", "everyday.tsv"))
    written = iter(typed)
    counts: dict[str, int] = {}
    for row in clean:
        category = row["category"]
        text = next(written)[source] if category == "typing-errors" else row[source]
        counts[category] = counts.get(category, 0) + 1
        if counts[category] <= each:
            yield Sentence(category, text, row[target])


def _rows(path: Path) -> list[dict[str, str]]:
    header, *lines = (line.split("\t") for line in read_lines(path))
    return [dict(zip(header, line, strict=True)) for line in lines]


def by_category(rows: Sequence[Sentence]) -> dict[str, list[Sentence]]:
    """The sentences of each category."""
    return {name: [row for row in rows if row.category == name] for name in dict.fromkeys(row.category for row in rows)}


def is_name(sentence: Sentence) -> bool:
    """Whether a sentence is in the category of names."""
    return sentence.category == "names"


def share(rows: Sequence[Sentence], outputs: Sequence[str], pattern: re.Pattern[str]) -> float:
    """The share of outputs that have everything of a pattern that source and reference share."""
    kept = []
    for row, output in zip(rows, outputs, strict=True):
        wanted = {*pattern.findall(row.source)} & {*pattern.findall(row.reference)}
        kept.append(wanted <= {*pattern.findall(output)})
    return sum(kept) / len(kept)


def listed(sets: dict[tuple[str, str], list[Sentence]], outputs: dict[tuple[str, str], list[str]]) -> Iterator[str]:
    """The outputs as Markdown."""
    for pair, rows in sets.items():
        for name, chosen in by_category(rows).items():
            yield f"\n## {'-'.join(pair)}: {name}\n\n"
            for row in chosen:
                yield f"- {row.source}\n  - **{outputs[pair][rows.index(row)]}**\n  - {row.reference}\n"


if __name__ == "__main__":
    main()
