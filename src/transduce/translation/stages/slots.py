"""Slots: reserved symbols in place of protected spans, for models that were trained with augment.spans."""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import RESERVED, SLOTS, escape, unescape
from transduce.translation.markup import paired_tags
from transduce.translation.text import Context, Edit, Found, Required, Segment, Span, Stage, Text, merge

_MAY_BE_COPIED = re.compile(r"\d|[a-z][A-Z]")
"""Finds numbers, codes and names such as "camelCase"."""
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_UNIT = re.compile(r"(?<=\d )[^\W\d_]+$")
"""The word after a number."""
COUNT = re.compile(
    r"%(?:\(\w+\)|\d+\$)?[-+#0]*\d*(?:hh?|ll?|[qjzt])?[diu]|\$?\{\{? ?(?:n|num|number|count|total) ?\}?\}"
)
"""A placeholder of a number. A model that reads a slot may take it for a name: "%d-Dateien" instead of "%d Dateien"."""
_SLOT = re.compile(f"([{''.join(SLOTS)}])")


class Slots(Stage):
    """Makes a marked text, in which reserved characters of the user are escaped, with a slot for each protected span.

    The model copies a slot, and what it stands for takes its place in the output.
    """

    name = "slots"

    def __init__(self, uses_slots: bool) -> None:
        self._slots = SLOTS if uses_slots else []

    def apply(self, text: Text, context: Context) -> Text:
        """The marked text, with numbers and codes that the model copies among what is required."""
        characters, terms = text.characters, [required for required in text.required if required.is_term]
        taken = [required.span for required in terms]
        protected = [required for required in text.required if not required.is_term]
        if terms:  # a term may contain a protected span
            free = {*merge(taken, [required.span for required in protected])} - {*taken}
            protected = [required for required in protected if required.span in free]
        if not protected and not terms and not _MAY_BE_COPIED.search(characters) and escape(characters) == characters:
            return text
        in_slots = [replace(required, slot=slot) for required, slot in zip(protected, self._slots, strict=False)]
        protected = [*in_slots, *protected[len(in_slots) :]]
        checked = list[Required]()
        if self._slots and context.protection and _MAY_BE_COPIED.search(characters):
            spans = merge(taken, [required.span for required in protected])
            copied = context.protection.copied(characters, spans)
            checked = [Required(characters[slice(*span)], span, "checked") for span in copied]
        edits: list[Edit] = [(*required.span, required.slot) for required in in_slots]
        if escape(characters) != characters:
            special = [Span(at, at + 1) for at, letter in enumerate(characters) if escape(letter) != letter]
            slots = [required.span for required in in_slots]
            escaped = {*merge(slots, special)} - {*slots}
            edits = sorted([*edits, *((at, end, escape(characters[at:end])) for at, end in escaped)])
        return replace(text, required=(*protected, *checked, *terms)).edited(edits)

    @staticmethod
    def restore(output: Found, segment: Segment) -> Found:
        """The text of a marked output: slots are replaced by what they stand for, and unknown ones are left out."""
        originals = {slot: required.text for slot, required in segment.slots.items()}
        marked = _with_nested_tags(
            output.text, {slot: text for slot, text in originals.items() if _TAG.fullmatch(text)}
        )
        for slot, original in originals.items():
            if _TAG.fullmatch(original):  # no space between a tag and its words if the source has none there
                if re.search(re.escape(original) + r"\S", segment.text):
                    marked = marked.replace(f"{slot} ", slot)
                if re.search(r"\S" + re.escape(original), segment.text):
                    marked = marked.replace(f" {slot}", slot)
            elif unit := _UNIT.search(original):  # "17:30 Uhr" in place of a time that the model wrote with "Uhr"
                marked = re.sub(rf"{slot} {unit[0]}(?!\w)", slot, marked)
            elif COUNT.fullmatch(original) and f"{original} " in segment.text:
                marked = marked.replace(f"{slot}-", f"{slot} ")
        pieces = [originals.get(piece, "") if piece in SLOTS else unescape(piece) for piece in _SLOT.split(marked)]
        ends = [*accumulate(map(len, pieces), initial=0)]
        text = "".join(pieces)
        kept = tuple(map(Span, ends[1:-1:2], ends[2::2]))
        return replace(output, text=text if segment.prefix else text.rstrip(" "), kept=kept)


def reserved_tokens(tokenizer: AnyTokenizer) -> range:
    """The ids of the reserved symbols, slots first; none if the vocabulary does not have them all, side by side."""
    ids = [tokenizer.symbol_ids.get(symbol, -1) for symbol in RESERVED]
    tokens = range(ids[0], ids[0] + len(ids))
    return tokens if ids[0] >= 0 and ids == [*tokens] else range(0)


def _with_nested_tags(marked: str, tags: Mapping[str, str]) -> str:
    """The output; if a tag closes before it opens, or inside of another pair, tags are in the order of the source."""
    starts = accumulate(map(len, tags.values()), initial=0)
    paired = {tag.start() for tag in paired_tags("".join(tags.values()))}
    slots = [slot for slot, start in zip(tags, starts, strict=False) if start in paired]
    found = [character for character in marked if character in slots]
    is_complete = sorted(found) == sorted(slots)  # the beginning of an output is not
    if not is_complete or len(paired_tags("".join(tags[slot] for slot in found))) == len(found):
        return marked
    in_order = iter(slots)
    return "".join(next(in_order) if character in slots else character for character in marked)
