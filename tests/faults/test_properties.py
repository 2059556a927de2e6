"""Property tests: for any bytes, text, settings or lengths, the result is valid or the error is a TransduceError."""

# ruff: noqa: PT017  (an error is one of the valid results, and its message is checked)

import gzip
import json
import lzma
import math
import shutil
import tempfile
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import zstandard
from fault_injection import repetitions
from helpers import write_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transduce.config import build, read_toml, to_toml
from transduce.data.plan import BatchPlan
from transduce.errors import ConfigError, DataError, ModelError
from transduce.files.files import MAX_LINE_BYTES, raw_lines
from transduce.files.pairs import ReadReport, read_pairs
from transduce.models.folder import read_card
from transduce.models.weights_file import PRECISIONS, Precision, WeightsFile
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training.recipe import Recipe, load_recipe
from transduce.training.train_config import TrainConfig

FOLDER = Path(tempfile.mkdtemp(prefix="transduce-properties-"))


@pytest.fixture(scope="module", autouse=True)
def _folder() -> Any:
    yield
    shutil.rmtree(FOLDER)


def cases(full: int) -> settings:
    """This many cases in `make faults`, 100,000 in total; a few in the test suite."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(max_examples=repetitions(40, full), suppress_health_check=checks)


def written(name: str, content: bytes) -> Path:
    path = FOLDER / name
    path.write_bytes(content)
    return path


# Random bytes mixed with sequences that the readers treat specially.
noise = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from(
            [b"\n", b"\r\n", b"\t", b"\0", b"\xef\xbb\xbf", "é汉😀".encode(), b'{"src": "a", "tgt": "b"}\n']
        ),
        st.text(max_size=10).map(lambda text: text.encode("utf-8", "surrogatepass")),
    ),
    max_size=12,
).map(b"".join)
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: zstandard.ZstdCompressor().compress(content),
}


@cases(10_000)
@given(noise, st.sampled_from(sorted(COMPRESS)))
def test_lines_are_separated_by_newlines_in_every_compression(content: bytes, ending: str) -> None:
    path = written(f"text{ending}", COMPRESS[ending](content))
    *ended, last = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    expected = [*ended, last] if last else ended
    assert list(raw_lines(path)) == [line.removesuffix(b"\r") for line in expected]
    assert all(len(line) <= MAX_LINE_BYTES for line in expected)


@cases(10_000)
@given(noise, st.sampled_from([".gz", ".xz", ".zst"]), st.data())
def test_a_damaged_archive_gives_lines_or_a_data_error(content: bytes, ending: str, data: st.DataObject) -> None:
    packed = bytearray(COMPRESS[ending](content))
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]
    try:
        for line in raw_lines(written(f"damaged{ending}", packed)):
            assert line is None or b"\n" not in line
    except DataError as error:
        assert "\n" not in str(error)


@cases(15_000)
@given(noise, noise, st.sampled_from(["tsv", "jsonl", "two"]))
def test_every_line_of_a_corpus_is_a_pair_or_is_counted_as_left_out(left: bytes, right: bytes, kind: str) -> None:
    names = {"tsv": ("pairs.tsv",), "jsonl": ("pairs.jsonl",), "two": ("left.txt", "right.txt")}[kind]
    paths = tuple(str(written(name, content)) for name, content in zip(names, (left, right), strict=False))
    lines = [len(list(raw_lines(Path(path)))) for path in paths]
    report = ReadReport()
    try:
        pairs = list(read_pairs([paths], report))
    except DataError as error:
        assert report.pairs == 0 or len(set(lines)) == 2, error
        return
    assert len(pairs) + sum(report.left_out.values()) == lines[0]
    assert all(text.strip() and "\n" not in text and "\0" not in text for pair in pairs for text in pair)


@cases(40_000)
@given(text=st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=60))
def test_decoding_restores_the_exact_text(toy_tokenizer: Tokenizer, text: str) -> None:
    assert toy_tokenizer.decode(toy_tokenizer.encode(text)) == text


@cases(3_000)
@given(place=st.floats(0, 1), change=st.binary(min_size=1, max_size=8))
def test_a_changed_vocabulary_is_rejected_or_works(toy_tokenizer: Tokenizer, place: float, change: bytes) -> None:
    start = int(place * (len(toy_tokenizer.model) - len(change)))
    model = toy_tokenizer.model[:start] + change + toy_tokenizer.model[start + len(change) :]
    try:
        changed = Tokenizer(model)
    except ModelError:
        return
    changed.decode(changed.encode("ba bo ▁ x 😀"))


words = st.text(max_size=12)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
sections = st.sampled_from(["data", "tokenizer", "model", "train", "search", "nothing"])
keys = st.sampled_from(
    [field.name for field in fields(TrainConfig)] + ["train", "max_length", "vocab_size", "d_model", "beam", "x"]
)


@cases(5_000)
@given(st.dictionaries(sections, st.one_of(values, st.dictionaries(keys, values, max_size=4)), max_size=3))
def test_any_table_is_a_recipe_or_an_error_that_names_the_file(table: dict[str, Any]) -> None:
    try:
        build(Recipe, table, "here.toml")
    except ConfigError as error:
        assert str(error).startswith("here.toml")


@cases(5_000)
@given(st.lists(st.one_of(words, st.builds("{}.{}={}".format, sections, keys, words)), max_size=3))
def test_any_assignments_are_settings_or_an_error(assignments: list[str]) -> None:
    try:
        load_recipe(None, "tiny", {}, assignments)
    except ConfigError as error:
        assert str(error)


@cases(5_000)
@given(
    names=st.lists(st.tuples(words.filter(bool)), max_size=3),
    steps=st.integers(1, 10**9),
    rate=st.floats(1e-30, 1e30),
    smoothing=st.floats(0, 1, exclude_max=True),
    tokens=st.one_of(st.just("auto"), st.integers(1, 10**7)),
    device=words,
)
def test_settings_survive_writing_and_reading(
    names: list[tuple[str]], steps: int, rate: float, smoothing: float, tokens: Any, device: str
) -> None:
    train = {"steps": steps, "learning_rate_scale": rate, "label_smoothing": smoothing, "batch_tokens": tokens}
    recipe = build(Recipe, {"data": {"train": names}, "train": train | {"device": device}}, "here")
    path = written("recipe.toml", to_toml(recipe).encode())
    assert build(Recipe, read_toml(path), "there") == recipe


@cases(5_000)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80),
    st.integers(0, 200),
    st.integers(0, 2**31 - 1),
)
def test_every_epoch_of_a_plan_has_every_pair_once_within_the_budget(
    lengths: list[tuple[int, int]], spare: int, seed: int
) -> None:
    shards = write_corpus(Path(tempfile.mkdtemp(dir=FOLDER)), lengths)
    try:
        budget = max(map(max, lengths)) + 1 + spare
        plan = BatchPlan(shards, budget, seed)
        for epoch in (0, 1, 1000):
            first = epoch * plan.batches_per_epoch
            batches = [plan.batch(first + n).tolist() for n in range(plan.batches_per_epoch)]
            assert Counter(pair for batch in batches for pair in batch) == Counter(range(len(lengths)))
            for side in (0, 1):
                assert all(sum(lengths[pair][side] + 1 for pair in batch) <= budget for batch in batches)
            new = BatchPlan(shards, budget, seed)  # gives any batch without computing the previous ones
            number = first + plan.batches_per_epoch // 2
            assert new.batch(number).tolist() == batches[number - first]
    finally:
        shutil.rmtree(shards.folder)


numbers = st.one_of(st.integers(), st.integers(0, 64), st.sampled_from([2**31, 2**63, -1]))
header = st.dictionaries(
    words,
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "BF16", "I8", "I64", "F7"]),
            "shape": st.lists(numbers, max_size=3),
            "data_offsets": st.lists(numbers, min_size=2, max_size=2),
        }
    ),
    max_size=3,
)


@cases(5_000)
@given(
    st.one_of(st.binary(max_size=60), header.map(lambda table: json.dumps(table).encode())),
    st.binary(max_size=40),
    st.booleans(),
    st.sampled_from(PRECISIONS),
)
def test_any_weights_file_has_shapes_or_is_rejected(
    content: bytes, tail: bytes, honest: bool, precision: Precision
) -> None:
    path = written("model.safetensors", (len(content).to_bytes(8, "little") if honest else b"") + content + tail)
    try:
        shapes = WeightsFile(path, precision).stored_shapes
    except ModelError as error:
        assert str(path) in str(error)
        return
    assert sum(map(math.prod, shapes.values())) * (1 if precision == "int8" else 2) <= len(tail)


card = st.dictionaries(
    st.sampled_from(["format", "architecture", "vocab_size", "model", "facts", "x"]),
    st.one_of(
        values, st.just(1), st.dictionaries(st.sampled_from(["max_length", "search", "data"]), values, max_size=3)
    ),
)


@cases(5_000)
@given(st.one_of(noise, card.map(lambda table: json.dumps(table).encode())))
def test_any_card_is_read_or_rejected(content: bytes) -> None:
    written("model.json", content)
    try:
        assert read_card(FOLDER)["format"] == 1
    except ModelError as error:
        assert "model.json" in str(error)


def test_make_faults_has_a_hundred_thousand_cases() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    counts = [int(part.split(")")[0].replace("_", "")) for part in source.split("\n@cases(")[1:]]
    assert sum(counts) >= 100_000
