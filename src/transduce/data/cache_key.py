"""The key of a prepared corpus in the cache: a function of the contents of its files and of the settings."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transduce.data.data_config import DataConfig
from transduce.disk import digest
from transduce.errors import DataError
from transduce.files.pair_formats import HEADER, TSV, format_suffix
from transduce.files.pairs import entry_suffixes
from transduce.files.readers import READERS
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.tokenizer import TokenizerConfig

FORMAT = 4
"""Version of the cache: increased whenever shards of older code must not be reused."""

_LATER = ("separate", "target_path")


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
        # Settings that shards of older versions do not have count only if they are given.
        tokenizer = {name: value for name, value in asdict(vocabulary).items() if value or name not in _LATER}
    else:
        tokenizer = hashlib.sha256(vocabulary.model).hexdigest()
    longest = None if READERS[reader].pieces else data.max_length  # documents are never left out
    settings = [FORMAT, data.reverse, longest, tokenizer, *([] if reader == "pairs" else [reader])]
    if not isinstance(vocabulary, TokenizerConfig) and vocabulary.target is not vocabulary:
        settings.append("targets by their own tokenizer")  # older versions encoded them like sources
    if reader == "images":
        settings.append("16 bits as 8")  # older versions made most pixels of such images white
    if reader == "pairs" and not with_headers and any(map(_has_header, data.all_train)):
        settings.append("without names of columns")
    if data.directions:
        settings += [data.temperature, [(len(part.train), part.reverse, part.target) for part in data.parts]]
    if any(part.back_translated for part in data.parts):
        settings.append([len(part.back_translated) for part in data.parts])
    if old := [len(part.train) for part in data.parts if part.is_replay]:
        settings += ["replay", data.replay_share, old]
    return hashlib.sha256(json.dumps([content, settings]).encode()).hexdigest()[:32]


def _has_header(files: Sequence[str]) -> bool:
    """Whether an entry of the training text is a file whose first line names its columns."""
    path = Path(files[0])
    if len(files) > 1 or format_suffix(path) not in TSV.suffixes:
        return False
    _, first = next(iter(TSV.read(path)), (0, ""))
    return first == HEADER


def source_digests(data: DataConfig, reader: str) -> dict[str, str]:
    """The sha256 of each training file, which covers the files that it names, such as recordings."""
    digests = {}
    for name in (name for files in data.all_train for name in files):
        try:
            own, *others = [_digest(path) for path in (Path(name), *READERS[reader].named_files(Path(name)))]
            digests[name] = hashlib.sha256("".join([own, *others]).encode()).hexdigest() if others else own
        except OSError as error:
            raise DataError(f"{name}: {error.strerror}") from None
    return digests


def _digest(path: Path) -> str:
    """The sha256 of a file, or of the names and contents of all files of a folder."""
    if not path.is_dir():
        return digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    names = [(str(file.relative_to(path)), digest(file)) for file in files]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()
