"""CUDA graphs: a function's kernels are recorded once and then launched with one call."""

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

_SPARE = 0.02
"""Share of the GPU's memory that the warm-up leaves free, because the recording needs slightly more."""

T = TypeVar("T")


def capture(function: Callable[[], T], after_warm_up: Callable[[], object] = lambda: None) -> Callable[[], T]:
    """Record the kernels that a function launches; returns a function that replays them.

    The function runs twice: in a warm-up, which compiles kernels and shows whether memory suffices, and while it is
    recorded. Every replay reads the same inputs and overwrites the same output. `after_warm_up` frees
    memory that the warm-up has left allocated. The warm-up draws the same random numbers as the first replay.
    Objects that exist now stay out of later collections of garbage (`gc.freeze`): compiled kernels are many.
    """
    device = torch.device("cuda", torch.cuda.current_device())
    spare = torch.empty(int(_SPARE * torch.cuda.mem_get_info(device)[1]), dtype=torch.uint8, device=device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.random.fork_rng([device]):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    del spare
    after_warm_up()
    graph = torch.cuda.CUDAGraph()
    # Other threads (the one that makes batches, for example) continue to use the GPU during the recording.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        output = function()
    gc.collect()
    gc.freeze()

    def replay() -> T:
        graph.replay()
        return output

    return replay
