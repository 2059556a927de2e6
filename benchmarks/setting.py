"""What the benchmarks share: options, the printed setting, sentences of news length, random models."""

import argparse
import json
import os
import platform
import re
import shlex
import string
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.folder import save_model
from transduce.tokenizers.tokenizer import EOS, Tokenizer, TokenizerConfig

SEED = 1
ARM_CPUS = {"0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1", "0xd49": "Neoverse-N2", "0xd4f": "Neoverse-V2"}
"""Names of CPUs by their part number in /proc/cpuinfo."""
SMOKE_MODEL = EncoderDecoderConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, num_heads=1)
SMOKE_VOCABULARY = 450
Ints = npt.NDArray[np.int64]


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="only check that it works: tiny sizes, one round, any CPU")
    parser.add_argument("--out", type=Path, help="write the figures to this file, e.g. benchmarks/figures.json")
    parser.add_argument("--name", default=Path(sys.argv[0]).stem, help="the name of the figures in that file")
    return parser


def print_setting(**facts: Any) -> dict[str, Any]:
    """Print the processor, the versions and a benchmark's settings, and return them."""
    processor = torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu_name()
    versions = {name: _version(name) for name in ("torch", "transformers", "ctranslate2", "triton", "numpy")}
    setting = {
        "processor": processor,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **versions,
        **facts,
    }
    for key, value in setting.items():
        print(f"{key}: {value}")
    return setting


def write_results(options: argparse.Namespace, setting: dict[str, Any], results: dict[str, Any]) -> None:
    """Write an entry with the results into the file of figures, if a file is named; its other entries stay.

    `results` has a dictionary of figures for each row of the table that the documentation shows.
    """
    if not options.out:
        return
    entries = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    described = {key: value for key, value in entries.get(options.name, {}).items() if key in ("what", "unit", "rows")}
    entries[options.name] = {
        **described,
        "processor": setting["processor"],
        "command": _command(),
        "recorded": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "setting": {key: value for key, value in setting.items() if key != "processor"},
        "results": results,
    }
    text = json.dumps(entries, indent=1, ensure_ascii=False, default=str)
    options.out.write_text(text + "\n", encoding="utf-8")


def _command() -> str:
    """The command line of this benchmark, without the file that it writes."""
    words = ["python", f"benchmarks/{Path(sys.argv[0]).name}"]
    arguments = iter(sys.argv[1:])
    for word in arguments:
        if word in ("--out", "--name"):
            next(arguments)
        elif not word.startswith(("--out=", "--name=")):
            words.append(word)
    return shlex.join(words)


def _commit() -> str:
    """The commit of the working tree, or an empty string outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def news_lengths(pairs: int, max_length: int) -> Ints:
    """Lengths of source and target (pairs, 2) like those of news text: log-normal, with a mean of about 28."""
    random = np.random.default_rng(SEED)
    shared = random.normal(3.15, 0.55, size=(pairs, 1))  # source and target of a pair have similar lengths
    lengths = np.exp(shared + random.normal(0, 0.12, size=(pairs, 2)))
    return np.clip(lengths, 1, max_length).astype(np.int64)


def write_news_like_text(path: Path, lengths: Ints) -> None:
    """Write a .tsv file of pairs with these lengths, of random words: 32,768 of them, of three letters each."""
    random = np.random.default_rng(SEED)
    letters = random.choice(list(string.ascii_lowercase + "äöüßéè"), size=(1 << 20, 4))
    letters[:, 3] = " "
    words = "".join(letters.ravel().tolist())  # any slice that starts at a multiple of 4 is a sentence
    starts = random.integers(len(letters) - lengths.max(), size=lengths.shape)
    with path.open("w", encoding="utf-8") as file:
        for pair in zip(starts.tolist(), lengths.tolist(), strict=True):
            src, tgt = (words[4 * start : 4 * (start + length) - 1] for start, length in zip(*pair, strict=True))
            file.write(f"{src}\t{tgt}\n")


def random_model(config: EncoderDecoderConfig, vocab_size: int) -> EncoderDecoder:
    """A model with random weights that never ends a sentence before its limit."""
    torch.manual_seed(SEED)
    model = EncoderDecoder(config, vocab_size).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if len(weight) == vocab_size:
                weight[EOS] = 0.0
    return model


def save_random_model(folder: Path, config: EncoderDecoderConfig, vocabulary: int, texts: Iterable[str]) -> Path:
    """Write a random model with a vocabulary of these texts; its outputs are as long as its inputs."""
    tokenizer = Tokenizer.train(texts, TokenizerConfig(vocab_size=vocabulary))
    save_model(folder, random_model(config, tokenizer.vocab_size), tokenizer, {"search": {"max_extra": 0}})
    return folder


def _cpu_name() -> str:
    """The name of the CPU; of Arm's, Linux tells only a number."""
    info = Path("/proc/cpuinfo")
    facts = dict(re.findall(r"^(.+?)\s*: *(.+)$", info.read_text() if info.exists() else "", re.MULTILINE))
    name = facts.get("model name") or ARM_CPUS.get(facts.get("CPU part", "")) or platform.machine()
    return re.sub(r"\((?:R|TM)\)", "", name)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
