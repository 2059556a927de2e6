"""`transduce score` for language models: the log-probability of texts."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from transduce.cli.messages import log

_WINDOW = 256
"""Texts that are scored, and printed, together."""


def score_texts(
    model: Path,
    files: list[Path],
    *,
    document: bool,
    stride: int | None,
    per_token: bool,
    jsonl: bool,
    device: str,
    threads: int | None,
) -> None:
    """Print the log-probability of each text of the files, and to stderr that of all."""
    from transduce.errors import ConfigError, DataError
    from transduce.files.pairs import count_pairs
    from transduce.language_model.generator import Generator

    if not files:
        raise ConfigError("give the text to score: a .txt or .jsonl file, or - for standard input")
    generator = Generator.load(model, device=device, threads=threads)
    texts = _texts(files, document)
    total, tokens, characters, count = 0.0, 0, 0, 0
    while chunk := list(islice(texts, _WINDOW)):
        for text, one in zip(chunk, generator.score(chunk, stride=stride), strict=True):
            total, tokens = total + one.log_prob, tokens + len(one.tokens)
            characters, count = characters + len(text), count + 1
            if jsonl:
                print(json.dumps({"text": text, **asdict(one), "per_token": one.per_token}, ensure_ascii=False))
            else:
                print(f"{one.log_prob:.4f}\t{one.per_token:.4f}" if per_token else f"{one.log_prob:.4f}")
    if not tokens:
        raise DataError(f"{', '.join(map(str, files))}: no text, so there is no perplexity")
    perplexity = math.exp(min(-total / tokens, 700))
    bits = -total / math.log(2) / characters
    log(
        f"{count_pairs(count, 'text')}, {count_pairs(tokens, 'token')}: log-probability {total:.2f}, "
        f"perplexity {perplexity:.2f}, {bits:.3f} bits per character"
    )


def _texts(files: list[Path], document: bool) -> Iterator[str]:
    """The lines of text files, or with `document` each as a whole; and the documents of rows."""
    from transduce.errors import ConfigError
    from transduce.files.documents import read_documents
    from transduce.files.files import read_lines
    from transduce.files.pair_formats import has_rows, require_one_side
    from transduce.files.pairs import ReadReport

    for file in files:
        if not document and not has_rows(file):
            require_one_side(file)
            yield from read_lines(file)
            continue
        report = ReadReport()
        for (text,) in read_documents([(str(file),)], report):
            yield text
        if report.left_out:  # a line of output for each document is needed
            raise ConfigError(f"{file} cannot be scored row by row: {'; '.join(report.lines())}")
