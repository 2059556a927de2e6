"""A model spread over the processes (FSDP2): weights, gradients and Adam's moments, for what one GPU does not hold."""

from typing import cast

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from transduce.models.encoder_decoder import EncoderDecoder


def shard(model: EncoderDecoder, processes: int, *, half: bool) -> None:
    """Leave each process its part of every weight; a layer's are put together while it computes."""
    mesh = init_device_mesh(model.embedding.weight_VD.device.type, (processes,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else None
    for part in (*model.encoder, *model.decoder, model):
        fully_shard(part, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
        # Gradients are plain sums, which every backend knows; the update divides them by the number of tokens.
        cast(FSDPModule, part).set_gradient_divide_factor(1.0)
        cast(FSDPModule, part).set_force_sum_reduction_for_comms(True)


def is_sharded(model: EncoderDecoder) -> bool:
    """Whether the model is spread over processes."""
    return isinstance(model, FSDPModule)


def gathered(model: EncoderDecoder) -> EncoderDecoder:
    """The model as a whole: itself, or a copy put together from all processes, each of which must ask for it."""
    if not is_sharded(model):
        return model
    device = model.embedding.weight_VD.device
    plain = EncoderDecoder(model.config, model.vocab_size).to(device)
    plain.load_state_dict({name: whole(x) for name, x in model.state_dict().items()})
    plain.embedding.positions.require(len(model.embedding.positions.table_TD))
    return plain


def whole(x: Tensor) -> Tensor:
    """A tensor put together from all processes, each of which must ask for it."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def local(x: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return x.to_local() if isinstance(x, DTensor) else x


def spread(x: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, which every process has, on the device and over the processes as `like` is."""
    x = x.to(like.device)
    return (
        distribute_tensor(x, like.device_mesh, like.placements, src_data_rank=None) if isinstance(like, DTensor) else x
    )
