"""Make a vocabulary and token shards from text files, once: the result is cached by content and settings."""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from transduce.cache_folder import cache_folder
from transduce.config import require
from transduce.data.data_config import DataConfig as DataConfig  # re-exported
from transduce.data.remembered_digests import remembered_digests
from transduce.data.shards import TokenShards
from transduce.data.write_corpus import write_pairs
from transduce.disk import flush_folder
from transduce.errors import ConfigError, DataError, TransduceError
from transduce.files.pair_formats import HEADER, TSV, format_suffix
from transduce.files.pairs import ReadReport, count_pairs, entry_suffixes
from transduce.files.readers import DEFAULT_READER, READERS
from transduce.tokenizers.any_tokenizer import AnyTokenizer, load_tokenizer
from transduce.tokenizers.symbols import BACK_TRANSLATED, SEPARATOR, SPACE_MARK
from transduce.tokenizers.tokenizer import TokenizerConfig

FORMAT = 4
"""Version of the cache: increased whenever shards of older code must not be reused."""
_LATER = ("separate", "target_path")
"""Settings of the vocabulary that older versions did not have."""
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
    reader: str = DEFAULT_READER,
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
    require_symbols_of_data(vocabulary, data)
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
            of_entry = list(part.read(READERS[reader], [entry], report, reverse=part.reverse))
            for line in report.lines():
                log(f"validation data: {line}")
            examples += of_entry
            sizes.append(len(of_entry))
            targets += [part.tagged_target] * len(of_entry)
    return examples, sizes, targets


