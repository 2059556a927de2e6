"""What every benchmark prints first, and the corpus of WMT-like lengths they share."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch

from transduce.data.shards import TokenShards, write_index, write_shard


def describe() -> dict[str, str]:
    """Machine and versions."""
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu_name()
    versions = {name: _version(name) for name in ("torch", "transformers", "ctranslate2", "triton", "numpy")}
    return {"machine": f"{machine}, {os.cpu_count()} cores", "python": platform.python_version(), **versions}


def wmt_like_corpus(folder: Path, pairs: int, vocab_size: int, max_length: int, seed: int = 1) -> TokenShards:
    """Random tokens in sentences with the lengths of news text: log-normal, about 28 tokens in the mean."""
    random = np.random.default_rng(seed)
    shared = random.normal(3.15, 0.55, size=pairs)  # source and target of a pair have similar lengths
    lengths = [
        np.clip(np.exp(shared + random.normal(0, 0.12, size=pairs)), 1, max_length).astype(int) for _ in range(2)
    ]
    sides = [[random.integers(4, vocab_size, size=n).tolist() for n in side] for side in lengths]
    folder.mkdir(parents=True, exist_ok=True)
    write_shard(folder, 0, sides, vocab_size)
    write_index(folder, {"vocab_size": vocab_size, "max_length": max_length, "report": []})
    return TokenShards(folder)


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        if info.exists()
        else []
    )
    return names[0] if names else f"{platform.system()} {platform.machine()}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
