"""Batches for the training loop, prefetched by a thread so that the computation never waits for data."""

import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from transduce.data.batch import Batch, to_device
from transduce.data.packing import Example, PackedBatch, fill, without_labels
from transduce.data.plan import BatchPlan
from transduce.data.shards import TokenShards
from transduce.distributed.processes import SINGLE_PROCESS, Processes
from transduce.tasks.task import Task
from transduce.text.tokenizer import Tokenizer

_AHEAD = 4


@dataclass(frozen=True)
class Loader:
    """Makes any batch of a plan, by its number."""

    task: Task
    plan: BatchPlan
    tokenizer: Tokenizer
    device: torch.device
    bpe_dropout: float = 0.0
    fixed_length: int | None = None
    """Longest segment of batches with fixed shapes (for CUDA graphs); None does not pad batches."""
    split: int = 1
    """Approximate number of parts into which every batch is split if it does not fit in memory."""
    processes: Processes = SINGLE_PROCESS
    """The processes that share every batch."""

    def batch(self, number: int) -> list[Batch]:
        """This process's share of batch `number` of the plan, in its parts."""
        examples = self._examples(number)
        parts = [self._pack(part, number) for part in self._parts(examples[self.processes.share])]
        if not parts:  # fewer examples than processes; each must compute, or the others would wait for it
            parts = [without_labels(self._pack(examples[:1], number))]
        self.plan.shards.release()
        if self.fixed_length is None:
            return [to_device(part, self.device) for part in parts]
        max_pairs = -(-self.plan.max_pairs // self.processes.count)
        filled = [fill(part, self.part_tokens, max_pairs, self.fixed_length) for part in parts]
        return [to_device(part, self.device, self.fixed_length) for part in filled]

    @property
    def part_tokens(self) -> int:
        """Upper bound on the tokens of each stream of a part."""
        total, longest = self.plan.batch_tokens, self.plan.shards.index["max_length" if self.bpe_dropout else "longest"]
        parts = self.split * self.processes.count
        return total if parts == 1 else min(total, total // parts + longest + 1)

    def ahead(self, start: int) -> Generator[list[Batch]]:
        """An endless iterator over the batches from `start` on; a thread prefetches a few."""
        ready: queue.Queue[list[Batch] | BaseException] = queue.Queue(maxsize=_AHEAD)
        stopped = threading.Event()
        side_stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

        def work() -> None:
            number = start
            while not stopped.is_set():
                try:
                    with torch.cuda.stream(side_stream):  # copies overlap with the computation
                        item: list[Batch] | BaseException = self.batch(number)
                    if side_stream:
                        side_stream.synchronize()
                except BaseException as error:  # passed to the training loop, which raises it
                    item = error
                number += 1
                while not stopped.is_set():
                    try:
                        ready.put(item, timeout=0.1)
                        break
                    except queue.Full:
                        pass

        thread = threading.Thread(target=work, daemon=True, name="batches")
        thread.start()
        try:
            while True:
                item = ready.get()
                if isinstance(item, BaseException):
                    raise item
                if side_stream:  # the memory must not be reused before the computation has read it
                    for tensor in (tensor for batch in item for tensor in batch.tensors):
                        tensor.record_stream(torch.cuda.current_stream(self.device))
                yield item
        finally:
            stopped.set()
            thread.join()

    def _examples(self, number: int) -> Sequence[Example]:
        """The examples of batch `number`, the same in every process."""
        examples = self.plan.shards.pairs(self.plan.batch(number))
        return self._with_dropout(examples, number) if self.bpe_dropout else examples

    def _pack(self, examples: Sequence[Example], number: int) -> PackedBatch:
        return self.task.pack(examples, self._seed(number))

    def _seed(self, number: int) -> int:
        return self.plan.seed + 1_000_003 * number

    def _parts(self, examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
        """Consecutive examples, with at most `part_tokens` tokens in every stream."""
        if not examples:
            return
        if self.split == 1 and (self.processes.count == 1 or self.fixed_length is None):
            yield examples
            return
        first, tokens = 0, [0] * len(examples[0])
        for number, example in enumerate(examples):
            lengths = [len(ids) + 1 for ids in example]
            tokens = [sum(pair) for pair in zip(tokens, lengths, strict=True)]
            if max(tokens) > self.part_tokens:
                yield examples[first:number]
                first, tokens = number, lengths
        yield examples[first:]

    def _with_dropout(self, examples: Sequence[Example], number: int) -> Sequence[Example]:
        """The examples, segmented with BPE-dropout. Shards hold only ids; decoding them restores the exact text."""
        room = [self.plan.batch_tokens - sum(len(ids) + 1 for ids in stream) for stream in zip(*examples, strict=True)]
        texts = self.tokenizer.decode_all(
            [np.asarray(ids).tolist() for example in examples for ids in example], marked=True
        )
        sampled = iter(self.tokenizer.encode_with_dropout(texts, self.bpe_dropout, seed=self._seed(number)))
        result: list[Example] = []
        for example in examples:
            fresh = tuple(next(sampled) for _ in example)
            left = [r - len(new) + len(old) for r, new, old in zip(room, fresh, example, strict=True)]
            if max(map(len, fresh)) > self.plan.shards.index["max_length"] or min(left) < 0:
                result.append(example)  # the batch has no room for the longer segmentation
            else:
                room = left
                result.append(fresh)
        return result


def dropout_growth(shards: TokenShards, tokenizer: Tokenizer, dropout: float) -> float:
    """The factor by which BPE-dropout lengthens this corpus, measured on a sample, with a margin."""
    pairs = shards.pairs(np.linspace(0, len(shards) - 1, num=min(len(shards), 1000), dtype=np.int64))
    growths = []
    for stream in zip(*pairs, strict=True):
        sentences = [ids.tolist() for ids in stream]
        cut = tokenizer.encode_with_dropout(tokenizer.decode_all(sentences, marked=True), dropout, seed=0)
        growths.append(sum(len(ids) + 1 for ids in cut) / sum(len(ids) + 1 for ids in sentences))
    return 1.03 * max(growths)
