"""Models sharded over the processes (FSDP2)."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.tensor import DTensor, distribute_tensor

from transduce.models.model import Model
from transduce.models.registry import create_model

M = TypeVar("M", bound=Model)


class _ThroughCpu:
    """Collective operations of FSDP2 on copies in the memory of the CPU: gloo has them for CPU tensors only."""

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_ThroughCpu, AllGather):
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        every = torch.empty(output_tensor.shape, dtype=output_tensor.dtype)
        local = input_tensor.cpu()
        dist.all_gather_into_tensor(every.view(torch.uint8), local.view(torch.uint8), group=group)
        output_tensor.copy_(every)


class _ReduceScatter(_ThroughCpu, ReduceScatter):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        local = torch.empty(output_tensor.shape, dtype=output_tensor.dtype)
        dist.reduce_scatter_tensor(local, input_tensor.cpu(), op=op, group=group)
        output_tensor.copy_(local)


def _uses_cpu(device: torch.device) -> bool:
    """Whether the processes cannot exchange shards on this device itself."""
    return device.type == "cuda" and dist.get_backend() == "gloo"


def shard(model: Model, processes: int, *, half: bool) -> None:
    """Shard the weights, gradients and optimizer state of a model; a layer is gathered while it computes."""
    mesh = init_device_mesh(model.device.type, (processes,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else None
    for part in (*model.layers(), model):
        fully_shard(part, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
        # Gradients are plain sums, which every backend supports; the update divides them by the number of labels.
        cast(FSDPModule, part).set_gradient_divide_factor(1.0)
        cast(FSDPModule, part).set_force_sum_reduction_for_comms(True)
        if _uses_cpu(model.device):
            cast(FSDPModule, part).set_custom_all_gather(_AllGather())
            cast(FSDPModule, part).set_custom_reduce_scatter(_ReduceScatter())


def is_sharded(model: Model) -> bool:
    return isinstance(model, FSDPModule)


def gathered(model: M) -> M:
    """The model itself, or a copy gathered from its shards in all processes; each of them must call this."""
    if not is_sharded(model):
        return model
    plain = create_model(model.config, model.vocab_size).to(model.device)
    plain.load_state_dict({name: gather_tensor(x) for name, x in model.state_dict().items()})
    return cast(M, plain)


def gather_tensor(x: Tensor) -> Tensor:
    """The complete tensor, gathered from all processes; each of them must call this."""
    if not isinstance(x, DTensor):
        return x
    if _uses_cpu(x.device):
        mesh = init_device_mesh("cpu", (x.device_mesh.size(),))
        local = DTensor.from_local(x.to_local().cpu(), mesh, x.placements, shape=x.shape, stride=x.stride())
        return local.full_tensor().to(x.device)
    return x.full_tensor()


def local_shard(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x


def shard_like(x: Tensor, like: Tensor) -> Tensor:
    """The shard of a complete tensor, which every process has, on the device and with the sharding of `like`."""
    x = x.to(like.device)
    return (
        distribute_tensor(x, like.device_mesh, like.placements, src_data_rank=None) if isinstance(like, DTensor) else x
    )
