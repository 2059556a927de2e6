"""Protected spans: parts of a text that a translation must contain unchanged, such as addresses and placeholders.

A model that was trained with augment.spans sees a slot, one of ten reserved symbols, instead of each span.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from transduce.errors import ConfigError
from transduce.files.given_texts import require_list
from transduce.tokenizers.symbols import SLOTS
from transduce.translation.formulas import FORMULA
from transduce.translation.stages.normalize import Readable
from transduce.translation.text import Context, Required, Span, Stage, Text, merge
from transduce.translation.times import TIME, in_24_hours

_FILE_TYPES = (
    "7z apk avi bak bat bib bmp bz2 c cfg conf cpp cs css csv db deb dll dmg doc docx env epub exe flac gif go gz h "
    "hpp htm html ini ipynb iso jar java jpeg jpg js json jsonl key lock log md mkv mov mp3 mp4 odp ods odt ogg otf "
    "pdf pem php png ppt pptx py rar rb rpm rs rst rtf sh so sql sqlite srt svg tar tex tgz tiff tif tmp toml ts tsv "
    "ttf txt wav webm webp whl xls xlsx xml xz yaml yml zip zst"
)
_DOMAINS = "app biz co com de dev edu es eu fr gov info io it jp me net nl org pl ru tv uk us xyz"
_UNITS = (
    "%%|%|‰|°C|°F|°|€|£|\\$|¥|USD|EUR|GBP|CHF|km/h|m/s|mph|km²|m²|cm²|m³|kWh|mAh|kHz|MHz|GHz|Hz|kPa|hPa|kcal|"
    "km|cm|mm|nm|µm|kg|mg|µg|ml|cl|dl|kB|KB|MB|GB|TB|kW|MW|GW|dpi|px|fps|ms|dB|min|ft|lbs?|oz|m|g|l|h|W|V|"
    "mpg|rpm|psi|tbsp|tsp|qt|gal|yd|kbps|Mbps|Gbps|[kMG]bit/s|[KMG]iB|Wh|MWh|GWh|kJ|MJ|kV|mV|mA|kN|Nm"
)
# Possessive quantifiers (++, *+) keep the time linear: what they match is never given back.
_URL = (
    r"(?:(?:https?|ftp)://|www\.)[^\s<>\"]++|"
    rf"(?<![\w@.-])(?:[\w-]++\.)+(?:{_DOMAINS.replace(' ', '|')})\b(?:/[^\s<>\"]*+)?"
)
_MAIL = r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)+"
# A message in ICU's format with its variants, "{n, plural, one {# file} other {# files}}"; they may have placeholders.
_MESSAGE = (
    r"\{\s*\w{1,60}\s*,\s*(?:plural|select|selectordinal)\s*,"
    r"(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\}"
)
_PLACEHOLDER = (
    r"\{\{[^{}\n]{1,60}\}\}|\{%[^{}\n]{1,100}%\}|\$?\{[^{}\s]{0,60}\}|%\(\w{1,60}\)[a-z]|%%(?!%)|(?<![\d%])%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?[sdifuxXeEgGcp@](?!\w)(?:%%)?+|"
    r"(?<!\w)\$[A-Za-z_]\w*+|</?[A-Za-z][^<>\n]{0,80}>|&\w{2,8};|`[^`\n]+`"
)
_PATH = (
    r"(?<![\w/.])(?:~|\.\.?)?/(?:[\w.+-]++/)*[\w.+-]*\w|(?<!\w)[A-Za-z]:\\[^\s<>\"|?*]*[\w\\]|"
    rf"(?<![\w./\\+-])(?:[\w.+-]++[/\\])*\w[\w.+-]*?\.(?:{_FILE_TYPES.replace(' ', '|')})(?![\w-])"
)
_IDENTIFIER = r"(?<![\w-])--[A-Za-z][\w-]*\w|(?<!\w)[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+(?!\w)|(?<![\w&])[@#][A-Za-z_]\w+"
# What programs read: "Ctrl+Alt+Del", "__init__", "\\ref{one}", "\\n", "<!-- comment -->", "&&".
_KEYS = "Ctrl|Strg|Alt|Shift|Maj|Cmd|Win|Fn"
_CODE_WORD = (
    rf"(?<!\w)(?:{_KEYS})(?:\+\w{{1,9}}+|-\w(?!\w))++|"
    r"(?<!\w)__[A-Za-z]\w{0,40}__(?!\w)|"
    r"\\[A-Za-z]{2,20}+\*?\{[^{}\n]{0,80}+\}|\\[nrt](?![a-z])|<!--[^<>\n]{0,500}?-->|(?<!\S)(?:&&|\|\||[=!:]=|[=-]>)(?!\S)"
)
# Numbers of machines: "0x1F", "1e-5", "00:1A:2B:3C:4D:5E", "2001:db8::1", UUIDs, "abc123def456".
_HEXADECIMAL = (
    r"(?<![\w.-])(?:[\dA-Fa-f]{8}-(?:[\dA-Fa-f]{4}-){3}[\dA-Fa-f]{12}|0x[\dA-Fa-f]++|\d++(?:\.\d++)?[eE][+-]?\d++|"
    r"(?=[A-Za-z]{0,8}\d{1,8}[A-Za-z]{1,8}\d)[A-Za-z\d]{5,64}+)(?!\w)|"
    r"(?<![\w:])(?:[\dA-Fa-f]{1,4}::?){2,7}[\dA-Fa-f]{1,4}(?![\w:])"
)
_EMOJI_CHARACTER = (
    "[\U0001f000-\U0001faff\u2600-\u27bf\u2b50\u2b55\u231a\u231b\u23e9-\u23fa]"
    "[\ufe0f\u200d\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+"  # variation selectors, joiners, skin tones, tags
)
_EMOJI = f"{_EMOJI_CHARACTER}(?: ?{_EMOJI_CHARACTER})*+"
_SHORTCODE = r"(?<!\S):[\w+-]{2,40}+:(?![^\s.,!?])"  # of an emoji: ":smile:"
_BLANK = r"(?<!\w)_{3,}+(?!\w)"  # to be filled in: "Name: ______"
_COMPARISON = r"(?<=\S\s)[<>]=?(?=\s\S)"  # "File > Save"
_EMOTICON = r"(?<!\S)[:;=]-?(?:[()]++|[DPp|/\\])(?!\S)"  # ":-)"
_DIGITS = r"\d++(?:[.,:/–'-]\d++)*+"
_SIZE = rf"(?<![\w.,]){_DIGITS}(?: ?[x×] ?{_DIGITS})++(?:\s?(?:{_UNITS}))?+(?!\w)"  # "1920x1080", "10 x 15 cm"
# A number that is more than a plain integer: with a sign, separators, a unit, a currency, or five digits and more.
# Before a word such as million it is left to the model, which knows how the target language writes "$1.5 million".
_SCALED = r"(?![.,]\d|\s?(?i:hundred|thousand|million|billion|trillion|mill?iard|tausend|mille|mrd\b|mio\b))"
# An amount in thousands, millions or billions, abbreviated: "$5bn", "£20m", "20k", "5 M€".
_SHORT_AMOUNT = (
    rf"(?<![\w.,$€£¥-])(?:[$€£¥] ?{_DIGITS} ?(?:[kKmMB]|bn|mn|tn)|"
    rf"{_DIGITS}(?:[kKM]| ?(?:bn|mn|tn)| ?(?:k|M|Md)€))(?!\w)"
)
_NUMBER = (
    r"(?<![\w+])(?:\+\d{1,3}(?:[ /-]?\(?\d{2,}\)?)+|v\d+(?:\.\d+)+(?:-[a-z]+(?:\.\d+)?)?)(?!\w)|"
    r"(?<![\w.,$€£¥+−-])[+−-]?+(?:[$€£¥]\s?)?+(?:"
    rf"{_DIGITS}(?:\s?(?:{_UNITS})|\ss)(?!\w)|\d++(?:[.,:/–'-]\d++)++(?!\w){_SCALED}|\d{{5,}}+(?!\w)|"
    rf"(?<=[$€£¥])\d++(?!\w){_SCALED})|"
    rf"(?<!\w)[$€£¥]\s?{_DIGITS}(?!\w){_SCALED}|(?<![\w.,$€£¥+−-])[+−-]\d++(?!\w){_SCALED}"
)
_INTEGER = r"(?<![\w.,:/-])\d{2,4}(?![\w]|[.,:/-]\d|\.\s)"
# "F5", "H2O", "LH400", "camelCase"
_CODE = r"(?<![\w.,:/-])(?:[A-Z]{1,4}\d[A-Z\d]{0,8}+|[a-z]{1,20}+(?:[A-Z][a-z]{1,20}+){1,5}+)(?!\w)"
_THOUSANDS = r"\d{1,3}(?: \d{3})++(?!\d)"  # "12 000", which the model may write as the target language does
_INTEGER_LIST = (
    rf"(?<![\w.,:/-])(?:\d{{1,4}}+(?:[,;] \d{{1,4}}+){{3,}}+|(?!{_THOUSANDS})\d{{1,4}}+(?: \d{{1,4}}+){{2,}}+|\d \d)"
    r"(?!\w|-|[.,:/]\d)"
)

_NAMES = re.compile(
    "|".join(
        [
            _URL,
            _MAIL,
            _MESSAGE,
            _PLACEHOLDER,
            _CODE_WORD,
            _PATH,
            _IDENTIFIER,
            _HEXADECIMAL,
            _EMOJI,
            _SHORTCODE,
            _EMOTICON,
            _BLANK,
            _COMPARISON,
        ]
    )
)
_ALL = re.compile("|".join([FORMULA, _NAMES.pattern, TIME, _SIZE, _SHORT_AMOUNT, _NUMBER]))
_COPIED = re.compile(f"{_INTEGER}|{_CODE}")
_INTEGER_LISTS = re.compile(_INTEGER_LIST)
_WORTH_SEARCHING = re.compile(
    r"[\d@/\\{}$%<>`&#_=^\u231a-\u27bf\u2b50\u2b55\U0001f000-\U0001faff]|--|\w[.+]\w|"
    rf"(?:{_KEYS})-|:[\w+-]|[:;=][()|]"
)
_CLOSING = ".,;:!?'\"»”’"
_OPENING_OF = {")": "(", "]": "[", "}": "{"}


class Protect(Stage):
    """Finds the protected spans of a sentence; if there are slots, also lists of numbers, and what cannot be read."""

    name = "protect"

    def __init__(self, readable: Readable, uses_slots: bool) -> None:
        self._readable, self._uses_slots = readable, uses_slots

    def spans(self, text: str, context: Context) -> list[Span]:
        """The protected spans of a text."""
        protection = context.protection
        if not protection:
            return []
        spans = protection.spans(text, numbers=self._uses_slots)
        if not self._uses_slots:
            return spans
        return merge(merge(spans, protection.integer_lists(text)), self._readable.unreadable(text))

    def apply(self, text: Text, context: Context) -> Text:
        """The text with its protected spans; if there are too many, neighbours are joined."""
        characters = text.characters
        spans = self.spans(characters, context)
        if self._uses_slots and len(spans) > len(SLOTS):
            spans = join_neighbours(characters, spans)
        if not spans:
            return text
        required = (Required(in_24_hours(characters[slice(*span)], context.target), span) for span in spans)
        return replace(text, required=(*text.required, *required))


class Protection:
    """Finds the protected spans of a text: those of the built-in kinds, and those of a user's regular expressions."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        require_list(patterns, "patterns of protected text")
        self.patterns = tuple(patterns)
        self._own = None
        if patterns:
            try:
                self._own = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
            except re.error as error:
                raise ConfigError(f"the pattern of protected text is not a regular expression: {error}") from None

    def spans(self, text: str, *, numbers: bool = True) -> list[Span]:
        """The protected spans, in order and without overlap.

        With `numbers`, formulas, sizes and numbers with separators or units are among them.
        """
        own = [Span(*match.span()) for match in self._own.finditer(text) if match[0].strip()] if self._own else []
        if not _WORTH_SEARCHING.search(text):
            return own
        return merge(own, [_trimmed(text, *match.span()) for match in (_ALL if numbers else _NAMES).finditer(text)])

    def integer_lists(self, text: str) -> list[Span]:
        """Lists of plain integers, in which a model would repeat or change some.

        They have at least four with commas between them, or three (or two digits) with spaces.
        """
        return [Span(*match.span()) for match in _INTEGER_LISTS.finditer(text)]

    def copied(self, text: str, spans: Sequence[Span]) -> list[Span]:
        """Integers of two to four digits and codes ("F5") outside the spans: a model copies them, as is checked."""
        taken = {*spans}
        merged = merge(spans, [Span(*match.span()) for match in _COPIED.finditer(text)])
        return [span for span in merged if span not in taken]


def join_neighbours(text: str, spans: Sequence[Span]) -> list[Span]:
    """The spans; those with no letter or digit between them, such as the numbers of a list, are one."""
    joined: list[Span] = []
    for span in spans:
        if joined and not any(map(str.isalnum, text[joined[-1].end : span.start])):
            joined[-1] = Span(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def occurs_once(part: str, text: str) -> bool:
    """Whether a text contains a part exactly once, and there as a separate word."""
    start = text.find(part)
    end = start + len(part)
    return text.count(part) == 1 and not text[start - 1 : start].isalnum() and not text[end : end + 1].isalnum()


def _trimmed(text: str, start: int, end: int) -> Span:
    """Without the punctuation after an address, which belongs to the sentence."""
    found = text[start:end]
    if found.startswith(("http", "ftp", "www.")) or "/" in found:
        unopened = {close: found.count(close) - found.count(opening) for close, opening in _OPENING_OF.items()}
        while end > start + 1 and ((last := text[end - 1]) in _CLOSING or unopened.get(last, 0) > 0):
            unopened[last] = unopened.get(last, 0) - 1
            end -= 1
    return Span(start, end)
