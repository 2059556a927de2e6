"""Models sharded over the processes (FSDP2).

A process that does not communicate has no shards. It must not import FSDP2, which takes a second.
"""

from typing import TYPE_CHECKING, TypeGuard, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from transduce.models.model import Model
from transduce.models.registry import create_model

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

M = TypeVar("M", bound=Model)


def _uses_cpu(device: torch.device) -> bool:
    """Whether the processes cannot exchange shards on this device itself."""
    return device.type == "cuda" and dist.get_backend() == "gloo"


def shard(model: Model, processes: int, *, half: bool) -> None:
    """Shard the weights, gradients and optimizer state of a model; a layer is gathered while it computes."""
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    from transduce.training.through_cpu import AllGatherThroughCpu, ReduceScatterThroughCpu

    mesh = init_device_mesh(model.device.type, (processes,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else None
    for part in (*model.layers(), model):
        fully_shard(part, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
        # Gradients are plain sums, which every backend supports; the update divides them by the number of labels.
        cast(FSDPModule, part).set_gradient_divide_factor(1.0)
        cast(FSDPModule, part).set_force_sum_reduction_for_comms(True)
        if _uses_cpu(model.device):
            cast(FSDPModule, part).set_custom_all_gather(AllGatherThroughCpu())
            cast(FSDPModule, part).set_custom_reduce_scatter(ReduceScatterThroughCpu())


def is_sharded(model: Model) -> bool:
    if not dist.is_initialized():
        return False
    from torch.distributed.fsdp import FSDPModule

    return isinstance(model, FSDPModule)


def _is_shard(x: Tensor) -> "TypeGuard[DTensor]":
    if not dist.is_initialized():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(x, DTensor)


def gathered(model: M) -> M:
    """The model itself, or a copy gathered from its shards in all processes; each of them must call this."""
    if not is_sharded(model):
        return model
    plain = create_model(model.config, model.vocab_size).to(model.device)
    plain.load_state_dict({name: gather_tensor(x) for name, x in model.state_dict().items()})
    return cast(M, plain)


def gather_tensor(x: Tensor) -> Tensor:
    """The complete tensor, gathered from all processes; each of them must call this."""
    if not _is_shard(x):
        return x
    if _uses_cpu(x.device):
        mesh = init_device_mesh("cpu", (x.device_mesh.size(),))
        local = type(x).from_local(x.to_local().cpu(), mesh, x.placements, shape=x.shape, stride=x.stride())
        return local.full_tensor().to(x.device)
    return x.full_tensor()


def local_shard(x: Tensor) -> Tensor:
    return x.to_local() if _is_shard(x) else x


def shard_like(x: Tensor, like: Tensor) -> Tensor:
    """The shard of a complete tensor, which every process has, on the device and with the sharding of `like`."""
    x = x.to(like.device)
    if not _is_shard(like):
        return x
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x, like.device_mesh, like.placements, src_data_rank=None)
