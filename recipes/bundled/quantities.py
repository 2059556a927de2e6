"""Sentences with times, durations, amounts, doses, prices, limits and negations, written by rules in three languages.

    python recipes/bundled/quantities.py OUT.tsv [--tries N] [--without FILE...]

Each line is English TAB German TAB French. The lines are the same in every run. The tables are in quantities.txt;
a name in braces stands for what is filled in.
"""

import argparse
import random
import re
from pathlib import Path

from prepare import letters, pairs_of

_SEED = 3
_TRIES = 12_000
Texts = tuple[str, ...]
"""A text in English, German and French; some have a German dative as well, before the French."""


def row_of(line: str) -> Texts:
    return tuple(part.strip() for part in line.split("|"))


def read_tables(path: Path) -> dict[str, list[Texts]]:
    """The rows of each section."""
    tables: dict[str, list[Texts]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            rows = tables.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            rows.append(row_of(line))
    return tables


TABLES = read_tables(Path(__file__).with_suffix(".txt"))
HOURS = TABLES["hours"]
NUMBERS = TABLES["numbers"]
CLOCK = TABLES["clock"]
WHEN = TABLES["when"]
DAYS = TABLES["days"]
MONTHS = TABLES["months"]
EVENTS = TABLES["events"]
TIMES = TABLES["times"]
DURATIONS = TABLES["durations"]
UNITS_OF_TIME = TABLES["units of time"]
WAITING = TABLES["waiting"]
PORTIONS = TABLES["portions"]
POWDERS = TABLES["powders"]
VOLUMES = TABLES["volumes"]
LIQUIDS = TABLES["liquids"]
COOKING = TABLES["cooking"]
OVEN = TABLES["oven"]
DOSES = TABLES["doses"]
OFTEN = TABLES["often"]
MEALS = TABLES["meals"]
MEDICINE = TABLES["medicine"]
WARNINGS = TABLES["warnings"]
SHOPPING = TABLES["shopping"]
SHARES = TABLES["shares"]
FRACTIONS = TABLES["fractions"]
DATES = TABLES["dates"]
LIMITS = TABLES["limits"]
COUNTED = TABLES["counted"]
COUNTS = TABLES["counts"]
FEW = TABLES["few"]
ACTIONS = TABLES["actions"]
# Subject in each language, and the persons of its verbs (0 is I, 1 he, 2 we, 3 you, 4 they).
SUBJECTS = [
    (row_of(row), person)
    for row, person in [
        ("I|ich|je", 0), ("he|er|il", 1), ("she|sie|elle", 1), ("we|wir|nous", 2),
        ("you|Sie|vous", 3), ("they|sie|ils", 4),
        ("my sister|meine Schwester|ma sœur", 1), ("Tom|Tom|Tom", 1), ("his parents|seine Eltern|ses parents", 4),
        ("the children|die Kinder|les enfants", 4), ("the teacher|der Lehrer|le professeur", 1), ("Anna|Anna|Anna", 1),
    ]
]  # fmt: skip
_CONJUGATED = {
    "can": ("kann kann können können können", "peux peut pouvons pouvez peuvent"),
    "could": ("konnte konnte konnten konnten konnten", "pouvais pouvait pouvions pouviez pouvaient"),
    "want": ("will will wollen wollen wollen", "veux veut voulons voulez veulent"),
    "should": ("sollte sollte sollten sollten sollten", "devrais devrait devrions devriez devraient"),
    "will": ("werde wird werden werden werden", "vais va allons allez vont"),
    "must": ("darf darf dürfen dürfen dürfen", "dois doit devons devez doivent"),
    "have": ("habe hat haben haben haben", "ai a avons avez ont"),
    "may": ("darf darf dürfen dürfen dürfen", "peux peut pouvons pouvez peuvent"),
}
_POSITIVE = {
    "can": "can", "could": "could", "want": "want to", "should": "should", "will": "are going to",
    "must": "are allowed to", "may": "are allowed to", "have": "have",
}  # fmt: skip
_NOT = {
    "can": ["can't", "cannot", "can't", "cant", "can not"],
    "could": ["couldn't", "could not", "couldnt"],
    "want": ["don't want to", "do not want to", "dont want to", "don't wanna"],
    "should": ["shouldn't", "should not", "shouldnt"],
    "will": ["won't", "will not", "aren't going to", "ain't gonna", "wont"],
    "must": ["mustn't", "must not", "mustnt"],
    "have": ["haven't", "have not", "havent"],
    "may": ["may not", "are not allowed to"],
}
_THIRD = {
    "don't": "doesn't", "do": "does", "dont": "doesnt", "aren't": "isn't", "are": "is", "haven't": "hasn't",
    "have": "has", "havent": "hasnt", "want": "wants",
}  # fmt: skip
_FIRST = {"aren't": "'m not", "are": "am"}
_BEFORE = TABLES["before"]
_AFTER = TABLES["after"]
_RARELY = TABLES["rarely"]
_NOBODY = TABLES["nobody"]
_LEFT = TABLES["left"]
_VOWEL = "[AEIOUaeiouyàâéèêîôœ]|h(?=uile|eure|omme|abit)"


def french(text: str) -> str:
    """With the contractions and elisions of French."""
    text = re.sub(rf"\b([DdJj]|[Nn]|[Qq]u)e (?={_VOWEL})", r"\1'", text)
    text = re.sub(r"\bde (les?)\b ", lambda match: "du " if match[1] == "le" else "des ", text)
    return text.replace("midi et demie", "midi et demi")


def started(texts: Texts) -> Texts:
    return tuple(text[0].upper() + text[1:] for text in (texts[0], texts[1], french(texts[2])))


class Writer:
    """Makes sentences of each kind."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def pick(self, *rows: list[Texts], **values: object) -> Texts:
        """A row of one of the tables with numbers filled in: {n} is a word, the others are digits."""
        row = self.rng.choice(self.rng.choice(rows))
        small, word = self.rng.randint(2, 12), self.rng.choice(NUMBERS[:7])
        digits = {
            "s": small,
            "g": self.rng.choice((5, 10, 20, 25, 30, 40, 50, 75, 100, 125, 150, 200, 250, 300, 400, 500, 750, 800)),
            "k": self.rng.randint(1, 4), "c": self.rng.choice((3, 6, 12, 14, 16, 18, 25)), "u": self.rng.randint(7, 9),
            "v": self.rng.randint(1, 9), "m": (minutes := 5 * self.rng.randint(1, 10)), "o": minutes + 5,
        }  # fmt: skip
        languages = (0, 1, 1, 2) if len(row) == 4 else (0, 1, 2)
        named = {name: f"{{{name}}}" for name in "adhlpt"}
        return tuple(
            text.format(**(named | digits | {"n": word[language]} | values))
            for text, language in zip(row, languages, strict=True)
        )

    def filled(self, rows: list[Texts], **parts: Texts) -> Texts:
        """A row whose names in braces are texts in the three languages."""
        row = self.rng.choice(rows)
        return started(tuple(row[i].format(**{name: texts[i] for name, texts in parts.items()}) for i in range(3)))

    def time(self) -> Texts:
        """A time of day, in words or digits."""
        rng = self.rng
        hour = rng.randrange(12)
        if rng.random() < 0.15:  # the same digits on all sides: a protected span
            return (f"{rng.randrange(24)}:{rng.randrange(0, 60, 5):02}",) * 3
        here, following = HOURS[hour], HOURS[(hour + 1) % 12]
        if rng.random() < 0.12:
            return f"{hour + 1} o'clock", f"{hour + 1} Uhr", f"{hour + 1} heure{'s' if hour else ''}"
        if rng.random() < 0.2:
            text: Texts = f"{here[0]} o'clock", f"{'ein' if hour == 0 else here[1]} Uhr", here[2]
        else:
            row = rng.choice(CLOCK)
            text = tuple(row[i].format(h=here[i], n=following[i]) for i in range(3))
        if hour in (10, 11) or rng.random() < 0.7:
            return text
        day = [
            ("in the morning", "morgens", "du matin"),
            ("in the afternoon", "nachmittags", "de l'après-midi"),
            ("in the evening", "abends", "du soir"),
        ]
        part = day[1] if hour < 4 else rng.choice([day[0], day[2]]) if hour > 4 else day[0]
        return tuple(f"{one} {other}" for one, other in zip(text, part, strict=True))

    def clock(self) -> Texts:
        if self.rng.random() < 0.3:
            return self.filled(TIMES, t=self.time())
        when, time, day = self.rng.choice(WHEN), self.time(), self.rng.choice(DAYS)
        english, german, other = (f"{one} {two}" for one, two in zip(when, time, strict=True))
        if self.rng.random() < 0.3:
            english, german, other = f"{english} {day[0]}", f"{day[1]} {german}", f"{day[2]} {other}"
        return self.filled(EVENTS, p=(english, german, other))

    def waiting(self) -> Texts:
        if self.rng.random() < 0.4:
            english, accusative, dative, other = self.rng.choice(DURATIONS)
        else:
            number = str(self.rng.randint(2, 60))
            words = self.rng.choice(NUMBERS) if self.rng.random() < 0.5 else (number, number, number)
            units = self.rng.choice(UNITS_OF_TIME)
            english, accusative, dative, other = (
                f"{words[i]} {unit}" for i, unit in zip((0, 1, 1, 2), units, strict=True)
            )
        return self.filled(WAITING, a=(english, accusative, other), d=("", dative, ""))

    def amount(self) -> Texts:
        if self.rng.random() < 0.25:
            return started(self.pick(OVEN))
        portion, what = (
            (self.pick(PORTIONS), self.rng.choice(POWDERS))
            if self.rng.random() < 0.6
            else (self.pick(VOLUMES), self.rng.choice(LIQUIDS))
        )
        text = tuple(f"{one} {other}" for one, other in zip(portion, what, strict=True))
        text = (text[0].replace("a little of ", "a little "), *text[1:])
        return self.filled(COOKING, a=text)

    def dose(self) -> Texts:
        if self.rng.random() < 0.25:
            return started(self.pick(WARNINGS))
        often = self.pick(OFTEN)
        age = str(self.rng.choice((3, 6, 10, 12, 14, 16)))
        return self.filled(MEDICINE, a=self.pick(DOSES), o=often, m=self.pick(MEALS), c=(age,) * 3)

    def price(self) -> Texts:
        kind = self.rng.random()
        whole, cents = self.rng.choice((self.rng.randint(1, 40), self.rng.randint(1, 999))), self.rng.randint(1, 99)
        if kind < 0.3:
            return self.filled(SHOPPING, a=(f"€{whole}.{cents:02}", f"{whole},{cents:02} €", f"{whole},{cents:02} €"))
        if kind < 0.5:
            return self.filled(SHOPPING, a=(f"{whole + 1} euros", f"{whole + 1} Euro", f"{whole + 1} euros"))
        if kind < 0.6:
            number = f"{self.rng.randint(1, 99)},{self.rng.randint(0, 999):03}"
            dotted, spaced = number.replace(",", "."), number.replace(",", " ")
            return self.filled(SHOPPING, a=(f"{number} euros", f"{dotted} Euro", f"{spaced} euros"))
        tenth = f".{self.rng.randint(1, 9)}" if self.rng.random() < 0.5 else ""
        number = f"{self.rng.randint(2, 95)}{tenth}"
        comma = number.replace(".", ",")
        if self.rng.random() < 0.5:
            return self.filled(SHARES, a=(f"{number}%", f"{comma} %", f"{comma} %"))
        return self.filled(SHARES, a=(f"{number} percent", f"{comma} Prozent", f"{comma} pour cent"))

    def date(self) -> Texts:
        if self.rng.random() < 0.02:
            return self.rng.choice(FRACTIONS)
        day, (english, german, other) = self.rng.randint(1, 28), self.rng.choice(MONTHS)
        year = f"{self.rng.randint(1950, 2030)}" if self.rng.random() < 0.4 else ""
        ending = {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day != 11 and day != 12 and day != 13 else 0, "th")
        before, after = f"{day} {english}", f"{english} {day}"
        american = f"{after}, {year}" if year else after
        written = self.rng.choice(
            (f"{before} {year}".strip(), american, american, f"the {day}{ending} of {english} {year}".strip())
        )
        first = "1er" if day == 1 else str(day)
        return self.filled(DATES, a=(written, f"{day}. {german} {year}".strip(), f"{first} {other} {year}".strip()))

    def count(self) -> Texts:
        digits = str(self.rng.randint(2, 900))
        number = self.rng.choice(NUMBERS) if self.rng.random() < 0.5 else (digits,) * 3
        limit, what = self.rng.choice(LIMITS), self.rng.choice(COUNTED)
        text = tuple(f"{limit[i]} {number[i]} {what[i]}" for i in range(3))
        if limit[0] == "no more than":
            return self.filled(FEW, a=text)
        return self.filled(COUNTS, a=text)

    def negation(self) -> Texts:
        """A statement with a modal verb or in the perfect tense, often denied in one of several ways."""
        action, modal = self.rng.choice(ACTIONS), self.rng.choice([*_CONJUGATED])
        kinds = [self._denied, self._denied, self._rarely, self._affirmed, self._of_nobody, self._without]
        return started(self.rng.choice(kinds)(action, modal))

    def _affirmed(self, action: Texts, modal: str) -> Texts:
        subject, person = self.rng.choice(SUBJECTS)
        german, french_verb = _verbs("may" if modal == "must" else modal, person)
        said, object_, last, other = _phrase(action, modal)
        verb = _person(_POSITIVE[modal], person)
        return (
            f"{subject[0]} {verb} {said}.",
            f"{subject[1]} {german} {object_}{last}.",
            f"{subject[2]} {french_verb} {other}.",
        )

    def _denied(self, action: Texts, modal: str) -> Texts:
        """With "not": in a main clause, in one after "that", or with a question at the end."""
        subject, person = self.rng.choice(SUBJECTS)
        german, french_verb = _verbs(modal, person)
        said, object_, last, other = _phrase(action, modal)
        verb = _person(self.rng.choice(_NOT[modal]), person)
        english = f"{subject[0]}{'' if verb.startswith(chr(39)) else ' '}{verb} {said}"
        denied = f"{subject[2]} ne {french_verb} pas {other}"
        if self.rng.random() < 0.25:
            before = self.rng.choice(_BEFORE)
            return (
                f"{before[0]} {english}.",
                f"{before[1]} {subject[1]} {object_}nicht {last} {german}.",
                f"{before[2]} {denied}.",
            )
        end = self.rng.choice(_AFTER) if self.rng.random() < 0.2 else (".", ".", ".")
        return f"{english}{end[0]}", f"{subject[1]} {german} {object_}nicht {last}{end[1]}", f"{denied}{end[2]}"

    def _rarely(self, action: Texts, modal: str) -> Texts:
        """With "never", "no longer" or "hardly"."""
        modal = modal if modal in ("can", "could") else "can"
        subject, person = self.rng.choice(SUBJECTS)
        german, french_verb = _verbs(modal, person)
        said, object_, last, other = _phrase(action, modal)
        word = self.rng.choice(_RARELY)
        return (
            f"{subject[0]} {word[0].format(modal)} {said}.",
            f"{subject[1]} {german} {object_}{word[1]} {last}.",
            f"{subject[2]} {word[2].format(french_verb)} {other}.",
        )

    def _of_nobody(self, action: Texts, modal: str) -> Texts:
        modal, who = "may" if modal == "must" else modal, self.rng.choice(_NOBODY)
        german, french_verb = _verbs(modal, 1)[0], _verbs(modal, 4 if who[2].startswith("ni ") else 1)[1]
        said, object_, last, other = _phrase(action, modal)
        verb = _person(_POSITIVE[modal], 1)
        return f"{who[0]} {verb} {said}.", f"{who[1]} {german} {object_}{last}.", f"{who[2]} ne {french_verb} {other}."

    def _without(self, action: Texts, modal: str) -> Texts:
        left = self.rng.choice(_LEFT)
        object_ = f"{action[3]} " if action[3] else ""
        return (
            f"{left[0]} without {action[1]}.",
            f"{left[1]}, ohne {object_}{action[5]}.",
            f"{left[2]} sans {action[7]}.",
        )


def _verbs(modal: str, person: int) -> tuple[str, str]:
    german, other = _CONJUGATED[modal]
    return german.split()[person], other.split()[person]


def _phrase(action: Texts, modal: str) -> Texts:
    """What follows a verb: in English, the object and the last words in German, and in French."""
    part = (2, 6, 8) if modal == "have" else (0, 4, 7)
    return action[part[0]], f"{action[3]} " if action[3] else "", action[part[1]], action[part[2]]


def _person(verb: str, person: int) -> str:
    """The English verb of this person."""
    first, _, rest = verb.partition(" ")
    forms = _FIRST if person == 0 else _THIRD if person == 1 else {}
    return f"{forms.get(first, first)} {rest}".strip()


def main() -> None:
    """Write the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tries", type=int, default=_TRIES, help="tries for each of eight kinds of sentences")
    parser.add_argument("--without", nargs="+", type=Path, default=[], help="test sets, whose sentences are left out")
    options = parser.parse_args()
    held = {letters(text) for pair in pairs_of(options.without) for text in pair}
    writer = Writer(random.Random(_SEED))
    kinds = (
        writer.clock,
        writer.waiting,
        writer.amount,
        writer.dose,
        writer.price,
        writer.date,
        writer.count,
        writer.negation,
    )
    rows = dict.fromkeys(kind() for _ in range(options.tries) for kind in kinds)
    lines = ["\t".join(row) for row in rows if not any(letters(text) in held for text in row)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{options.out}: {len(lines)}")


if __name__ == "__main__":
    main()
