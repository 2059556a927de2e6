"""Collective operations of FSDP2 on copies in the memory of the CPU: gloo has them for CPU tensors only."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter


class _ThroughCpu:
    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class AllGatherThroughCpu(_ThroughCpu, AllGather):
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        every = torch.empty(output_tensor.shape, dtype=output_tensor.dtype)
        local = input_tensor.cpu()
        dist.all_gather_into_tensor(every.view(torch.uint8), local.view(torch.uint8), group=group)
        output_tensor.copy_(every)


class ReduceScatterThroughCpu(_ThroughCpu, ReduceScatter):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        local = torch.empty(output_tensor.shape, dtype=output_tensor.dtype)
        dist.reduce_scatter_tensor(local, input_tensor.cpu(), op=op, group=group)
        output_tensor.copy_(local)
