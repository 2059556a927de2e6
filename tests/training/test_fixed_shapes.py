"""Batches of fixed shape, as a GPU needs them: the loss of every task is that of the batch without filler."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.classification.task import Classify, ClassifyConfig
from transduce.data.batch import to_device
from transduce.data.packing import fill
from transduce.data.shards import TokenShards, write_index, write_shard
from transduce.encoders.pretraining import Denoise, DenoiseConfig, Masked
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.registry import create_model
from transduce.training.task import Task

SIZES: dict[str, Any] = {"d_model": 16, "d_ff": 32, "num_heads": 2, "dropout": 0.0}
COUNT = 40


def case(name: str) -> tuple[Task, Any, list[list[Any]]]:
    """A task, its model's settings, and the ids of each stream."""
    chance = np.random.default_rng(1)
    texts = [chance.integers(300, 400, chance.integers(1, 30)) for _ in range(COUNT)]
    labels = [[int(label)] for label in chance.integers(0, 3, COUNT)]
    if name == "masked":
        return Masked(), EncoderOnlyConfig(layers=1, output_bias=True, **SIZES), [texts]
    if name == "denoise":
        return (
            Denoise(DenoiseConfig(kind="bart")),
            EncoderDecoderConfig(encoder_layers=1, decoder_layers=1, **SIZES),
            [texts],
        )
    if name == "texts":
        return Classify(), EncoderOnlyConfig(layers=1, classes=3, **SIZES), [texts, labels]
    images = [chance.integers(0, 256, 8 * 12) for _ in range(COUNT)]
    config = EncoderOnlyConfig(layers=1, classes=3, source="image", image_height=8, image_width=12, **SIZES)
    return Classify(ClassifyConfig(shift=2), source="image"), config, [images, labels]


@pytest.mark.parametrize("name", ["masked", "denoise", "texts", "images"])
@pytest.mark.parametrize("split", [1, 3])
def test_the_loss_is_that_of_the_batch_without_filler(
    toy_tokenizer: Any, tmp_path: Path, name: str, split: int
) -> None:
    torch.manual_seed(0)
    task, config, streams = case(name)
    names = ["text", "label"][: len(streams)]
    write_shard(tmp_path, 0, streams, 450, names)
    facts = {} if name == "images" else {"max_length": 40}
    write_index(
        tmp_path, {"vocab_size": 450, "report": [], "labels": ["a", "b", "c"], "shape": [8, 12, 1], **facts}, names
    )
    shards = TokenShards(tmp_path)
    task.set_tokenizer(toy_tokenizer)
    task.model_settings(json.loads((tmp_path / "index.json").read_text()))
    model = create_model(config, 450).eval()
    model.reserve(64)
    plan = task.plan(shards, 1200, seed=1, growth=1.0, max_length=40)
    shape = plan.part_shape(split, 1, varied=False)
    for number in range(plan.batches_per_epoch):
        examples = plan.examples(number)[: max(1, shape.sequences // 2)] if split > 1 else plan.examples(number)
        tokens = [sum(stream) for stream in zip(*map(plan.tokens, examples), strict=True)]
        while max(tokens) > shape.tokens:
            examples = examples[:-1]
            tokens = [sum(stream) for stream in zip(*map(plan.tokens, examples), strict=True)]
        packed = task.pack(task.vary(examples, 5), 5)
        filled = fill(packed, shape.tokens, shape.sequences, plan.longest, shape.filler_segments, task.max_labels)
        assert filled.count == packed.count
        losses = []
        for batch in (to_device(packed, torch.device("cpu")), to_device(filled, torch.device("cpu"), plan.longest)):
            hidden_LD = model(batch)
            assert len(hidden_LD) == len(batch.labels_L)
            losses.append(torch.stack(task.loss(model, hidden_LD, batch, 0.1)))
        torch.testing.assert_close(*losses)


def test_an_image_is_moved_by_the_same_amount_whatever_its_batch() -> None:
    task, _, (images, labels) = case("images")
    task.model_settings({"labels": ["a", "b", "c"], "shape": [8, 12, 1]})
    examples = list(zip(images, labels, strict=True))
    whole, part = task.vary(examples, 3), task.vary(examples[7:9], 3)
    assert [moved.tolist() for moved, _ in whole[7:9]] == [moved.tolist() for moved, _ in part]  # type: ignore[union-attr]
    offsets = set()
    for (image, _), (moved, _) in zip(examples, whole, strict=True):
        before, after = np.asarray(image).reshape(8, 12), np.asarray(moved).reshape(8, 12)
        fits = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if (np.pad(before, 2)[2 - down : 10 - down, 2 - right : 14 - right] == after).all()
        ]
        assert len(fits) == 1
        offsets.add(fits[0])
    assert len(offsets) > 15
