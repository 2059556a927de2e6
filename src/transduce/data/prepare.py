"""Make a vocabulary and token shards from text files, once: the result is cached by content and settings."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from transduce.cache_folder import cache_folder
from transduce.config import require
from transduce.data.directions import CorpusPart, DirectionConfig, part_repetitions
from transduce.data.document_shards import SHARD_CHARACTERS, DocumentSample, write_document_index
from transduce.data.encode_worker import shard_pairs
from transduce.data.shards import TokenShards, write_index
from transduce.disk import digest, flush_folder
from transduce.errors import ConfigError, DataError
from transduce.text.any_tokenizer import AnyTokenizer, load_tokenizer
from transduce.text.languages import Direction, is_language_code, parse_direction
from transduce.text.pairs import Corpus, ReadReport, count_pairs, entry_suffixes
from transduce.text.readers import READERS
from transduce.text.sample import Reservoir
from transduce.text.symbols import BACK_TRANSLATED, SPACE_MARK, language_tag
from transduce.text.tokenizer import Tokenizer, TokenizerConfig

FORMAT = 4
"""Version of the cache: increased whenever shards of older code must not be reused."""
_ABANDONED = 7 * 24 * 3600
"""Seconds after which an unfinished folder is considered abandoned."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text to train on."""

    train: tuple[tuple[str, ...], ...] = ()
    """Training pairs, e.g. "pairs.tsv", ["a.tsv", "b.jsonl"] or [["source.txt", "target.txt"]]."""
    valid: tuple[tuple[str, ...], ...] = ()
    """Validation pairs, likewise; without them nothing is validated."""
    replay: tuple[tuple[str, ...], ...] = ()
    """Fine-tuning: old training pairs to mix with the new ones, so that the model does not forget them."""
    replay_share: float = 0.5
    """Share of old pairs in each epoch; the new pairs, or the old ones if those are fewer, are repeated."""
    by_sentence: bool = False
    """Every text is one sentence, so a text of several sentences must be translated sentence by sentence."""
    truecase: bool = False
    """Translate sentences in capitals or title case as ordinary ones, for a model of text with ordinary capitals."""
    reverse: bool = False
    """Read the second side of every pair as the source."""
    src_lang: str | None = None
    """Language that the model translates from, e.g. en or pt-BR; by default, file names such as a.en-de.tsv tell."""
    tgt_lang: str | None = None
    """Language that the model translates to, likewise; it selects the tokenizer of BLEU."""
    back_translated: tuple[tuple[str, ...], ...] = ()
    """More training pairs, each a back-translation and its original, as `transduce backtranslate` writes them. A
    reserved symbol begins their sources (tagged back-translation); data.reverse does not apply to them."""
    max_length: int = 256
    """Pairs with more tokens than this on either side are left out and counted. Of a language model: the context, in
    tokens, that it is trained with."""
    directions: dict[str, DirectionConfig] = field(default_factory=dict)
    """Instead of train, valid and reverse: a section for each direction of a multilingual model, e.g. en-de."""
    temperature: float = 1.0
    """Temperature sampling over directions: one with a share p of the pairs is drawn in proportion to p^(1/this)."""

    def __post_init__(self) -> None:
        require(1 <= self.max_length < 2**16 - 1, "max_length must be between 1 and 65534")
        for name in ("src_lang", "tgt_lang"):
            code = getattr(self, name)
            require(code is None or is_language_code(code), f"{name} must be a language code like en or pt-BR: {code}")
        require(self.temperature >= 1, "temperature must be at least 1")
        require(
            self.temperature == 1 or bool(self.directions), "temperature needs several directions (data.directions)"
        )
        require(0 < self.replay_share < 1, "replay_share must be above 0 and below 1")
        has_replay = bool(self.replay) or any(direction.replay for direction in self.directions.values())
        require(has_replay or self.replay_share == 0.5, "replay_share has no effect without old text (replay)")
        own = ("train", "valid", "replay", "reverse", "src_lang", "tgt_lang", "back_translated")
        for name in own if self.directions else ():
            require(not getattr(self, name), f"{name} cannot be set beside directions; each direction has its own")
        for name, direction in self.directions.items():
            parse_direction(name)
            require(bool(direction.train), f"the direction {name} has no training text (train)")

    @property
    def parts(self) -> list[CorpusPart]:
        """The text of each direction; a model with a single direction has no tags. Old text is a part of its own."""
        parts = [CorpusPart(self.train, self.valid, self.reverse, back_translated=self.back_translated)]
        replays: list[Corpus] = [self.replay]
        if self.directions:
            items = sorted(self.directions.items())
            parts = [
                CorpusPart(own.train, own.valid, own.reverse, name, parse_direction(name)[1], own.back_translated)
                for name, own in items
            ]
            replays = [own.replay for _, own in items]
        olds = [
            replace(part, train=old, valid=(), back_translated=(), is_replay=True)
            for part, old in zip(parts, replays, strict=True)
            if old
        ]
        return parts + olds

    @property
    def all_train(self) -> Corpus:
        """The training files of all directions."""
        return [files for part in self.parts for files in part.all_train]

    @property
    def all_valid(self) -> Corpus:
        """The validation files of all directions."""
        return [files for part in self.parts for files in part.valid]

    @property
    def language_pairs(self) -> list[Direction]:
        """The directions that the model translates in; empty if the languages are not known."""
        if self.directions:
            return [parse_direction(name) for name in self.directions]
        return [(self.src_lang, self.tgt_lang)] if self.src_lang and self.tgt_lang else []

    @property
    def target_tags(self) -> list[str]:
        """The tags of all target languages, without repetition."""
        return list(dict.fromkeys(language_tag(part.target) for part in self.parts if part.target))


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


