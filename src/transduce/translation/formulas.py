"""Formulas of numbers and short names in running text: "E = mc^2", "f(x) = 2x + 1", "2 x 4 = 8"."""

# Possessive quantifiers (++, *+) keep the time linear: what they match is never given back.
_BRACKET = r"\((?![^()\n]{0,38}[^\W\d_]{3})[^()\n]{1,40}\)"  # without words
_POWER = rf"(?:\^(?:\{{[^{{}}\n]{{1,20}}\}}|{_BRACKET}|[-+]?\w{{1,4}}+)|[²³])"
_NUMBER = r"\d++(?:[.,]\d++)*+[^\W\d_]{0,2}+"
_NAME = r"[^\W\d_]{1,2}+(?:_\w{1,3}+|\d)?+"
_TERM = (
    r"[-+−±]?+(?:√|sin|cos|tan|log|ln|exp|max|min)?+"
    rf"(?:{_NUMBER}|{_NAME}|{_BRACKET})(?:{_BRACKET}|{_POWER})*+(?!\w)"
)
_OPERATOR = r"(?: ?[-+−±*/·×÷] ?| x (?=\d))"
_RELATION = r"(?: ?[=≠≈≤≥] ?| [<>]=? |[<>]=?(?=\d))"
_TERMS = rf"{_TERM}(?:{_OPERATOR}{_TERM})*+"
# Not in the middle of another one, nor up to an article: "x = a number".
FORMULA = (
    r"(?<![\w.,$€£¥@#%&=^+−±*/·×÷-])(?<![-=+−±*/·×÷] )(?<! x )"
    rf"(?:{_TERMS}(?:{_RELATION}{_TERMS})++|(?:[^\W\d_]|\d++){_POWER}(?!\w)(?:{_OPERATOR}{_TERM})*+)"
    r"(?!(?<=\Wa) \w)"
)
"""A pattern: terms with a relation between them, or a power."""
