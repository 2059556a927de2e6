"""Gradient accumulation: an update from several batches equals an update from one large batch."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from toy_run import TINY, write_lines

from transduce.data.batch import to_device
from transduce.data.plan import BatchPlan
from transduce.data.prepare import DataConfig, prepare
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.loss import smoothed_cross_entropy
from transduce.tokenizers.tokenizer import TokenizerConfig
from transduce.training.api import train
from transduce.training.recipe import load_recipe
from transduce.training.schedule import learning_rate
from transduce.translation.task import Translate


def test_an_update_from_accumulated_batches_equals_one_from_a_large_batch(tmp_path: Path, toy_pairs: Any) -> None:
    files = [write_lines(tmp_path / name, [pair[side] for pair in toy_pairs]) for side, name in enumerate(("s", "t"))]
    changes = {"train.steps": 1, "train.accumulate": 3, "train.batch_tokens": 64, "model.dropout": 0.0}
    settings = TINY | changes | {"train.precision": "float32", "train.device": "cpu"}
    train(tmp_path / "run", src=files[0], tgt=files[1], settings=settings)

    recipe = load_recipe(None, None, {}, [f"{name}={value}" for name, value in settings.items()])
    corpus = ((str(files[0]), str(files[1])),)
    shards = prepare(DataConfig(train=corpus), TokenizerConfig(vocab_size=450), lambda _: None).train
    plan = BatchPlan(shards, recipe.train.batch_tokens, recipe.train.seed)
    batch = to_device(
        Translate().pack([pair for n in range(3) for pair in shards.pairs(plan.batch(n))]), torch.device("cpu")
    )
    torch.manual_seed(recipe.train.seed)
    model = EncoderDecoder(recipe.model, shards.index["vocab_size"])
    hidden_MD = model(batch)
    loss, _ = smoothed_cross_entropy(hidden_MD, batch.labels_L, model.embedding.weight_VD, recipe.train.label_smoothing)
    (loss / batch.count).backward()

    # Adam's first moment after one step is a tenth of the gradient.
    moments = load_file(tmp_path / "run" / "checkpoints" / "step-1" / "optimizer.safetensors")
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(moments[f"exp_avg.{name}"], parameter.grad * 0.1, atol=1e-6, rtol=1e-4)
    rate = learning_rate(1, recipe.model.d_model, recipe.train.warmup, recipe.train.learning_rate_scale)
    weights = load_file(tmp_path / "run" / "checkpoints" / "step-1" / "model.safetensors")
    moved = max((weights[name] - parameter).abs().max().item() for name, parameter in model.named_parameters())
    assert 0.5 * rate < moved < 1.01 * rate
