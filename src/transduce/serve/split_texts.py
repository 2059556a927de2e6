"""Splits the texts of a request into jobs, and joins the outputs of the jobs into texts.

Each line is one sentence, as everywhere in transduce. A line that is too long for the model becomes several jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from transduce.engines.engine import Job
from transduce.translator import Translation, Translator, join


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

    def __init__(self, translator: Translator, texts: Sequence[str], prefix: str = "", to: str | None = None) -> None:
        self._translator, self._to = translator, to
        self.jobs: list[Job] = []
        self.texts: list[list[Sentence]] = []
        """The lines of each text."""
        for text in texts:
            self.texts.append(self._split_lines(text, prefix))
        self.sentences = list(chain.from_iterable(self.texts))
        self._sentence_of_job = [sentence for sentence in self.sentences for _ in sentence.jobs]

    def _split_lines(self, text: str, prefix: str) -> list[Sentence]:
        sentences = []
        for index, line in enumerate(text.split("\n")):
            jobs = self._translator.jobs(line, prefix, to=self._to)
            prefix = "" if jobs else prefix  # the prefix applies to the first line that is not empty
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
        return [self._join(lines, rank) for rank in range(ranks)]

    def source_tokens(self, lines: Sequence[Sentence]) -> list[str]:
        """The source tokens that alignments index."""
        tokens = [token for line in lines for job in line.jobs for token in self.jobs[job].tokens]
        return self._translator.tokenizer.pieces(tokens)

    def _join(self, lines: Sequence[Sentence], rank: int) -> Translation:
        parts = [[line.outputs[job][rank] for job in line.jobs] for line in lines]
        text = "\n".join(" ".join(part.text for part in line) for line in parts)
        return join(text, [self.jobs[job] for line in lines for job in line.jobs], [*chain.from_iterable(parts)])