def _prepare_into(
    folder: Path,
    data: DataConfig,
    vocabulary: TokenizerConfig | AnyTokenizer,
    sources: dict[str, str],
    log: Callable[[str], None],
    reader: str,
) -> None:
    """Prepare a corpus in a folder beside it, which stays if the process is killed: the next one resumes."""
    work = folder.with_name(f"{folder.name}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for leftover in folder.parent.glob("*.tmp"):
            if leftover != work and time.time() - leftover.stat().st_mtime > _ABANDONED:
                shutil.rmtree(leftover, ignore_errors=True)
        with _locked(work, log):
            if folder.exists():  # another process prepared it meanwhile
                shutil.rmtree(work)
                return
            log("data: reading " + ", ".join(" + ".join(files) for files in data.all_train))
            if any(work.iterdir()):
                log(f"data: resuming in {work}, which was interrupted")
            write = READERS[reader].write or write_pairs
            write(work, data, vocabulary, log, reader)
            if changed := [name for name, now in source_digests(data, reader).items() if now != sources[name]]:
                raise DataError(f"{changed[0]} changed while it was being read; run the same command again")
            flush_folder(work)
            work.rename(folder)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        raise DataError(
            f"{folder.parent}, where prepared text is kept, cannot be written: {error.strerror or error}; free space "
            "there or set TRANSDUCE_CACHE to another folder, then run the same command again"
        ) from None
    except TransduceError:
        shutil.rmtree(work, ignore_errors=True)
        raise


@contextmanager
def _locked(work: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Make the folder, unless it is there, and wait until no other process works in it.

    The processes that encode inherit the lock, so that those of a process that was killed are waited for.
    """
    while True:
        work.mkdir(exist_ok=True)
        descriptor = os.open(work, os.O_RDONLY)
        os.set_inheritable(descriptor, True)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log("data: another process prepares the same text; waiting for it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The folder of the process that was waited for is renamed or removed.
            if work.exists() and os.path.samestat(work.stat(), os.fstat(descriptor)):
                yield
                return
        finally:
            os.close(descriptor)


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


def cache_key(
    data: DataConfig,
    vocabulary: TokenizerConfig | AnyTokenizer,
    sources: dict[str, str],
    reader: str,
    *,
    with_headers: bool = False,
) -> str:
    """The name of the folder of a prepared corpus: a hash of all that its shards depend on.

    `with_headers` gives that of older versions, which took names of columns for a pair.
    """
    # Files may be renamed, except for the suffixes that tell how to read them.
    content = [(entry_suffixes(files), [sources[name] for name in files]) for files in data.all_train]
    tokenizer: Any
    if isinstance(vocabulary, TokenizerConfig):
        # Settings that shards of older versions do not have count only if they are set.
        tokenizer = {name: value for name, value in asdict(vocabulary).items() if value or name not in _LATER}
    else:
        tokenizer = hashlib.sha256(vocabulary.model).hexdigest()
    longest = None if READERS[reader].pieces else data.max_length  # documents are never left out
    settings = [FORMAT, data.reverse, longest, tokenizer, *([] if reader == DEFAULT_READER else [reader])]
    if not isinstance(vocabulary, TokenizerConfig) and vocabulary.target is not vocabulary:
        settings.append("targets by their own tokenizer")  # older versions encoded them like sources
    if READERS[reader].revision:
        settings.append(READERS[reader].revision)
    if READERS[reader].has_translations and not with_headers and any(map(_has_header, data.all_train)):
        settings.append("without names of columns")
    if data.directions:
        settings += [data.temperature, [(len(part.train), part.reverse, part.target) for part in data.parts]]
        settings += [[part.source for part in data.parts]] if data.source_tags else []
    if any(part.back_translated for part in data.parts):
        settings.append([len(part.back_translated) for part in data.parts])
    if data.context:
        settings.append("context")
    if old := [len(part.train) for part in data.parts if part.is_replay]:
        settings += ["replay", data.replay_share, old]
    return hashlib.sha256(json.dumps([content, settings]).encode()).hexdigest()[:32]


def _has_header(files: Sequence[str]) -> bool:
    """Whether an entry of the training text is a file whose first line names its columns."""
    path = Path(files[0])
    if len(files) > 1 or format_suffix(path) not in TSV.suffixes:
        return False
    _, first = next(iter(TSV.read(path)), (0, ""))
    return str(first) == HEADER


def source_digests(data: DataConfig, reader: str) -> dict[str, str]:
    """The sha256 of each training file, which covers the files that it names, such as recordings."""
    digests = {}
    with remembered_digests() as digest_of:
        for name in (name for files in data.all_train for name in files):
            try:
                every = [_digest(path, digest_of) for path in (Path(name), *READERS[reader].named_files(Path(name)))]
                digests[name] = hashlib.sha256("".join(every).encode()).hexdigest() if len(every) > 1 else every[0]
            except OSError as error:
                raise DataError(f"{name}: {error.strerror}") from None
    return digests


def _digest(path: Path, digest_of: Callable[[Path], str]) -> str:
    if not path.is_dir():
        return digest_of(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    names = [(str(file.relative_to(path)), digest_of(file)) for file in files]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def with_tags(vocabulary: TokenizerConfig | AnyTokenizer, tags: list[str]) -> TokenizerConfig | AnyTokenizer:
    """The settings of the vocabulary with a symbol for each tag; a finished vocabulary must have them."""
    if isinstance(vocabulary, TokenizerConfig):
        return replace(vocabulary, symbols=(*vocabulary.symbols, *tags))
    if missing := [tag[1:-1] for tag in tags if tag not in vocabulary.symbol_ids]:
        raise ConfigError(
            f"the vocabulary of the model that training starts from has no tag for {', '.join(missing)}; start from a "
            "model with these target languages, or train a new one"
        )
    return vocabulary


def with_symbols(vocabulary: TokenizerConfig | AnyTokenizer, symbols: list[str]) -> TokenizerConfig | AnyTokenizer:
    """The settings of the vocabulary with the symbols that the reader requires; a finished one must have them."""
    if isinstance(vocabulary, TokenizerConfig):
        new = [symbol for symbol in symbols if symbol not in vocabulary.symbols]
        return replace(vocabulary, symbols=(*vocabulary.symbols, *new)) if new else vocabulary
    known = {*vocabulary.pieces(range(vocabulary.vocab_size)), *vocabulary.symbol_ids}
    if missing := [symbol.removeprefix(SPACE_MARK) for symbol in symbols if symbol not in known]:
        raise ConfigError(
            f"the vocabulary that training starts with has no symbol {', '.join(missing[:4])}; leave out the examples "
            "that need it, or train a new model"
        )
    return vocabulary


def require_symbols_of_data(vocabulary: TokenizerConfig | AnyTokenizer, data: DataConfig) -> None:
    """Raise ConfigError if a finished vocabulary lacks the symbol of back-translations or contexts that there are."""
    if data.context and not isinstance(vocabulary, TokenizerConfig) and SEPARATOR not in vocabulary.symbol_ids:
        raise ConfigError(
            "the vocabulary of the model that training starts from has no symbol that separates a context; leave out "
            "data.context, or train a new model"
        )
    uses = any(part.back_translated for part in data.parts)
    if uses and not isinstance(vocabulary, TokenizerConfig) and BACK_TRANSLATED not in vocabulary.symbol_ids:
        raise ConfigError(
            "the vocabulary of the model that training starts from has no symbol for back-translations; name the "
            "synthetic pairs in data.train instead of data.back_translated, or train a new model"
        )
