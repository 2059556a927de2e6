"""Splits the texts of a request into jobs, and joins the outputs of the jobs into texts.

Each line is one sentence, as everywhere in transduce. A line that is too long for the model becomes several jobs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from transduce.translation.stages.glossary import Glossary
from transduce.translation.text import Segment
from transduce.translation.translation import Translation, join
from transduce.translation.translator import Translator


@dataclass
class Sentence:
    """A line of a text."""

    text: int
    """Index of the text in the request."""
    line: int
    """Index of the line in the text."""
    jobs: range
    """Indices of the jobs of this line."""
    outputs: dict[int, list[Translation]] = field(default_factory=dict)
    """Outputs of each finished job."""


class SplitTexts:
    """The texts of one request, split into jobs."""

    def __init__(
        self,
        translator: Translator,
        texts: Sequence[str],
        prefix: str = "",
        to: str | None = None,
        glossary: Glossary | None = None,
        protect: bool = True,
    ) -> None:
        self._translator, self._to, self._glossary, self._protect = translator, to, glossary, protect
        self.jobs: list[Segment] = []
        self.texts: list[list[Sentence]] = []
        """The lines of each text."""
        for text in texts:
            self.texts.append(self._split_lines(text, prefix))
        self._index()

    @classmethod
    def of_parts(cls, translator: Translator, parts: Sequence[Segment]) -> "SplitTexts":
        """Parts that are prepared already; each is a text of its own."""
        split = cls(translator, [])
        split.jobs = [*parts]
        split.texts = [[Sentence(index, 0, range(index, index + 1))] for index in range(len(parts))]
        split._index()
        return split

    def _index(self) -> None:
        self.sentences = list(chain.from_iterable(self.texts))
        self._sentence_of_job = [sentence for sentence in self.sentences for _ in sentence.jobs]

    def _split_lines(self, text: str, prefix: str) -> list[Sentence]:
        sentences = []
        for index, line in enumerate(text.split("\n")):
            jobs = self._translator.segments(line, prefix, self._glossary, self._to, protect=self._protect)
            sentences.append(Sentence(len(self.texts), index, range(len(self.jobs), len(self.jobs) + len(jobs))))
            self.jobs += jobs
        return sentences

    def add_outputs(self, job: int, outputs: list[Translation]) -> Sentence | None:
        """Store the outputs of a job; returns its sentence if that is complete now."""
        sentence = self._sentence_of_job[job]
        sentence.outputs[job] = outputs
        return sentence if len(sentence.outputs) == len(sentence.jobs) else None

    def outputs(self, lines: Sequence[Sentence]) -> list[Translation]:
        """The n-best list of lines that are done; outputs of the same rank are joined."""
        ranks = min((len(outputs) for line in lines for outputs in line.outputs.values()), default=1)
        parts = [[self.jobs[job] for job in line.jobs] for line in lines]
        joined = [
            self._translator.join_by_rank(some, [line.outputs[job] for job in line.jobs])
            for some, line in zip(parts, lines, strict=True)
        ]
        flat = [*chain.from_iterable(parts)]
        results = []
        for rank in range(ranks):
            text = "\n".join(line[min(rank, len(line) - 1)].text for line in joined)
            outputs = [line.outputs[job][rank] for line in lines for job in line.jobs]
            results.append(join(text, flat, outputs))
        return results

    def best_parts(self, line: Sentence) -> Iterator[tuple[Segment, Translation, str]]:
        """Each part of a line that is done, its best translation, and the text between this and the next one."""
        outputs = [line.outputs[job][0] for job in line.jobs]
        whole = self.outputs([line])[0].text
        spans, end = [], 0
        for output in outputs:
            start = whole.index(output.text, end)
            end = start + len(output.text)
            spans.append((start, end))
        following = [*(start for start, _ in spans[1:]), len(whole)]
        for job, output, (_, end), next_start in zip(line.jobs, outputs, spans, following, strict=False):
            yield self.jobs[job], output, whole[end:next_start]

    def aligned_spans(
        self, lines: Sequence[Sentence], output: Translation
    ) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Ranges of characters of a text, which is one line, and of an output that are aligned."""
        return self._translator.aligned_spans([self.jobs[job] for line in lines for job in line.jobs], output)

    def source_tokens(self, lines: Sequence[Sentence]) -> list[str]:
        """The source tokens that alignments index."""
        parts = [self.jobs[job] for line in lines for job in line.jobs]
        return [token for part in parts for token in self._translator.source_pieces(part)]
