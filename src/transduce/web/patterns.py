"""Regular expressions of Python as those of JavaScript, with the flag `v`, so that the page uses the same rule files.

JavaScript has no possessive quantifiers, no atomic groups, and other meanings of letters, digits and word boundaries.
"""

import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from typing import Any

_WORD, _DIGIT, _SPACE = r"\p{L}\p{N}_", r"\p{Nd}", r"\s\x1c-\x1f\x85"
_CATEGORIES = {
    codes.CATEGORY_WORD: _WORD,
    codes.CATEGORY_NOT_WORD: f"[^{_WORD}]",
    codes.CATEGORY_DIGIT: _DIGIT,
    codes.CATEGORY_NOT_DIGIT: f"[^{_DIGIT}]",
    codes.CATEGORY_SPACE: _SPACE,
    codes.CATEGORY_NOT_SPACE: f"[^{_SPACE}]",
}
"""What stands for each inside of a class."""
_PLACES = {
    codes.AT_BEGINNING: "^",
    codes.AT_BEGINNING_STRING: "^",
    codes.AT_END: "$",
    codes.AT_END_STRING: "$",
    codes.AT_BOUNDARY: f"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))",
}


def to_javascript(pattern: str) -> str:
    """A pattern with the same matches in JavaScript; a LookupError if it has a construct that is not known here."""
    return _Writer().items(parser.parse(pattern), ignore_case=False)


class _Writer:
    def __init__(self) -> None:
        self._groups = 0

    def items(self, items: Any, *, ignore_case: bool) -> str:
        return "".join(self._item(operation, value, ignore_case) for operation, value in items)

    def _item(self, operation: Any, value: Any, ignore_case: bool) -> str:
        if operation is codes.LITERAL:
            return _literal(value, ignore_case)
        if operation is codes.NOT_LITERAL:
            return f"[^{_escaped(value)}]"
        if operation is codes.ANY:
            return "."
        if operation is codes.IN:
            return _character_class(value)
        if operation is codes.AT:
            return _PLACES[value]
        if operation is codes.BRANCH:
            return f"(?:{'|'.join(self.items(branch, ignore_case=ignore_case) for branch in value[1])})"
        if operation is codes.SUBPATTERN:
            _, added, _, items = value
            return f"(?:{self.items(items, ignore_case=ignore_case or bool(added & re.IGNORECASE))})"
        if operation is codes.ATOMIC_GROUP:
            return self._atomic(self.items(value, ignore_case=ignore_case))
        if operation in (codes.ASSERT, codes.ASSERT_NOT):
            direction, items = value
            sign = "=" if operation is codes.ASSERT else "!"
            return f"(?{'<' if direction < 0 else ''}{sign}{self.items(items, ignore_case=ignore_case)})"
        if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, items = value
            limit = "" if most is codes.MAXREPEAT else str(most)
            lazy = "?" if operation is codes.MIN_REPEAT else ""
            repeated = f"(?:{self.items(items, ignore_case=ignore_case)}){{{least},{limit}}}{lazy}"
            return self._atomic(repeated) if operation is codes.POSSESSIVE_REPEAT else repeated
        raise LookupError(f"{operation} is not known in JavaScript")

    def _atomic(self, content: str) -> str:
        """What a lookahead has matched is never given back."""
        self._groups += 1
        return f"(?=(?<g{self._groups}>{content}))\\k<g{self._groups}>"


def _literal(code: int, ignore_case: bool) -> str:
    cases = {chr(code).lower(), chr(code).upper()} if ignore_case else {chr(code)}
    return _escaped(code) if len(cases) == 1 else f"[{''.join(_escaped(ord(case)) for case in sorted(cases))}]"


def _character_class(items: Any) -> str:
    parts, negated = [], ""
    for operation, value in items:
        if operation is codes.NEGATE:
            negated = "^"
        elif operation is codes.RANGE:
            parts.append(f"{_escaped(value[0])}-{_escaped(value[1])}")
        else:
            parts.append(_escaped(value) if operation is codes.LITERAL else _CATEGORIES[value])
    return f"[{negated}{''.join(parts)}]"


def _escaped(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{{{code:x}}}"
