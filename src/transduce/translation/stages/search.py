"""The search, between the stages that prepare texts and those that restore outputs.

The segments of many lines are searched for together; only some lines are in memory at a time.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import TypeAlias, TypeVar

from transduce.errors import ModelError
from transduce.models.forced_decoding import OutputReader
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine, Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.translation.text import Found, Segment, Span
from transduce.translation.token_ranges import token_ranges
from transduce.translation.translation import Translation

T = TypeVar("T")
Searches: TypeAlias = Generator[tuple[Sequence[Segment], SearchConfig], list[list[Hypothesis]], T]
"""Work that needs searches: yields segments and options, is sent their hypotheses, and returns a result.
Where it may be interrupted, it yields no segments."""

_DECODED_TOGETHER = 128
"""Number of texts with required text or tags that are decoded together, because a search for few repairs is slow."""


@dataclass
class _Line:
    """A text that is being translated, in one segment or several."""

    segments: list[Segment]
    results: dict[int, list[Hypothesis]] = field(default_factory=dict)
    """Hypotheses of the finished segments, by index of the segment."""

    @property
    def outputs(self) -> list[list[Hypothesis]]:
        return [self.results[index] for index in range(len(self.segments))]

    @property
    def requires(self) -> bool:
        """Whether the translation must contain certain text or tags."""
        return any(segment.required or segment.original.marks for segment in self.segments)


def run_searches(engine: Engine, searches: Searches[T]) -> T:
    """Do work that needs searches on its own; a server runs them together with others."""
    try:
        jobs, config = next(searches)
        while True:
            jobs, config = searches.send(search_all(engine, jobs, config) if jobs else [])
    except StopIteration as result:
        finished: T = result.value
        return finished


def translate_stream(
    engine: Engine,
    config: SearchConfig,
    batches: Iterator[list[list[Segment]]],
    decode: Callable[[list[list[Segment]], list[list[list[Hypothesis]]]], Iterator[list[Translation]]],
    window: int,
    first_key: int,
    text_done: Callable[[], object] = lambda: None,
) -> Iterator[tuple[list[Segment], list[list[Translation]]]]:
    """Yield the segments of each text with their translations, in the order of the texts.

    `batches` reads the segments of at most `window` texts at a time. The jobs have the keys from `first_key` on.
    `decode` makes the translations of all segments of some texts out of their hypotheses. `text_done` is called
    when a text is translated, which may be long before those before it are.
    """
    session = engine.start_session(config)
    lines: deque[_Line] = deque()  # read but not yet yielded
    origin: dict[int, tuple[_Line, int]] = {}  # the line and the segment of each job, by its key
    keys, more = count(first_key), True
    while more or lines:
        if more and session.waiting <= window // 2 and len(lines) <= window:
            read = next(batches, [])
            more = bool(read)
            jobs: list[tuple[int, Job]] = []
            for segments in read:
                lines.append(_Line(segments))
                if not segments:
                    text_done()
                for index, segment in enumerate(segments):
                    key = next(keys)
                    origin[key] = (lines[-1], index)
                    jobs.append((key, segment))
            session.add(sorted(jobs, key=lambda item: -len(item[1].tokens)))
        for key, hypotheses in session.step() if session.busy else ():
            if not hypotheses:
                raise ModelError("the model's scores are not finite numbers; try --engine plain")
            line, index = origin.pop(key)
            line.results[index] = hypotheses
            if len(line.results) == len(line.segments):
                text_done()
        ready = list(takewhile(lambda line: len(line.results) == len(line.segments), lines))
        if session.busy and len(ready) < _DECODED_TOGETHER and any(line.requires for line in ready):
            continue
        done = [lines.popleft() for _ in ready]
        outputs = decode([line.segments for line in done], [line.outputs for line in done])
        for line in done:
            yield line.segments, [next(outputs) for _ in line.segments]


def decode(
    reader: OutputReader,
    tokenizer: AnyTokenizer,
    segments: Sequence[Segment],
    hypotheses: Sequence[Hypothesis],
    *,
    align: bool,
) -> Iterator[Found]:
    """A hypothesis of each segment as a marked text; those of segments with tags, or with `align` all, are aligned."""
    found = list(zip(segments, hypotheses, strict=True))
    to_align = [(segment.tokens, output.tokens) for segment, output in found if align or segment.original.marks]
    alignments = _alignments(reader, to_align)
    outputs = [hypothesis.tokens for hypothesis in hypotheses]
    texts = tokenizer.target.decode_all(outputs, threads=-1, marked=True) if outputs else []
    for (segment, hypothesis), text in zip(found, texts, strict=True):
        output = Found(text, pieces(tokenizer.target, segment, hypothesis.tokens))
        if align or segment.original.marks:
            alignment = _with_slots_aligned(next(alignments), tokenizer, segment, hypothesis)
            output = replace(output, source_spans=line_spans(tokenizer, segment), alignment=alignment)
        yield output


def pieces(tokenizer: AnyTokenizer, segment: Segment, tokens: Sequence[int]) -> list[str]:
    """The pieces of source or output tokens of a segment; a slot is the text that it stands for."""
    originals = {tokenizer.symbol_ids[slot]: required.text for slot, required in segment.slots.items()}
    found = tokenizer.pieces(tokens)
    if originals:
        return [originals.get(token, piece) for token, piece in zip(tokens, found, strict=True)]
    return found


def token_spans(tokenizer: AnyTokenizer, segment: Segment) -> list[Span]:
    """The range of characters of each source token in the text that the model reads."""
    symbols = {token: symbol for symbol, token in tokenizer.symbol_ids.items()}
    found = tokenizer.pieces(segment.tokens)
    marked = [symbols.get(token, piece) for token, piece in zip(segment.tokens, found, strict=True)]
    return [Span(*span) for span in token_ranges(marked, segment.source.characters)]


def line_spans(tokenizer: AnyTokenizer, segment: Segment) -> list[Span]:
    """The range of characters of each source token in the line as it was written."""
    origin = segment.source.origin
    return [Span(origin[start], origin[end]) for start, end in token_spans(tokenizer, segment)]


def _alignments(reader: OutputReader, pairs: list[tuple[list[int], list[int]]]) -> Iterator[list[int]]:
    """The index of the source token with the highest weight for each output token, without end markers."""
    for weights_TS in reader.attention_weights(pairs):
        yield [max(range(len(weights_S) - 1), key=weights_S.__getitem__) for weights_S in weights_TS[:-1]]


def _with_slots_aligned(
    alignment: list[int], tokenizer: AnyTokenizer, segment: Segment, output: Hypothesis
) -> list[int]:
    """The alignment, in which a slot is aligned with itself."""
    source, target = tokenizer.symbol_ids, tokenizer.target.symbol_ids
    same = {target[slot]: segment.tokens.index(source[slot]) for slot in segment.slots}
    return [same.get(token, index) for token, index in zip(output.tokens, alignment, strict=True)]
