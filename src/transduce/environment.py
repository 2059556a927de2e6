"""`transduce doctor`: what this machine offers, what transduce will use of it, and why it does not use the rest."""

import json
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import metadata, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import typer

from transduce.cache_folder import cache_folder
from transduce.cli.messages import wrapped
from transduce.cli.options import JsonOption
from transduce.errors import TransduceError
from transduce.files.texts import one_line
from transduce.version import __version__

_FEATURES = ("asimddp", "i8mm", "sve", "bf16", "avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16")
"""Features of processors that matter for matrix products, as Linux names them."""
_LOW_DISK = 1 << 30
"""A disk with fewer free bytes than this cannot hold the checkpoints of a run."""


class Extra(NamedTuple):
    """An optional part of the package."""

    modules: tuple[str, ...]
    purpose: str
    """What its packages are needed for."""


EXTRAS = {
    "train": Extra(
        ("torch", "sacrebleu", "numpy", "safetensors"),
        "training, evaluation, scoring, sampling, inspection, import, export, engines plain and gpu",
    ),
    "icu": Extra(("icu4py",), "boundaries of sentences and words outside of Latin, Greek and Cyrillic script"),
    "zst": Extra(("zstandard",), "files in .zst"),
    "serve": Extra(("fastapi", "httptools", "prometheus_client", "python_multipart", "uvicorn"), "transduce serve"),
    "parquet": Extra(("pyarrow",), "Parquet files and Hugging Face datasets"),
    "ray": Extra(("ray", "pyarrow"), "transduce translate --ray"),
    "tracking": Extra(("tensorboard", "wandb"), "metrics in TensorBoard and Weights & Biases"),
    "documents": Extra(("markdown_it", "pypdf"), "translating Markdown and PDF"),
    "export": Extra(("onnx", "onnxruntime"), "transduce export --to onnx"),
    "import": Extra(("gguf", "soundfile", "tokenizers"), "importing GGUF files and tokenizer.json, and reading sound"),
    "images": Extra(("PIL",), "reading images"),
    "ja": Extra(("MeCab",), "BLEU of Japanese by words"),
    "ko": Extra(("mecab_ko",), "BLEU of Korean by words"),
}
_NATIVE_LOG = "transduce.fast.native.library"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    text: str
    """What there is, or why there is nothing."""
    problem: bool = False
    """Whether something does not work that should."""


def doctor(as_json: JsonOption = False) -> None:
    """Print what this machine offers, and what will be used.

    It also tells why the rest is not used. A sentence is translated with the bundled model. The exit code is 1 if
    something does not work that should; what is only missing, such as a GPU, is not a problem.
    """
    findings = _examine()
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1, ensure_ascii=False))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            line = f"{finding.name:<{width}}  {'PROBLEM: ' * finding.problem}{finding.text}"
            print(wrapped(line, indent=width + 2))
    if any(finding.problem for finding in findings):
        raise typer.Exit(1)


def _examine() -> list[Finding]:
    findings: list[Finding] = []
    checks = [_versions, _torch, _processor, _memory, _disk, _gpu, _triton, _native, _training, _translation, _extras]
    for check in checks:
        if check in (_gpu, _triton, _training) and not find_spec("torch"):
            continue
        try:
            findings += check()
        except Exception as error:  # a report must not end with the first defect
            reason = str(error) if isinstance(error, TransduceError) else repr(error)
            findings.append(Finding(check.__name__.strip("_"), f"failed: {reason}", problem=True))
    return findings


def _versions() -> Iterator[Finding]:
    yield Finding("transduce", f"{__version__}, in {Path(__file__).parent}")
    yield Finding("python", f"{platform.python_version()} on {platform.platform()}")


def _torch() -> Iterator[Finding]:
    if not find_spec("torch"):
        yield Finding("torch", "not installed (pip install 'transduce[train]')")
        return
    import torch

    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    required = "\n".join(metadata("transduce").get_all("Requires-Dist") or ())
    (least,) = re.findall(r"^torch>=([\d.]+)", required, re.MULTILINE)
    old = tuple(map(int, torch.__version__.split(".")[:2])) < tuple(map(int, least.split(".")[:2]))
    yield Finding("torch", f"{torch.__version__}, {build}" + f"; {least} or later is needed" * old, problem=old)


def _processor() -> Iterator[Finding]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    name = fields.get("model name") or platform.processor() or platform.machine()
    has = ", ".join(feature for feature in _FEATURES if feature in flags) or "none of the known features"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = ""
    if find_spec("torch"):
        import torch

        threads = f"; {torch.get_num_threads()} threads are used (OMP_NUM_THREADS, --threads)"
    yield Finding("processor", f"{name}, {usable} cores, {has}{threads}")


