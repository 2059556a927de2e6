"""The engines in WebAssembly are made from the current sources, and have the outputs of portable C, bit for bit."""

import ctypes
import json
import os
import platform
import random
import shutil
import subprocess
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import needs_node
from random_native_cases import draw_vocabulary, draw_weights, mostly
from safetensors.numpy import save_file

from transduce.config import to_table
from transduce.fast.native.engine import NativeEngine
from transduce.fast.native.prebuilt import source_digest
from transduce.fast.native.structs import check_layout
from transduce.fast.native.weights import weight_shapes
from transduce.models.config import EncoderDecoderConfig
from transduce.models.folder import BUNDLED, CARD, WEIGHTS, ModelFolder, read_model
from transduce.models.weights_file import LARGEST, WeightsFile, is_matrix
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import mark
from transduce.tokenizers.tokenizer import EOS

STATIC = Path(str(files("transduce.web") / "static"))
NATIVE = Path(str(files("transduce.fast.native")))
FULL = os.environ.get("FAULTS") == "full"
SENTENCES = [
    "Where is the station?",
    "The quick brown fox jumps over the lazy dog, and nobody knows why it does so.",
    "I don't want to buy this kind of sofa.",
    "Ⅻ 🙂 ﬁn",
]


def test_engines_are_made_from_the_current_sources() -> None:
    record = json.loads((STATIC / "engines.json").read_text(encoding="utf-8"))
    assert record["sources"] == source_digest(), "the C sources changed: run make wasm"
    actual = {path.name: sha256(path.read_bytes()).hexdigest() for path in STATIC.glob("*.wasm")}
    assert actual == record["engines"]


@cache
def strict_library(folder: Path) -> ctypes.CDLL:
    """The portable C code, with sums and products rounded one by one in the order in which they are written."""
    path = folder / "strict.so"
    flags = ["-O2", "-shared", "-fPIC", "-pthread", "-ffp-contract=off", "-fno-math-errno"]
    subprocess.run(["cc", *flags, str(NATIVE / "decoder.c"), "-o", str(path), "-lm"], check=True)
    library = ctypes.CDLL(str(path))
    check_layout(library)
    library.instructions.restype = ctypes.c_char_p
    assert library.instructions() == b"portable C"
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    return strict_library(tmp_path_factory.mktemp("strict"))


def random_folder(draw: random.Random, folder: Path) -> tuple[ModelFolder, int, int]:
    """A random model, written as a folder; and the sizes of its vocabularies of source and target."""
    heads, width = draw.choice([1, 2, 3]), mostly(draw, [1, 2, 4, 8], [12, 16, 32])
    config = EncoderDecoderConfig(
        encoder_layers=draw.randint(1, 2),
        decoder_layers=draw.randint(1, 2),
        d_model=2 * heads * width,
        d_ff=mostly(draw, [1, 3, 16, 17], [50, 64, 65, 130]),
        num_heads=heads,
        d_k=draw.choice([None, 3, 64]),
        norm=draw.choice(["pre", "post"]),
        activation=draw.choice(["relu", "swish", "gelu_tanh"]),
        embedding=draw.choice(["scaled", "plain", "normalized"]),
        tie_output=draw.random() < 0.7,
        positions=draw.choice(["learned", "sinusoidal", "marian", "fairseq"]),
        max_positions=200,
        output_bias=draw.random() < 0.3,
        source_vocab_size=draw.choice([None, None, draw_vocabulary(draw)]),
        decoder_cell=draw.choice(["attention", "ssru"]),
    )
    vocabulary = max(8, draw_vocabulary(draw))
    weights = draw_weights(draw, weight_shapes(config, vocabulary))
    weights = {name: np.nan_to_num(x, nan=0.5, posinf=2, neginf=-2).clip(-9, 9) for name, x in weights.items()}
    tensors: dict[str, Any] = dict(weights)
    precision = draw.choice(["float32", "int8"])
    for name, x in weights.items() if precision == "int8" else ():
        if is_matrix(name, x.shape):
            largest = abs(x).max(axis=1)
            scale = 127 / np.where(largest > 0, largest, 1)
            tensors |= {name: np.rint(x * scale[:, None]).astype(np.int8), name + LARGEST: largest}
    folder.mkdir()
    save_file(tensors, folder / WEIGHTS)
    card = {"format": 1, "vocab_size": vocabulary, "precision": precision, "model": to_table(config), "facts": {}}
    (folder / CARD).write_text(json.dumps(card | {"architecture": "encoder_decoder"}), encoding="utf-8")
    source = config.source_vocab_size or vocabulary
    tokenizer: Any = type("Sizes", (), {"vocab_size": source, "target": type("Size", (), {"vocab_size": vocabulary})})
    return ModelFolder(folder, config, tokenizer, {}, WeightsFile(folder / WEIGHTS, precision)), source, vocabulary  # type: ignore[arg-type]


