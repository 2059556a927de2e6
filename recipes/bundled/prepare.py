"""Puts the text of the bundled model together: pairs of all domains, a part of Europarl, sentences for the teachers.

    python recipes/bundled/prepare.py DATA [--parts pairs more europarl everyday mono]

Reads DATA/tatoeba, europarl, domains, newstest and extra (collect.py); writes to DATA/bundled:
pairs.en-de.tsv, pairs.en-fr.tsv   the domains, and what collect.py found
tatoeba-more.en-de.tsv, ...        pairs of Tatoeba that are not in DATA/tatoeba: those of collect.py, and those whose
                                   German or French has a translation that has an English one
europarl.en-de.tsv, .en-fr.tsv     the shorter and cleaner pairs of Europarl
mono.en, mono.de, mono.fr          sentences without a translation; mono.fr begins with those of beside-mono.de
tatoeba.en-de.tsv, ...             DATA/tatoeba without pairs of which a side is in a test set; everyday-de.en,
everyday.de, ...                   each of their sentences once
games.en-de.tsv, ...               Godot's documentation, which is in pairs.en-de.tsv too
beside-mono.de                     German of the first sentences of mono.fr (Tatoeba's German and French pairs)
No sentence of a validation or test set, or of tests/data, is in any of them, and no script other than Latin.
"""

import argparse
import lzma
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_SEED = 36
_PARTS = ["pairs", "more", "europarl", "everyday", "mono"]
_MOST_TRANSLATIONS = 3
_OTHER = re.compile(r"[\W_]+")
_LATIN = re.compile(
    "[ -~\u00a0-\u00ac\u00ae-\u00b7\u00b9-\u017f\u2009\u2010-\u2022\u2025\u2026\u202f-\u203a\u20ac\u2116\u2122"
    "\u2190-\u2193\u2200-\u22ff]*"
)


def letters(text: str) -> str:
    """A sentence without case, space and punctuation: what makes two of them the same."""
    return _OTHER.sub("", text.casefold())


