"""Get a public corpus: download its archives, and make a folder of training, validation and test text from them."""

import fcntl
import gzip
import html
import json
import lzma
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from transduce.corpora.get.catalogue import PublicCorpus, is_http_url
from transduce.corpora.get.download import download, partial_file
from transduce.disk import MANIFEST, atomic_folder, damaged_file, write_manifest
from transduce.errors import ConfigError, DataError
from transduce.files.pairs import Pair, ReadReport, count_pairs, pair_writer, read_pairs
from transduce.files.texts import hashed, normalised

ABOUT = "about.json"
"""Records which archives the text was made from, how many pairs it has and what was left out."""
MAX_WORDS = 250
MAX_RATIO = 3
TOO_LONG = f"of more than {MAX_WORDS} words"
UNEVEN = f"with more than {MAX_RATIO} times as many words on one side"
HELD_OUT = "with a sentence of the validation or test set"
REPEATED = "that occurred before"
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)

Log = Callable[[str], None]
OnDownload = Callable[[str, int, int], None]
"""Called with the name of an archive, its size, and the number of bytes that have been downloaded."""


def get_corpus(corpus: PublicCorpus, out: Path, mirror: str | None, log: Log, on_download: OnDownload) -> None:
    """Make the folder `out`; the downloaded archives are kept in OUT-archives beside it."""
    if mirror and not is_http_url(mirror):
        raise ConfigError(f"--mirror {mirror}: write it as http://HOST or https://HOST")
    if out.exists():
        _verify_text(corpus, out)
        log(f"{out} already exists and is intact")
        return
    archives = out.with_name(f"{out.name}-archives")
    try:
        archives.mkdir(parents=True, exist_ok=True)
        with _lock(archives):
            _check_space(corpus, archives, log)
            for archive in corpus.archives:
                url = mirror.rstrip("/") + urlsplit(archive.url).path if mirror else archive.url
                path, update = archives / archive.name, partial(on_download, archive.name, archive.size)
                download(url, path, archive.size, archive.sha256, log, update)
                log(f"{path}: {archive.size:,} bytes, sha256 verified")
            _make_text(corpus, archives, out, log)
    except OSError as error:
        raise DataError(f"{out.parent}: {error}; downloaded files are kept: run the same command again") from None
    log(f"{archives} is no longer needed and may be deleted")


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Prevent a second process from downloading into the same folder."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{folder}: another process is downloading into it; wait or choose another --out") from None
        yield


def _check_space(corpus: PublicCorpus, archives: Path, log: Log) -> None:
    """Log the sizes, and raise an error if the disk does not have enough space."""
    total = sum(archive.size for archive in corpus.archives)
    paths = [archives / archive.name for archive in corpus.archives]
    here = sum(file.stat().st_size for path in paths for file in (path, partial_file(path)) if file.exists())
    needed, free = max(corpus.disk - here, 0), shutil.disk_usage(archives).free
    log(f"{_gigabytes(total)} to download, {_gigabytes(here)} are already here; terms of use: {corpus.about}")
    log(f"about {_gigabytes(needed)} of disk space are needed, {_gigabytes(free)} are free")
    if free < needed:
        raise DataError(f"{archives.parent}: not enough disk space; free some, or choose another disk with --out")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _verify_text(corpus: PublicCorpus, out: Path) -> None:
    """Raise an error unless a folder holds this corpus, complete and undamaged."""
    if not (out / MANIFEST).exists():
        raise DataError(f"{out} exists, but was not made by this command; choose another --out")
    if damage := damaged_file(out, [ABOUT, *corpus.file_names.values()]):
        path, how = damage
        raise DataError(f"{path} {how}; delete {out} and run the same command again")
    about = json.loads((out / ABOUT).read_bytes())
    if about["archives"] != _origins(corpus):
        raise DataError(f"{out} was made from other archives ({out / ABOUT} names them); choose another --out")


def _make_text(corpus: PublicCorpus, archives: Path, out: Path, log: Log) -> None:
    """Unpack the archives, clean the text and write it to `out`, atomically."""
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


def _write_text(corpus: PublicCorpus, raw: Path, text: Path, log: Log) -> None:
    names = corpus.file_names
    held_out = {split: _read_held_out(corpus, split, raw) for split in ("valid", "test")}
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


