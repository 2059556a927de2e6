"""The parser: English text in, constituency trees out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Unpack, overload

import torch

from transduce.config import build
from transduce.errors import ConfigError, DataError, ModelError
from transduce.files.texts import require_list, require_text, require_texts
from transduce.models.ensemble import load_ensemble
from transduce.models.folder import find_model
from transduce.models.model import Model
from transduce.nn.device import pick_device
from transduce.parsing.minimum_risk_tree import minimum_risk_tree
from transduce.parsing.tree_grammar import TreeGrammar, most_brackets
from transduce.parsing.trees import ROOT, Leaf, Tree, bracket_labels, leaf, split_words, without_brackets
from transduce.search.engine import Job
from transduce.search.options import SearchConfig, SearchOptions
from transduce.search.plain_engine import PlainEngine
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import SPACE_MARK

Sentence = str | Sequence[str]
"""A text, which is split into words, or the words themselves."""

PARSING_SEARCH = SearchConfig(beam=21, length_penalty=0.3)
"""The search of the paper's section 6.3."""

_TOKENS_ON_GPU, _TOKENS_ON_CPU = 200_000, 8192
"""Source tokens times beam that are searched at once."""
_WINDOW_ON_GPU, _WINDOW_ON_CPU = 8192, 256
"""Number of sentences that are read together; more do not increase throughput."""