@dataclass
class _Seen:
    """What the first pass over examples finds."""

    labels: set[str] = field(default_factory=set)
    """The names of all classes."""
    shape: tuple[int, ...] = ()
    """The shape of the last array; those of images are all the same."""


def prepare(
    data: DataConfig,
    vocabulary: TokenizerConfig | AnyTokenizer,
    log: Callable[[str], None],
    reader: str = "pairs",
    symbols: Sequence[str] = (),
    check_valid: Callable[[Sequence[tuple[Any, ...]]], None] = lambda _: None,
) -> Prepared:
    """Get the corpus as token shards, from the cache if it is there; learn the vocabulary from it if none is given.

    `reader` is a key of `READERS`, which tells what an example is. The vocabulary must have the `symbols`.
    `check_valid` is called with the validation examples before the training text is read, which may take long.
    """
    require(
        bool(data.all_train), "no training text: give --src and --tgt, --train, --text, or data.train in the recipe"
    )
    sources = _digests(data)
    vocabulary = _with_tags(vocabulary, data.target_tags)
    _require_symbol(vocabulary, data)
    valid, valid_sizes, valid_targets = _read_valid(data, log, reader)  # first: a typo in its name shows at once
    check_valid(valid)
    vocabulary = _with_symbols(vocabulary, [*symbols, *READERS[reader].symbols(data.all_train)])
    folder = cache_folder() / _key(data, vocabulary, sources, reader)
    if folder.exists():
        log(f"data: {folder} (prepared before)")
    else:
        _prepare_into(folder, data, vocabulary, sources, log, reader)
    shards = TokenShards(folder)
    for line in shards.index["report"]:
        log(f"data: {line}")
    if documents := shards.index.get("documents"):
        size = f"{count_pairs(documents, 'document')}, {shards.index['tokens'][0]:,} tokens"
    else:
        lengths = " + ".join(f"{mean:.1f}" for mean in shards.mean_lengths)
        noun = shards.index.get("noun", "pair")
        size = f"{count_pairs(len(shards), noun)}, {lengths} tokens a {noun}"
    log(f"data: {size}, a vocabulary of {shards.index['vocab_size']:,}")
    tokenizer = load_tokenizer(folder)
    return Prepared(tokenizer, shards, valid, valid_sizes, valid_targets, sources)


def _with_tags(vocabulary: TokenizerConfig | AnyTokenizer, tags: list[str]) -> TokenizerConfig | AnyTokenizer:
    """The settings of the vocabulary with a symbol for each tag; a finished vocabulary must have them."""
    if isinstance(vocabulary, TokenizerConfig):
        return replace(vocabulary, symbols=(*vocabulary.symbols, *tags))
    if missing := [tag[1:-1] for tag in tags if tag not in vocabulary.symbol_ids]:
        raise ConfigError(
            f"the vocabulary of the model that training starts from has no tag for {', '.join(missing)}; start from a "
            "model with these target languages, or train a new one"
        )
    return vocabulary


def _with_symbols(vocabulary: TokenizerConfig | AnyTokenizer, symbols: list[str]) -> TokenizerConfig | AnyTokenizer:
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


def _require_symbol(vocabulary: TokenizerConfig | AnyTokenizer, data: DataConfig) -> None:
    uses = any(part.back_translated for part in data.parts)
    if uses and not isinstance(vocabulary, TokenizerConfig) and BACK_TRANSLATED not in vocabulary.symbol_ids:
        raise ConfigError(
            "the vocabulary of the model that training starts from has no symbol for back-translations; name the "
            "synthetic pairs in data.train instead of data.back_translated, or train a new model"
        )


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


