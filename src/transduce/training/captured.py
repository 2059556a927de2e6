"""A function recorded as a CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor


class Captured:
    """Runs a function of tensors by replaying the kernels it launched: the CPU starts them all with one call.

    Inputs must keep their shapes. The output is overwritten by the next call.
    """

    def __init__(self, function: Callable[[list[Tensor]], Tensor], inputs: list[Tensor]) -> None:
        self._inputs = [x.clone() for x in inputs]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # kernels are compiled and libraries set up by a rehearsal
            function(self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        # The thread that makes batches goes on talking to the GPU meanwhile.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._output = function(self._inputs)

    def __call__(self, inputs: list[Tensor]) -> Tensor:
        """The function of these inputs."""
        torch._foreach_copy_(self._inputs, inputs)
        self._graph.replay()
        return self._output
