"""The demo corpus: properties of its splits, and its German, checked by hand."""

import re
import zlib
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from transduce.corpora.demo import lexicon
from transduce.corpora.demo.corpus import (
    DemoCorpus,
    Pair,
    combinations,
    demo_corpus,
    has_held_out,
    is_held_out,
    sentences,
    word_forms,
    write_demo_corpus,
)
from transduce.corpora.demo.grammar import Clause, NounPhrase, Phrase, SentenceStructure
from transduce.corpora.demo.grammar import english as in_english
from transduce.corpora.demo.grammar import german as in_german
from transduce.corpora.demo.lexicon import (
    ADJECTIVES,
    COPULA,
    DETERMINERS,
    NAMES,
    NOUNS,
    PLACES,
    PRONOUNS,
    TIMES,
    VERBS,
    Adverb,
    Verb,
)
from transduce.errors import ConfigError


@cache
def stream() -> list[SentenceStructure]:
    """Returns the sentences that the corpus of seed 1 is selected from."""
    return list(islice(sentences(1), 12_000))


def phrase(text: str) -> Phrase:
    """Reads a pronoun, a name, or a noun phrase such as "the old dogs"; no determiner makes it indefinite."""
    for pronoun in (*PRONOUNS, *NAMES):
        if text in (pronoun.subject, pronoun.object):
            return pronoun
    words = [{"an": "a", "these": "this"}.get(word, word) for word in text.split()]
    noun = next(noun for noun in NOUNS if words[-1] in (noun.english, noun.english_plural))
    adjective = next((adjective for adjective in ADJECTIVES if adjective.english in words), None)
    determiner = words[0] if words[0] in DETERMINERS else "a"
    return NounPhrase(determiner, noun, words[-1] == noun.english_plural, adjective)


def adverb(text: str) -> Adverb:
    return next(adverb for adverb in (*TIMES, *PLACES) if adverb.english == text)


def dictionary_form(verb: Verb) -> str:
    return f"{verb.base} {verb.particle}".strip()


def do(subject: str, action: str, thing: str = "", **features: Any) -> Clause:
    """Builds a clause from English words: who does what, and the further features of a clause."""
    who = phrase(subject)
    is_animal = isinstance(who, NounPhrase) and "animal" in who.noun.tags
    verbs = [verb for verb in VERBS if dictionary_form(verb) == action]
    verb = next(verb for verb in verbs if not is_animal or "animal" in verb.subjects)
    for feature in ("recipient", "place"):
        if isinstance(features.get(feature), str):
            features[feature] = phrase(features[feature])
    return Clause(who, verb, phrase(thing) if thing else None, **features)


def be(subject: str, predicate: str = "", **features: Any) -> Clause:
    """Builds a clause with "be" and an adjective or a place."""
    matching = [adjective for adjective in ADJECTIVES if adjective.english == predicate]
    return Clause(phrase(subject), COPULA, predicate=matching[0] if matching else None, **features)


READ = do("Anna", "read", "a book")
OPEN = do("he", "open", "the door")
CALL = do("Paul", "call", "me")

