"""From archives to a folder of text to train on, to validate and to test, which is there whole or not at all."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from transduce.corpora.get.catalogue import Corpus
from transduce.corpora.get.clean import Cleaner, tidy
from transduce.corpora.get.unpack import unpack
from transduce.disk import MANIFEST, atomic_folder, damaged_file, write_manifest
from transduce.errors import DataError
from transduce.text.pairs import Pair, ReadReport, pair_writer, read_pairs

ABOUT = "about.json"
"""Says which archives the text was made from, how many pairs it has and what was left out."""


def file_names(corpus: Corpus) -> dict[str, str]:
    """The files of text, by what they are for."""
    return {
        "train": f"train.{corpus.languages}.tsv.gz",
        "valid": f"valid.{corpus.languages}.tsv",
        "test": f"test.{corpus.languages}.tsv",
    }


def check_made(corpus: Corpus, out: Path) -> None:
    """Make sure that a folder holds this corpus, whole."""
    if not (out / MANIFEST).exists():
        raise DataError(f"{out} is there, and was not made by this command; choose another --out")
    if damage := damaged_file(out, [ABOUT, *file_names(corpus).values()]):
        path, how = damage
        raise DataError(f"{path} {how}; delete {out} and run the same command again")
    about = json.loads((out / ABOUT).read_bytes())
    if about["archives"] != _origins(corpus):
        raise DataError(f"{out} was made from other archives ({out / ABOUT} names them); choose another --out")


def make(corpus: Corpus, archives: Path, out: Path, say: Callable[[str], None]) -> None:
    """Unpack beside the archives, then clean and write."""
    raw = archives / ".unpacked"
    shutil.rmtree(raw, ignore_errors=True)  # left by a process that was killed
    try:
        say("unpacking")
        for archive in corpus.archives:
            members = [member for pair in (*archive.train, *archive.valid, *archive.test) for member in pair]
            unpack(archives / archive.name, {member: raw / archive.name / member for member in members})
        with atomic_folder(out) as text:
            _write_text(corpus, raw, text, say)
            write_manifest(text)
    except DataError as error:  # lines are told by their archive, as the unpacked files are gone when this is read
        raise DataError(str(error).replace(f"{raw}/", "")) from None
    finally:
        shutil.rmtree(raw, ignore_errors=True)


def _write_text(corpus: Corpus, raw: Path, text: Path, say: Callable[[str], None]) -> None:
    names = file_names(corpus)
    held_out = {split: _read_all(corpus, split, raw) for split in ("valid", "test")}
    for split, pairs in held_out.items():
        with pair_writer(text / names[split]) as write:
            for pair in pairs:
                write(*pair)
    say("cleaning")
    cleaner = Cleaner(pair for pairs in held_out.values() for pair in pairs)
    left_out = _write_train(corpus, raw, text / names["train"], cleaner)
    counts = {"train": cleaner.kept, **{split: len(pairs) for split, pairs in held_out.items()}}
    about = {"archives": _origins(corpus), "pairs": counts, "left_out": left_out}
    (text / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    for line in left_out:
        say(line)
    say(", ".join(f"{names[split]}: {count:,} pairs" for split, count in counts.items()))


def _write_train(corpus: Corpus, raw: Path, path: Path, cleaner: Cleaner) -> list[str]:
    """Write what is clean; a line on each reason to leave something out."""
    report = ReadReport()
    with pair_writer(path) as write:
        for pair in cleaner.clean(read_pairs(_files(corpus, "train", raw), report)):
            write(*pair)
    left_out = [line.replace(f"{raw}/", "") for line in report.lines()] + cleaner.lines()
    if not cleaner.kept:
        raise DataError("; ".join(["no pair is left to train on", *left_out]))
    return left_out


def _read_all(corpus: Corpus, split: str, raw: Path) -> list[Pair]:
    """Pairs to be judged by: of these, none may be missing."""
    report = ReadReport()
    pairs = [(tidy(source), tidy(target)) for source, target in read_pairs(_files(corpus, split, raw), report)]
    if report.left_out:
        raise DataError(f"the {split} set is not as it should be: {'; '.join(report.lines())}")
    return pairs


def _files(corpus: Corpus, split: str, raw: Path) -> list[tuple[str, ...]]:
    return [tuple(str(raw / archive.name / name) for name in pair) for archive, pair in corpus.members(split)]


def _origins(corpus: Corpus) -> dict[str, str]:
    return {archive.url: archive.sha256 for archive in corpus.archives}
