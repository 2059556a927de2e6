"""What the benchmarks share: options, the printed setting, sentences of news length, random models."""

import argparse
import json
import os
import platform
import string
from collections.abc import Iterable
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
SMOKE_MODEL = EncoderDecoderConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, num_heads=1)
SMOKE_VOCABULARY = 450
Ints = npt.NDArray[np.int64]


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the option that every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="only check that it works: tiny sizes, one round, any CPU")
    return parser


def print_setting(**facts: Any) -> dict[str, Any]:
    """Print the machine, the versions and a benchmark's own facts, and return them."""
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu_name()
    versions = {name: _version(name) for name in ("torch", "transformers", "ctranslate2", "triton", "numpy")}
    setting = {
        "machine": f"{machine}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **versions,
        **facts,
    }
    for key, value in setting.items():
        print(f"{key}: {value}")
    return setting


def write_results(path: Path | None, setting: dict[str, Any], results: dict[str, Any]) -> None:
    """Write the setting and the results as JSON, if a file is named."""
    if path:
        path.write_text(json.dumps({"setting": setting, "results": results}, indent=1) + "\n")


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
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return names[0] if names else f"{platform.system()} {platform.machine()}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