# Each gender in each case, definite, indefinite and bare; plural; weak nouns; pronouns.
AGREEMENT = {
    "The old man sees the young queen. | Der alte Mann sieht die junge Königin.": do(
        "the old man", "see", "the young queen"
    ),
    "The young queen sees the old man. | Die junge Königin sieht den alten Mann.": do(
        "the young queen", "see", "the old man"
    ),
    "The small child loves the white horse. | Das kleine Kind liebt das weiße Pferd.": do(
        "the small child", "love", "the white horse"
    ),
    "An old man loves a young woman. | Ein alter Mann liebt eine junge Frau.": do(
        "an old man", "love", "a young woman"
    ),
    "A young woman loves an old man. | Eine junge Frau liebt einen alten Mann.": do(
        "a young woman", "love", "an old man"
    ),
    "A small child has a white horse. | Ein kleines Kind hat ein weißes Pferd.": do(
        "a small child", "have", "a white horse"
    ),
    "I help the friendly doctor. | Ich helfe dem freundlichen Arzt.": do("I", "help", "the friendly doctor"),
    "You answer the tired mother. | Du antwortest der müden Mutter.": do("you", "answer", "the tired mother"),
    "She follows the small child. | Sie folgt dem kleinen Kind.": do("she", "follow", "the small child"),
    "He helps a tired teacher. | Er hilft einem müden Lehrer.": do("he", "help", "a tired teacher"),
    "We help a famous queen. | Wir helfen einer berühmten Königin.": do("we", "help", "a famous queen"),
    "They help a hungry girl. | Sie helfen einem hungrigen Mädchen.": do("they", "help", "a hungry girl"),
    "The clever cats see the black mice. | Die klugen Katzen sehen die schwarzen Mäuse.": do(
        "the clever cats", "see", "the black mice"
    ),
    "Hungry dogs eat apples. | Hungrige Hunde fressen Äpfel.": do("hungry dogs", "eat", "apples"),
    "Children eat fresh bread. | Kinder essen frisches Brot.": do("children", "eat", "fresh bread"),
    "He drinks hot coffee. | Er trinkt heißen Kaffee.": do("he", "drink", "hot coffee"),
    "She drinks cold milk. | Sie trinkt kalte Milch.": do("she", "drink", "cold milk"),
    "They help the old teachers. | Sie helfen den alten Lehrern.": do("they", "help", "the old teachers"),
    "I play with small children. | Ich spiele mit kleinen Kindern.": do("I", "play with", "small children"),
    "She talks to her brothers. | Sie spricht mit ihren Brüdern.": do("she", "talk to", "her brothers"),
    "You listen to these women. | Du hörst diesen Frauen zu.": do("you", "listen to", "these women"),
    "My brother repairs his new car. | Mein Bruder repariert sein neues Auto.": do(
        "my brother", "repair", "his new car"
    ),
    "Our neighbor lends your sister our radios. | Unser Nachbar leiht deiner Schwester unsere Radios.": do(
        "our neighbor", "lend", "our radios", recipient="your sister"
    ),
    "This boy buys this expensive coat. | Dieser Junge kauft diesen teuren Mantel.": do(
        "this boy", "buy", "this expensive coat"
    ),
    "The student knows the boy. | Der Student kennt den Jungen.": do("the student", "know", "the boy"),
    "A bear follows a student. | Ein Bär folgt einem Studenten.": do("a bear", "follow", "a student"),
    "The farmer shows the neighbor a clean dress. | Der Bauer zeigt dem Nachbarn ein sauberes Kleid.": do(
        "the farmer", "show", "a clean dress", recipient="the neighbor"
    ),
    "He gives her the apple. | Er gibt ihr den Apfel.": do("he", "give", "the apple", recipient="her"),
    "I wait for you. | Ich warte auf dich.": do("I", "wait for", "you"),
    "Anna invites Paul. | Anna lädt Paul ein.": do("Anna", "invite", "Paul"),
}

# Verb second and the middle of the clause, places, tenses, modals, separable verbs.
MAIN_CLAUSES = {
    "Yesterday Anna read a book. | Gestern hat Anna ein Buch gelesen.": replace(
        READ, tense="past", time=adverb("yesterday"), time_first=True
    ),
    "Anna reads a book here every day. | Anna liest jeden Tag hier ein Buch.": replace(
        READ, place=adverb("here"), time=adverb("every day")
    ),
    "He often opens the door. | Er macht oft die Tür auf.": replace(OPEN, time=adverb("often")),
    "Paul called me last week. | Paul hat mich letzte Woche angerufen.": replace(
        CALL, tense="past", time=adverb("last week")
    ),
    "He must open the door tonight. | Er muss heute Abend die Tür aufmachen.": replace(
        OPEN, modal="must", time=adverb("tonight")
    ),
    "Paul wanted to call me. | Paul wollte mich anrufen.": replace(CALL, modal="want", tense="past"),
    "Tomorrow he will open the door. | Morgen wird er die Tür aufmachen.": replace(
        OPEN, modal="will", time=adverb("tomorrow"), time_first=True
    ),
    "The cats run into the house. | Die Katzen laufen ins Haus.": do("the cats", "run into", "the house"),
    "Max runs into the garden. | Max läuft in den Garten.": do("Max", "run into", "the garden"),
    "A mouse sleeps in the dark kitchen. | Eine Maus schläft in der dunklen Küche.": do(
        "a mouse", "sleep", place="the dark kitchen"
    ),
    "The bird fell asleep in the garden. | Der Vogel ist im Garten eingeschlafen.": do(
        "the bird", "fall asleep", tense="past", place="the garden"
    ),
    "We live in a quiet village. | Wir wohnen in einem ruhigen Dorf.": do("we", "live in", "a quiet village"),
    "He had a dog. | Er hatte einen Hund.": do("he", "have", "a dog", tense="past"),
    "She was at home. | Sie war zu Hause.": be("she", tense="past", place=adverb("at home")),
    "I am tired. | Ich bin müde.": be("I", "tired"),
}

