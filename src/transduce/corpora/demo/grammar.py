"""Builds sentences from the lexicon and writes each of them in English and in German.

A structure has exactly one form in each language.  Where German leaves a choice, the rule is: "you" is
"du"; the English past is the perfect (but the preterite of "haben", "sein" and "wollen"); the middle of
a clause runs recipient, pronoun or name, time, definite or dative object, place, the rest; "nicht" comes
after any definite object and the time, before the place and the rest.
"""

from dataclasses import dataclass

from transduce.corpora.demo.lexicon import (
    CONJUNCTIONS,
    DETERMINERS,
    MODALS,
    PLURAL,
    THIRD,
    Adjective,
    Adverb,
    Noun,
    Pronoun,
    Verb,
)

# Rows of verb forms run: I, you (singular), he/she/it, plural.
_BE = {"present": ("am", "are", "is", "are"), "past": ("was", "were", "was", "were")}
_PRESENT = {"haben": ("habe", "hast", "hat", "haben"), "sein": ("bin", "bist", "ist", "sind")}
_PRETERITE = {"haben": ("hatte", "hattest", "hatte", "hatten"), "sein": ("war", "warst", "war", "waren")}
_WANTED = ("wollte", "wolltest", "wollte", "wollten")

# Rows of endings run: masculine, feminine, neuter, plural.
_COLUMNS = {"m": 0, "w": 0, "f": 1, "n": 2}
_ARTICLE = {"nom": ("er", "ie", "as", "ie"), "acc": ("en", "ie", "as", "ie"), "dat": ("em", "er", "em", "en")}
_STRONG = {"nom": ("er", "e", "es", "e"), "acc": ("en", "e", "es", "e"), "dat": ("em", "er", "em", "en")}
_WEAK = {"nom": ("e", "e", "e", "en"), "acc": ("en", "e", "e", "en"), "dat": ("en", "en", "en", "en")}


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner and perhaps an adjective; "a" stands for no article where none can be."""

    determiner: str
    noun: Noun
    plural: bool = False
    adjective: Adjective | None = None

    @property
    def bare(self) -> bool:
        return self.determiner == "a" and (self.plural or self.noun.english_plural == "-")


Phrase = NounPhrase | Pronoun


@dataclass(frozen=True)
class Clause:
    """A subject and what is said of it; a noun phrase as place follows "in" in the dative."""

    subject: Phrase
    verb: Verb
    object: Phrase | None = None
    recipient: Phrase | None = None
    predicate: Adjective | None = None
    place: NounPhrase | Adverb | None = None
    time: Adverb | None = None
    time_first: bool = False
    tense: str = "present"
    modal: str = ""
    negated: bool = False


@dataclass(frozen=True)
class SentenceStructure:
    """A clause, or two of them joined by a conjunction; only a lone clause may be a question."""

    main: Clause
    conjunction: str = ""
    second: Clause | None = None
    second_first: bool = False
    question: bool = False


def is_definite(phrase: Phrase) -> bool:
    """Whether the phrase names someone or something known."""
    return isinstance(phrase, Pronoun) or phrase.determiner != "a"


def person(phrase: Phrase) -> int:
    """The position of the verb form that agrees with the phrase."""
    if isinstance(phrase, Pronoun):
        return phrase.person
    return PLURAL if phrase.plural else THIRD


def english(sentence: SentenceStructure) -> str:
    text = _english_clause(sentence.main, sentence.question)
    if sentence.second:
        joint = CONJUNCTIONS[sentence.conjunction][0]
        second = _english_clause(sentence.second, infinitive=sentence.conjunction == "to")
        text = f"{joint.strip()} {second}, {text}" if sentence.second_first else text + joint + second
    return text[0].upper() + text[1:] + ("?" if sentence.question else ".")


def _english_clause(clause: Clause, question: bool = False, infinitive: bool = False) -> str:
    """A finite clause, or the infinitive with all that follows it."""
    subject = _english_phrase(clause.subject, is_subject=True)
    auxiliary, verb = _english_verbs(clause, question)
    if clause.negated:
        auxiliary = "cannot" if auxiliary == "can" else f"{auxiliary} not"
    place = clause.place
    complements = _join(
        clause.verb.particle,
        _english_phrase(clause.recipient),
        _english_phrase(clause.object),
        clause.predicate.english if clause.predicate else "",
        f"in {_english_phrase(place)}" if isinstance(place, NounPhrase) else place.english if place else "",
    )
    if infinitive:
        return f"{clause.verb.base} {complements}"
    time = clause.time.english if clause.time else ""
    mid = time if clause.time and clause.time.kind == "mid" else ""
    front, end = (time, "") if clause.time_first else ("", "" if mid else time)
    opening = _join(auxiliary, subject) if question else _join(front, subject, auxiliary)
    return _join(opening, mid, verb, complements, end)


def _english_verbs(clause: Clause, question: bool) -> tuple[str, str]:
    """The auxiliary, which negation and questions need, and the other verbs."""
    verb, who = clause.verb, person(clause.subject)
    if verb.base == "be":
        return _BE[clause.tense][who], ""
    if clause.modal not in ("", "want"):
        return clause.modal, verb.base
    base, past, rest = ("want", "wanted", f"to {verb.base}") if clause.modal else (verb.base, verb.past, "")
    if clause.negated or question:
        return _english_finite("do", "did", clause.tense, who), _join(base, rest)
    return "", _join(_english_finite(base, past, clause.tense, who), rest)


def _english_finite(base: str, past: str, tense: str, who: int) -> str:
    if tense == "past":
        return past
    if who != THIRD:
        return base
    if base == "have":
        return "has"
    if base.endswith("y") and base[-2] not in "aeiou":
        return f"{base[:-1]}ies"
    return f"{base}es" if base.endswith(("sh", "ch", "o")) else f"{base}s"


def _english_phrase(phrase: Phrase | None, is_subject: bool = False) -> str:
    if phrase is None:
        return ""
    if isinstance(phrase, Pronoun):
        return phrase.subject if is_subject else phrase.object
    noun = phrase.noun.english_plural if phrase.plural else phrase.noun.english
    words = _join(phrase.adjective.english if phrase.adjective else "", noun)
    determiner = DETERMINERS[phrase.determiner][0] if phrase.plural else phrase.determiner
    if phrase.determiner == "a":
        determiner = "" if phrase.bare else "an" if words[0] in "aeiou" else "a"
    return _join(determiner, words)


def german(sentence: SentenceStructure) -> str:
    text = _german_clause(sentence.main, "first" if sentence.question or sentence.second_first else "main")
    if sentence.second:
        joint = CONJUNCTIONS[sentence.conjunction][1]
        order = {"but": "main", "to": "zu"}.get(sentence.conjunction, "final")
        second = _german_clause(sentence.second, order)
        text = f"{joint.strip(', ')} {second}, {text}" if sentence.second_first else text + joint + second
    return text[0].upper() + text[1:] + ("?" if sentence.question else ".")


def _german_clause(clause: Clause, order: str) -> str:
    """A clause with its finite verb "first", second ("main") or "final", or as a "zu" infinitive."""
    verb, middle, subject = clause.verb, _german_middle(clause), _german_phrase(clause.subject, "nom")
    finite, closing = _german_verbs(clause)
    if order == "zu":
        return _join(middle, f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}")
    if order == "final":
        # A prefix left behind by its verb rejoins it; an infinitive or participle stays apart.
        return _join(subject, middle, closing + finite if closing == verb.prefix else f"{closing} {finite}")
    if order == "first":
        return _join(finite, subject, middle, closing)
    if clause.time and clause.time_first:
        return _join(clause.time.german, finite, subject, middle, closing)
    return _join(subject, finite, middle, closing)


def _german_verbs(clause: Clause) -> tuple[str, str]:
    """The finite verb and what closes the clause: a prefix, an infinitive or a participle."""
    verb, who = clause.verb, person(clause.subject)
    if clause.modal:
        forms = _WANTED if clause.tense == "past" else MODALS[clause.modal]
        return forms[who], verb.prefix + verb.infinitive
    if clause.tense == "present":
        return _PRESENT.get(verb.infinitive, verb.present)[who], verb.prefix
    if verb.infinitive in _PRETERITE:
        return _PRETERITE[verb.infinitive][who], ""
    return _PRESENT[verb.auxiliary][who], verb.prefix + verb.participle


def _german_middle(clause: Clause) -> str:
    """Everything but the subject, the verbs and a time adverbial that opens the clause."""
    preposition, _, case = clause.verb.frame.removeprefix("dat+").rpartition(" ")
    recipient = _german_phrase(clause.recipient, "dat") if clause.recipient else ""
    time = clause.time.german if clause.time and not clause.time_first else ""
    negation = "nicht" if clause.negated else ""
    early, middle, place, late = "", "", "", clause.predicate.german if clause.predicate else ""
    if isinstance(clause.place, NounPhrase):
        place = _german_prepositional("in", clause.place, "dat")
    elif clause.place:
        place = clause.place.german
    phrase = clause.object
    if phrase and preposition:
        late = _german_prepositional(preposition, phrase, case)
    elif phrase and case == "acc" and not is_definite(phrase):
        late, negation = _german_phrase(phrase, case, negated=clause.negated), ""
    elif phrase and (isinstance(phrase, Pronoun) or clause.negated):
        early = _german_phrase(phrase, case)
    elif phrase:
        middle = _german_phrase(phrase, case)
    return _join(recipient, early, time, negation, middle, place, late)


def _german_prepositional(preposition: str, phrase: Phrase, case: str) -> str:
    text = f"{preposition} {_german_phrase(phrase, case)}"
    return text.replace("in dem ", "im ").replace("in das ", "ins ")


def _german_phrase(phrase: Phrase, case: str, negated: bool = False) -> str:
    """The declined phrase; a negated indefinite one takes "kein"."""
    if isinstance(phrase, Pronoun):
        return {"nom": phrase.nom, "acc": phrase.acc, "dat": phrase.dat}[case]
    noun, column = phrase.noun, 3 if phrase.plural else _COLUMNS[phrase.noun.gender]
    stem = "kein" if negated else "" if phrase.bare else DETERMINERS[phrase.determiner][1]
    if stem == "d":
        ending = _ARTICLE[case][column]
    elif not stem or (stem != "dies" and (case, column) in (("nom", 0), ("nom", 2), ("acc", 2))):
        ending = ""  # "ein" and its like: "ein Hund", "mein Buch"
    else:
        ending = _STRONG[case][column]
    # Gender and case show once: on the determiner, or on the adjective if the determiner has no ending.
    declension = _WEAK if ending else _STRONG
    adjective = phrase.adjective.stem + declension[case][column] if phrase.adjective else ""
    form = noun.german_plural if phrase.plural or (noun.gender == "w" and case != "nom") else noun.german
    if phrase.plural and case == "dat" and form[-1] not in "ns":
        form += "n"
    return _join(stem + ending, adjective, form)


def _join(*words: str) -> str:
    return " ".join(word for word in words if word)
