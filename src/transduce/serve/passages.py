"""Texts as sentences for the scheduler, and its outputs as texts again.

As everywhere in transduce a line is a sentence. One that is too long for the model becomes several jobs.
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
    """Number of its text."""
    line: int
    """Number of its line within the text."""
    jobs: range
    """Numbers of its jobs."""
    outputs: dict[int, list[Translation]] = field(default_factory=dict)
    """Of each job that is done."""

    @property
    def done(self) -> bool:
        """Whether nothing is missing."""
        return len(self.outputs) == len(self.jobs)


class Passages:
    """The texts of one request, under way."""

    def __init__(self, translator: Translator, texts: Sequence[str], prefix: str = "") -> None:
        self._translator = translator
        self.jobs: list[Job] = []
        self.sentences: list[Sentence] = []
        self.texts: list[list[Sentence]] = []
        """The lines of each text."""
        for text in texts:
            self.texts.append(self._lines(text, prefix))
            self.sentences += self.texts[-1]
        self._sentence_of = [sentence for sentence in self.sentences for _ in sentence.jobs]

    def _lines(self, text: str, prefix: str) -> list[Sentence]:
        sentences = []
        for number, line in enumerate(text.split("\n")):
            found = self._translator.jobs(line, prefix)
            prefix = "" if found else prefix  # a text begins with its first line that is not empty
            jobs = range(len(self.jobs), len(self.jobs) + len(found))
            sentences.append(Sentence(len(self.texts), number, jobs))
            self.jobs += found
        return sentences

    def put(self, job: int, outputs: list[Translation]) -> Sentence | None:
        """Note what became of a job; its sentence, if that is done now."""
        sentence = self._sentence_of[job]
        sentence.outputs[job] = outputs
        return sentence if sentence.done else None

    def outputs(self, lines: Sequence[Sentence]) -> list[Translation]:
        """The translations of lines that are done, best first: best with best, second with second."""
        ranks = min((len(found) for line in lines for found in line.outputs.values()), default=1)
        return [self._joined(lines, rank) for rank in range(ranks)]

    def source_tokens(self, lines: Sequence[Sentence]) -> list[str]:
        """The tokens that alignments point to."""
        tokens = [token for line in lines for job in line.jobs for token in self.jobs[job].tokens]
        return self._translator.tokenizer.pieces(tokens)

    def _joined(self, lines: Sequence[Sentence], rank: int) -> Translation:
        chosen = [[line.outputs[job][rank] for job in line.jobs] for line in lines]
        text = "\n".join(" ".join(part.text for part in line) for line in chosen)
        return join(text, [self.jobs[job] for line in lines for job in line.jobs], [*chain.from_iterable(chosen)])