def _key(data: DataConfig, vocabulary: TokenizerConfig | AnyTokenizer, sources: dict[str, str], reader: str) -> str:
    # Files may be renamed, except for the suffixes that tell how to read them.
    content = [(entry_suffixes(files), [sources[name] for name in files]) for files in data.all_train]
    tokenizer: Any = (
        hashlib.sha256(vocabulary.model).hexdigest()
        if not isinstance(vocabulary, TokenizerConfig)
        else asdict(vocabulary)
    )
    longest = None if READERS[reader].pieces else data.max_length  # documents are never left out
    settings = [FORMAT, data.reverse, longest, tokenizer, *([] if reader == "pairs" else [reader])]
    if data.directions:
        settings += [data.temperature, [(len(part.train), part.reverse, part.target) for part in data.parts]]
    if any(part.back_translated for part in data.parts):
        settings.append([len(part.back_translated) for part in data.parts])
    if old := [len(part.train) for part in data.parts if part.is_replay]:
        settings += ["replay", data.replay_share, old]
    return hashlib.sha256(json.dumps([content, settings]).encode()).hexdigest()[:32]


def _digests(data: DataConfig) -> dict[str, str]:
    """The sha256 of each training file."""
    digests = {}
    for name in (name for files in data.all_train for name in files):
        try:
            digests[name] = _digest(Path(name))
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