def pairs_of(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
            for line in file:
                if len(fields := line.rstrip("\n").split("\t")) == 2:
                    yield fields[0].strip(), fields[1].strip()


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


_FORMULA = re.compile("Kolleg|Präsident|Herren|Drucksache")
"""Words of sentences that parliaments repeat."""
_NUMBERS = re.compile(r"\d+")


def is_clean(source: str, target: str) -> bool:
    """Whether a pair of Europarl is of 4 to 30 words, of similar lengths, and has the same numbers on both sides."""
    words = len(source.split())
    return (
        4 <= words <= 30
        and 0.6 <= (len(target) + 8) / (len(source) + 8) <= 1.8
        and source[0].isupper()
        and source[-1] in ".!?"
        and target[-1] in ".!?"
        and "(" not in source + target
        and sorted(_NUMBERS.findall(source)) == sorted(_NUMBERS.findall(target))
    )


def joined(known: Iterable[tuple[str, str]], bridge: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """English beside another language, of (English, third) and (third, other) with the same sentence in a third."""
    english: dict[str, list[str]] = {}
    for source, third in known:
        english.setdefault(third, []).append(source)
    for third, other in bridge:
        yield from ((source, other) for source in english.get(third, [])[:2] if is_alike(source, other))


def is_alike(source: str, target: str) -> bool:
    """Whether sentences have similar lengths, the same numbers and the same end."""
    ratio = (len(target) + 8) / (len(source) + 8)
    return (
        0.6 <= ratio <= 1.7
        and source[-1] == target[-1]
        and sorted(_NUMBERS.findall(source)) == sorted(_NUMBERS.findall(target))
    )


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--europarl", type=int, default=260_000, help="German pairs of Europarl; French: a third")
    parser.add_argument("--pairs", type=int, default=160_000, help="most pairs of one file")
    parser.add_argument(
        "--debates", type=int, default=200_000, help="German and French sentences of debates, English ones of textbooks"
    )
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    options = parser.parse_args()
    data, rng = options.data, random.Random(_SEED)
    held = [*data.glob("*/*valid.en-*"), *data.glob("*/test*.en-*"), *data.glob("newstest/*")]
    forbidden = {letters(text) for pair in pairs_of(held) for text in pair}
    for path in (Path(__file__).parents[2] / "tests" / "data").glob("*.tsv"):
        forbidden |= {letters(text) for text in re.split(r"[\t\n]", path.read_text(encoding="utf-8"))}
    out = data / "bundled"
    out.mkdir(parents=True, exist_ok=True)

    def write(name: str, lines: Iterable[str]) -> None:
        lines = list(lines)
        (out / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        print(f"{out / name}: {len(lines)}")

    def allowed(*texts: str) -> bool:
        return all(texts) and all(_LATIN.fullmatch(text) and letters(text) not in forbidden for text in texts)

    if "pairs" in options.parts:
        for target in ("de", "fr"):
            names = [path for path in data.glob(f"domains/*.en-{target}.*") if ".valid." not in path.name]
            names += [
                path for path in data.glob(f"extra/*.en-{target}.tsv") if not path.name.startswith("tatoeba-more.")
            ]
            found: dict[tuple[str, str], None] = {}
            for path in sorted(names):
                pairs = [pair for pair in pairs_of([path]) if allowed(*pair)]
                if path.name.startswith("game-engine-docs."):
                    write(f"games.en-{target}.tsv", map("\t".join, pairs))
                found |= dict.fromkeys(rng.sample(pairs, min(len(pairs), options.pairs)))
            write(f"pairs.en-{target}.tsv", map("\t".join, found))
    german_french = [*pairs_of(data.glob("extra/tatoeba-de-fr.de-fr.tsv"))]
    for target, third in (("de", "fr"), ("fr", "de")) if "more" in options.parts else ():
        bridge = german_french if target == "fr" else [(french, german) for german, french in german_french]
        known = {
            (letters(one), letters(other)) for one, other in pairs_of([data / f"tatoeba/train.en-{target}.tsv.xz"])
        }
        count: dict[str, int] = {}
        more: list[str] = []
        for pair in (
            *pairs_of([data / f"extra/tatoeba-more.en-{target}.tsv"]),
            *joined(pairs_of([data / f"tatoeba/train.en-{third}.tsv.xz"]), bridge),
        ):
            key = letters(pair[0]), letters(pair[1])
            if key not in known and count.get(key[0], 0) < _MOST_TRANSLATIONS and allowed(*pair):
                known.add(key)
                count[key[0]] = count.get(key[0], 0) + 1
                more.append("\t".join(pair))
        write(f"tatoeba-more.en-{target}.tsv", more)
    for target in ("de", "fr") if "europarl" in options.parts else ():
        clean = [pair for pair in pairs_of(sorted(data.glob(f"europarl/train.en-{target}.*"))) if is_clean(*pair)]
        rng.shuffle(clean)
        most = options.europarl if target == "de" else options.europarl // 3
        chosen = [pair for pair in clean[:most] if allowed(*pair)]
        write(f"europarl.en-{target}.tsv", ("\t".join(pair) for pair in chosen))
    for other in ("de", "fr") if "everyday" in options.parts else ():
        rows = [pair for pair in pairs_of([data / f"tatoeba/train.en-{other}.tsv.xz"]) if allowed(*pair)]
        write(f"tatoeba.en-{other}.tsv", map("\t".join, rows))
        english, translations = zip(*rows, strict=True)
        write(f"everyday-{other}.en", dict.fromkeys(english))
        write(f"everyday.{other}", dict.fromkeys(translations))
    for language in ("en", "de") if "mono" in options.parts else ():
        texts: dict[str, None] = {}
        for path in sorted(data.glob(f"extra/*.{language}")):
            lines = lines_of(path)
            if path.stem == "bundestag":
                lines = [line for line in lines if 7 <= len(line.split()) <= 28 and not _FORMULA.search(line)]
            if path.stem in ("bundestag", "textbooks"):
                lines = rng.sample(lines, min(len(lines), options.debates))
            texts |= dict.fromkeys(line for line in lines if allowed(line))
        write(f"mono.{language}", texts)
    if "mono" in options.parts:
        beside = [pair for pair in german_french if allowed(*pair)]
        debates = [pair[1] for pair in pairs_of(sorted(data.glob("europarl/train.en-fr.*"))) if is_clean(*pair)]
        debates = rng.sample(debates, min(len(debates), options.debates))
        spoken = [line for name in ("common-voice", "tatoeba-more") for line in lines_of(data / f"extra/{name}.fr")]
        write("beside-mono.de", (german for german, _ in beside))
        others = dict.fromkeys(text for text in spoken + debates if allowed(text))
        write("mono.fr", [french for _, french in beside] + [*others])


if __name__ == "__main__":
    main()
