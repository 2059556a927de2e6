"""The model of a run with its initial weights: random, or those of the model that training starts from."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.config import require
from transduce.data.prepare import Prepared
from transduce.features import HOOKS
from transduce.models.folder import WEIGHTS, load_model
from transduce.models.merged_weights import BUNDLED, Base
from transduce.models.model import Model
from transduce.models.registry import create_model
from transduce.models.weight_tensors import save_tensors
from transduce.nn.low_rank import LowRank
from transduce.training.learner import use_bfloat16
from transduce.training.processes import Processes
from transduce.training.recipe import Recipe
from transduce.training.run_folder import RunFolder
from transduce.training.sharded import shard
from transduce.training.start_from import find_start
from transduce.training.task import Task

_NEW_TOKEN_NOISE = 0.1
"""Standard deviation of the embeddings of new tokens around the mean, relative to that of the existing ones."""


def new_model(
    recipe: Recipe,
    task: Task,
    run: RunFolder,
    prepared: Prepared,
    device: torch.device,
    processes: Processes,
    log: Callable[[str], None],
) -> Model:
    """The model with its initial weights, the same in every process."""
    torch.manual_seed(recipe.train.seed)
    model = create_model(recipe.model, prepared.tokenizer.target.vocab_size).to(device)
    model.reserve(recipe.data.max_length + task.markers)
    config = recipe.train
    if config.start_from and (config.lora or not run.has_checkpoint):  # otherwise the run has weights of its own
        folder = find_start(config.start_from)
        start = load_model(folder, device)
        labels = prepared.train.index.get("labels")
        # A model of another task, or of other classes, has no weights for these parts.
        new_parts = () if labels is not None and labels == start.facts.get("labels") else tuple(task.new_parts)
        weights = _with_layers_of(model, start.model, log)
        weights = {name: x for name, x in weights.items() if not name.startswith(new_parts)}
        if config.start_share and processes.is_main:
            save_tensors(weights, run.start)
        wanted = model.state_dict()
        if config.lora:
            _require_base(config.start_from, folder, start.model, model, new_parts)
        weights |= {name: x for name, x in wanted.items() if name.startswith(new_parts)}
        model.load_state_dict({name: _extend(x, wanted[name], config.seed) for name, x in weights.items()})
        if config.lora:
            scale = config.lora_alpha / config.lora
            model.base = Base.of(folder, WEIGHTS, scale, bundled=config.start_from == BUNDLED)
            run.require_same_base(model.base)
            model.low_rank = LowRank(model, config.lora, scale, {*config.lora_layers}, new_parts)
    if config.shard:
        half = use_bfloat16(config.precision, device)
        if half and device.type == "cuda":
            HOOKS["fuse"](model)
        shard(model, processes.count, half=half)
    return model


def _require_base(name: str, folder: Path, start: Model, model: Model, new_parts: tuple[str, ...]) -> None:
    """Raise an error unless low-rank updates of a model can be stored beside the model that training starts from."""
    require(
        (folder / WEIGHTS).exists(),
        f"train.lora: {name} is itself an update of another model; name that model, or "
        "train it with train.lora_merge=true",
    )
    there, here = (
        {name: x.shape for name, x in m.state_dict().items() if not name.startswith(new_parts)} for m in (start, model)
    )
    require(
        there == here,
        f"train.lora keeps all layers and the vocabulary of {name}; leave out settings of fewer layers and new symbols",
    )


def _with_layers_of(model: Model, start: Model, log: Callable[[str], None]) -> dict[str, Tensor]:
    """The weights of `start` in as many layers as `model` has.

    Fewer layers are the first, the last, and evenly spaced ones. More layers are those of `start`, evenly spaced, and
    between them layers that pass on what they read, until training changes them.
    """
    weights = start.state_dict()
    for stack, layers in start.named_children():
        if not isinstance(layers, nn.ModuleList):
            continue
        there, here = len(layers), len(getattr(model, stack))
        if here == there:
            continue
        few, many = sorted((here, there))
        spaced = [round(number * (many - 1) / max(1, few - 1)) for number in range(few)]
        numbers = ", ".join(str(number + 1) for number in spaced)
        log(
            f"{stack}: layers {numbers} of {many} "
            + ("are kept" if here < there else "have weights, the others are new")
        )
        taken: list[dict[str, Tensor]] = []
        for new in range(here):
            old = spaced[new] if here < there else spaced.index(new) if new in spaced else None
            taken.append(layers[old].state_dict() if old is not None else _passing_on(taken[-1], start))
        weights = {name: x for name, x in weights.items() if not name.startswith(f"{stack}.")}
        weights |= {f"{stack}.{new}.{name}": x for new, layer in enumerate(taken) for name, x in layer.items()}
    return weights


def _passing_on(before: dict[str, Tensor], start: Model) -> dict[str, Tensor]:
    """The weights of a layer that hardly changes the output of the layer `before`: its sub-layers return zeros.

    Norms after sub-layers normalize, and the last one restores the mean and the deviation that the output has on
    average: those of g * z + b for z with mean 0 and deviation 1.
    """
    outputs = ("out.weight", "out.bias", "outer.weight", "outer.bias")
    weights = {name: torch.zeros_like(x) if name.endswith(outputs) else x for name, x in before.items()}
    if getattr(start.config, "norm", None) == "post":
        norms = [
            name.removesuffix(".weight") for name in weights if name.endswith("norm.weight") and "residuals" in name
        ]
        gain, bias = weights[f"{norms[-1]}.weight"], weights.get(f"{norms[-1]}.bias")
        spread = gain.square().mean() + (bias.var(correction=0) if bias is not None else 0)
        for norm in norms:
            weights[f"{norm}.weight"] = torch.ones_like(gain) * (spread.sqrt() if norm == norms[-1] else 1)
            if bias is not None:
                weights[f"{norm}.bias"] = torch.zeros_like(bias) + (bias.mean() if norm == norms[-1] else 0)
    return weights


def _extend(weight: Tensor, like: Tensor, seed: int) -> Tensor:
    """A weight with rows for new tokens, if it is to have more rows: the mean of the others and some noise."""
    new = like.shape[0] - weight.shape[0] if weight.dim() else 0
    if new == 0:
        return weight
    mean, spread = weight.mean(dim=0, keepdim=True), weight.std(dim=0, keepdim=True)
    noise = torch.randn(new, *weight.shape[1:], generator=torch.Generator().manual_seed(seed)).to(weight.device)
    return torch.cat([weight, mean + _NEW_TOKEN_NOISE * spread * noise])