class Parser:
    """A model that was trained with the task "parse", ready to parse sentences.

    The search is held to the grammar of trees: every output is a tree over the words of its sentence.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: AnyTokenizer,
        *,
        config: SearchConfig = PARSING_SEARCH,
        batch_tokens: int | None = None,
        mbr: bool = False,
    ) -> None:
        if reason := PlainEngine.supports(model, config, constrained=True):
            raise ModelError(reason)
        pieces = tokenizer.pieces(range(tokenizer.vocab_size))
        brackets = bracket_labels(pieces)
        if not brackets:
            raise ModelError("the vocabulary of this model has no brackets; train a parser with --task parse")
        if mbr and config.beam == 1:
            raise ConfigError("minimum Bayes risk needs several trees; use a beam above 1")
        self.model, self.tokenizer = model, tokenizer
        self.config = replace(config, nbest=config.beam) if mbr else config
        self.mbr = mbr
        on_gpu = model.device.type == "cuda"
        default_tokens, self._window = (_TOKENS_ON_GPU, _WINDOW_ON_GPU) if on_gpu else (_TOKENS_ON_CPU, _WINDOW_ON_CPU)
        # The fast engines do not support constraints.
        self.engine = PlainEngine(model, batch_tokens or default_tokens)
        """The engine that runs the search."""
        self.labels = sorted(brackets)
        """The labels of constituents that the model knows."""
        self._opening = {opening: label for label, (opening, _) in brackets.items()}
        starts = frozenset(number for number, piece in enumerate(pieces) if piece.startswith(SPACE_MARK))
        self._grammar = TreeGrammar(dict(brackets.values()), starts)
        self._closing = frozenset(self._grammar.closing.values())

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        *,
        device: str = "auto",
        threads: int | None = None,
        batch_tokens: int | None = None,
        mbr: bool = False,
        **options: Unpack[SearchOptions],
    ) -> "Parser":
        """Load a model folder or a run (its finished model, otherwise its newest checkpoint).

        Several paths are an ensemble, as in `Translator.load`.

        `threads` (of the CPU) and `batch_tokens` (source tokens times beam in one batch) are chosen automatically by
        default. With `mbr` (minimum Bayes risk), a tree consists of the constituents that have more than half of the
        probability of the beam's trees; otherwise it is the most probable one. `options` are the fields of
        SearchConfig; the limits of an output's length have no effect, as the grammar bounds it.
        """
        paths = [path] if isinstance(path, str | Path) else path
        folders = [find_model(Path(one)) for one in paths]
        if threads:
            torch.set_num_threads(threads)
        saved = load_ensemble(folders, pick_device(device))
        if (task := saved.facts.get("task", "translate")) != "parse":
            raise ModelError(
                f"{folders[0]}: trained for the task {task}, not to parse; train a parser with --task parse"
            )
        stored = build(SearchConfig, saved.facts.get("search", {}), str(folders[0]))
        return cls(
            saved.model, saved.tokenizer, config=stored.with_options(options), batch_tokens=batch_tokens, mbr=mbr
        )

    @overload
    def parse(self, texts: str) -> Tree: ...  # type: ignore[overload-overlap]
    @overload
    def parse(self, texts: Sequence[Sentence]) -> list[Tree]: ...
    def parse(self, texts: str | Sequence[Sentence]) -> Tree | list[Tree]:
        """Parse one sentence, or each sentence of a list.

        A sentence is a text, or a list of its words. The tree of a text without words is a root without children.
        """
        if isinstance(texts, str):
            return self.parse_one(texts)
        return list(self.stream(texts))

    def parse_one(self, sentence: Sentence) -> Tree:
        """Parse one sentence, which is a text or a list of words."""
        return next(self.stream([sentence]))

    def stream(self, texts: Iterable[Sentence]) -> Iterator[Tree]:
        """Like `parse`, but read texts in windows and yield trees one by one, in order."""
        require_list(texts, "texts")
        source = iter(texts)
        first = 1
        while window := list(islice(source, self._window)):
            yield from self._parse(window, first)
            first += len(window)

    def _parse(self, texts: Sequence[Sentence], first: int) -> list[Tree]:
        for number, text in enumerate(texts, start=first):
            if isinstance(text, Sequence) and not isinstance(text, str):
                require_texts(text, f"the words of sentence {number}")
            else:
                require_text(text, f"sentence {number}")
        sentences = [without_brackets(split_words(text) if isinstance(text, str) else text) for text in texts]
        encoded = self.tokenizer.encode_all([" ".join(words) for words in sentences])
        for number, (words, tokens) in enumerate(zip(sentences, encoded, strict=True), start=first):
            self._check(words, tokens, number)
        session = self.engine.start_session(self.config, self._grammar.constrain)
        jobs = [(number, Job(tokens, [])) for number, tokens in enumerate(encoded) if tokens]
        session.add(sorted(jobs, key=lambda item: -len(item[1].tokens)))
        trees = [Tree(ROOT, ())] * len(texts)
        while session.busy:
            for number, hypotheses in session.step():
                if not hypotheses:
                    raise ModelError("the model's scores are not finite numbers")
                candidates = [self._tree(one.tokens, sentences[number]) for one in hypotheses]
                log_probs = [one.log_prob for one in hypotheses]
                trees[number] = minimum_risk_tree(candidates, log_probs) if self.mbr else candidates[0]
        return trees

    def _check(self, words: Sequence[str], tokens: Sequence[int], number: int) -> None:
        starts = sum(token in self._grammar.word_starts for token in tokens)
        if starts != len(words) or not self._closing.isdisjoint(tokens) or not self._opening.keys().isdisjoint(tokens):
            raise ModelError(
                "the pieces of this model's vocabulary do not begin where words begin; train a parser with a "
                "vocabulary that transduce makes"
            )
        most = len(tokens) + 2 * most_brackets(len(words))
        if self.model.longest is not None and most > self.model.longest:
            raise DataError(
                f"sentence {number} has {len(words):,} words, whose tree may have {most:,} tokens, more than the "
                f"{self.model.longest} this model can generate; split it"
            )

    def _tree(self, tokens: Sequence[int], words: Sequence[str]) -> Tree:
        """The tree of output tokens, which follow the grammar."""
        following = iter(words)
        open_nodes: list[tuple[str, list[Tree | Leaf]]] = [("", [])]
        for token in tokens:
            if token in self._opening:
                open_nodes.append((self._opening[token], []))
            elif token in self._closing:
                label, children = open_nodes.pop()
                open_nodes[-1][1].append(Tree(label, tuple(children)))
            elif token in self._grammar.word_starts:
                open_nodes[-1][1].append(leaf(next(following)))
        (root,) = open_nodes[0][1]
        assert isinstance(root, Tree)
        return root
