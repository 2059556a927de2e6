"""Documents as shards, and windows of them as batches."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import small_language_model
from kernel_tensors import DEVICE

from transduce.data.batch import Batch, to_device
from transduce.data.prepare import DataConfig, Prepared, prepare
from transduce.data.shards import TokenShards
from transduce.data.variation import Variation
from transduce.errors import ConfigError
from transduce.language_model import document_shards, documents
from transduce.language_model.document_shards import encode_documents, write_index
from transduce.language_model.task import LanguageModel, LanguageModelConfig
from transduce.language_model.window_plan import WindowPlan
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, Tokenizer, TokenizerConfig
from transduce.training.loader import Loader
from transduce.training.processes import Processes

DOCUMENTS = [f"Document {number}\n" + "one two three\n" * (number % 7) + "end" * (number % 3) for number in range(40)]
CPU = torch.device("cpu")
ACROSS = LanguageModel(LanguageModelConfig(across_documents=True))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    path = tmp_path_factory.mktemp("documents") / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS), encoding="utf-8")
    data = DataConfig(train=((str(path),),), valid=((str(path),),), max_length=16)
    return prepare(data, TokenizerConfig(vocab_size=450), lambda _: None, "text")


def stream_of(shards: TokenShards) -> list[int]:
    rows = shards.pairs(shards.sorted_pairs(np.arange(len(shards))))
    return [int(token) for (ids,) in rows for token in ids]


def texts_of(stream: list[int], tokenizer: Tokenizer) -> list[str]:
    ends = [place for place, token in enumerate(stream) if token == EOS]
    starts = [0, *(end + 1 for end in ends)]
    return [tokenizer.decode(stream[start:end]) for start, end in zip(starts, ends, strict=False)]


def test_every_document_is_in_the_shards_once_and_ends_with_eos(prepared: Prepared) -> None:
    stream = stream_of(prepared.train)
    texts = texts_of(stream, prepared.tokenizer)
    assert sorted(texts) == sorted(DOCUMENTS)
    assert texts != DOCUMENTS  # shuffled
    assert stream[-1] == EOS
    assert prepared.train.index["documents"] == len(DOCUMENTS)
    assert prepared.valid == [(text,) for text in DOCUMENTS]


def test_long_documents_stay_whole_across_pieces_shards_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Prepared
) -> None:
    monkeypatch.setattr(documents, "PIECE", 50)
    monkeypatch.setattr(document_shards, "SHARD_CHARACTERS", 120)
    texts = ["a line of text\n" * 40, "short", "another line\n" * 30]
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    prepared.tokenizer.save(tmp_path / "tokenizer.model")
    for worker in range(2):
        encode_documents(tmp_path, worker, 2, [(str(path),)])
    write_index(tmp_path, {"report": []})
    shards = TokenShards(tmp_path)
    assert len(shards.index["shard_pairs"]) > 4
    assert len(shards) > 10
    assert sorted(texts_of(stream_of(shards), prepared.tokenizer)) == sorted(texts)


@pytest.mark.parametrize(("length", "batch_tokens"), [(16, 64), (7, 30), (100, 100), (5000, 5000)])
def test_every_token_is_predicted_once_in_an_epoch(prepared: Prepared, length: int, batch_tokens: int) -> None:
    stream = stream_of(prepared.train)
    plan = WindowPlan(prepared.train, batch_tokens, seed=1, length=length)
    assert plan.batch_tokens == batch_tokens // length * length
    starts = []
    for epoch in range(3):
        predicted: Counter[int] = Counter()
        for number in range(epoch * plan.batches_per_epoch, (epoch + 1) * plan.batches_per_epoch):
            for start, (window,) in zip(plan.batch(number), plan.examples(number), strict=True):
                assert len(window) == length + 1
                places = [(int(start) + n) % len(stream) for n in range(-1, length)]
                count = int((window != PAD).sum())
                assert window[:count].tolist() == [stream[place] for place in places[:count]]
                predicted.update(places[1:count])
        assert predicted == Counter(range(len(stream)))
        starts.append(int(plan.batch(epoch * plan.batches_per_epoch)[0]) % length)
    assert len(set(starts)) > 1, "windows are cut at the same places in every epoch"


def test_any_batch_is_a_pure_function_of_corpus_seed_and_number(prepared: Prepared) -> None:
    def windows(seed: int, number: int) -> list[list[int]]:
        plan = WindowPlan(prepared.train, 64, seed, 16)
        return [window.tolist() for (window,) in plan.examples(number)]

    plan = WindowPlan(prepared.train, 64, 1, 16)
    for number in (0, 3, plan.batches_per_epoch, 7 * plan.batches_per_epoch + 2):
        assert windows(1, number) == [window.tolist() for (window,) in plan.examples(number)]
        assert windows(1, number) != windows(2, number)


def test_a_window_becomes_inputs_and_labels() -> None:
    batch = LanguageModel().pack([([5, 6, EOS, 7, 8],), ([EOS, 9, 4, PAD, PAD],)])
    assert batch["text"].ids_N.tolist() == [5, 6, BOS, 7, BOS, 9, 4, PAD]
    assert batch["text"].offsets_B1.tolist() == [0, 2, 4, 8]
    assert batch.labels_L.tolist() == [6, EOS, 7, 8, 9, 4, PAD, PAD]
    assert batch.count == 6


def test_documents_may_be_one_sequence() -> None:
    task = LanguageModel(LanguageModelConfig(across_documents=True))
    batch = task.pack([([5, 6, EOS, 7, 8],), ([EOS, 9, 4, PAD, PAD],)])
    assert batch["text"].ids_N.tolist() == [5, 6, BOS, 7, BOS, 9, 4, PAD]
    assert batch["text"].offsets_B1.tolist() == [0, 4, 8]


def test_only_answers_count() -> None:
    task = LanguageModel(LanguageModelConfig(answers_only=True))
    batch = task.pack([([5, 6, BOS, 7, 8],), ([BOS, 9],)])
    assert batch["text"].ids_N.tolist() == [BOS, 5, 6, 7, 8, BOS, 9]
    assert batch["text"].offsets_B1.tolist() == [0, 5, 7]
    assert batch.labels_L.tolist() == [PAD, PAD, 7, 8, EOS, 9, EOS]
    assert batch.count == 5


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("settings", [{}, {"positions": "rotary", "kv_heads": 2}, {"window": 3, "positions": "rotary"}])
def test_documents_do_not_affect_one_another(settings: dict[str, Any], fused: bool) -> None:
    model = small_language_model(**settings).to(DEVICE)
    if fused:
        pytest.importorskip("triton")
        from transduce.fast.kernels.fuse import fuse

        fuse(model)
    window, documents = [5, 6, 9, EOS, 7, 8, 4, 11, EOS, 13, 14], ([5, 6, 9], [BOS, 7, 8, 4, 11], [BOS, 13])
    packed = LanguageModel().pack([(window,)])
    with torch.inference_mode():
        found = model(to_device(packed, torch.device(DEVICE)))
        alone = [model(Batch.of(DEVICE, text=[document])) for document in documents]
        across = model(Batch.of(DEVICE, text=[packed["text"].ids_N.tolist()]))
    torch.testing.assert_close(found, torch.cat(alone), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found, across, atol=1e-3)


@pytest.mark.parametrize(("length", "batch_tokens"), [(16, 96), (100, 100), (7, 30)])
def test_batches_of_fixed_shape_have_room_for_all_documents(prepared: Prepared, length: int, batch_tokens: int) -> None:
    task = LanguageModel()
    plan = task.plan(prepared.train, batch_tokens, 1, growth=1.0, max_length=length)
    loaders = [Loader(task, plan, Variation(prepared.tokenizer), CPU, at_most) for at_most in (None, plan.longest)]
    sizes = set()
    for number in range(2 * plan.batches_per_epoch):
        (part,), (fixed,) = (loader.batch(number) for loader in loaders)
        assert len(part["text"].segments) >= len(plan.batch(number))
        sizes.add(len(fixed["text"].segments))
        lengths = [length for length in fixed["text"].segments.lengths_B.tolist() if length]
        assert lengths[: len(part["text"].segments)] == part["text"].segments.lengths_B.tolist()
        assert sum(lengths) == plan.batch_tokens
    assert len(sizes) == 1
    assert min(sizes) < plan.batch_tokens


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_batches_of_fixed_shape_have_no_filler(prepared: Prepared, split: int, count: int) -> None:
    plan = WindowPlan(prepared.train, 6 * 16, seed=1, length=16)
    variation = Variation(prepared.tokenizer)
    loaders = [
        Loader(ACROSS, plan, variation, CPU, plan.longest, split, Processes(rank, count)) for rank in range(count)
    ]
    windows = 6 // (split * count)
    for number in range(plan.batches_per_epoch - 1):
        parts = [part for loader in loaders for part in loader.batch(number)]
        assert len(parts) == split * count
        assert sum(part.count for part in parts) >= 96 - 16
        for part in parts:
            assert part["text"].segments.lengths_B.tolist() == [16] * windows
            assert (part["text"].ids_N != PAD).sum() >= part.count
    shapes = {
        (len(part["text"].ids_N), len(part["text"].segments), len(part.labels_L))
        for number in range(plan.batches_per_epoch)  # the last batch has fewer windows
        for loader in loaders
        for part in loader.batch(number)
    }
    assert shapes == {(16 * windows, windows, 16 * windows)}


def test_a_batch_has_room_for_a_window(prepared: Prepared) -> None:
    with pytest.raises(ConfigError, match=r"train.batch_tokens is 10, but an example has 16 tokens"):
        WindowPlan(prepared.train, 10, seed=1, length=16)


def test_the_context_does_not_change_the_prepared_text(prepared: Prepared, tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS), encoding="utf-8")
    lines: list[str] = []
    log: Callable[[str], None] = lines.append
    again = prepare(DataConfig(train=((str(path),),), max_length=99), TokenizerConfig(vocab_size=450), log, "text")
    assert again.train.folder == prepared.train.folder
    assert lines[-1].startswith("data: 40 documents, ")
    assert isinstance(again.tokenizer, Tokenizer)
