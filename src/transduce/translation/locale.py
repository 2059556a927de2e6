"""Numbers, percentages, prices and times as the target language writes them: "1,200" is "1.200" in German.

How a language writes them is in rules/locales.toml, which is made out of CLDR's data. What is not clearly a number of
the source language, such as "3.5" in German or the version in "Python 3.11", stays as it is.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from transduce.files.languages import base_language
from transduce.translation.rules import common, locales, pattern, rules_of
from transduce.translation.text import Text

_CURRENCIES = "$€£¥"
_QUANTITY = re.compile(
    rf"(?P<sign>[+−-]?)(?P<currency>[{_CURRENCIES}]?)\s?(?P<number>\d[\d., \u00a0\u202f]*(?<=\d))"
    rf"(?P<space>\s?)(?P<unit>(?:{pattern(common()['parts']['units'])})?)"
)
_NAME = re.compile(r"(?:\b[^\W\d_]*[A-Z][\w+#]*|(?i:\bversion|\brelease|\bsection|\bchapter|\bv))\s$")
"""A word before the number of a version or a section."""
_TIME = re.compile(r"(1[0-2]|[1-9])(?:[:.](\d{2}))? ?([ap])\.? ?m\b\.?", re.IGNORECASE)
_RANGE = re.compile(r" ?[-–] ?")
_SHARED_HALF = re.compile(
    r"(?<![\w.,:])(?P<time>(?P<hour>1[0-2]|[1-9])(?:[:.]\d{2})?) (?P<word>and|or|to) "
    r"(?=(?P<next>1[0-2]|[1-9])(?:[:.]\d{2})?(?P<half> ?[ap]\.?m\b))",
    re.IGNORECASE,
)
_MORNING = re.compile(r"(?<=\d) am(?!\w)")
_HOUR_OF_24 = re.compile(
    rf"(?P<before>\b{rules_of('fr')['numbers']['before_time']})?(?<![\w.,:])"
    r"(?P<hour>(?:0|1[3-9]|2[0-3])(?=\D)|\d{1,2}(?= h ?\d))"
    r"(?:[:.](?P<minutes>[0-5]\d) ?Uhr| ?Uhr| ?h(?: ?(?P<after>[0-5]\d))?)(?!\w|[.,:]\d)",
    re.IGNORECASE,
)
"""A German or French time in 24 hours; "8 Uhr" is left to the model, because it may be in the evening."""
_OTHER_HALF = str.maketrans("apAP", "paPA")


@dataclass(frozen=True)
class Locale:
    """How a language writes numbers; in patterns, "#" stands for the number and "¤" for the currency."""

    decimal: str
    group: str
    percent: str
    price: str
    clock: str = ""
    """What is between hours and minutes; empty for languages that say am and pm."""
    after_hour: str = ""
    """What follows a full hour, such as "Uhr"; if nothing does, minutes are written."""
    after_time: str = ""

    def parse(self, number: str) -> tuple[str, str, bool] | None:
        """The digits before and after the decimal separator, and whether there are groups; None if it is no number."""
        group = "[ \u00a0\u202f]" if self.group.isspace() else re.escape(self.group)
        form = rf"(\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?:{re.escape(self.decimal)}(\d+))?"
        if not (found := re.fullmatch(form, number)):
            return None
        digits = re.sub(group, "", found[1])
        return digits, found[2] or "", digits != found[1]

    def write(self, digits: str, decimals: str, grouped: bool) -> str:
        whole = f"{int(digits):,}".replace(",", self.group) if grouped else digits
        return whole + (self.decimal + decimals if decimals else "")

    def in_24_hours(self, text: str, times: Sequence[re.Match[str]]) -> str:
        """A time in 12 hours, or a range of two, in 24."""
        has_minutes = not self.after_hour or any(time[2] for time in times)

        def written(time: re.Match[str]) -> str:
            hour = int(time[1]) % 12 + (12 if time[3].lower() == "p" else 0)
            return f"{hour}{self.clock}{time[2] or '00'}" if has_minutes else str(hour)

        return _TIME.sub(written, text) + (self.after_time if has_minutes else self.after_hour)


@cache
def locale_of(language: str | None) -> Locale | None:
    entry = locales().get(base_language(language) or "")
    return Locale(**entry) if entry else None


def localized(text: str, before: str, sources: Iterable[str], target: str | None) -> str:
    """A protected span as the target language writes it; the span itself if it is neither a number nor a time.

    `before` is the text before it in the sentence, `sources` are the languages that the sentence may have.
    """
    there, known = locale_of(target), [*filter(None, map(locale_of, sources))]
    if not there or not known:
        return text
    times = [time for part in _RANGE.split(text) if (time := _TIME.fullmatch(part))]
    if there.clock and len(times) == len(_RANGE.split(text)):
        return there.in_24_hours(text, times)
    found = _QUANTITY.fullmatch(text)
    numbers = {number for locale in known if (number := locale.parse(found["number"]))} if found else set()
    if not found or len(numbers) != 1:
        return text
    (number,) = numbers
    unit = found["unit"]
    if found["currency"] and unit:  # "£20m" are millions
        return text
    if not (found["currency"] or unit or number[2]) and _NAME.search(before):
        return text
    written = there.write(*number)
    if currency := found["currency"] or (unit if unit and unit in _CURRENCIES else ""):
        return found["sign"] + there.price.replace("#", written).replace("¤", currency)
    if unit == "%":
        return found["sign"] + there.percent.replace("#", written)
    return found["sign"] + written + found["space"] + unit


def with_clear_times(text: Text) -> Text:
    """An English text with "2 pm and 4 pm" for "2 and 4 pm", and "8am" for "8 am", which means "8 on the" in German."""

    def completed(first: re.Match[str]) -> str:
        # Between 11 and 2 pm, the first time is in the morning.
        other = int(first["hour"]) % 12 > int(first["next"]) % 12
        half = first["half"].translate(_OTHER_HALF) if other else first["half"]
        return f"{first['time']}{half} {first['word']} "

    return text.substituted(_SHARED_HALF, completed).substituted(_MORNING, lambda morning: morning[0].strip())


def with_english_times(text: Text) -> Text:
    """A German or French text with "3 pm" for "15 Uhr" or "15 h"; without minutes, "15 h" may be a duration."""

    def written(time: re.Match[str]) -> str:
        hour, minutes, before = int(time["hour"]), time["minutes"] or time["after"], time["before"] or ""
        if hour > 23 or not (minutes or before or time[0].endswith("Uhr")):
            return time[0]
        half = "" if 0 < hour < 13 else " pm" if hour else "am"  # " am" may be a German word
        return f"{before}{hour % 12 or 12}{f':{minutes}' if minutes else ''}{half}"

    return text.substituted(_HOUR_OF_24, written)
