"""Make a vocabulary and token shards from text files, once: the result is cached by content and settings."""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from transduce.cache_folder import cache_folder
from transduce.config import require
from transduce.data.cache_key import cache_key, source_digests
from transduce.data.data_config import DataConfig as DataConfig  # re-exported
from transduce.data.shards import TokenShards
from transduce.data.vocabulary_symbols import require_back_translation_symbol, with_symbols, with_tags
from transduce.data.write_corpus import write_documents, write_pairs
from transduce.disk import flush_folder
from transduce.errors import DataError
from transduce.files.pairs import ReadReport, count_pairs
from transduce.files.readers import READERS
from transduce.tokenizers.any_tokenizer import AnyTokenizer, load_tokenizer
from transduce.tokenizers.tokenizer import TokenizerConfig

_ABANDONED = 7 * 24 * 3600
"""Seconds after which an unfinished folder is considered abandoned."""


@dataclass(frozen=True)
class Prepared:
    """The result of `prepare`: everything that training needs of the data."""

    tokenizer: AnyTokenizer
    train: TokenShards
    valid: list[tuple[Any, ...]]
    """Validation examples, as the reader yields them."""
    valid_sizes: list[int]
    """Number of validation examples of each entry of `data.all_valid`."""
    valid_targets: list[str | None]
    """For each validation example, the language whose tag begins its source; None without tags."""
    sources: dict[str, str]
    """The files of the training text and the sha256 of each."""


def prepare(
    data: DataConfig,
    vocabulary: TokenizerConfig | AnyTokenizer,
    log: Callable[[str], None],
    reader: str = "pairs",
    symbols: Sequence[str] = (),
    check_valid: Callable[[Sequence[tuple[Any, ...]]], None] = lambda _: None,
    begun_with: str = "",
) -> Prepared:
    """Get the corpus as token shards, from the cache if it is there; learn the vocabulary from it if none is given.

    `reader` is a key of `READERS`, which tells what an example is. The vocabulary must have the `symbols`.
    `check_valid` is called with the validation examples before the training text is read, which may take long.
    `begun_with` is the key of the corpus of a run that is resumed, which an older version may have prepared.
    """
    require(
        bool(data.all_train), "no training text: give --src and --tgt, --train, --text, or data.train in the recipe"
    )
    sources = source_digests(data, reader)
    vocabulary = with_tags(vocabulary, data.target_tags)
    require_back_translation_symbol(vocabulary, data)
    valid, valid_sizes, valid_targets = _read_valid(data, log, reader)  # first: a typo in its name shows at once
    check_valid(valid)
    vocabulary = with_symbols(vocabulary, [*symbols, *READERS[reader].symbols(data.all_train)])
    folder = cache_folder() / cache_key(data, vocabulary, sources, reader)
    older = cache_folder() / cache_key(data, vocabulary, sources, reader, with_headers=True)
    if older.name == begun_with and older.exists():
        folder = older
    if folder.exists():
        log(f"data: {folder} (prepared before)")
    else:
        _prepare_into(folder, data, vocabulary, sources, log, reader)
    shards = TokenShards(folder)
    for line in _report(shards, data):
        log(f"data: {line}")
    if documents := shards.index.get("documents"):
        size = f"{count_pairs(documents, 'document')}, {shards.index['tokens'][0]:,} tokens"
    else:
        lengths = " + ".join(f"{mean:.1f}" for mean in shards.mean_lengths)
        noun = shards.index.get("noun", "pair")
        size = f"{count_pairs(len(shards), noun)}, {lengths} tokens a {noun}"
    vocabularies = f"a vocabulary of {shards.index['vocab_size']:,}"
    if source_size := shards.index.get("source_vocab_size"):
        vocabularies = f"vocabularies of {source_size:,} (source) and {shards.index['vocab_size']:,} (target)"
    log(f"data: {size}, {vocabularies}")
    tokenizer = load_tokenizer(folder)
    return Prepared(tokenizer, shards, valid, valid_sizes, valid_targets, sources)


def _read_valid(
    data: DataConfig, log: Callable[[str], None], reader: str
) -> tuple[list[tuple[Any, ...]], list[int], list[str | None]]:
    """The examples of all entries, the number of examples of each, and for each example the language of its tag."""
    examples: list[tuple[Any, ...]] = []
    sizes: list[int] = []
    targets: list[str | None] = []
    for part in data.parts:
        for entry in part.valid:
            report = ReadReport()
            of_entry = list(READERS[reader].read([entry], report, reverse=part.reverse))
            for line in report.lines():
                log(f"validation data: {line}")
            examples += of_entry
            sizes.append(len(of_entry))
            targets += [part.target] * len(of_entry)
    return examples, sizes, targets


def _prepare_into(
    folder: Path,
    data: DataConfig,
    vocabulary: TokenizerConfig | AnyTokenizer,
    sources: dict[str, str],
    log: Callable[[str], None],
    reader: str,
) -> None:
    work: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".tmp", dir=folder.parent))
        log("data: reading " + ", ".join(" + ".join(files) for files in data.all_train))
        write = write_documents if READERS[reader].pieces else write_pairs
        write(work, data, vocabulary, log, reader)
        if changed := [name for name, now in source_digests(data, reader).items() if now != sources[name]]:
            raise DataError(f"{changed[0]} changed while it was being read; run the same command again")
        flush_folder(work)
        try:
            work.rename(folder)
        except OSError:  # another process prepared the same corpus meanwhile
            if not folder.exists():
                raise
    except OSError as error:
        raise DataError(
            f"{folder.parent}, where prepared text is kept, cannot be written: {error.strerror or error}; free space "
            "there or set TRANSDUCE_CACHE to another folder, then run the same command again"
        ) from None
    finally:
        if work:
            shutil.rmtree(work, ignore_errors=True)


def _sweep(cache: Path) -> None:
    """Remove unfinished folders of processes that were killed days ago."""
    for leftover in cache.glob("*.tmp"):
        if time.time() - leftover.stat().st_mtime > _ABANDONED:
            shutil.rmtree(leftover, ignore_errors=True)


def _report(shards: TokenShards, data: DataConfig) -> list[str]:
    """What was left out when the corpus was prepared. Files of the same content may have had other names then."""
    before = chain.from_iterable(shards.index.get("files", ()))
    names = list(zip(before, chain.from_iterable(data.all_train), strict=False))
    lines = []
    for line in shards.index["report"]:
        for old, new in names:
            start, mark, rest = line.partition(f"(first: {old}")
            if mark and rest.startswith((",", "/")):  # a line of the file, or a file of the folder
                line = f"{start}(first: {new}{rest}"
                break
        lines.append(line)
    return lines
