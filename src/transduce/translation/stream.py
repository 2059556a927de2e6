"""Searches for the translations of many texts, of which only some are in memory at a time."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile

from transduce.errors import ModelError
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine, Job
from transduce.search.options import SearchConfig
from transduce.translation.part import Part
from transduce.translation.translation import Translation

_DECODED_TOGETHER = 128
"""Number of texts with required text or tags that are decoded together, because a search for few repairs is slow."""


@dataclass
class _Line:
    """A text that is being translated, in one part or several."""

    parts: list[Part]
    results: dict[int, list[Hypothesis]] = field(default_factory=dict)
    """Hypotheses of the finished parts, by index of the part."""

    @property
    def outputs(self) -> list[list[Hypothesis]]:
        """Hypotheses of each part, in order."""
        return [self.results[part] for part in range(len(self.parts))]

    @property
    def requires(self) -> bool:
        """Whether the translation must contain certain text or tags."""
        return any(part.required or part.tagged for part in self.parts)


def translate_stream(
    engine: Engine,
    config: SearchConfig,
    batches: Iterator[list[list[Part]]],
    decode: Callable[[Sequence[Part], Sequence[list[Hypothesis]]], Iterator[list[Translation]]],
    window: int,
    first_key: int,
    text_done: Callable[[], object] = lambda: None,
) -> Iterator[tuple[list[Part], list[list[Translation]]]]:
    """Yield the parts of each text with their translations, in the order of the texts.

    `batches` reads the parts of at most `window` texts at a time. The jobs have the keys from `first_key` on.
    `text_done` is called when a text is translated, which may be long before those before it are.
    """
    session = engine.start_session(config)
    lines: deque[_Line] = deque()  # read but not yet yielded
    origin: dict[int, tuple[_Line, int]] = {}  # the line and the part of each job, by its key
    keys, more = count(first_key), True
    while more or lines:
        if more and session.waiting <= window // 2 and len(lines) <= window:
            read = next(batches, [])
            more = bool(read)
            jobs: list[tuple[int, Job]] = []
            for parts in read:
                lines.append(_Line(parts))
                if not parts:
                    text_done()
                for index, part in enumerate(parts):
                    key = next(keys)
                    origin[key] = (lines[-1], index)
                    jobs.append((key, part))
            session.add(sorted(jobs, key=lambda item: -len(item[1].tokens)))
        for key, hypotheses in session.step() if session.busy else ():
            if not hypotheses:
                raise ModelError("the model's scores are not finite numbers; try --engine plain")
            line, index = origin.pop(key)
            line.results[index] = hypotheses
            if len(line.results) == len(line.parts):
                text_done()
        ready = list(takewhile(lambda line: len(line.results) == len(line.parts), lines))
        if session.busy and len(ready) < _DECODED_TOGETHER and any(line.requires for line in ready):
            continue
        done = [lines.popleft() for _ in ready]
        outputs = decode(
            [part for line in done for part in line.parts], [best for line in done for best in line.outputs]
        )
        for line in done:
            yield line.parts, [next(outputs) for _ in line.parts]
