"""The parser: English text in, constituency trees out.

The search is held to the grammar of linearized trees, so every output is a tree over the words of its sentence.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import exp
from pathlib import Path
from typing import Unpack, overload

import torch
from torch import Tensor

from transduce.config import build
from transduce.errors import ConfigError, DataError, ModelError
from transduce.files.texts import require_list, require_text, require_texts
from transduce.models.ensemble import open_model
from transduce.models.loaded import Loaded, remember_arguments
from transduce.models.model import Model
from transduce.parsing.trees import ROOT, Leaf, Tree, bracket_labels, delinearize
from transduce.search.engine import Job
from transduce.search.options import SearchConfig, SearchOptions
from transduce.search.plain_engine import PlainEngine
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import SPACE_MARK
from transduce.tokenizers.tokenizer import EOS, PAD
from transduce.translation.rules import Abbreviations, matches

_BRACKETS = {"(": "-LRB-", ")": "-RRB-", "{": "-LCB-", "}": "-RCB-"}
_WHOLE = re.compile(r"-[LR][RC]B-|\w+://\S*\w/?|www\.\S*\w|[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
"""Text that is one word: brackets as the treebank writes them, addresses."""
_WORD = re.compile(
    rf"""{_WHOLE.pattern}
    | \d+(?:[.,:]\d+)+\w*            # 1,000.50
    | (?:[^\W\d_]\.){{2,}}           # U.S., e.g.
    | \w+?(?=n['’]t\b)|n['’]t\b      # do n't
    | ['’](?:s|re|ve|ll|d|m)\b       # it 's
    | \w+
    | \.{{2,}} | --+
    | \S                             # any other mark by itself
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ENGLISH = "en"
MOST_IN_A_ROW = 10
"""The most opening brackets without a word between them; no tree of CRAFT and GUM has more."""
_Constituent = tuple[str, int, int, int]
"""Label, first word, the word after the last one, and the number of equal constituents around it."""
Sentence = str | Sequence[str]
"""A text, which is split into words, or the words themselves."""

PARSING_SEARCH = SearchConfig(beam=21, length_penalty=0.3)
"""The search of the paper's section 6.3."""

_TOKENS_ON_GPU, _TOKENS_ON_CPU = 200_000, 8192
"""Source tokens times beam that are searched at once."""
_WINDOW_ON_GPU, _WINDOW_ON_CPU = 8192, 256
"""Number of sentences that are read together; more do not increase throughput."""


def split_words(text: str) -> list[str]:
    """The words and punctuation marks of an English sentence; round and curly brackets are written -LRB-, -RRB- ..."""
    words: list[str] = []
    end = -1
    for match in _WORD.finditer(text):
        word = match[0]
        if word == "." and match.start() == end and _is_abbreviation(words[-1], text[match.end() :]):
            words[-1] += word
        elif word.lower() == "cannot":
            words += [word[:3], word[3:]]
        else:
            words.append(_BRACKETS.get(word, word))
        end = match.end()
    return words


def without_brackets(words: Sequence[str]) -> list[str]:
    """Words as a tree may contain them: without round brackets and spaces."""
    text = " ".join(words).replace("(", _BRACKETS["("]).replace(")", _BRACKETS[")"])
    return text.split()


def _is_abbreviation(word: str, rest: str) -> bool:
    """Whether a full stop after a word belongs to it; the one at the end of the sentence is a word of its own."""
    table = Abbreviations.of(_ENGLISH)
    return bool(rest.strip("\"'”’)] ")) and (matches(word, table.never) or matches(word, table.sometimes))


def most_brackets(words: int) -> int:
    """The most constituents of a tree with this many words; no tree of CRAFT and GUM has more."""
    return 3 * words // 2 + 4


@dataclass(frozen=True)
class TreeGrammar:
    """The tokens of linearized trees: brackets and the first pieces of words."""

    closing: Mapping[int, int]
    """The closing bracket of each opening bracket."""
    word_starts: frozenset[int]
    """The pieces that begin a word; every other piece continues one."""


class TreeConstraint:
    """Allows the next piece of the sentence, an opening bracket before a word, and the innermost closing bracket.

    Brackets are balanced, contain at least one word each, and never split a word. All words come in order within one
    root, after whose closing bracket only the end marker is allowed. The number of brackets is bounded, in total and in
    a row, so every search ends, and one whose model prefers a wrong word does not open brackets endlessly.
    """

    def __init__(self, grammar: TreeGrammar, sources: Sequence[Sequence[int]], device: torch.device | str) -> None:
        assert all(sources), "a tree has at least one word"
        tokens = [*grammar.closing, *grammar.closing.values(), *(token for source in sources for token in source)]
        step_V = torch.zeros(max(tokens) + 1, dtype=torch.long)
        closing_V = torch.full_like(step_V, PAD)
        opening_O = torch.tensor(list(grammar.closing))
        step_V[opening_O], step_V[list(grammar.closing.values())] = 1, -1
        closing_V[opening_O] = torch.tensor(list(grammar.closing.values()))
        rows, starts = [], []
        for source in sources:
            rows.append(torch.tensor([*source, PAD]))
            starts.append(torch.tensor([*(token in grammar.word_starts for token in source), True]))
        most_B = [most_brackets(int(start.sum()) - 1) for start in starts]
        self.limits = [len(source) + 2 * most for source, most in zip(sources, most_B, strict=True)]
        self._step_V = step_V.to(device)
        """The change of depth: 1 for an opening bracket, -1 for a closing bracket, 0 for a piece of a word."""
        self._closing_V, self._opening_O = closing_V.to(device), opening_O.to(device)
        self._piece_BS = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)
        self._is_start_BS = torch.nn.utils.rnn.pad_sequence(starts, batch_first=True).to(device)
        """Whether a word begins at each position, or the sentence ends before it."""
        self._length_B1 = torch.tensor([[len(source)] for source in sources], device=device)
        self._most_B1 = torch.tensor(most_B, device=device)[:, None]

    def allowed(self, sentence_B: Sequence[int], prefix_BWT: Tensor, vocab_size: int) -> Tensor:
        t = prefix_BWT.shape[2]
        index_B = torch.tensor(sentence_B, device=prefix_BWT.device)
        length_B1, most_B1 = self._length_B1[index_B], self._most_B1[index_B]
        prefix_BWT = prefix_BWT.clamp(max=len(self._step_V) - 1)
        step_BWT = self._step_V[prefix_BWT]
        depth_BW = step_BWT.sum(-1)
        is_open_BWT = step_BWT == 1
        used_BW = torch.minimum((step_BWT == 0).sum(-1), length_B1)
        if t:
            # The innermost open bracket is the last one that was opened at the present depth.
            is_innermost_BWT = is_open_BWT & (step_BWT.cumsum(-1) == depth_BW[:, :, None])
            order_T = torch.arange(t, device=prefix_BWT.device)
            last_BW1 = torch.where(is_innermost_BWT, order_T, 0).amax(-1, keepdim=True)
            close_BW = self._closing_V[prefix_BWT.gather(2, last_BW1)[:, :, 0]]
            after_opening_BW = is_open_BWT[:, :, -1]
        else:
            close_BW, after_opening_BW = torch.full_like(depth_BW, PAD), torch.zeros_like(depth_BW, dtype=torch.bool)
        words_left_BW = used_BW < length_B1
        at_start_BW = self._is_start_BS[index_B].gather(1, used_BW)
        is_complete_BW = (depth_BW <= 0) & (t > 0)
        may_open_BW = at_start_BW & words_left_BW & ~is_complete_BW & (is_open_BWT.sum(-1) < most_B1)
        may_open_BW &= is_open_BWT[:, :, -MOST_IN_A_ROW:].sum(-1) < MOST_IN_A_ROW
        may_close_BW = at_start_BW & ~after_opening_BW & ((depth_BW > 1) | (depth_BW == 1) & ~words_left_BW)

        allowed_BWV = torch.zeros(*depth_BW.shape, vocab_size, dtype=torch.bool, device=prefix_BWT.device)
        allowed_BWV[:, :, self._opening_O] = may_open_BW[:, :, None]
        piece_BW = self._piece_BS[index_B].gather(1, used_BW)
        allowed_BWV.scatter_(2, piece_BW[:, :, None], (words_left_BW & (depth_BW > 0))[:, :, None])
        allowed_BWV.scatter_(2, close_BW[:, :, None], may_close_BW[:, :, None])
        allowed_BWV[:, :, EOS] = is_complete_BW
        return allowed_BWV


def minimum_risk_tree(trees: Sequence[Tree], log_probs: Sequence[float]) -> Tree:
    """The tree with the lowest expected number of constituents that differ from the right tree.

    A constituent that is left out is missing with its probability, one that is not is wrong otherwise. So the tree has
    those with more than half of the probability. As any two of them are together in a tree, they do not cross.

    The trees have the same words, and the first one is the most probable; probabilities are normalized. Words that are
    in no constituent are children of a root node.
    """
    highest = max(log_probs)
    weights = [exp(log_prob - highest) for log_prob in log_probs]
    probabilities: dict[_Constituent, float] = {}
    for tree, weight in zip(trees, weights, strict=True):
        for constituent in _constituents(tree):
            probabilities[constituent] = probabilities.get(constituent, 0.0) + weight
    half = sum(weights) / 2
    # Outermost first; sorting is stable, so constituents over the same words stay in the order of the trees.
    chosen = sorted(
        (constituent for constituent in probabilities if probabilities[constituent] > half),
        key=lambda constituent: (constituent[1], -constituent[2]),
    )
    return _build(chosen, trees[0].leaves())


def _constituents(tree: Tree) -> Iterator[_Constituent]:
    """The constituents of a tree, outermost first."""
    counts: Counter[tuple[str, int, int]] = Counter()
    for span in tree.spans():
        yield *span, counts[span]
        counts[span] += 1


def _build(constituents: Sequence[_Constituent], leaves: Sequence[Leaf]) -> Tree:
    """The tree of constituents that do not cross, which are in the order of their opening brackets."""
    open_nodes: list[tuple[_Constituent, list[Tree | Leaf]]] = [((ROOT, 0, len(leaves), 0), [])]
    following = list(reversed(constituents))
    for position, word in enumerate(leaves):
        while following and following[-1][1] == position:
            open_nodes.append((following.pop(), []))
        open_nodes[-1][1].append(word)
        while len(open_nodes) > 1 and open_nodes[-1][0][2] == position + 1:
            (label, *_), children = open_nodes.pop()
            open_nodes[-1][1].append(Tree(label, tuple(children)))
    _, children = open_nodes.pop()
    return children[0] if len(children) == 1 and isinstance(children[0], Tree) else Tree(ROOT, tuple(children))


class Parser(Loaded):
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
        self._brackets = {
            token: bracket + label for label, ids in brackets.items() for bracket, token in zip("()", ids, strict=True)
        }
        """The brackets with their labels, as in a linearized tree."""
        starts = frozenset(number for number, piece in enumerate(pieces) if piece.startswith(SPACE_MARK))
        self._grammar = TreeGrammar(dict(brackets.values()), starts)

    def _facts(self) -> Iterator[str]:
        yield f"{len(self.labels):,} labels"
        yield f"engine {self.engine.description}"
        yield f"device {self.model.device}"

    @classmethod
    @remember_arguments
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
        folder, saved = open_model(*paths, device=device, threads=threads)
        if (task := saved.facts.get("task", "translate")) != "parse":
            raise ModelError(f"{folder}: trained for the task {task}, not to parse; train a parser with --task parse")
        config = build(SearchConfig, saved.facts.get("search", {}), str(folder)).with_options(options, "load")
        return cls(saved.model, saved.tokenizer, config=config, batch_tokens=batch_tokens, mbr=mbr)

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

    def stream(self, texts: Iterable[Sentence], *, tree_done: Callable[[], object] | None = None) -> Iterator[Tree]:
        """Like `parse`, but read texts in windows and yield trees one by one, in order.

        `tree_done` is called after each tree, when it is found.
        """
        require_list(texts, "texts")
        source = iter(texts)
        first = 1
        while window := list(islice(source, self._window)):
            yield from self._parse(window, first, tree_done)
            first += len(window)

    def _parse(
        self, texts: Sequence[Sentence], first: int, tree_done: Callable[[], object] | None = None
    ) -> list[Tree]:
        for number, text in enumerate(texts, start=first):
            if isinstance(text, Sequence) and not isinstance(text, str):
                require_texts(text, f"the words of sentence {number}")
            else:
                require_text(text, f"sentence {number}")
        sentences = [without_brackets(split_words(text) if isinstance(text, str) else text) for text in texts]
        encoded = self.tokenizer.encode_all([" ".join(words) for words in sentences])
        for number, (words, tokens) in enumerate(zip(sentences, encoded, strict=True), start=first):
            self._check(words, tokens, number)
        session = self.engine.start_session(self.config, partial(TreeConstraint, self._grammar))
        jobs = [(number, Job(tokens, [])) for number, tokens in enumerate(encoded) if tokens]
        session.add(sorted(jobs, key=lambda item: -len(item[1].tokens)))
        trees = [Tree(ROOT, ())] * len(texts)
        while session.busy:
            for number, hypotheses in session.step():
                if not hypotheses:
                    raise ModelError("the model's scores are not finite numbers")
                candidates = [self._tree(hypothesis.tokens, sentences[number]) for hypothesis in hypotheses]
                log_probs = [hypothesis.log_prob for hypothesis in hypotheses]
                trees[number] = minimum_risk_tree(candidates, log_probs) if self.mbr else candidates[0]
                if tree_done:
                    tree_done()
        return trees

    def _check(self, words: Sequence[str], tokens: Sequence[int], number: int) -> None:
        starts = sum(token in self._grammar.word_starts for token in tokens)
        if starts != len(words) or not self._brackets.keys().isdisjoint(tokens):
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
        following, known = iter(words), self._brackets.keys() | self._grammar.word_starts
        return delinearize(self._brackets.get(token) or next(following) for token in tokens if token in known)
