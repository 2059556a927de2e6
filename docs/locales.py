"""Writes rules/locales.toml, how languages write numbers, percentages, prices and times, out of CLDR's data in Babel.

python docs/locales.py [--check]
"""

import sys
from pathlib import Path

from babel import Locale

RULES = Path(__file__).parents[1] / "src" / "transduce" / "translation" / "rules"
OUT = RULES / "locales.toml"
HEADER = """\
# How languages write numbers, percentages, prices and times; docs/locales.py writes this file out of CLDR's data
# (Unicode License v3). "#" is the number, "¤" the currency. Languages without `clock` say am and pm; others have it
# between hours and minutes, and write something after a full hour or a time.
"""
SPACES = {"\u202f": "\u00a0"}
"""U+202F is missing in many fonts."""
CLOCK = {"de": " Uhr"}
"""What German says after a time, which CLDR has only after full hours."""


def table(code: str) -> str:
    """The entry of a language."""
    locale = Locale.parse("nb" if code == "no" else code)
    symbols = locale.number_symbols.get("latn", locale.number_symbols)
    entry = {
        "decimal": symbols["decimal"],
        "group": symbols["group"],
        "percent": locale.percent_formats[None].pattern.replace("#,##,##0", "#").replace("#,##0", "#"),
        "price": price(locale.currency_formats["standard"].pattern),
    }
    if "H" in (time := locale.time_formats["short"].pattern):
        hour = locale.datetime_skeletons["H"].pattern
        entry |= {
            "clock": time.replace("H", "").replace("m", ""),
            "after_hour": hour.replace("H", "").replace("'", ""),
            "after_time": CLOCK.get(code, ""),
        }
    lines = (f"{name} = {quoted(value)}" for name, value in entry.items())
    return f"\n[{code}]\n" + "".join(f"{line}\n" for line in lines)


def price(pattern: str) -> str:
    """Where the currency is: "#,##0.00 ¤" becomes "# ¤"."""
    positive = pattern.partition(";")[0].replace("\u200f", "")
    return positive.replace("#,##,##0.00", "#").replace("#,##0.00", "#")


def quoted(text: str) -> str:
    """A string in TOML, with escapes for spaces that nobody could tell apart."""
    for old, new in SPACES.items():
        text = text.replace(old, new)
    return '"' + text.replace("\u00a0", "\\u00a0") + '"'


def main() -> None:
    """Write the file, or check that it is what would be written."""
    languages = sorted(path.stem for path in RULES.glob("??.toml"))
    text = HEADER + "".join(map(table, languages))
    if "--check" in sys.argv:
        if OUT.read_text(encoding="utf-8") != text:
            sys.exit(f"{OUT.name} differs from CLDR's data; run: python docs/locales.py")
    else:
        OUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