NEGATION = {
    "Anna does not read a book. | Anna liest kein Buch.": replace(READ, negated=True),
    "She does not drink coffee. | Sie trinkt keinen Kaffee.": do("she", "drink", "coffee", negated=True),
    "I do not have a cat. | Ich habe keine Katze.": do("I", "have", "a cat", negated=True),
    "We cannot buy expensive cars. | Wir können keine teuren Autos kaufen.": do(
        "we", "buy", "expensive cars", modal="can", negated=True
    ),
    "You did not give the child a cookie. | Du hast dem Kind keinen Keks gegeben.": do(
        "you", "give", "a cookie", recipient="the child", tense="past", negated=True
    ),
    "He did not open the door yesterday. | Er hat die Tür gestern nicht aufgemacht.": replace(
        OPEN, time=adverb("yesterday"), tense="past", negated=True
    ),
    "Paul should not call me tomorrow. | Paul sollte mich morgen nicht anrufen.": replace(
        CALL, modal="should", time=adverb("tomorrow"), negated=True
    ),
    "They do not wait for me. | Sie warten nicht auf mich.": do("they", "wait for", "me", negated=True),
    "We do not work here. | Wir arbeiten nicht hier.": do("we", "work", place=adverb("here"), negated=True),
    "The soup was not hot. | Die Suppe war nicht heiß.": be("the soup", "hot", tense="past", negated=True),
}

SENTENCES = {
    "Does Anna read a book? | Liest Anna ein Buch?": SentenceStructure(READ, question=True),
    "Did you sleep? | Hast du geschlafen?": SentenceStructure(do("you", "sleep", tense="past"), question=True),
    "Can Paul call me? | Kann Paul mich anrufen?": SentenceStructure(replace(CALL, modal="can"), question=True),
    "Are you hungry? | Bist du hungrig?": SentenceStructure(be("you", "hungry"), question=True),
    "He opens the door because Paul calls me. | Er macht die Tür auf, weil Paul mich anruft.": SentenceStructure(
        OPEN, "because", CALL
    ),
    "Although Paul called me, he opens the door. | Obwohl Paul mich angerufen hat, macht er die Tür auf.": (
        SentenceStructure(OPEN, "although", replace(CALL, tense="past"), second_first=True)
    ),
    "When he opens the door, Anna reads a book. | Wenn er die Tür aufmacht, liest Anna ein Buch.": (
        SentenceStructure(READ, "when", OPEN, second_first=True)
    ),
    "Lena thinks that Paul wants to call me. | Lena glaubt, dass Paul mich anrufen will.": SentenceStructure(
        Clause(phrase("Lena"), lexicon.THINK), "that", replace(CALL, modal="want")
    ),
    "I do not know if Anna reads a book. | Ich weiß nicht, ob Anna ein Buch liest.": SentenceStructure(
        Clause(phrase("I"), lexicon.KNOW, negated=True), "if", READ
    ),
    "He forgot to open the door. | Er hat vergessen, die Tür aufzumachen.": SentenceStructure(
        Clause(phrase("he"), lexicon.FORGET, tense="past"), "to", OPEN
    ),
    "Anna tried to read a book. | Anna hat versucht, ein Buch zu lesen.": SentenceStructure(
        Clause(phrase("Anna"), lexicon.TRY, tense="past"), "to", READ
    ),
    "Anna reads a book, but he opens the door. | Anna liest ein Buch, aber er macht die Tür auf.": (
        SentenceStructure(READ, "but", OPEN)
    ),
}


@pytest.fixture(scope="module")
def corpus() -> DemoCorpus:
    return demo_corpus(seed=1, train=6000, valid=100, test=200)


@pytest.mark.parametrize(("pair", "structure"), [*(AGREEMENT | MAIN_CLAUSES | NEGATION | SENTENCES).items()])
def test_translation(pair: str, structure: Clause | SentenceStructure) -> None:
    sentence = structure if isinstance(structure, SentenceStructure) else SentenceStructure(structure)
    assert f"{in_english(sentence)} | {in_german(sentence)}" == pair


