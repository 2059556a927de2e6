"""The optimizer: Adam (section 5.3), with decoupled weight decay (AdamW) if it is set."""

from typing import Any

import torch

from transduce.models.model import Model
from transduce.training.train_config import TrainConfig


def make_optimizer(model: Model, config: TrainConfig) -> torch.optim.Adam:
    """Adam for all weights of a model; weight decay applies to matrices only, not to biases and norms."""
    weights = list(model.parameters())
    groups: list[dict[str, Any]] = [{"params": weights}]
    if config.weight_decay:
        groups = [
            {"params": [weight for weight in weights if weight.dim() >= 2]},
            {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
        ]
    return torch.optim.Adam(
        [group for group in groups if group["params"]],
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        decoupled_weight_decay=True,
        fused=model.device.type in ("cpu", "cuda"),
    )
