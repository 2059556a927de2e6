"""A function recorded as a CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor

_SPARE = 0.02
"""Share of the GPU's memory that the rehearsal leaves free, as the recording needs a little more than it."""


class Captured:
    """Runs a function of tensors by replaying the kernels it launched: the CPU starts them all with one call.

    Inputs must keep their shapes. The output is overwritten by the next call. `forget` lets go of what a call of the
    function leaves behind.
    """

    def __init__(
        self, function: Callable[[list[Tensor]], Tensor], inputs: list[Tensor], forget: Callable[[], None]
    ) -> None:
        self._inputs = [x.clone() for x in inputs]
        self._rehearse(function)
        forget()
        self._graph = torch.cuda.CUDAGraph()
        # The thread that makes batches goes on talking to the GPU meanwhile.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._output = function(self._inputs)

    def __call__(self, inputs: list[Tensor]) -> Tensor:
        """The function of these inputs."""
        torch._foreach_copy_(self._inputs, inputs)
        self._graph.replay()
        return self._output

    def _rehearse(self, function: Callable[[list[Tensor]], Tensor]) -> None:
        """Run it once: kernels are compiled and libraries set up, and where memory is too small, this shows."""
        device = self._inputs[0].device
        spare = torch.empty(int(_SPARE * torch.cuda.mem_get_info(device)[1]), dtype=torch.uint8, device=device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.random.fork_rng([device]):  # the first replay draws what this drew
            function(self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        del spare
