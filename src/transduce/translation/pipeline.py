"""What happens to a text: one list of stages, in the order in which they run.

A line goes through all stages forwards; the search makes an output of each segment; the output goes back through the
same stages in reverse. A stage is a class with `apply`, which changes the text, and `restore`, which undoes that in the
output; it is in a file of `stages/`. All texts are immutable (`Text`), and carry along where their characters come from
and what their translation must contain.

| stage     | before the search                             | after it                                             |
|-----------|-----------------------------------------------|------------------------------------------------------|
| tags      | takes pairs of tags and asterisks out         | puts them around the words that translate theirs     |
| split     | makes segments: sentences, columns, marks     | joins their translations                             |
| protect   | finds what comes back unchanged               |                                                      |
| glossary  | finds terms                                   |                                                      |
| truecase  | ordinary capitals for CAPITALS and Titles     | capitals                                             |
| slots     | symbols for what is protected                 | what they stand for                                  |
| normalize | usual forms of rare characters, "UK" for U.K. |                                                      |
| expand    | words for abbreviations                       |                                                      |
| language  | symbols of target language and formality      |                                                      |
| search    | runs the model; searches again for what an output lost (`recheck`), adds what it lacks (`repair`)    |

Two places depart from a plain list of functions from a text to a text:

- `Split` makes several texts of one. Stages before it get the line, those after it each segment on its own, because the
  segments of all lines are searched for together. Its `restore` is the last step.
- `Tags` take their marks out of the line, since they must not keep a sentence from being found, but put them back into
  the output of each segment: it is aligned by segment, and the server shows segments one by one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from transduce.deadline import check_deadline
from transduce.errors import ConfigError, DataError
from transduce.files.languages import Direction, TargetLanguage, source_of
from transduce.files.texts import require_text
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import FORMALITY, SLOTS, after, describe, language_tag, split_tags, tag_prefix
from transduce.translation.detection import Detector
from transduce.translation.formality import Formality, has_forms_of_address
from transduce.translation.stages.glossary import Terms
from transduce.translation.stages.normalize import Expand, Normalize, Readable
from transduce.translation.stages.protect import Protect, Protection
from transduce.translation.stages.slots import Slots, reserved_tokens
from transduce.translation.stages.split import Split
from transduce.translation.stages.tags import Tags
from transduce.translation.stages.truecase import Truecase
from transduce.translation.text import Context, Edit, Found, Required, Segment, Stage, Text
from transduce.translation.wording import DEFAULT_WORDING, Wording

Step = tuple[int, str, str]
"""The number of a segment, or 0 for the line, the name of a stage, and the text after it."""
_TERMS_PER_SOURCE = 4
"""Maximum number of tokens of the terms in an output, as a multiple of those of the longest source: it bounds time."""
_SYMBOL = re.compile(f"[{''.join([*SLOTS, *FORMALITY.values()])}]|{language_tag('[^ ]*?')}")


class Line(NamedTuple):
    """A text to translate."""

    text: str
    prefix: str = ""
    """What every sentence of the output starts with."""
    target: str | None = None
    """The target language."""
    number: int = 1
    """Its number, for error messages."""
    before: str = ""
    """The text before it, of whose last sentence a model with data.context reads."""


class Language(Stage):
    """Puts symbols before a text: the tags of languages that a multilingual model reads, and formality."""

    name = "language"

    def __init__(self, tagged: bool) -> None:
        self._tagged = tagged

    def apply(self, text: Text, context: Context) -> Text:
        tag = tag_prefix(context.target if self._tagged else None)
        form = f"{FORMALITY[context.formality]} " if context.formality else ""
        return text.edited([(0, 0, tag + form)]) if tag or form else text


class Pipeline:
    """The stages of a model, and what it takes."""

    def __init__(
        self,
        tokenizer: AnyTokenizer,
        max_source_length: int,
        *,
        by_sentence: bool = False,
        directions: Sequence[Direction] = (),
        tagged: bool = False,
        protection: Protection | None = None,
        uses_slots: bool = False,
        knows_formality: bool = False,
        aligns: bool = False,
        truecases: bool = False,
        longest_prefix: int | None = None,
        context: bool = False,
        source_tags: bool = False,
    ) -> None:
        """`by_sentence`: whether every sentence is a segment; otherwise, a line is one if it is not too long.

        `directions` are empty if they are not known. `tagged`: whether a tag of the target language begins every
        source, as in multilingual models; `source_tags`: whether one of the source language follows. `uses_slots`,
        `knows_formality`: whether the model was trained with slots, and with symbols of formality. `aligns`: whether
        outputs can be aligned. `truecases`: whether sentences in capitals or title case get ordinary capitals.
        `context`: whether the model reads the sentence before.
        `longest_prefix` is the maximum number of tokens of an output's prefix, None if there is no limit.
        """
        self.tokenizer, self.max_source_length, self._longest_prefix = tokenizer, max_source_length, longest_prefix
        self.protection, self.uses_slots, self._directions = protection, uses_slots, directions
        self.tagged, self.context, self._source_tags = tagged, context, source_tags
        self._reserved = reserved_tokens(tokenizer.target)
        self.knows_formality = knows_formality and all(symbol in tokenizer.symbol_ids for symbol in FORMALITY.values())
        symbols = {*tokenizer.symbol_ids.values()}
        known = [token for token in range(tokenizer.vocab_size) if token not in symbols]
        readable = Readable(lambda: tokenizer.pieces(known))
        self.sources: dict[str | None, set[str]] = {None: set()}
        """The languages that the source of a translation to a language may have."""
        for source, target in directions:
            self.sources[None].add(source)
            self.sources.setdefault(target, set()).add(source)
        protect = Protect(readable, uses_slots, self.sources)
        self.tags = Tags(aligns)
        self.split = Split(protect, by_sentence)
        self.stages: list[Stage] = [
            protect,
            Terms(),
            *([Truecase(readable, tokenizer.encode, uses_slots)] if truecases else []),
            Slots(uses_slots),
            Normalize(readable),
            Expand(readable, self.sources),
            Language(tagged),
        ]
        """The stages of a segment; `tags` and `split` come before them, the search (`stages/search.py`) after them."""
        both = [*reversed(self.stages), self.tags]
        self._restoring = [stage for stage in both if type(stage).restore is not Stage.restore]

    def segments(
        self,
        lines: Sequence[Line],
        wording: Wording = DEFAULT_WORDING,
        *,
        protect: bool = True,
        refuse_long: bool = False,
    ) -> list[list[Segment]]:
        """The segments of each line; the output of every sentence starts with the line's prefix.

        A segment that is too long is split, or with `refuse_long` raises a DataError.
        """
        for line in lines:
            require_text(line.text, f"line {line.number}")
            require_text(line.prefix, f"the prefix of line {line.number}")
        prefixes = [self._encode_prefix(line) for line in lines]
        contexts = [
            self._context(line, wording, protect=protect, has_prefix=bool(prefix))
            for line, prefix in zip(lines, prefixes, strict=True)
        ]
        originals = [
            self.split.apply(self.tags.apply(Text.of(line.text), context), context)
            for line, context in zip(lines, contexts, strict=True)
        ]
        sources = [
            [self.prepare(text, context) for text in texts] for texts, context in zip(originals, contexts, strict=True)
        ]
        read = self._in_context(lines, originals, sources, contexts) if self.context else sources
        tokens = iter(self.tokenizer.encode_all([text.characters for texts in read for text in texts], -1, marked=True))
        results: list[list[Segment]] = []
        for line, prefix, context, *texts in zip(lines, prefixes, contexts, originals, read, sources, strict=True):
            segments: list[Segment] = []
            for original, source, plain in zip(*texts, strict=True):
                segment = self._segment(original, source, next(tokens), prefix, context)
                if source is not plain and len(segment.tokens) > self.max_source_length:  # without its context
                    segment = self._segment(original, plain, self._encoded(plain), prefix, context)
                if self._fits(source, segment.tokens):
                    segments.append(segment)
                elif refuse_long and len(segment.tokens) > self.max_source_length:
                    raise DataError(
                        f"line {line.number} has {len(segment.tokens):,} tokens, more than the "
                        f"{self.max_source_length} this model takes at once; shorten it or split it with long=split"
                    )
                else:
                    segments += self._pieces(original, prefix, context)
            results.append(segments)
        return results

    def _in_context(
        self,
        lines: Sequence[Line],
        originals: Sequence[Sequence[Text]],
        sources: Sequence[Sequence[Text]],
        contexts: Sequence[Context],
    ) -> list[list[Text]]:
        """The sources of each line, each with the sentence before it, unless it is the first of a document."""
        results = []
        for line, texts, prepared, context in zip(lines, originals, sources, contexts, strict=True):
            before = self.split.apply(self.tags.apply(Text.of(line.before), context), context)[-1:]
            sentences = [*(before or [Text.of("")]), *texts]
            in_context = []
            for source, sentence in zip(prepared, sentences, strict=False):
                at = len(split_tags(source.characters)[0])
                known = after(sentence.characters.strip())
                in_context.append(source.edited([(at, at, known)]) if known else source)
            results.append(in_context)
        return results

    def _encoded(self, source: Text) -> list[int]:
        (tokens,) = self.tokenizer.encode_all([source.characters], marked=True)
        return tokens

    def whole(self, text: str, target: str | None) -> Segment:
        """A text as one segment, even if it has several sentences; a DataError if it is empty or does not fit."""
        require_text(text, "the text")
        if not text.strip():
            raise DataError("the text is empty")
        context = self._context(Line(text, target=target), DEFAULT_WORDING)
        (original,) = self.split.whole(Text.of(text), context)
        source = self.prepare(original, context)
        (tokens,) = self.tokenizer.encode_all([source.characters], marked=True)
        if len(tokens) > self.max_source_length:
            raise DataError(
                f"the text has {len(tokens):,} tokens; the model takes {self.max_source_length}: shorten it"
            )
        return self._segment(original, source, tokens, [], context)

    def prepare(self, text: Text, context: Context) -> Text:
        """A segment as the model reads it."""
        check_deadline()
        for stage in self.stages:
            text = stage.apply(text, context)
        return text

    def restore(self, output: Found, segment: Segment) -> Found:
        """The translation of a segment: an output of the search after all stages, in reverse."""
        for stage in self._restoring:
            output = stage.restore(output, segment)
        return output

    def explain(
        self,
        line: Line,
        wording: Wording,
        segments: Sequence[Segment],
        found: Iterable[Found],
        repaired: Iterable[Found],
    ) -> Iterator[Step]:
        """The steps of a line, given its segments and what the search found for them, before and after repairs."""
        context = self._context(line, wording)
        if (text := self.tags.apply(Text.of(line.text), context)).marks:
            yield 0, self.tags.name, text.characters
        if len(segments) > 1:
            yield from ((number, self.split.name, segment.text) for number, segment in enumerate(segments, start=1))
        outputs = []
        for number, (segment, first, best) in enumerate(zip(segments, found, repaired, strict=True), start=1):
            text = segment.original
            for stage in self.stages:
                before, text = text, stage.apply(text, context)
                if (text.characters, text.required) != (before.characters, before.required):
                    yield number, stage.name, _shown(text, before)
            yield number, "search", _described(first.text)
            if best.text != first.text:
                yield number, "repair", _described(best.text)
            for stage in self._restoring:
                before_restoring, best = best, stage.restore(best, segment)
                if best.text != before_restoring.text:
                    yield number, stage.name, best.text
            outputs.append(best.text)
        if len(segments) > 1:
            yield 0, self.split.name, self.split.restore(outputs, segments)

    def rewritten(self, segment: Segment, edits: Sequence[Edit], required: tuple[Required, ...]) -> Segment:
        """A segment whose source, as the model reads it, is edited and has other required text."""
        source = replace(segment.source, required=required).edited(sorted(edits))
        (tokens,) = self.tokenizer.encode_all([source.characters], marked=True)
        return replace(segment, tokens=tokens, source=source, once=self._once(source))

    def formal(self, segment: Segment, formality: Formality) -> Segment:
        """A segment that did not name a form of address, and names it now."""
        at = len(tag_prefix(segment.target if self.tagged else None))
        return self.rewritten(segment, [(at, at, f"{FORMALITY[formality]} ")], segment.required)

    def require_formality(self, formality: Formality | None, target: str | None) -> None:
        """Raise a ConfigError if a form of address is named that the model or the target language does not know."""
        if formality is None:
            return
        if formality not in FORMALITY:
            raise ConfigError(f"formality must be one of {', '.join(FORMALITY)}, not {formality!r:.40}")
        if not self.knows_formality:
            raise ConfigError(
                "this model was not trained with formality (augment.formality), so it cannot choose a form of address"
            )
        if target and not has_forms_of_address(target):
            raise ConfigError(f"formality is for languages with two forms of address; {target} is not one of them")

    def source_language(self, target: str | None) -> str | None:
        """The language of the source, if the directions leave no choice."""
        sources = self.sources.get(target, set())
        return next(iter(sources)) if len(sources) == 1 else None

    def languages(self, line: Line) -> tuple[str | None, str | None]:
        """The languages of a line; a model that reads a tag of the source language needs both."""
        source, target = source_of(line.target) or self.source_language(line.target), line.target
        if not self._source_tags or not target:
            return source, target
        source = source or self._detector.detect(line.text).language
        if not any(map(str.isalpha, line.text)):  # a number is the same in all languages
            source = source or next(iter(self.sources[None]))
        if source not in self.sources[None]:
            raise DataError(f"line {line.number}: the language of the text is not certain; name it (--from, or source)")
        return source, TargetLanguage(target, source)

    @cached_property
    def _detector(self) -> Detector:
        return Detector(self._directions, [self.tokenizer])

    def _context(self, line: Line, wording: Wording, *, protect: bool = True, has_prefix: bool = False) -> Context:
        protection = self.protection if protect else None
        source, target = self.languages(line)
        return Context(source, target, wording.glossary, wording.formality, wording.locale, protection, has_prefix)

    def _encode_prefix(self, line: Line) -> list[int]:
        tokens = self.tokenizer.target.encode(line.prefix) if line.prefix else []
        if self._longest_prefix is not None and len(tokens) > self._longest_prefix:
            raise DataError(
                f"line {line.number} has a prefix of {len(tokens):,} tokens, more than the {self._longest_prefix} this "
                "model can generate; shorten it"
            )
        return tokens

    def _pieces(self, text: Text, prefix: Sequence[int], context: Context) -> list[Segment]:
        """The segments of a sentence that does not fit; the output of the first starts with the prefix."""
        without_terms = replace(context, glossary=None)

        def fits(piece: str) -> bool:
            source = self.prepare(Text.of(piece), without_terms)
            return self._fits(source, self.tokenizer.encode_all([source.characters], marked=True)[0])

        originals = self.split.pieces(text, fits, context)
        sources = [self.prepare(original, context) for original in originals]
        tokens = self.tokenizer.encode_all([source.characters for source in sources], marked=True)
        return [
            self._segment(original, source, tokens[n], () if n else prefix, context)
            for n, (original, source) in enumerate(zip(originals, sources, strict=True))
        ]

    def _fits(self, source: Text, tokens: Sequence[int]) -> bool:
        """Whether a segment has at most as many tokens as the model takes, and a slot for each of its spans."""
        has_slots = len(source.spans("protected")) <= len(SLOTS) or not self.uses_slots
        return has_slots and len(tokens) <= self.max_source_length

    def _segment(
        self, original: Text, source: Text, tokens: list[int], prefix: Sequence[int], context: Context
    ) -> Segment:
        required = [required.marked for required in source.required]
        distinct = [*dict.fromkeys(required)]
        encoded = dict(
            zip(distinct, self.tokenizer.target.encode_all(distinct, marked=True) if required else [], strict=True)
        )
        in_terms = sum(len(encoded[text.marked]) for text in source.required if text.is_term)
        if in_terms > (most := _TERMS_PER_SOURCE * self.max_source_length):
            raise DataError(
                f"the glossary has {in_terms:,} tokens for the terms of one sentence ({original.characters[:40]!r}), "
                f"more than the {most:,} that this model takes; shorten the translations of terms"
            )
        return Segment(
            tokens, list(prefix), original, source, context.target, sum(len(encoded[text]) for text in required),
            terms=tuple(sorted({token for ids in encoded.values() for token in ids})),
            reserved=self._reserved, once=self._once(source),
        )  # fmt: skip

    def _once(self, source: Text) -> tuple[int, ...]:
        """The tokens of the slots of a source."""
        return tuple(self._reserved[SLOTS.index(required.slot)] for required in source.required if required.slot)


def _shown(text: Text, before: Text) -> str:
    """The text after a stage for people; if only required text was found, with brackets around it."""
    if text.characters != before.characters:
        return _described(text.characters)
    new = sorted(
        (required for required in text.required if required not in before.required), key=lambda required: required.span
    )
    edits = []
    for required in new:
        source = text.characters[slice(*required.span)]
        edits.append((*required.span, f"[{source}]" if source == required.text else f"[{source} = {required.text}]"))
    return text.edited(edits).characters


def _described(marked: str) -> str:
    """A marked text for people: ⟨0⟩ for the first slot, ⟨de⟩ for the tag of a language."""
    return _SYMBOL.sub(lambda symbol: describe(symbol[0]), marked)


def output_text(marked: str, segment: Segment) -> str:
    """The text of a marked output of a segment, or of the beginning of one, without its tags."""
    output = Found(marked)
    for stage in (Slots, Truecase):
        output = stage.restore(output, segment)
    return output.text
