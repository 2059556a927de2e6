"""Batches for the training loop, prefetched by a thread so that the computation never waits for data."""

import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import torch

from transduce.data.batch import Batch, to_device
from transduce.data.packing import Example, PackedBatch, fill, without_labels
from transduce.data.plan import PartShape, Plan
from transduce.data.variation import Variation, computed_ahead, seed_of
from transduce.training.processes import SINGLE_PROCESS, Processes
from transduce.training.task import Task

_AHEAD = 5
"""Number of batches in memory besides the one that is computed with."""


@dataclass(frozen=True)
class Loader:
    """Makes any batch of a plan, by its number."""

    task: Task
    plan: Plan
    variation: Variation
    device: torch.device
    fixed_length: int | None = None
    """Longest segment of batches with fixed shapes (for CUDA graphs); None does not pad batches."""
    split: int = 1
    """Approximate number of parts into which every batch is split if it does not fit in memory."""
    processes: Processes = SINGLE_PROCESS
    """The processes that share every batch."""

    def batch(self, number: int) -> list[Batch]:
        """This process's share of batch `number` of the plan, in its parts."""
        return self._batch(number, self.variation.examples(self.plan, number))

    def _batch(self, number: int, examples: Sequence[Example]) -> list[Batch]:
        parts = [self._pack(part, number) for part in self._parts(examples[self.processes.share])]
        if not parts:  # fewer examples than processes; each must compute, or the others would wait for it
            parts = [without_labels(self._pack(examples[:1], number))]
        self.plan.shards.release()
        if self.fixed_length is None:
            return [to_device(part, self.device) for part in parts]
        tokens, sequences, filler_segments = self._part_shape
        labels = self.task.max_labels
        filled = [fill(part, tokens, sequences, self.fixed_length, filler_segments, labels) for part in parts]
        return [to_device(part, self.device, self.fixed_length) for part in filled]

    @property
    def part_tokens(self) -> int:
        """Upper bound on the tokens of each stream of a part."""
        return self._part_shape.tokens

    @property
    def _part_shape(self) -> PartShape:
        return self.plan.part_shape(self.split, self.processes.count, varied=self.variation.enabled)

    def ahead(self, start: int) -> Generator[list[Batch]]:
        """An endless iterator over the batches from `start` on; a thread prefetches a few."""
        ready: queue.SimpleQueue[list[Batch] | BaseException] = queue.SimpleQueue()
        room, stopped = threading.Semaphore(_AHEAD), threading.Event()
        side_stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

        def work() -> None:
            try:
                if side_stream and self.device.index is not None:
                    torch.cuda.set_device(self.device)  # every thread has its own current device, at first the first
                with computed_ahead(self.variation, self.plan, start) as examples:
                    for number in count(start):
                        room.acquire()
                        if stopped.is_set():
                            return
                        with torch.cuda.stream(side_stream):  # copies overlap with the computation
                            batch = self._batch(number, examples(number))
                        if side_stream:
                            side_stream.synchronize()
                        ready.put(batch)
            except BaseException as error:  # passed to the training loop, which raises it
                ready.put(error)

        thread = threading.Thread(target=work, daemon=True, name="batches")
        thread.start()
        try:
            while True:
                item = ready.get()
                room.release()
                if isinstance(item, BaseException):
                    raise item
                if side_stream:  # the memory must not be reused before the computation has read it
                    for tensor in (tensor for batch in item for tensor in batch.tensors):
                        tensor.record_stream(torch.cuda.current_stream(self.device))
                yield item
        finally:
            stopped.set()
            room.release()
            thread.join()

    def _pack(self, examples: Sequence[Example], number: int) -> PackedBatch:
        seed = seed_of(self.plan, number)
        return self.task.pack(self.task.vary(examples, seed), seed)

    def _parts(self, examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
        """Consecutive examples, with at most `part_tokens` tokens in every stream."""
        if not examples:
            return
        if self.split == 1 and (self.processes.count == 1 or self.fixed_length is None):
            yield examples
            return
        first, tokens = 0, [0] * len(examples[0])
        for number, example in enumerate(examples):
            lengths = self.plan.tokens(example)
            tokens = [sum(pair) for pair in zip(tokens, lengths, strict=True)]
            if max(tokens) > self.part_tokens:
                yield examples[first:number]
                first, tokens = number, lengths
        yield examples[first:]
