"""Batches for the training loop, prepared ahead on a thread so that computing never waits for data."""

import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.data.packing import PackedBatch, Sentence, fill, mute, pack
from transduce.data.plan import BatchPlan
from transduce.data.shards import Ids, TokenShards
from transduce.distributed.processes import ALONE, Processes
from transduce.nn.device import send
from transduce.nn.segments import Segments, group_segments, most_groups
from transduce.text.tokenizer import Tokenizer

_AHEAD = 4


@dataclass(frozen=True)
class Batch:
    """A packed batch on the device."""

    src_N: Tensor
    src_segments: Segments
    tgt_M: Tensor
    labels_M: Tensor
    tgt_segments: Segments
    target_tokens: int

    @property
    def tensors(self) -> list[Tensor]:
        """What differs between batches of the same shapes."""
        src, tgt = self.src_segments, self.tgt_segments
        groups = [] if src.groups_G1 is None else [src.groups_G1]
        return [self.src_N, self.tgt_M, self.labels_M, src.offsets_B1, tgt.offsets_B1, *groups]

    def used_on(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory of its tensors until this stream is done with them."""
        for tensor in self.tensors:
            tensor.record_stream(stream)

    def with_tensors(self, tensors: list[Tensor]) -> "Batch":
        """A batch of the same shapes."""
        src_N, tgt_M, labels_M, src_offsets_B1, tgt_offsets_B1, groups_G1 = tensors
        return Batch(
            src_N=src_N,
            src_segments=replace(self.src_segments, offsets_B1=src_offsets_B1, groups_G1=groups_G1),
            tgt_M=tgt_M,
            labels_M=labels_M,
            tgt_segments=replace(self.tgt_segments, offsets_B1=tgt_offsets_B1, groups_G1=groups_G1),
            target_tokens=self.target_tokens,
        )


@dataclass(frozen=True)
class Loader:
    """Makes any batch of a plan, by its number."""

    plan: BatchPlan
    tokenizer: Tokenizer
    device: torch.device
    bpe_dropout: float = 0.0
    fixed_length: int | None = None
    """Longest segment of buffers with fixed shapes (for CUDA graphs); None makes each batch as small as it is."""
    split: int = 1
    """Into about so many parts every batch is cut, where memory does not hold it at once."""
    processes: Processes = ALONE
    """Those that share every batch."""

    def batch(self, number: int) -> list[Batch]:
        """This process's share of batch `number` of the plan, in its parts."""
        sentences = self._sentences(number)
        parts = [pack(part) for part in self._parts(sentences[self.processes.share])]
        if not parts:  # fewer pairs than processes; they all compute, so that none waits for another
            parts = [mute(pack(sentences[:1]))]
        self.plan.shards.release()
        if self.fixed_length is None:
            return [to_device(part, self.device) for part in parts]
        max_pairs = -(-self.plan.max_pairs // self.processes.count)
        filled = [fill(part, self.part_tokens, max_pairs, self.fixed_length) for part in parts]
        return [to_device(part, self.device, self.fixed_length) for part in filled]

    @property
    def part_tokens(self) -> int:
        """Tokens of each side that a part may have."""
        whole, longest = self.plan.batch_tokens, self.plan.shards.index["max_length" if self.bpe_dropout else "longest"]
        parts = self.split * self.processes.count
        return whole if parts == 1 else min(whole, whole // parts + longest + 1)

    def ahead(self, start: int) -> Generator[list[Batch]]:
        """Batches from `start` on, without end; a thread stays a few ahead."""
        ready: queue.Queue[list[Batch] | BaseException] = queue.Queue(maxsize=_AHEAD)
        stopped = threading.Event()
        side_stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

        def work() -> None:
            number = start
            while not stopped.is_set():
                try:
                    with torch.cuda.stream(side_stream):  # copies go on beside the computing
                        item: list[Batch] | BaseException = self.batch(number)
                    if side_stream:
                        side_stream.synchronize()
                except BaseException as error:  # handed to the loop, which raises it
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
                for batch in item if side_stream else ():
                    batch.used_on(torch.cuda.current_stream(self.device))
                yield item
        finally:
            stopped.set()
            thread.join()

    def _sentences(self, number: int) -> Sequence[tuple[Sentence, Sentence]]:
        """The pairs of batch `number`, the same in every process."""
        pairs = self.plan.shards.pairs(self.plan.batch(number))
        return self._with_dropout(pairs, number) if self.bpe_dropout else pairs

    def _parts(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> Iterator[Sequence[tuple[Sentence, Sentence]]]:
        """Runs of pairs, each within `part_tokens` on both sides."""
        if not pairs:
            return
        if self.split == 1 and (self.processes.count == 1 or self.fixed_length is None):
            yield pairs
            return
        first, tokens = 0, [0, 0]
        for number, pair in enumerate(pairs):
            grown = [tokens[side] + len(pair[side]) + 1 for side in (0, 1)]
            if max(grown) > self.part_tokens:
                yield pairs[first:number]
                first, grown = number, [len(side) + 1 for side in pair]
            tokens = grown
        yield pairs[first:]

    def _with_dropout(self, pairs: list[tuple[Ids, Ids]], number: int) -> list[tuple[Sentence, Sentence]]:
        """The pairs segmented anew. Shards hold ids alone; the text comes back from them exactly."""
        texts = self.tokenizer.decode_all([side.tolist() for pair in pairs for side in pair])
        sampled = self.tokenizer.encode_with_dropout(texts, self.bpe_dropout, seed=self.plan.seed + 1_000_003 * number)
        room = [self.plan.batch_tokens - sum(len(pair[side]) + 1 for pair in pairs) for side in (0, 1)]
        result: list[tuple[Sentence, Sentence]] = []
        for pair, fresh in zip(pairs, zip(sampled[0::2], sampled[1::2], strict=True), strict=True):
            growth = [len(fresh[side]) - len(pair[side]) for side in (0, 1)]
            too_long = max(map(len, fresh)) > self.plan.shards.index["max_length"]
            if too_long or any(growth[side] > room[side] for side in (0, 1)):
                result.append(pair)  # no room left in this batch for a finer cut of this pair
                continue
            room = [room[side] - growth[side] for side in (0, 1)]
            result.append(fresh)
        return result


def dropout_growth(shards: TokenShards, tokenizer: Tokenizer, dropout: float) -> float:
    """By how much BPE-dropout lengthens this corpus, measured on a sample, with a little to spare."""
    pairs = shards.pairs(np.linspace(0, len(shards) - 1, num=min(len(shards), 1000), dtype=np.int64))
    growths = []
    for side in (0, 1):
        sentences = [pair[side].tolist() for pair in pairs]
        cut = tokenizer.encode_with_dropout(tokenizer.decode_all(sentences), dropout, seed=0)
        growths.append(sum(len(ids) + 1 for ids in cut) / sum(len(ids) + 1 for ids in sentences))
    return 1.03 * max(growths)


def to_device(batch: PackedBatch, device: torch.device, longest: int | None = None) -> Batch:
    """The batch as tensors; `longest` where segments must seem equally long in every batch."""
    groups = None
    if longest:
        bounds = group_segments(batch.src_offsets_B1.tolist(), batch.tgt_offsets_B1.tolist())
        unused = [bounds[-1]] * (most_groups(len(batch.src_N)) + 1 - len(bounds))
        groups = send(np.array(bounds + unused, dtype=np.int32), device)

    def segments(offsets: npt.NDArray[Any]) -> Segments:
        return Segments(
            send(offsets, device), longest or int((offsets[1:] - offsets[:-1]).max()), int(offsets[-1]), groups
        )

    return Batch(
        src_N=send(batch.src_N, device),
        src_segments=segments(batch.src_offsets_B1),
        tgt_M=send(batch.tgt_M, device),
        labels_M=send(batch.labels_M, device),
        tgt_segments=segments(batch.tgt_offsets_B1),
        target_tokens=batch.target_tokens,
    )
