"""Places of the inline elements of Markdown, which markdown-it does not tell: its rules are observed as they match."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.errors import DataError

if TYPE_CHECKING:
    from markdown_it.token import Token

_MATH = re.compile(r"\$\$[^$]+\$\$|\$(?!\s)(?:[^$\\\n]|\\.)+(?<!\s)\$(?!\d)")
"""A formula, as GitHub and Pandoc recognize it: no amounts of dollars."""


class InlineRange(NamedTuple):
    """An element, half of a pair of delimiters, or text with an escape: its place in the content of a block."""

    kind: str
    start: int
    end: int
    text: str = ""
    """Its text: the code, the decoded character, the source of an image's alternative text or, at the end of a link,
    that of the label."""


class InlineRanges:
    """A Markdown parser that finds the ranges of inline elements."""

    def __init__(self) -> None:
        try:
            from markdown_it import MarkdownIt, rules_inline
        except ImportError:
            raise DataError("Markdown needs the package markdown-it-py: pip install markdown-it-py") from None
        self._blocks = MarkdownIt("commonmark").enable(["table"])
        self._inline = MarkdownIt("commonmark").enable(["strikethrough"])
        self._inline.inline.ruler2.disable("fragments_join")
        rules: dict[str, Callable[[Any, bool], bool]] = {
            "newline": rules_inline.newline,
            "escape": rules_inline.escape,
            "backticks": rules_inline.backtick,
            "strikethrough": rules_inline.strikethrough.tokenize,
            "emphasis": rules_inline.emphasis.tokenize,
            "link": rules_inline.link,
            "image": rules_inline.image,
            "autolink": rules_inline.autolink,
            "html_inline": rules_inline.html_inline,
            "entity": rules_inline.entity,
        }
        self._inline.inline.ruler.before("escape", "math", self._observed("math", _math))
        for name, rule in rules.items():
            self._inline.inline.ruler.at(name, self._observed(name, rule))
        self._found: list[tuple[Token, int, int, str]] = []

    def blocks(self, source: str, environment: dict[str, Any]) -> list["Token"]:
        """The block tokens of a document; the content of a table cell has "cell" in its meta data."""
        self._blocks.core.ruler.enableOnly(["normalize", "block"])
        tokens = self._blocks.parse(source, environment)
        for before, token in pairwise(tokens):
            if before.type in ("td_open", "th_open"):
                token.meta["cell"] = True
        return tokens

    def ranges(self, content: str, environment: dict[str, Any]) -> list[InlineRange]:
        """The ranges in the content of a block, in order."""
        self._found = []
        self._inline.inline.parse(content, self._inline, environment, [])
        results = []
        for token, start, end, text in sorted(self._found, key=lambda found: found[1:3]):
            if token.type == "strong_open":
                start -= 1  # the first of two characters is a token without content
            elif token.type == "strong_close":
                end += 1
            elif token.type == "text" and not token.content:
                continue
            kind = {"text_special": "text"}.get(token.type, token.type)
            if token.markup == "autolink":
                kind = "autolink"
            results.append(InlineRange(kind, start, end, text or token.content or content[start:end]))
        return results

    def _observed(self, name: str, rule: Callable[[Any, bool], bool]) -> Callable[[Any, bool], bool]:
        """The rule; it records the places of the tokens that it creates."""

        def observed(state: Any, silent: bool) -> bool:
            start, count, known = state.pos, len(state.tokens), len(self._found)
            label_end = -1
            if name == "link" and not silent and state.src[start] == "[":
                label_end = state.md.helpers.parseLinkLabel(state, start, True)
            matched = rule(state, silent)
            if silent or not matched or len(state.tokens) == count:
                return matched
            new = state.tokens[count:]
            if name == "link":
                opening = next(token for token in new if token.type == "link_open")
                self._found.append((opening, start, start + 1, ""))
                self._found.append((new[-1], label_end, state.pos, state.src[start + 1 : label_end]))
            elif name in ("emphasis", "strikethrough"):
                end = state.pos
                for token in reversed(new):
                    if end > start:
                        self._found.append((token, end - len(token.content), end, ""))
                        end -= len(token.content)
            elif name == "image":
                del self._found[known:]  # of its alternative text, where places are counted from 0
                self._found.append((new[-1], start, state.pos, ""))
            elif name == "autolink":
                self._found.append((new[-1], start, state.pos, state.src[start + 1 : state.pos - 1]))
            else:
                while name == "newline" and state.src[start - 1 : start] == " ":
                    start -= 1  # white space before the end of a line belongs to the break
                self._found.append((new[-1], start, state.pos, " " if new[-1].type == "softbreak" else ""))
            return matched

        return observed


def _math(state: Any, silent: bool) -> bool:
    """The rule of formulas, which markdown-it does not have."""
    found = _MATH.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    if not silent:
        state.push("math", "", 0).content = found[0]
    state.pos = found.end()
    return True
