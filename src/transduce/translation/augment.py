"""Augmentation of training pairs, so that models are robust to capitals, typing errors and protected text.

Every change is a pure function of the pair and a random generator. Pairs are marked texts (see tokenizers/symbols.py):
the symbols that they begin with, such as a language tag, stay unchanged.
"""

import random
import re
from collections.abc import Sequence

from transduce.tokenizers.symbols import FORMALITY, SEPARATOR, SLOTS, has_escapes, split_tags, tagged_language
from transduce.translation.formality import form_of_address
from transduce.translation.stages.protect import shared_parts

Pair = tuple[str, ...]

_MAX_SPANS = 4
_END_PUNCTUATION = ".!?。！？।؟…"
_WORD = re.compile(r"[^\W\d_]+")
_EMOJI = "😀😂😊😍🤔😢😎🙏👍👎👏💪🎉🎂🔥✨⭐❤️💔☀️🌧️🐶🐱🌹🍕☕🚗✈️🏠📷📞✅❌⚠️".replace("\ufe0f", "")


_SYLLABLE = [
    sounds.split(" ")
    for sounds in (
        "b bh br c ch d dr f fl g gh gr h j k kh kr l ll m mb n ng p ph qu r s sch sh sk st sz t th tr v w x y z ł ñ ç",
        "a a a e e e i i o o u y aa ai ae au ea ee ei eo ia ie io oe oo ou ui á é è í ó ö ø ü å ã",
        "    b ck d ff g k l ll m n nn nt r rd rt s sh ss t tz x z",
    )
]
"""How a syllable of an invented name begins, its vowels, and how it ends."""
_BEFORE_NAMES = ("", "", "", "", "", "", "O'", "D'", "Mc", "Mac", "El-", "Al-")


def augment(pair: Pair, changes: Sequence[str], seed: int, language: str | None = None) -> Pair:
    """The pair with these changes, which are names of settings.

    `language` is that of the target if the source has no language tag.
    """
    if any(map(has_escapes, pair)):  # letters of escape sequences must not be changed
        return pair
    generator = random.Random(seed)
    tags, texts = zip(*map(split_tags, pair), strict=True)
    source, target = texts
    before, separator, source = source.rpartition(SEPARATOR)  # the context stays as it is
    prefix = tags[0]
    if "formality" in changes and (form := form_of_address(target, tagged_language(prefix) or language)):
        prefix += f"{FORMALITY[form]} "
    if "names" in changes:
        source, target = _with_other_name(source, target, generator)
    if "spans" in changes:
        source, target = _with_slots(source, target, generator)
    if "punctuation" in changes:
        source, target = _with_other_end(source, target, doubled=generator.random() < 1 / 3)
    if "typos" in changes:
        source = _with_typos(source, generator)
    if "upper" in changes:
        source, target = source.upper(), target.upper()
    elif "title" in changes:
        source, target = _title(source), _title(target)
    if "emoji" in changes:
        source, target = _beside(source, target, generator.choice(_EMOJI), generator)
    return prefix + before + separator + source, tags[1] + target


def _with_other_name(source: str, target: str, generator: random.Random) -> tuple[str, str]:
    """Replace one shared name by an invented one, which no model can know by heart."""
    names = [part for part in shared_parts(source, target) if part.istitle() and part.isalpha()]
    if not names:
        return source, target
    name = generator.choice(names)
    syllables = ("".join(map(generator.choice, _SYLLABLE)) for _ in range(generator.randint(1, 4)))
    invented = generator.choice(_BEFORE_NAMES) + "".join(syllables).capitalize()
    return source.replace(name, invented), target.replace(name, invented)


def _with_slots(source: str, target: str, generator: random.Random) -> tuple[str, str]:
    """Replace up to three shared parts by slots; in some pairs, put a slot before or after both sides as well."""
    shared = shared_parts(source, target)
    # A translator numbers slots from the first on; others are trained for sentences with many spans.
    slots = iter(SLOTS if generator.random() < 0.5 else sorted(generator.sample(SLOTS, _MAX_SPANS)))
    if not shared or generator.random() < 0.25:
        source, target = _beside(source, target, next(slots), generator)
    parts = generator.sample(shared, min(len(shared), generator.randint(1, _MAX_SPANS - 1)))
    for part in sorted(parts, key=source.index):
        slot = next(slots)
        source, target = source.replace(part, slot, 1), target.replace(part, slot, 1)
    return source, target


def _with_other_end(source: str, target: str, *, doubled: bool) -> tuple[str, str]:
    if not (source[-1:] in _END_PUNCTUATION and target[-1:] in _END_PUNCTUATION and source[:-1] and target[:-1]):
        return source, target
    if doubled:
        return source + source[-1], target + target[-1]
    return source.rstrip(_END_PUNCTUATION), target.rstrip(_END_PUNCTUATION)


def _with_typos(text: str, generator: random.Random) -> str:
    for _ in range(generator.randint(1, 3)):
        words = [match.span() for match in _WORD.finditer(text) if match.end() - match.start() >= 4]
        if not words:
            return text
        start, end = generator.choice(words)
        at = generator.randrange(start, end - 1)
        a, b = text[at], text[at + 1]
        wrong = generator.choice(text[start:end]).lower()
        typo = generator.choice((b + a, b + a, b + a, b, a + a + b, wrong + b))
        text = text[:at] + typo + text[at + 2 :]
    return text


def _title(text: str) -> str:
    return _WORD.sub(lambda match: match[0][0].upper() + match[0][1:], text)


def _beside(source: str, target: str, added: str, generator: random.Random) -> tuple[str, str]:
    """Put text after both sides or, in one of four cases, before them."""
    if generator.random() < 0.25:
        return f"{added} {source}", f"{added} {target}"
    return f"{source} {added}", f"{target} {added}"
