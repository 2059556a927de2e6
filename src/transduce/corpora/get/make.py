"""Make a folder of training, validation and test text from downloaded archives, atomically."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from transduce.corpora.get.catalogue import Corpus
from transduce.corpora.get.clean import Cleaner, normalise_space
from transduce.corpora.get.unpack import unpack
from transduce.disk import MANIFEST, atomic_folder, damaged_file, write_manifest
from transduce.errors import DataError
from transduce.files.pairs import Pair, ReadReport, pair_writer, read_pairs

ABOUT = "about.json"
"""Records which archives the text was made from, how many pairs it has and what was left out."""


def file_names(corpus: Corpus) -> dict[str, str]:
    """The file name of each split."""
    return {
        "train": f"train.{corpus.languages}.tsv.gz",
        "valid": f"valid.{corpus.languages}.tsv",
        "test": f"test.{corpus.languages}.tsv",
    }


def verify_text(corpus: Corpus, out: Path) -> None:
    """Raise an error unless a folder holds this corpus, complete and undamaged."""
    if not (out / MANIFEST).exists():
        raise DataError(f"{out} exists, but was not made by this command; choose another --out")
    if damage := damaged_file(out, [ABOUT, *file_names(corpus).values()]):
        path, how = damage
        raise DataError(f"{path} {how}; delete {out} and run the same command again")
    about = json.loads((out / ABOUT).read_bytes())
    if about["archives"] != _origins(corpus):
        raise DataError(f"{out} was made from other archives ({out / ABOUT} names them); choose another --out")


def make_text(corpus: Corpus, archives: Path, out: Path, log: Callable[[str], None]) -> None:
    """Unpack the archives, clean the text and write it to `out`."""
    raw = archives / ".unpacked"
    shutil.rmtree(raw, ignore_errors=True)  # left by a process that was killed
    try:
        log("unpacking")
        for archive in corpus.archives:
            members = [member for pair in (*archive.train, *archive.valid, *archive.test) for member in pair]
            unpack(archives / archive.name, {member: raw / archive.name / member for member in members})
        with atomic_folder(out) as text:
            _write_text(corpus, raw, text, log)
            write_manifest(text)
    except DataError as error:  # name the archive, as the unpacked files are deleted
        raise DataError(str(error).replace(f"{raw}/", "")) from None
    finally:
        shutil.rmtree(raw, ignore_errors=True)


def _write_text(corpus: Corpus, raw: Path, text: Path, log: Callable[[str], None]) -> None:
    names = file_names(corpus)
    held_out = {split: _read_all(corpus, split, raw) for split in ("valid", "test")}
    for split, pairs in held_out.items():
        with pair_writer(text / names[split]) as write:
            for pair in pairs:
                write(*pair)
    log("cleaning")
    cleaner = Cleaner(pair for pairs in held_out.values() for pair in pairs)
    left_out = _write_train(corpus, raw, text / names["train"], cleaner)
    counts = {"train": cleaner.kept, **{split: len(pairs) for split, pairs in held_out.items()}}
    about = {"archives": _origins(corpus), "pairs": counts, "left_out": left_out}
    (text / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    for line in left_out:
        log(line)
    log(", ".join(f"{names[split]}: {count:,} pairs" for split, count in counts.items()))


def _write_train(corpus: Corpus, raw: Path, path: Path, cleaner: Cleaner) -> list[str]:
    """Write the training pairs that pass; returns one line of text for each reason to leave pairs out."""
    report = ReadReport()
    with pair_writer(path) as write:
        for pair in cleaner.clean(read_pairs(_files(corpus, "train", raw), report)):
            write(*pair)
    left_out = [line.replace(f"{raw}/", "") for line in report.lines()] + cleaner.lines()
    if not cleaner.kept:
        raise DataError("; ".join(["no pair is left to train on", *left_out]))
    return left_out


def _read_all(corpus: Corpus, split: str, raw: Path) -> list[Pair]:
    """Read validation or test pairs, in which no line may be left out."""
    report = ReadReport()
    raw_pairs = read_pairs(_files(corpus, split, raw), report)
    pairs = [(normalise_space(source), normalise_space(target)) for source, target in raw_pairs]
    if report.left_out:
        raise DataError(f"the {split} set is incomplete: {'; '.join(report.lines())}")
    return pairs


def _files(corpus: Corpus, split: str, raw: Path) -> list[tuple[str, ...]]:
    return [tuple(str(raw / archive.name / name) for name in pair) for archive, pair in corpus.members(split)]


def _origins(corpus: Corpus) -> dict[str, str]:
    return {archive.url: archive.sha256 for archive in corpus.archives}
