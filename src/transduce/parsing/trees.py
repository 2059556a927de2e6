"""Constituency trees: the notation of the Penn Treebank, linearized trees, drawings.

In a linearized tree, every bracket is a word of its own, with its label: `(S (NP The cat )NP (VP sat )VP . )S`. The
words of the sentence stay, and their part-of-speech tags are left out. Words never contain brackets: the treebank
writes `-LRB-` and `-RRB-` for those of a text.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, pairwise
from pathlib import Path

from transduce.errors import ConfigError, DataError
from transduce.files.files import MAX_LINE_BYTES, raw_lines
from transduce.files.pairs import Corpus, ReadReport, require_usable
from transduce.files.readers import Reader, Tokens
from transduce.tokenizers.symbols import SPACE_MARK

ROOT = "TOP"
"""Label of the node around a written tree."""
UNKNOWN_TAG = "XX"
"""Tag of a word whose part of speech is not known."""
UNCLOSED = "with an unclosed bracket"
"""What is wrong with a tree that has no end."""

_ROOTS = {"", "ROOT", "S1", ROOT}
_TRACE = "-NONE-"
_TOKEN = re.compile(r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|[()]|[^\s()]+")
"""A tag with its word in brackets, a bracket, or a label or word by itself."""
_OpenNode = tuple[str | None, list["Tree | Leaf | str"]]
_LABEL_END = re.compile(r"[-=|]")
_PUNCTUATION_TAGS = {
    ",": ",", ".": ".", "?": ".", "!": ".", ":": ":", ";": ":", "--": ":", "...": ":", "…": ":", "—": ":", "“": "``",
    "``": "``", "”": "''", "''": "''", "-LRB-": "-LRB-", "-RRB-": "-RRB-",
}  # fmt: skip
_MAX_DEPTH = 400
"""Limit for the depth of a tree that is read, as trees are processed recursively."""
_LEVEL, _GAP, _MARGIN, _FONT_SIZE = 44.0, 14.0, 10.0, 14
_CHARACTER = 0.62 * _FONT_SIZE
"""Width of a character of the monospaced font."""


class MalformedTreeError(DataError):
    """A text is not a tree; the message continues "a tree ..." and does not name the file."""


@dataclass(frozen=True)
class Leaf:
    """A word of a sentence."""

    word: str
    tag: str = UNKNOWN_TAG
    """Part of speech."""


@dataclass(frozen=True)
class Tree:
    """A constituent: a label, and the words and constituents that it consists of."""

    label: str
    children: tuple["Tree | Leaf", ...]

    def leaves(self) -> list[Leaf]:
        """The words with their tags, in order."""
        found: list[Leaf] = []
        for child in self.children:
            found += [child] if isinstance(child, Leaf) else child.leaves()
        return found

    @property
    def words(self) -> list[str]:
        """The words of the sentence."""
        return [leaf.word for leaf in self.leaves()]

    def spans(self, start: int = 0) -> Iterator[tuple[str, int, int]]:
        """The constituents, outermost first: label, first word, and the word after the last one."""
        yield self.label, start, start + len(self.leaves())
        for child in self.children:
            if isinstance(child, Tree):
                yield from child.spans(start)
            start += 1 if isinstance(child, Leaf) else len(child.leaves())

    def labels(self) -> set[str]:
        """The labels of all constituents."""
        return {label for label, _, _ in self.spans()}

    def __str__(self) -> str:
        """In brackets, in one line, with the root node that treebanks have."""
        return _brackets(self if self.label == ROOT else Tree(ROOT, (self,)))


def read_tree(text: str) -> Tree:
    """Read one tree in brackets; raises a MalformedTreeError if the text is not exactly one tree."""
    trees = _parse(text)
    if len(trees) != 1:
        raise MalformedTreeError("with another tree after it")
    return trees[0]


def read_trees(path: Path) -> Iterator[tuple[int, Tree | str]]:
    """Yield every tree of a file with the number of its first line, or what is wrong with it instead.

    A tree is one line, or several if all but the first are indented, as in the .mrg files of the Penn Treebank.
    """
    pending: list[str] = []
    start, depth = 1, 0
    for number, raw in enumerate(raw_lines(path), start=1):
        if raw is None:
            yield number, f"longer than {MAX_LINE_BYTES:,} bytes"
            continue
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            yield number, "not UTF-8"
            continue
        if depth > 0 and line.startswith("("):
            yield start, UNCLOSED
            pending, depth = [], 0
        if not pending:
            start = number
        if line and not line.isspace():
            pending.append(line)
        depth += line.count("(") - line.count(")")
        if pending and depth <= 0:
            try:
                yield from ((start, tree) for tree in _parse("\n".join(pending)))
            except MalformedTreeError as problem:
                yield start, str(problem)
            pending, depth = [], 0
    if pending:
        yield start, UNCLOSED


def read_corpus(corpus: Corpus, report: ReadReport) -> Iterator[Tree]:
    """Yield every usable tree of a corpus in order; the others are counted in the report."""
    report.noun = "tree"
    for files in corpus:
        if len(files) != 1:
            raise DataError(f"{', '.join(files)}: trees are in one file, which has both words and brackets")
        for line, tree in read_trees(Path(files[0])):
            if isinstance(tree, str):
                report.note(tree, files[0], line)
            else:
                report.pairs += 1
                yield tree
    require_usable(corpus, report, "usable tree")


def leaf(word: str) -> Leaf:
    """A word with the tag that its form tells: that of a punctuation mark, or the unknown tag."""
    return Leaf(word, _PUNCTUATION_TAGS.get(word, UNKNOWN_TAG))


def _parse(text: str) -> list[Tree]:
    """The trees of a text in brackets, without function tags, traces and root nodes."""
    top: _OpenNode = (None, [])
    open_nodes = [top]
    after_opening = False
    for match in _TOKEN.finditer(text):
        token, tag, word = match.group(0, 1, 2)
        if after_opening and token[0] == "(":  # a node without a label, as the root of .mrg files
            open_nodes[-1] = ("", [])
        if tag is not None:
            if tag != _TRACE:
                open_nodes[-1][1].append(Leaf(word, tag))
            after_opening = False
        elif token == "(":
            open_nodes.append((None, []))
            if len(open_nodes) > _MAX_DEPTH:
                raise MalformedTreeError(f"deeper than {_MAX_DEPTH} brackets")
            after_opening = True
        elif token == ")":
            label, children = open_nodes.pop()
            if not open_nodes:
                raise MalformedTreeError("with a closing bracket that has no opening bracket")
            if label is None:
                raise MalformedTreeError("with an empty pair of brackets")
            if (node := _clean(label, children)) is not None:
                open_nodes[-1][1].append(node)
            after_opening = False
        elif len(open_nodes) == 1:
            raise MalformedTreeError("with words outside the brackets")
        elif after_opening:
            open_nodes[-1] = (token, [])
            after_opening = False
        else:
            open_nodes[-1][1].append(token)
    if len(open_nodes) > 1:
        raise MalformedTreeError(UNCLOSED)
    trees = [_without_root(node) for node in top[1] if not isinstance(node, str)]
    if not trees:
        raise MalformedTreeError("without words")
    if any("" in tree.labels() for tree in trees):
        raise MalformedTreeError("with a constituent that has no label")
    return trees


def _clean(label: str, children: list[Tree | Leaf | str]) -> Tree | Leaf | None:
    """The node of a label and its children: a word with its tag, a constituent, or None if there are no words."""
    if label == _TRACE:
        return None
    if len(children) == 1 and isinstance(children[0], str):
        return Leaf(children[0], label or UNKNOWN_TAG)
    name = label if label.startswith("-") else _LABEL_END.split(label, maxsplit=1)[0]
    return (
        Tree(name, tuple(leaf(child) if isinstance(child, str) else child for child in children)) if children else None
    )


def _without_root(node: Tree | Leaf) -> Tree:
    """A tree without the node around it; if that has several children or only a word, it stays."""
    if isinstance(node, Leaf):
        return Tree(ROOT, (Leaf(node.word, UNKNOWN_TAG if node.tag in _ROOTS else node.tag),))
    if node.label not in _ROOTS:
        return node
    only = node.children[0] if len(node.children) == 1 else None
    return _without_root(only) if isinstance(only, Tree) else Tree(ROOT, node.children)


def _brackets(node: Tree | Leaf) -> str:
    if isinstance(node, Leaf):
        return f"({node.tag} {node.word})"
    return f"({' '.join([node.label, *map(_brackets, node.children)])})"


def linearize(tree: Tree) -> list[str]:
    """The brackets and the words of a tree in order."""
    tokens = [f"({tree.label}"]
    for child in tree.children:
        tokens += [child.word] if isinstance(child, Leaf) else linearize(child)
    return [*tokens, f"){tree.label}"]


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

    def respelled(tokens: Tokens) -> Tokens:
        source, linearized = tokens
        return source, respell(source, linearized, brackets, starts)

    return respelled


TREES = Reader(
    ("src", "tgt"),
    read_linearized,
    has_sides=True,
    symbols=lambda corpus: bracket_symbols(read_corpus(corpus, ReadReport())),
    respeller=_respeller,
)


def draw_text(tree: Tree) -> str:
    """A tree with one line for each constituent and each word, indented by its depth."""
    return "\n".join([tree.label, *_branches(tree)])


def draw_svg(tree: Tree) -> str:
    """A tree as an SVG image: parents above their children, words in one row at the bottom."""
    drawing = _Drawing(_depth(tree))
    drawing.place(tree, 0)
    width, height = drawing.right - _GAP + _MARGIN, drawing.bottom + _FONT_SIZE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="{_FONT_SIZE}" '
        f'text-anchor="middle"><rect width="100%" height="100%" fill="#fff"/><g stroke="#888">'
        f"{''.join(drawing.lines)}</g>{''.join(drawing.texts)}</svg>"
    )


def _branches(tree: Tree) -> list[str]:
    lines: list[str] = []
    for number, child in enumerate(tree.children, start=1):
        corner, bar = ("└─ ", "   ") if number == len(tree.children) else ("├─ ", "│  ")
        if isinstance(child, Leaf):
            lines.append(corner + _described(child))
        else:
            lines += [corner + child.label, *(bar + line for line in _branches(child))]
    return lines


def _described(leaf: Leaf) -> str:
    return leaf.word if leaf.tag in (UNKNOWN_TAG, leaf.word) else f"{leaf.tag} {leaf.word}"


def _depth(node: Tree | Leaf) -> int:
    return 1 + max((_depth(child) for child in node.children), default=0) if isinstance(node, Tree) else 0


class _Drawing:
    """Lines and texts of an SVG, placed from left to right."""

    def __init__(self, depth: int) -> None:
        self.lines: list[str] = []
        self.texts: list[str] = []
        self.right = _MARGIN
        """Where the next word may begin."""
        self.bottom = _MARGIN + _FONT_SIZE + _LEVEL * depth
        """The line of the words."""

    def place(self, node: Tree | Leaf, level: int) -> float:
        """Place a node and all below it; returns the x coordinate of its centre."""
        text = node.label if isinstance(node, Tree) else _described(node)
        width = _CHARACTER * len(text)
        left = self.right
        if isinstance(node, Leaf) or not node.children:
            x, y = left + width / 2, self.bottom
            self.right += width + _GAP
        else:
            y = _MARGIN + _FONT_SIZE + _LEVEL * level
            below = [(self.place(child, level + 1), child) for child in node.children]
            x = max((below[0][0] + below[-1][0]) / 2, left + width / 2)
            self.right = max(self.right, x + width / 2 + _GAP)
            for child_x, child in below:
                child_y = self.bottom if isinstance(child, Leaf) else y + _LEVEL
                self.lines.append(
                    f'<line x1="{x:.1f}" y1="{y + 5:.1f}" x2="{child_x:.1f}" y2="{child_y - _FONT_SIZE:.1f}"/>'
                )
        weight = "" if isinstance(node, Leaf) else ' font-weight="bold"'
        self.texts.append(f'<text x="{x:.1f}" y="{y:.1f}"{weight}>{escape(text)}</text>')
        return x
