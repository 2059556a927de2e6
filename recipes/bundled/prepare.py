"""Puts the text of the bundled model together: pairs of all domains, a part of Europarl, sentences for the teachers.

    python recipes/bundled/prepare.py DATA [--parts pairs europarl everyday mono]

Reads DATA/tatoeba, europarl, domains, newstest and extra (collect.py); writes to DATA/bundled:
pairs.en-de.tsv, pairs.en-fr.tsv   the domains, and what collect.py found
europarl.en-de.tsv                 the shorter and cleaner pairs of Europarl
mono.en, mono.de, mono.fr          sentences without a translation; mono.fr begins with those of beside-mono.de
everyday-de.en, everyday.de, ...   each sentence of Tatoeba's pairs once
beside-mono.de                     German of the first sentences of mono.fr (Tatoeba's German and French pairs)
No sentence of a validation or test set is in any of them.
"""

import argparse
import lzma
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_SEED = 36
_PARTS = ["pairs", "europarl", "everyday", "mono"]
_OTHER = re.compile(r"[\W_]+")


def letters(text: str) -> str:
    """A sentence without case, space and punctuation: what makes two of them the same."""
    return _OTHER.sub("", text.casefold())


def pairs_of(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
            for line in file:
                if len(fields := line.rstrip("\n").split("\t")) == 2:
                    yield fields[0].strip(), fields[1].strip()


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


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--europarl", type=int, default=400_000, help="pairs of Europarl")
    parser.add_argument("--debates", type=int, default=200_000, help="German sentences of debates")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    options = parser.parse_args()
    data, rng = options.data, random.Random(_SEED)
    held = [*data.glob("*/*valid.en-*"), *data.glob("*/test*.en-*"), *data.glob("newstest/*")]
    forbidden = {letters(text) for pair in pairs_of(held) for text in pair}
    out = data / "bundled"
    out.mkdir(parents=True, exist_ok=True)

    def write(name: str, lines: Iterable[str]) -> None:
        lines = list(lines)
        (out / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        print(f"{out / name}: {len(lines)}")

    def allowed(*texts: str) -> bool:
        return all(texts) and not any(letters(text) in forbidden for text in texts)

    if "pairs" in options.parts:
        for target in ("de", "fr"):
            names = [path for path in data.glob(f"domains/*.en-{target}.*") if ".valid." not in path.name]
            names += data.glob(f"extra/*.en-{target}.tsv")
            found = dict.fromkeys(pair for pair in pairs_of(sorted(names)) if allowed(*pair))
            write(f"pairs.en-{target}.tsv", ("\t".join(pair) for pair in found))
    if "europarl" in options.parts:
        clean = [pair for pair in pairs_of(sorted(data.glob("europarl/train.en-de.*"))) if is_clean(*pair)]
        rng.shuffle(clean)
        chosen = [pair for pair in clean[: options.europarl] if allowed(*pair)]
        write("europarl.en-de.tsv", ("\t".join(pair) for pair in chosen))
    for other in ("de", "fr") if "everyday" in options.parts else ():
        english, translations = zip(*pairs_of([data / f"tatoeba/train.en-{other}.tsv.xz"]), strict=True)
        write(f"everyday-{other}.en", dict.fromkeys(english))
        write(f"everyday.{other}", dict.fromkeys(translations))
    for language in ("en", "de") if "mono" in options.parts else ():
        texts: dict[str, None] = {}
        for path in sorted(data.glob(f"extra/*.{language}")):
            lines = path.read_text(encoding="utf-8").splitlines()
            if path.stem == "bundestag":
                lines = [line for line in lines if 7 <= len(line.split()) <= 28 and not _FORMULA.search(line)]
                lines = rng.sample(lines, min(len(lines), options.debates))
            texts |= dict.fromkeys(line for line in lines if allowed(line))
        write(f"mono.{language}", texts)
    if "mono" in options.parts:
        beside = [pair for pair in pairs_of([data / "extra/tatoeba-de-fr.de-fr.tsv"]) if allowed(*pair)]
        debates = [pair[1] for pair in pairs_of(sorted(data.glob("europarl/train.en-fr.*"))) if is_clean(*pair)]
        debates = rng.sample(debates, min(len(debates), options.debates // 2))
        spoken = (data / "extra/common-voice.fr").read_text(encoding="utf-8").splitlines()
        write("beside-mono.de", (german for german, _ in beside))
        write("mono.fr", [french for _, french in beside] + [text for text in spoken + debates if allowed(text)])


if __name__ == "__main__":
    main()