def _write_train(corpus: PublicCorpus, raw: Path, path: Path, cleaner: "Cleaner") -> list[str]:
    """Write the training pairs that pass; returns one line of text for each reason to leave pairs out."""
    report = ReadReport()
    with pair_writer(path) as write:
        for pair in cleaner.clean(read_pairs(_files(corpus, "train", raw), report)):
            write(*pair)
    left_out = [line.replace(f"{raw}/", "") for line in report.lines()] + cleaner.lines()
    if not cleaner.kept:
        raise DataError("; ".join(["no pair is left to train on", *left_out]))
    return left_out


def _read_held_out(corpus: PublicCorpus, split: str, raw: Path) -> list[Pair]:
    """Read validation or test pairs, in which no line may be left out."""
    report = ReadReport()
    raw_pairs = read_pairs(_files(corpus, split, raw), report)
    pairs = [(normalise_space(source), normalise_space(target)) for source, target in raw_pairs]
    if report.left_out:
        raise DataError(f"the {split} set is incomplete: {'; '.join(report.lines())}")
    return pairs


def _files(corpus: PublicCorpus, split: str, raw: Path) -> list[tuple[str, ...]]:
    return [tuple(str(raw / archive.name / name) for name in pair) for archive, pair in corpus.members(split)]


def _origins(corpus: PublicCorpus) -> dict[str, str]:
    return {archive.url: archive.sha256 for archive in corpus.archives}


class Cleaner:
    """Leaves pairs out by rules, in one pass, and counts them."""

    def __init__(self, held_out: Iterable[Pair]) -> None:
        self.kept = 0
        self.left_out = dict.fromkeys((TOO_LONG, UNEVEN, HELD_OUT, REPEATED), 0)
        self._held_out = {normalised(sentence) for pair in held_out for sentence in pair}
        self._seen: set[int] = set()

    def clean(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs that pass, in order, with normalised white space."""
        for source, target in pairs:
            pair = normalise_space(source), normalise_space(target)
            if problem := self._problem(pair):
                self.left_out[problem] += 1
            else:
                self.kept += 1
                yield pair

    def lines(self) -> list[str]:
        """One line of text for each rule that left pairs out."""
        return [f"left out {count_pairs(count)} {problem}" for problem, count in self.left_out.items() if count]

    def _problem(self, pair: Pair) -> str:
        shorter, longer = sorted(side.count(" ") + 1 for side in pair)
        if longer > MAX_WORDS:
            return TOO_LONG
        if longer > MAX_RATIO * shorter:
            return UNEVEN
        if not self._held_out.isdisjoint(map(normalised, pair)):
            return HELD_OUT
        key = hashed("\t".join(pair))  # the text of millions of pairs would take gigabytes
        if key in self._seen:
            return REPEATED
        self._seen.add(key)
        return ""


def normalise_space(text: str) -> str:
    """Replace each run of white space by one space, as in sacreBLEU's test sets; a tab would end a column."""
    return " ".join(text.split())


def unpack(archive: Path, wanted: dict[str, Path]) -> None:
    """Write each of these members of a compressed tar archive to its file, and to no other path; others are ignored.

    Test sets in WMT's SGML are written as plain text.
    """
    missing = dict(wanted)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in missing and member.isfile() and (content := tar.extractfile(member)):
                    path = missing.pop(name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("wb") as file:
                        if path.suffix == ".sgm":
                            text = content.read().decode("utf-8", "surrogateescape")
                            file.writelines(f"{line}\n".encode("utf-8", "surrogateescape") for line in segments(text))
                        else:
                            shutil.copyfileobj(content, file)
                if not missing:
                    return
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        reason = str(error).partition(":\n")[0]  # tarfile then lists every compression that it has tried
        raise DataError(f"{archive}: cannot be unpacked: {reason}") from None
    raise DataError(f"{archive}: does not hold {', '.join(missing)}")


def segments(sgml: str) -> list[str]:
    """The sentences of a test set in WMT's SGML, in order, each on one line; empty ones stay, so that lines align."""
    return [" ".join(html.unescape(segment).split()) for segment in _SEGMENT.findall(sgml)]
