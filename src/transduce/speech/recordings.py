"""Recordings of speech and what is said in them."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from transduce.errors import DataError
from transduce.files.documents import single_file
from transduce.files.files import raw_lines
from transduce.files.pair_formats import TSV, UnusableError, format_suffix, parse_row
from transduce.files.pairs import Corpus, ReadReport
from transduce.files.readers import Reader, require_usable
from transduce.speech.sound import RATE, Samples, read_sound

SECONDS = 30
"""Length of the longest recording that is read."""
UNREADABLE, TOO_LONG, TOO_SHORT = "whose sound cannot be read", "longer than 30 seconds", "shorter than 50 ms"


def read_speech(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[Samples, str]]:
    """Yield the samples of recordings and their texts; an unusable line is left out and counted.

    A .tsv file has the name of a sound file, tab, and the text on each line; names are relative to the .tsv file.
    `reverse` has no meaning for them.
    """
    report.noun = "recording"
    for files in corpus:
        path = Path(single_file(files))
        if format_suffix(path) not in TSV.suffixes:
            raise DataError(f"{path}: recordings are named in a .tsv file (sound file, tab, text)")
        for number, raw in enumerate(raw_lines(path), start=1):
            try:
                name, text = parse_row(raw)
                samples = _samples(path.parent / name)
            except UnusableError as problem:
                report.note(str(problem), files[0], number)
            else:
                report.pairs += 1
                yield samples, text
    require_usable(corpus, report, "recording")


def sound_files(path: Path) -> Iterator[Path]:
    """The sound files that a file of recordings names and that exist."""
    for raw in raw_lines(path) if format_suffix(path) in TSV.suffixes else ():
        with suppress(UnusableError):
            sound = path.parent / parse_row(raw)[0]
            if sound.is_file():
                yield sound


def _samples(path: Path) -> Samples:
    try:
        samples = read_sound(path)
    except DataError as error:
        if "pip install" in str(error):
            raise
        raise UnusableError(UNREADABLE) from None
    if len(samples) > SECONDS * RATE:
        raise UnusableError(TOO_LONG)
    if len(samples) < RATE // 20:
        raise UnusableError(TOO_SHORT)
    return samples


SPEECH = Reader(("src", "tgt"), read_speech, arrays=True, named_files=sound_files)