def test_same_seed_same_corpus_on_every_platform(corpus: DemoCorpus) -> None:
    assert demo_corpus(seed=1, train=6000, valid=100, test=200) == corpus
    assert demo_corpus(seed=2, train=100, valid=0, test=0).train != corpus.train[:100]
    texts = [text for pair in corpus.train + corpus.valid + corpus.test for text in pair]
    assert zlib.crc32("\n".join(texts).encode()) == 201788429


def test_sizes_and_lengths(corpus: DemoCorpus) -> None:
    assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == [6000, 100, 200]
    assert {len(pair[0].split()) for pair in corpus.train} == set(range(3, 21))


@pytest.mark.parametrize("language", [0, 1])
def test_no_sentence_occurs_twice(corpus: DemoCorpus, language: int) -> None:
    texts = [pair[language] for pair in corpus.train + corpus.valid + corpus.test]
    assert len(set(texts)) == len(texts)


def test_each_english_sentence_has_one_german_translation() -> None:
    german_of: dict[str, str] = {}
    for sentence in stream():
        assert german_of.setdefault(in_english(sentence), in_german(sentence)) == in_german(sentence)


def structures(pairs: list[Pair]) -> list[SentenceStructure]:
    """Finds the sentences that the pairs were written from."""
    by_english = {in_english(sentence): sentence for sentence in stream()}
    return [by_english[text] for text, _ in pairs]


def test_only_valid_and_test_contain_held_out_combinations(corpus: DemoCorpus) -> None:
    assert not any(has_held_out(sentence) for sentence in structures(corpus.train))
    assert all(has_held_out(sentence) for sentence in structures(corpus.valid + corpus.test))


def test_held_out_adjectives_and_nouns_are_never_adjacent_in_train(corpus: DemoCorpus) -> None:
    adjectives = {adjective.english for adjective in ADJECTIVES}
    singular = {form: noun.english for noun in NOUNS for form in (noun.english, noun.english_plural)}
    for text, _ in corpus.train:
        words = re.findall(r"\w+", text.lower())
        adjacent = [(first, singular[second]) for first, second in pairwise(words) if second in singular]
        assert not any(first in adjectives and is_held_out(first, second) for first, second in adjacent)


def test_word_forms_of_valid_and_test_occur_often_in_train(corpus: DemoCorpus) -> None:
    counts = Counter(form for pair in corpus.train for form in word_forms(pair))
    assert min(counts[form] for pair in corpus.valid + corpus.test for form in word_forms(pair)) >= 5


def test_about_a_twelfth_of_the_combinations_is_held_out_and_every_word_keeps_most_of_its_own() -> None:
    pairs = sorted({pair for sentence in stream() for pair in combinations(sentence)})
    assert 0.06 < sum(is_held_out(*pair) for pair in pairs) / len(pairs) < 0.10
    for side in (0, 1):
        for word in {pair[side] for pair in pairs}:
            own = [is_held_out(*pair) for pair in pairs if pair[side] == word]
            assert sum(own) <= len(own) / 3, word


def test_every_word_of_the_lexicon_occurs_in_train(corpus: DemoCorpus) -> None:
    text = " ".join(pair[0] for pair in corpus.train)
    words = [noun.english for noun in NOUNS] + [adjective.english for adjective in ADJECTIVES]
    words += [dictionary_form(verb) for verb in VERBS] + [adverb.english for adverb in TIMES + PLACES]
    assert [word for word in words if not re.search(rf"\b{word}\b", text, re.IGNORECASE)] == []


def test_too_small_a_training_set_is_an_error() -> None:
    with pytest.raises(ValueError, match="too small"):
        demo_corpus(train=3, valid=1, test=1)


def test_written_files_are_line_aligned(tmp_path: Path, corpus: DemoCorpus) -> None:
    write_demo_corpus(tmp_path / "demo", corpus)
    for split, pairs in (("train", corpus.train), ("valid", corpus.valid), ("test", corpus.test)):
        sides = [(tmp_path / "demo" / f"{split}.{language}").read_bytes() for language in ("en", "de")]
        assert b"\r" not in sides[0] + sides[1]
        assert list(zip(*(side.decode().splitlines() for side in sides), strict=True)) == pairs
    write_demo_corpus(tmp_path / "demo", corpus)
    with (tmp_path / "demo/train.en").open("a") as file:
        file.write("A line of mine.\n")
    with pytest.raises(ConfigError, match=r"train\.en exists with other text; move it away"):
        write_demo_corpus(tmp_path / "demo", corpus)