def _prepare_into(
    folder: Path,
    data: DataConfig,
    vocabulary: TokenizerConfig | AnyTokenizer,
    sources: dict[str, str],
    log: Callable[[str], None],
    reader: str,
) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        log("data: reading " + ", ".join(" + ".join(files) for files in data.all_train))
        prepare_into = _prepare_documents if READERS[reader].pieces else _prepare_pairs
        prepare_into(work, data, vocabulary, log, reader)
        if changed := [name for name, now in _digests(data).items() if now != sources[name]]:
            raise DataError(f"{changed[0]} changed while it was being read; run the same command again")
        flush_folder(work)
        try:
            work.rename(folder)
        except OSError:  # another process prepared the same corpus meanwhile
            if not folder.exists():
                raise
    except OSError as error:
        cache = f"{folder.parent}, where prepared text is kept (TRANSDUCE_CACHE names another place)"
        raise DataError(f"{cache}: {error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _prepare_pairs(
    work: Path, data: DataConfig, vocabulary: TokenizerConfig | AnyTokenizer, log: Callable[[str], None], reader: str
) -> None:
    """Learn the vocabulary, encode all pairs and write the index."""
    report, own = ReadReport(), READERS[reader]
    tokenizer: AnyTokenizer
    seen = _Seen()
    sample_size = vocabulary.sample_pairs if isinstance(vocabulary, TokenizerConfig) else 0
    sample = _sample(data, sample_size, report, reader, seen)
    labels = sorted(seen.labels)
    if not isinstance(vocabulary, TokenizerConfig):
        tokenizer = vocabulary
    else:
        if own.texts(own.streams):
            size = count_pairs(len(sample), report.noun)
            log(f"data: learning a vocabulary of {vocabulary.vocab_size:,} tokens from {size}")
            tokenizer = Tokenizer.train((text for example in sample for text in own.texts(example)), vocabulary)
        else:  # a model folder has a vocabulary; this one writes the labels
            tokenizer = Tokenizer.train_on_documents(labels, TokenizerConfig(type="char"), set("".join(labels)))
    (work / tokenizer.file_name).write_bytes(tokenizer.model)
    log(f"data: encoding {count_pairs(report.pairs, report.noun)}")
    kept = _encode(work, data, reader, -(-report.pairs // shard_pairs(own)), labels)
    too_long = report.pairs - sum(kept)
    lines = report.lines()
    if too_long:
        lines.append(f"left out {count_pairs(too_long, report.noun)} above {data.max_length} tokens (data.max_length)")
    if too_long == report.pairs:
        raise DataError(f"every {report.noun} has more than {data.max_length} tokens; raise data.max_length")
    facts: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "report": lines}
    facts |= {} if own.arrays else {"max_length": data.max_length}
    facts |= {"shape": list(seen.shape)} if own.arrays else {}
    facts |= {"labels": labels} if own.labels else {}
    if report.noun != ReadReport.noun:
        facts["noun"] = report.noun
    repeats = part_repetitions(data.parts, kept, data.temperature, data.replay_share)
    if data.directions or len(kept) > 1:
        lines += _describe_parts(data, kept, repeats)
    write_index(work, facts, READERS[reader].streams, list(zip(kept, repeats, strict=True)))


def _prepare_documents(
    work: Path, data: DataConfig, vocabulary: TokenizerConfig | AnyTokenizer, log: Callable[[str], None], reader: str
) -> None:
    """Learn the vocabulary, encode all documents and write the index."""
    report, pieces = ReadReport(), READERS[reader].pieces
    assert pieces
    wanted = vocabulary.sample_pairs if isinstance(vocabulary, TokenizerConfig) else 0
    sample = DocumentSample(pieces(data.all_train, report), wanted)
    if not isinstance(vocabulary, TokenizerConfig):
        tokenizer = vocabulary
    else:
        log(f"data: learning a vocabulary of {vocabulary.vocab_size:,} tokens from {len(sample.lines):,} lines")
        alphabet = sample.alphabet if vocabulary.type == "char" else ()
        tokenizer = Tokenizer.train_on_documents(sample.lines, vocabulary, alphabet)
    (work / tokenizer.file_name).write_bytes(tokenizer.model)
    log(f"data: encoding {sample.characters:,} characters")
    _encode(work, data, reader, -(-sample.characters // SHARD_CHARACTERS))
    write_document_index(work, {"vocab_size": tokenizer.vocab_size, "report": report.lines()})


def _sweep(cache: Path) -> None:
    """Remove unfinished folders of processes that were killed days ago."""
    for leftover in cache.glob("*.tmp"):
        if time.time() - leftover.stat().st_mtime > _ABANDONED:
            shutil.rmtree(leftover, ignore_errors=True)


def _sample(data: DataConfig, size: int, report: ReadReport, reader: str, seen: _Seen) -> list[tuple[Any, ...]]:
    """Read all examples, which fills the report; returns a random sample of them, with the shares of training.

    The sample does not have the arrays of examples.
    """
    has_arrays, has_labels = READERS[reader].arrays, READERS[reader].labels
    samples, counts = [], []
    for part in data.parts:
        sample, own = Reservoir[tuple[Any, ...]](size), ReadReport()
        for _, example in part.read_train(READERS[reader], own):
            sample.offer((None, *example[1:]) if has_arrays else example)
            if has_labels:
                seen.labels.add(example[-1])
            if has_arrays:
                seen.shape = example[0].shape
        report.add(own)
        samples.append(sample.kept)
        counts.append(own.pairs)
    if len(samples) == 1:
        return samples[0]
    repeats = part_repetitions(data.parts, counts, data.temperature, data.replay_share)
    weights = [count * times for count, times in zip(counts, repeats, strict=True)]
    quotas = [
        min(len(kept), round(size * weight / sum(weights))) for kept, weight in zip(samples, weights, strict=True)
    ]
    chance = random.Random(0)
    return [example for kept, quota in zip(samples, quotas, strict=True) for example in chance.sample(kept, quota)]


def _describe_parts(data: DataConfig, kept: list[int], repeats: list[float]) -> list[str]:
    reason = " and ".join(["data.temperature"] * (data.temperature != 1) + ["data.replay_share"] * _has_replay(data))
    return [
        f"{_name(part)}: {count_pairs(count)}" + (f", each {times:.2f} times in an epoch ({reason})" * (times != 1))
        for part, count, times in zip(data.parts, kept, repeats, strict=True)
    ]


def _has_replay(data: DataConfig) -> bool:
    return any(part.is_replay for part in data.parts)


def _name(part: CorpusPart) -> str:
    return " ".join(filter(None, [part.name, "old text" if part.is_replay else "" if part.name else "new text"]))


def _encode(folder: Path, data: DataConfig, reader: str, shards: int, labels: Sequence[str] = ()) -> list[int]:
    """Write the shards with one process for each core; returns the number of examples of each part that fit."""
    job = encode_job(data, reader, labels)
    workers = min(os.cpu_count() or 1, shards)
    package_root = str(Path(__file__).parents[2])
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # With -P and no empty path, nothing is imported from the current folder.
    command = [sys.executable, "-P", "-m", "transduce.data.encode_worker", str(folder)]
    processes: list[subprocess.Popen[str]] = []
    try:
        for n in range(workers):
            processes.append(
                subprocess.Popen(
                    [*command, str(n), str(workers), json.dumps(job)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                    text=True,
                )
            )
        outcomes = [process.communicate() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(processes, outcomes, strict=True):
        if process.returncode != 0:
            reason = errors.strip().splitlines()[-1] if errors.strip() else f"exit code {process.returncode}"
            raise DataError(f"encoding failed: {reason}")
    return [sum(counts) for counts in zip(*(json.loads(printed) for printed, _ in outcomes), strict=True)]


def encode_job(data: DataConfig, reader: str, labels: Sequence[str] = ()) -> dict[str, Any]:
    """What a worker has to know about the corpus, in JSON's types."""
    parts = [asdict(part) for part in data.parts]
    return {"parts": parts, "max_length": data.max_length, "reader": reader, "labels": list(labels)}
