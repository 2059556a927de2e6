"""Draws the demo corpus: train, valid and test sentences that share words but not combinations.

One in twelve (adjective, noun) and (verb, object noun) pairs is held out.  Train sentences contain no
held-out pair; valid and test sentences contain at least one, and only word forms that train has often.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

import transduce.corpora.demo.lexicon as lexicon
from transduce.corpora.demo.grammar import (
    Clause,
    NounPhrase,
    Phrase,
    SentenceStructure,
    english,
    german,
    is_definite,
    person,
)
from transduce.corpora.demo.lexicon import THIRD, Adjective, Adverb, Noun, Pronoun
from transduce.errors import ConfigError

Pair = tuple[str, str]

_HELD_OUT_ONE_IN = 12
_WORDS = range(3, 21)  # lengths of the English sentences
_SEEN_OFTEN = 5  # times that train contains each word form of valid and test
_MAX_DRAWS_PER_SENTENCE = 200  # far more than needed: only a train set too small to hold the words fails

_THAT_OR_IF = [
    *((verb, False, "that") for verb in (lexicon.SAY, lexicon.THINK, lexicon.KNOW, lexicon.HEAR)),
    (lexicon.ASK, False, "if"),
    (lexicon.KNOW, True, "if"),
]
"""Verbs before a clause, whether they are negated, and the conjunction."""


@dataclass(frozen=True)
class DemoCorpus:
    """Parallel sentences as (english, german) pairs."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def demo_corpus(seed: int = 1, train: int = 50_000, valid: int = 500, test: int = 1_000) -> DemoCorpus:
    """A corpus of these sizes, the same for the same seed everywhere."""
    stream, seen = sentences(seed), set[str]()
    train_pairs = _take(train, (sentence for sentence in stream if not has_held_out(sentence)), seen, None)
    counts = Counter(form for pair in train_pairs for form in word_forms(pair))
    words = {form for form, count in counts.items() if count >= _SEEN_OFTEN}
    held_out = _take(valid + test, filter(has_held_out, stream), seen, words)
    return DemoCorpus(train_pairs, held_out[:valid], held_out[valid:])


