"""Trees as text that a model reads and writes, and their brackets in a vocabulary.

In a linearized tree, every bracket is a word of its own, with its label: `(S (NP The cat )NP (VP sat )VP . )S`. The
words of the sentence stay, and their part-of-speech tags are left out. Words never contain brackets: the treebank
writes `-LRB-` and `-RRB-` for those of a text.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, pairwise

from transduce.errors import ConfigError
from transduce.files.pairs import Corpus, ReadReport
from transduce.files.readers import Reader, Tokens
from transduce.parsing.trees import UNCLOSED, Leaf, MalformedTreeError, Tree, leaf, read_corpus
from transduce.tokenizers.symbols import SPACE_MARK


def linearize(tree: Tree) -> list[str]:
    """The brackets and the words of a tree in order."""
    tokens: list[str] = []

    def visit(node: Tree) -> None:
        tokens.append(f"({node.label}")
        for child in node.children:
            if isinstance(child, Leaf):
                tokens.append(child.word)
            else:
                visit(child)
        tokens.append(f"){node.label}")

    visit(tree)
    return tokens


def delinearize(tokens: Iterable[str]) -> Tree:
    """The tree of linearized brackets and words; raises a MalformedTreeError if they do not form one tree."""
    open_nodes: list[tuple[str, list[Tree | Leaf]]] = [("", [])]
    for token in tokens:
        if token.startswith("("):
            open_nodes.append((token[1:], []))
        elif token.startswith(")"):
            label, children = open_nodes.pop()
            if not open_nodes or label != token[1:]:
                raise MalformedTreeError(f"with {token}, which closes no bracket of its label")
            if not children:
                raise MalformedTreeError(f"with ({label} {token}, which has no words")
            open_nodes[-1][1].append(Tree(label, tuple(children)))
        else:
            open_nodes[-1][1].append(leaf(token))
    (_, roots), *unclosed = open_nodes
    if unclosed:
        raise MalformedTreeError(UNCLOSED)
    if len(roots) != 1 or not isinstance(roots[0], Tree):
        raise MalformedTreeError("that is not exactly one tree")
    return roots[0]


def read_linearized(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the sentence and the linearized tree of every usable tree of a corpus; see `read_pairs`."""
    if reverse:
        raise ConfigError("data.reverse exchanges the sides of pairs; a file of trees has no sides, so leave it out")
    for tree in read_corpus(corpus, report):
        yield " ".join(tree.words), " ".join(linearize(tree))


def bracket_symbols(trees: Iterable[Tree]) -> list[str]:
    """The brackets of all labels as symbols of a vocabulary, with the space before them; sorted."""
    labels = sorted(set[str]().union(*(tree.labels() for tree in trees)))
    return [f"{SPACE_MARK}{bracket}{label}" for label in labels for bracket in "()"]


def bracket_labels(pieces: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The labels whose brackets are pieces of a vocabulary, each with the ids of its opening and closing bracket."""
    ids = {piece: number for number, piece in enumerate(pieces)}
    opening = SPACE_MARK + "("
    pairs = {
        piece.removeprefix(opening): (number, ids.get(f"{SPACE_MARK}){piece.removeprefix(opening)}"))
        for piece, number in ids.items()
        if piece.startswith(opening)
    }
    return {label: (number, closing) for label, (number, closing) in pairs.items() if label and closing is not None}


def respell(
    source: Iterable[int], linearized: Iterable[int], brackets: Container[int], starts: Container[int]
) -> list[int]:
    """The tokens of a linearized tree, with the pieces that its words have in the source; `starts` begin words."""
    pieces = list(source)
    begins = [index for index, piece in enumerate(pieces) if piece in starts]
    words = (pieces[begin:end] for begin, end in pairwise([*begins, len(pieces)]))
    result: list[int] = []
    for token in linearized:
        if token in brackets:
            result.append(token)
        elif token in starts:
            result += next(words)
    return result


def _respeller(pieces: Sequence[str]) -> Callable[[Tokens], Tokens]:
    brackets = frozenset(chain.from_iterable(bracket_labels(pieces).values()))
    starts = frozenset(number for number, piece in enumerate(pieces) if piece.startswith(SPACE_MARK))
    return lambda tokens: (tokens[0], respell(*tokens, brackets, starts))


TREES = Reader(
    ("src", "tgt"),
    read_linearized,
    has_sides=True,
    symbols=lambda corpus: bracket_symbols(read_corpus(corpus, ReadReport())),
    respeller=_respeller,
)
