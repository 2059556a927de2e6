"""Times of day in 12 hours, as English writes them: a model would lose the half of the day."""

import re

from transduce.translation.rules import base_language

_CLOCK = r"\d{1,2}(?:[:.]\d{2})?+"
TIME = (
    rf"(?<![\w.,:])(?:{_CLOCK}(?: ?[ap]\.?m\b\.?)? ?[-–] ?)?{_CLOCK}"
    r"(?: ?(?:pm|PM|AM|[ap]\. ?m(?:\.(?=\s*\S)|(?=\.)))|am)(?!\w)"
)
"""A pattern of a time or a range: "5:30 pm", "5 p.m.", "9am-5pm". In German, "5 am" may be "5 on the"."""
_RANGE = re.compile(r"[-–]")
_ONE = re.compile(r"(1[0-2]|[1-9])(?:[:.](\d{2}))? ?([ap])\.? ?m\b\.?", re.IGNORECASE)
_IN_24_HOURS = "bg cs da de el es et fi fr hr hu it lt lv nl no pl pt ro ru sk sl sv tr uk"
"""Languages in which times are written in 24 hours."""


def in_24_hours(text: str, language: str | None) -> str:
    """A time or a range of times as a language writes it; any other text, or in another language, as it is."""
    times = list(map(str.strip, _RANGE.split(text)))
    if base_language(language) not in _IN_24_HOURS.split() or not all(map(_ONE.fullmatch, times)):
        return text
    return _ONE.sub(_converted, text)


def _converted(time: re.Match[str]) -> str:
    hour = int(time[1]) % 12 + (12 if time[3].lower() == "p" else 0)
    return f"{hour}:{time[2] or '00'}"