def write_demo_corpus(folder: Path, corpus: DemoCorpus) -> None:
    """Write each split as two line-aligned text files, such as train.en and train.de; a changed file is an error."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in vars(corpus).items():
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            path = folder / f"{split}.{language}"
            if path.exists() and path.read_bytes() != text.encode():
                raise ConfigError(f"{path} exists with other text; move it away or name another folder with --out")
            path.write_text(text, encoding="utf-8", newline="\n")


def sentences(seed: int) -> Iterator[SentenceStructure]:
    """The endless stream of sentences that the corpus of this seed is selected from."""
    sampler = _Sampler(Random(seed))
    while True:
        sentence = sampler.sentence()
        if not _repeats_itself(sentence):
            yield sentence


def word_forms(pair: Pair) -> list[str]:
    """The cased words of a pair, each marked with its language."""
    return [f"{side}:{word}" for side, text in enumerate(pair) for word in re.findall(r"\w+", text)]


def is_held_out(first: str, second: str) -> bool:
    """Whether a combination of two English words is kept out of the training set."""
    return zlib.crc32(f"{first}:{second}".encode()) % _HELD_OUT_ONE_IN == 0


def has_held_out(sentence: SentenceStructure) -> bool:
    return any(is_held_out(*combination) for combination in combinations(sentence))


def combinations(sentence: SentenceStructure) -> list[Pair]:
    """The (adjective, noun) and (verb, object noun) pairs of a sentence, in English."""
    result = []
    for phrase in _phrases(sentence):
        if isinstance(phrase, NounPhrase) and phrase.adjective:
            result.append((phrase.adjective.english, phrase.noun.english))
    for clause in _clauses(sentence):
        if isinstance(clause.object, NounPhrase):
            verb = f"{clause.verb.base} {clause.verb.particle}".rstrip()
            result.append((verb, clause.object.noun.english))
        if isinstance(clause.subject, NounPhrase) and clause.predicate:
            result.append((clause.predicate.english, clause.subject.noun.english))
    return result


def _clauses(sentence: SentenceStructure) -> list[Clause]:
    return [sentence.main, sentence.second] if sentence.second else [sentence.main]


def _phrases(sentence: SentenceStructure) -> list[Phrase]:
    """The phrases of a sentence, leaving out the unspoken subject of an infinitive."""
    clauses = _clauses(sentence)
    subjects = [clause.subject for clause in clauses[: 1 if sentence.conjunction == "to" else 2]]
    others = [phrase for clause in clauses for phrase in (clause.object, clause.recipient, clause.place)]
    return subjects + [phrase for phrase in others if isinstance(phrase, NounPhrase | Pronoun)]


def _repeats_itself(sentence: SentenceStructure) -> bool:
    """Whether a sentence uses the same noun, name or time twice."""
    words = [clause.time.english for clause in _clauses(sentence) if clause.time]
    for phrase in _phrases(sentence):
        if isinstance(phrase, NounPhrase):
            words.append(phrase.noun.english)
        elif phrase in lexicon.NAMES:
            words.append(phrase.subject)
    return len(set(words)) < len(words)


def _take(count: int, stream: Iterator[SentenceStructure], seen: set[str], words: set[str] | None) -> list[Pair]:
    """The next pairs whose English and German are both new and, if words are given, made of them."""
    taken: list[Pair] = []
    draws = islice(stream, _MAX_DRAWS_PER_SENTENCE * count)
    while len(taken) < count:
        sentence = next(draws, None)
        if sentence is None:
            raise ValueError("the training set is too small to contain the words of the other sets")
        pair = english(sentence), german(sentence)
        is_known = words is None or words.issuperset(word_forms(pair))
        if is_known and seen.isdisjoint(pair) and len(pair[0].split()) in _WORDS:
            seen.update(pair)
            taken.append(pair)
    return taken


@cache
def _nouns(tags: str) -> list[Noun]:
    return [noun for noun in lexicon.NOUNS if _share(noun.tags, tags)]


@cache
def _adjectives(tags: str) -> list[Adjective]:
    return [adjective for adjective in lexicon.ADJECTIVES if _share(adjective.tags, tags)]


@cache
def _determiners(tags: str, definite: bool) -> list[str]:
    """The determiners to choose from, the usual ones repeated."""
    possessives = [] if "unowned" in tags else ["my", "your", "his", "her", "our"]
    return ["the"] * 6 + ["this"] + possessives + ["a"] * (0 if definite or "kin" in tags else 5)


def _share(left: str, right: str) -> bool:
    return any(tag in right.split() for tag in left.split())


class _Sampler:
    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def _chance(self, percent: int) -> bool:
        return self._rng.randrange(100) < percent

    def sentence(self) -> SentenceStructure:
        kind = self._rng.randrange(100)
        if kind < 40:
            return SentenceStructure(self._clause())
        if kind < 52:
            return SentenceStructure(self._clause(_can_ask), question=True)
        if kind < 59:
            return SentenceStructure(self._clause(), "but", self._clause(_starts_with_subject))
        if kind < 67:
            second = self._clause(_can_be_infinitive)
            verb = self._rng.choice((lexicon.TRY, lexicon.PROMISE, lexicon.FORGET))
            main = Clause(second.subject, verb, tense=second.tense)
            return SentenceStructure(main, "to", replace(second, modal="", negated=False, time=None))
        if kind < 82:
            verb, negated, conjunction = self._rng.choice(_THAT_OR_IF)
            main = Clause(self._phrase("person", definite=True), verb, negated=negated)
            return SentenceStructure(main, conjunction, self._clause(_starts_with_subject))
        if kind < 88:
            main = self._clause(lambda clause: clause.tense == "present")
            second = self._clause(_can_follow_when)
            return SentenceStructure(main, "when", second, not main.time_first and self._chance(40))
        main, second = self._clause(), self._clause(_starts_with_subject)
        conjunction = self._rng.choice(("because", "although"))
        return SentenceStructure(main, conjunction, second, not main.time_first and self._chance(40))

    def _clause(self, accept: Callable[[Clause], bool] = lambda clause: True) -> Clause:
        """Draws clauses until one makes sense and is acceptable."""
        while True:
            clause = self._description() if self._chance(12) else self._action()
            if _is_coherent(clause) and accept(clause):
                return clause

    def _description(self) -> Clause:
        """Draws a clause with "be" that says where or how someone or something is."""
        tense, negated = "past" if self._chance(35) else "present", self._chance(20)
        if self._chance(30):
            subject, place = self._phrase("person animal", definite=True), self._place("home town nature")
            return Clause(subject, lexicon.COPULA, place=place, tense=tense, negated=negated)
        subject = self._phrase("person animal food drink thing readable panel place", definite=True)
        tags = "person adult"
        if isinstance(subject, NounPhrase):
            subject, tags = replace(subject, adjective=None), subject.noun.tags
        predicate = self._rng.choice(_adjectives(tags))
        return Clause(subject, lexicon.COPULA, predicate=predicate, tense=tense, negated=negated)

    def _action(self) -> Clause:
        verb = self._rng.choice(lexicon.VERBS)
        is_state = verb.adjuncts == "state"
        modal = "" if is_state or self._chance(75) else self._rng.choice(list(lexicon.MODALS))
        negated = self._chance(18) and modal != "must"  # for "must not" is not "muss nicht"
        tense = "past" if modal in ("", "want") and self._chance(40) else "present"
        # Only a direct object can say "kein", so that other negated phrases are definite.
        is_direct = verb.frame in ("acc", "dat+acc")
        obj = self._phrase(verb.objects, definite=negated and not is_direct) if verb.frame else None
        # Between an object and a place, "nicht" would stress the place.
        has_nicht = negated and not (is_direct and obj and not is_definite(obj))
        takes_place = verb.adjuncts and not is_state and not (obj and has_nicht)
        time = None if is_state or self._chance(55) else self._time(modal, tense, negated)
        return Clause(
            subject=self._phrase(verb.subjects, definite=negated),
            verb=verb,
            object=obj,
            recipient=self._phrase("person", definite=True) if verb.frame == "dat+acc" else None,
            place=self._place(verb.adjuncts) if takes_place and self._chance(30) else None,
            time=time,
            time_first=time is not None and time.kind != "mid" and self._chance(45),
            tense=tense,
            modal=modal,
            negated=negated,
        )

    def _time(self, modal: str, tense: str, negated: bool) -> Adverb:
        kind = "past" if tense == "past" else "modal" if modal else "present"
        kinds = (kind,) if negated else (kind, "frequency", "mid")
        return self._rng.choice([time for time in lexicon.TIMES if time.kind in kinds])

    def _place(self, tags: str) -> NounPhrase | Adverb:
        if self._chance(30):
            return self._rng.choice([place for place in lexicon.PLACES if _share(place.kind, tags)])
        return replace(self._noun_phrase(tags, definite=self._chance(80)), plural=False)

    def _phrase(self, tags: str, definite: bool = False) -> Phrase:
        if "person" in tags.split() and self._chance(40):
            return self._rng.choice(lexicon.NAMES if self._chance(30) else lexicon.PRONOUNS)
        return self._noun_phrase(tags, definite)

    def _noun_phrase(self, tags: str, definite: bool) -> NounPhrase:
        noun = self._rng.choice(_nouns(tags))
        plural_percent = 0 if noun.english_plural == "-" else 8 if "single" in noun.tags else 25
        return NounPhrase(
            determiner=self._rng.choice(_determiners(noun.tags, definite)),
            noun=noun,
            plural=self._chance(plural_percent),
            adjective=self._rng.choice(_adjectives(noun.tags)) if self._chance(30) else None,
        )


def _is_coherent(clause: Clause) -> bool:
    """Rules out "I see me", "we help me", and pasts that look like presents, as in "they read"."""
    phrases = (clause.subject, clause.object, clause.recipient)
    people = [phrase.subject.replace("we", "I") for phrase in phrases if isinstance(phrase, Pronoun)]
    shows_tense = clause.verb.base != clause.verb.past or person(clause.subject) == THIRD
    return len(set(people)) == len(people) and (clause.tense == "present" or shows_tense)


def _starts_with_subject(clause: Clause) -> bool:
    return not clause.time_first


def _can_ask(clause: Clause) -> bool:
    return is_definite(clause.subject) and not clause.negated and not clause.time_first


def _can_follow_when(clause: Clause) -> bool:
    return clause.tense == "present" and not clause.modal and clause.time is None


def _can_be_infinitive(clause: Clause) -> bool:
    """Wants a person to act on an object: a bare "zu schlafen" would go without the comma."""
    is_person = isinstance(clause.subject, Pronoun) or "person" in clause.subject.noun.tags
    return is_person and clause.object is not None and clause.verb.adjuncts != "state"