def reference(model: ModelFolder, case: dict[str, Any], library: ctypes.CDLL) -> dict[str, Any]:
    """What native finds for a case, in the form of run_engine.mjs."""
    engine = NativeEngine(model, library, 1)
    jobs = [
        Job(
            job["tokens"], job["prefix"],
            reserved=range(job["reserved"]["first"], job["reserved"]["first"] + job["reserved"]["count"]),
            once=tuple(job["reserved"]["first"] + bit for bit in range(31) if job["missing"] >> bit & 1),
        )
        for job in case["jobs"]
    ]  # fmt: skip
    found = search_all(engine, jobs, SearchConfig(**case["options"]))
    outputs = [[{"tokens": h.tokens, "score": h.score, "logProb": h.log_prob} for h in best] for best in found]
    pairs = [(pair["tokens"], pair["output"]) for pair in case["pairs"]]
    readings = [
        {"logProbs": known.log_prob_T, "entropies": known.entropy_T, "attention": weights}
        for known, weights in zip(engine.token_statistics(pairs), engine.attention_weights(pairs), strict=True)
    ]
    result = json.loads(json.dumps({"outputs": outputs, "readings": readings}).replace("-Infinity", "-1e300"))
    return dict[str, Any](result)


def run_engines(cases: list[dict[str, Any]], path: Path, *engines: str) -> list[list[dict[str, Any]]]:
    path.write_text(json.dumps(cases), encoding="utf-8")
    script = Path(__file__).with_name("run_engine.mjs")
    results = []
    for name in engines:
        flags = [] if name == "simd" else [RELAXED]
        command = ["node", *flags, str(script), str(STATIC / f"engine-{name}.wasm"), str(path)]
        results.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    return results


RELAXED = "--experimental-wasm-relaxed-simd"


def probe(code: str) -> str | None:
    """What an expression about the module wasm.js prints in a Node with relaxed SIMD; None if there is none."""
    script = Path(__file__).parents[2] / "web/package/src/wasm.js"
    printed = f"import({str(script)!r}).then(async (m) => console.log({code}))"
    known = subprocess.run(["node", RELAXED, "-e", "0"], capture_output=True).returncode == 0  # newer ones need no flag
    found = subprocess.run(["node", *([RELAXED] if known else []), "-e", printed], check=True, stdout=subprocess.PIPE)
    return found.stdout.decode().strip()


def fitting_engines() -> list[str]:
    """The engines that this Node can run on this processor."""
    return list(dict.fromkeys(["simd", probe("await m.fittingEngine()") or "simd"]))


@needs_node
def test_the_engine_is_chosen_by_what_the_dot_product_computes() -> None:
    assert probe("WebAssembly.validate(new Uint8Array(m.PROBE))") == "true"
    if platform.machine() == "aarch64":
        assert probe("await m.fittingEngine()") == "signed"


@needs_node
def test_random_models_have_the_outputs_of_portable_c(tmp_path: Path, library: ctypes.CDLL) -> None:
    cases, models = [], []
    for number in range(300 if FULL else 40):
        draw = random.Random(number)
        model, *sizes = random_folder(draw, tmp_path / str(number))
        beam = mostly(draw, [1, 2, 3, 4, 5], [16])
        search = SearchConfig(
            beam=beam, nbest=draw.randint(1, beam), length_penalty=draw.choice([0.0, 0.6, 1.5]),
            max_extra=draw.choice([0, 1, 5, 20]), min_length=draw.choice([0, 1, 7]),
        )  # fmt: skip
        symbols = draw.choice([0, 2])

        def tokens(size: int, most: int, first: int = EOS + 1, draw: random.Random = draw) -> list[int]:
            return draw.choices(range(min(first, size - 1), size), k=draw.randint(0, most))

        jobs = [
            {
                "tokens": tokens(sizes[0], mostly(draw, [3, 9, 20], [140])), "prefix": tokens(sizes[1], 2, 4 + symbols),
                "reserved": {"first": 4, "count": symbols}, "missing": draw.randrange(1 << symbols),
            }
            for _ in range(draw.choice([1, 4, 40]))
        ]  # fmt: skip
        pairs = [{"tokens": tokens(sizes[0], 9), "output": tokens(sizes[1], 9)} for _ in range(3)]
        cases.append({"folder": str(model.path), "options": asdict(search), "jobs": jobs, "pairs": pairs})
        models.append(model)
    expected = [reference(model, case, library) for model, case in zip(models, cases, strict=True)]
    for results in run_engines(cases, tmp_path / "cases.json", *fitting_engines()):
        for number, (result, reference_result) in enumerate(zip(results, expected, strict=True)):
            assert result["outputs"] == reference_result["outputs"], number
            assert result["readings"] == reference_result["readings"], number


@needs_node
def test_real_sentences_have_the_outputs_of_portable_c(tmp_path: Path, library: ctypes.CDLL) -> None:
    model = read_model(BUNDLED)
    sentences = SENTENCES
    if FULL and (lines := os.environ.get("SENTENCES")):
        sentences = Path(lines).read_text(encoding="utf-8").split("\n")[:500]
    sources = model.tokenizer.encode_all([mark(text, "de") for text in sentences], marked=True)
    jobs = [{"tokens": source, "prefix": [], "reserved": {"first": 0, "count": 0}, "missing": 0} for source in sources]
    options = asdict(SearchConfig(beam=4, nbest=2))
    case = {"folder": str(BUNDLED), "options": options, "jobs": jobs, "pairs": [{"tokens": [4, 5], "output": [6, 7]}]}
    expected = reference(model, case, library)
    for (result,) in run_engines([case], tmp_path / "cases.json", *fitting_engines()):
        assert result["outputs"] == expected["outputs"]
        assert result["readings"] == expected["readings"]
