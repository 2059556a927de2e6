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
_TIGHT_MORNING = re.compile(r"(?<=\d)am\b")
_BEFORE, _UP_TO, _AND, _AT = (
    "|".join(rules_of(language)["numbers"]["between_times"][name] for language in ("de", "fr"))
    for name in ("before", "up_to", "and", "at")
)
_MINUTES = (
    rf"[0-5]\d(?!\w|[.,:]\d| ?(?:{pattern(common()['parts']['units'])})(?!\w)| (?-i:(?:[a-zäöüß]+[^dt]e )?[A-ZÄÖÜ]))"
)
"""After "Uhr"; before a noun, with or without an adjective, it is a number: "Um 15 Uhr 30 kleine Kinder"."""
_UHR, _H = rf" ?Uhr(?: ({_MINUTES}))?", r" ?h(?: ?([0-5]\d))?"
_TIME_OF_24 = re.compile(rf"(\d{{1,2}})(?:{_H}(?!\w)|(?:[:.]([0-5]\d))?(?:{_UHR})?)", re.IGNORECASE)
"""The hour, and in one of three groups the minutes."""
_TIMES_OF_24 = re.compile(
    rf"(?P<before>\b(?:(?P<clear>{rules_of('fr')['numbers']['before_time']})|(?:{_BEFORE}) ))?(?<![\w.,:])"
    r"(?:(?![1-4] ?h(?! ?\d))"  # "une visite de 2 h à 15 h" is of two hours
    rf"(?:\d{{1,2}}(?:{_H}(?!\w)|[:.][0-5]\d(?:{_UHR})?|{_UHR})(?: ?[-–] ?| (?:{_UP_TO}|{_AND})(?: (?:{_AT}))? )"
    # A number may be no time: "Er ist 18 und um 20 Uhr muss er gehen."
    rf"|\d{{1,2}}(?:[-–]|(?(before) (?:[-–]|{_UP_TO}|{_AND}) | (?:{_UP_TO}) )))){{0,3}}"
    rf"\d{{1,2}}(?:{_H}|(?:[:.][0-5]\d)?{_UHR})(?!\w|[.,:]\d)",
    re.IGNORECASE,
)
"""A German or French time in 24 hours, or several up to a unit: "14 bis 16 Uhr"."""
_DURATION = re.compile(rules_of("fr")["numbers"]["after_duration"])
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
        form = rf"([1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+)(?:{re.escape(self.decimal)}(\d+))?"
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
    if len(times) == len(_RANGE.split(text)):
        return there.in_24_hours(text, times) if there.clock else _TIGHT_MORNING.sub(" am", text)
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


def with_complete_times(text: Text) -> Text:
    """An English text with "2 pm and 4 pm" for "2 and 4 pm"."""

    def completed(first: re.Match[str]) -> str:
        # Between 11 and 2 pm, the first time is in the morning.
        other = int(first["hour"]) % 12 > int(first["next"]) % 12
        half = first["half"].translate(_OTHER_HALF) if other else first["half"]
        return f"{first['time']}{half} {first['word']} "

    return text.substituted(_SHARED_HALF, completed)


def with_clear_mornings(text: Text) -> Text:
    """An English text with "8am" for "8 am", which means "8 on the" in German."""
    return text.substituted(_MORNING, lambda morning: morning[0].strip())


def with_english_times(text: Text) -> Text:
    """A German or French text with "3 pm" for "15 Uhr" or "15 h"; without minutes, "15 h" may be a duration.

    "8 Uhr" is left to the model, because it may be in the evening, unless another time beside it tells: "8 bis 18 Uhr".
    """

    def written(times: re.Match[str]) -> str:
        before, found = times["before"] or "", times[0].lower()
        hours = [*_TIME_OF_24.finditer(found, len(before))]
        latest = max(int(time[1]) for time in hours)
        is_time = "uhr" in found or any(any(time.groups()[1:]) for time in hours)
        if not is_time and all(not time[0].isdecimal() for time in hours):  # "de 10 à 15 h" may be a duration
            at = times["clear"] or "à " in found
            is_time = bool(at) and not (len(hours) > 1 and _DURATION.match(times.string, times.end()))
        if not is_time or latest > 24 - (len(hours) == 1):
            return times[0]
        in_24 = latest > 12 or any(int(time[1]) == 0 for time in hours)
        return before + _TIME_OF_24.sub(in_12_hours if in_24 else with_colon, times[0][len(before) :])

    def in_12_hours(time: re.Match[str]) -> str:
        hour, minutes = int(time[1]), time[2] or time[3] or time[4]
        half = "am" if hour % 24 < 12 else " pm"  # " am" may be a German word
        return f"{hour % 12 or 12}{f':{minutes}' if minutes else ''}{half}"

    def with_colon(time: re.Match[str]) -> str:
        return f"{time[1]}:{time[2]}" if time[2] and " h" in time[0].lower() else time[0]

    return text.substituted(_TIMES_OF_24, written)
