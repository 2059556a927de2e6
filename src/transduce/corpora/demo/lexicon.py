"""The words of the demo corpus, read from lexicon.toml, which describes its columns and tags."""

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Noun:
    """A noun of gender m, f, n or w (weak masculine: "den Jungen"); mass nouns have "-" for a plural."""

    english: str
    english_plural: str
    german: str
    gender: str
    german_plural: str
    tags: str


@dataclass(frozen=True)
class Adjective:
    """An adjective, its German predicative form and the stem that takes endings."""

    english: str
    german: str
    stem: str
    tags: str


@dataclass(frozen=True)
class Verb:
    """A verb in both languages, the case of its objects, and the tags of the words it goes with."""

    base: str
    past: str
    particle: str
    prefix: str
    infinitive: str
    present: tuple[str, ...]  # for I, you (singular), he/she/it, and the plural
    auxiliary: str
    participle: str
    subjects: str
    frame: str  # "acc", "dat", "dat+acc" (with a recipient), a preposition and its case, or nothing
    objects: str
    adjuncts: str  # tags of locations, or "state" for verbs that take no time, place or modal


@dataclass(frozen=True)
class Adverb:
    """An adverb; its kind is a tense, "frequency" or "mid" (any tense, no negation), or tags of locations."""

    english: str
    german: str
    kind: str


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun, or a name, whose forms are all alike."""

    subject: str
    object: str
    nom: str
    acc: str
    dat: str
    person: int
    """FIRST, SECOND, THIRD or PLURAL."""


FIRST, SECOND, THIRD, PLURAL = range(4)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _verb(line: str) -> Verb:
    """Reads English base, past and particle | German infinitive, "er" form and perfect | the rest."""
    english, german, *tags = _cells(line)
    base, past, *particle = english.split()
    infinitive, er, auxiliary, participle = german.split()
    prefix, _, infinitive = infinitive.rpartition("+")
    # As in the modals, "weiß" lacks the -t of the third person and serves as the first person too.
    ich = infinitive.removesuffix("n").removesuffix("e") + "e" if er.endswith("t") else er
    du = er.removesuffix("t") + ("t" if er.removesuffix("t").endswith(("s", "ß", "z")) else "st")
    forms = (ich, du, er, infinitive)
    auxiliary = {"hat": "haben", "ist": "sein"}[auxiliary]
    return Verb(base, past, " ".join(particle), prefix, infinitive, forms, auxiliary, participle, *tags)


def _pronoun(line: str) -> Pronoun:
    subject, object_, nom, acc, dat, row = line.split()
    return Pronoun(subject, object_, nom, acc, dat, int(row))


_TABLES: dict[str, str] = tomllib.loads((resources.files(__package__) / "lexicon.toml").read_text(encoding="utf-8"))


def _lines(table: str) -> list[str]:
    return _TABLES[table].strip().splitlines()


NOUNS = [Noun(*line.split(maxsplit=5)) for line in _lines("nouns")]
ADJECTIVES = [Adjective(*line.split(maxsplit=3)) for line in _lines("adjectives")]
VERBS = [_verb(line) for line in _lines("verbs")]
TIMES = [Adverb(*_cells(line)) for line in _lines("times")]
PLACES = [Adverb(*_cells(line)) for line in _lines("places")]

PRONOUNS = [_pronoun(line) for line in _lines("pronouns")]
NAMES = [Pronoun(name, name, name, name, name, THIRD) for name in _TABLES["names"].split()]
MODALS = {english: tuple(forms) for english, *forms in map(str.split, _lines("modals"))}
DETERMINERS = {english: (plural.strip("-"), stem) for english, plural, stem in map(str.split, _lines("determiners"))}
"""The English plural and the German stem of each."""
CONJUNCTIONS = {
    "but": (", but ", ", aber "),
    "because": (" because ", ", weil "),
    "although": (" although ", ", obwohl "),
    "when": (" when ", ", wenn "),
    "that": (" that ", ", dass "),
    "if": (" if ", ", ob "),
    "to": (" to ", ", "),
}
"""What joins two clauses, with its comma."""

COPULA = _verb("be was | sein ist ist gewesen | | | |")
SAY = _verb("say said | sagen sagt hat gesagt | person | | |")
THINK = _verb("think thought | glauben glaubt hat geglaubt | person | | |")
KNOW = _verb("know knew | wissen weiß hat gewusst | person | | |")
HEAR = _verb("hear heard | hören hört hat gehört | person | | |")
ASK = _verb("ask asked | fragen fragt hat gefragt | person | | |")
TRY = _verb("try tried | versuchen versucht hat versucht | person | | |")
PROMISE = _verb("promise promised | versprechen verspricht hat versprochen | person | | |")
FORGET = _verb("forget forgot | vergessen vergisst hat vergessen | person | | |")