def _memory() -> Iterator[Finding]:
    info = Path("/proc/meminfo")
    if not info.exists():
        yield Finding("memory", "not known on this system")
        return
    rows = dict(line.split(":", 1) for line in info.read_text(encoding="utf-8").splitlines())
    total, available = (int(rows[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    limit = Path("/sys/fs/cgroup/memory.max")
    limited = limit.read_text(encoding="ascii").strip() if limit.exists() else "max"
    of_group = f"; this container may use {_size(int(limited))}" if limited != "max" else ""
    yield Finding("memory", f"{_size(total)}, {_size(available)} available{of_group}")


def _disk() -> Iterator[Finding]:
    for name, folder in (("current folder", Path.cwd()), ("temporary folder", Path(tempfile.gettempdir()))):
        yield _free(name, folder, str(folder))
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, TransduceError) as error:
        text = f"cannot be written: {error}; prepared text needs it: name another folder with TRANSDUCE_CACHE"
        yield Finding("cache folder", text, problem=True)
    else:
        yield _free("cache folder", folder, f"{folder}, writable")


def _free(name: str, folder: Path, described: str) -> Finding:
    free = shutil.disk_usage(folder).free
    return Finding(name, f"{described}, {_size(free)} free", problem=free < _LOW_DISK)


def _gpu() -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        driver = Path("/dev/nvidiactl").exists()
        reason = (
            "this torch was built without CUDA; install a build for the GPU's driver"
            if driver and not torch.version.cuda
            else "there is a driver, but torch cannot use it: check nvidia-smi and CUDA_VISIBLE_DEVICES"
            if driver
            else "no NVIDIA driver (/dev/nvidiactl)"
        )
        yield Finding("gpu", f"none is used: {reason}", problem=driver)
        return
    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        try:
            free = _size(torch.cuda.mem_get_info(number)[0])
        except RuntimeError as error:
            yield Finding(f"gpu {number}", f"{gpu.name}: {one_line(str(error))}", problem=True)
            continue
        memory = f"{_size(gpu.total_memory)}, {free} free"
        yield Finding(f"gpu {number}", f"{gpu.name}, compute capability {gpu.major}.{gpu.minor}, {memory}")


def _triton() -> Iterator[Finding]:
    import torch

    from transduce.fast import kernels

    if not kernels.HAS_TRITON:
        needed = torch.cuda.is_available()
        effect = "the engine gpu and fused training kernels are not used" if needed else "only a GPU would use it"
        yield Finding("triton", f"not installed: {effect}", problem=needed)
        return
    used = "used for training and translation" if torch.cuda.is_available() else "not used: there is no GPU"
    yield Finding("triton", f"{version('triton')}, {used}")


def _native() -> Iterator[Finding]:
    """The compiler and the engine that it builds."""
    from transduce.fast.native.library import load_library

    with _warnings() as warnings:
        library = load_library()
    command = shlex.split(os.environ.get("CC") or "cc")
    compiler = shutil.which(command[0])
    if compiler is None:
        named = "CC" in os.environ
        advice = "install one" if library is None else "needed only for a GPU, the engine native is compiled"
        reason = f"CC is {command[0]}, but there is no such compiler" if named else f"no C compiler (cc): {advice}"
        yield Finding("compiler", reason, problem=named)
    else:
        banner = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
        yield Finding("compiler", f"{compiler}: {one_line(next(iter(banner.splitlines()), 'version unknown'))}")
    if library is not None:
        said = f"; {warnings[0]}" if warnings else ""
        yield Finding("native", f"8-bit engine, {library.instructions().decode()}{said}", problem=bool(warnings))
    elif os.environ.get("TRANSDUCE_NATIVE") == "0":
        yield Finding("native", "not used: TRANSDUCE_NATIVE is 0")
    else:
        reason = warnings[0] if warnings else "there is no C compiler"
        yield Finding("native", f"not available: {reason}", problem=compiler is not None)


def _training() -> Iterator[Finding]:
    from transduce.nn.device import pick_device
    from transduce.training.learner import use_bfloat16

    device = pick_device("auto")
    precision = "bfloat16" if use_bfloat16("auto", device) else "float32"
    yield Finding("training", f"{device}, {precision} (train.device, train.precision)")


def _translation() -> Iterator[Finding]:
    """Translate a sentence with the bundled model: the engine, and that it works."""
    from transduce.translation.translator import Translator

    translator = Translator.load()
    outputs = translator.translate(["Where is the station?"], to="de")
    described = translator.engine_for(translator.config).description
    worked = bool(outputs[0].strip())
    yield Finding("translation", described if worked else f"{described}: the output is empty", problem=not worked)


def _extras() -> Iterator[Finding]:
    """The optional packages of each extra, and what the missing ones are needed for."""
    missing = {name for name, extra in EXTRAS.items() if not all(map(find_spec, extra.modules))}
    yield Finding("extras", ", ".join(name for name in EXTRAS if name not in missing) or "none is installed")
    if missing:
        needed = "; ".join(f"{name}: {extra.purpose}" for name, extra in EXTRAS.items() if name in missing)
        yield Finding("not installed", f"{needed} (pip install 'transduce[NAME]')")


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect the warnings of the native engine instead of printing them."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage().removeprefix("transduce: "))

    logger, collector = logging.getLogger(_NATIVE_LOG), Collector()
    logger.addHandler(collector)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(collector)
        logger.propagate = True


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
