"""The limits of a processor for 8-bit products, and how near to them the engine `native` comes."""

import re
import shlex
import shutil
import subprocess
import tempfile
from os import environ
from pathlib import Path
from typing import NamedTuple

from transduce.fast.native.prebuilt import FLAGS
from transduce.models.config import EncoderDecoderConfig


class Limits(NamedTuple):
    """Peak of the instruction set, in operations per second, and bandwidth of memory, in bytes per second."""

    peak: float
    bandwidth: float


def compile_products(folder: Path) -> Path | None:
    """Compile int8_products.c for this machine; None if there is no compiler."""
    command = shlex.split(environ.get("CC") or "cc")
    if shutil.which(command[0]) is None:
        return None
    program = folder / "products"
    flags = [flag for flag in FLAGS if flag != "-shared"]
    source = Path(__file__).with_name("int8_products.c")
    subprocess.run([*command, *flags, "-march=native", str(source), "-o", str(program), "-lm"], check=True)
    return program


def measure_limits(threads: int) -> Limits | None:
    """Measure them with this many threads; None if there is no compiler."""
    with tempfile.TemporaryDirectory() as folder:
        program = compile_products(Path(folder))
        if program is None:
            return None
        output = subprocess.run([program, str(threads), "limits"], check=True, capture_output=True, text=True).stdout
    peaks = [float(number) * 1e9 for number in re.findall(r"([\d.]+) GOP/s", output)]
    (bandwidth,) = re.findall(r"bandwidth: ([\d.]+) GB/s", output)
    return Limits(max(peaks), float(bandwidth) * 1e9)


def describe(
    speed: float, sentences: int, beam: int, config: EncoderDecoderConfig, vocabulary: int, limits: Limits
) -> str:
    """What a speed in output tokens per second means for the products, if outputs are as long as sources."""
    square, feed_forward = config.d_model**2, 2 * config.d_model * config.d_ff
    source = config.encoder_layers * (4 * square + feed_forward) + config.decoder_layers * 2 * square
    target = config.decoder_layers * (6 * square + feed_forward) + config.d_model * vocabulary
    rate = speed * 2 * (source + beam * target)
    # Each step reads the weights once for all sentences; the encoder reads its weights once for about four sentences.
    read = speed * (target / sentences + source / 30 / min(sentences, 4))
    return (
        f"native: {rate * 1e-9:,.0f} GOP/s in products ({rate / limits.peak:.0%} of the peak), "
        f"weights read at {read * 1e-9:.1f} GB/s ({read / limits.bandwidth:.0%} of the bandwidth)"
    )
