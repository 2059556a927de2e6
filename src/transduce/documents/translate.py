"""Translates texts with inline tags, which a document has, and aligns them so that the tags can be put back."""

from collections.abc import Callable, Sequence
from typing import Any

from transduce.documents.document import AlignedTranslation
from transduce.translation.markup import TaggedText
from transduce.translation.translator import Terms, Translator


def translate_tagged(
    translator: Translator,
    texts: Sequence[TaggedText],
    *,
    to: str | None = None,
    glossary: Terms | None = None,
    text_done: Callable[[], object] = lambda: None,
    **options: Any,
) -> list[AlignedTranslation]:
    """The translation of each text; a text that occurs several times is translated once.

    `text_done` is called when a different text is translated. Only texts with tags are aligned, which takes time.
    """
    aligns = translator.any_model.aligns
    outputs: dict[tuple[str, bool], AlignedTranslation] = {}
    for align in (False, True):
        different = [*dict.fromkeys(one.text for one in texts if bool(one.tags) == align)]
        results = translator.stream(
            different, to=to, align=align and aligns, glossary=glossary, text_done=text_done, **options
        )
        for text, best in zip(different, results, strict=True):
            aligned = translator.aligned_spans(best.segments, best[0])
            outputs[text, align] = AlignedTranslation(best[0].text.replace("\n", " "), aligned)
    return [outputs[one.text, bool(one.tags)] for one in texts]


def different_texts(texts: Sequence[TaggedText]) -> int:
    """The number of texts that `translate_tagged` translates."""
    return len({(one.text, bool(one.tags)) for one in texts})
