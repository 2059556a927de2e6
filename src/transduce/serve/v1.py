"""The /v1 interface: n-best translations with scores and alignments, in one response or as a stream; alternatives for
a word of a translation; and the list of models."""

import dataclasses
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, cast, get_type_hints

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, create_model

from transduce.deadline import check_deadline
from transduce.errors import DataError, needs_torch
from transduce.files.languages import TargetLanguage, language_name
from transduce.files.scripts import has_spaces
from transduce.inspect.request import can_inspect
from transduce.search.decoder import NEVER_GENERATED
from transduce.search.engine import output_limit
from transduce.search.options import SearchConfig, SearchOptions
from transduce.serve.api_keys import ApiKeys
from transduce.serve.documents import document_suffixes
from transduce.serve.limits import HttpError
from transduce.serve.request_parsing import ERROR_RESPONSES, JSON, ErrorResponse, Texts, read_json, request_body
from transduce.serve.served_models import ServedModels
from transduce.serve.translation_service import PendingTranslation, RequestLine, SplitTexts, TranslationService
from transduce.tokenizers.symbols import escape
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.translation.detection import DETECTION_COST, Detector
from transduce.translation.pipeline import output_text
from transduce.translation.text import Segment
from transduce.translation.translation import Translation
from transduce.translation.translator import Translator

_EXAMPLE: dict[str, Any] = {"text": ["A man sleeps.", "Two dogs run."], "nbest": 2, "align": True}
_ALTERNATIVES_EXAMPLE: dict[str, Any] = {"text": "A man sleeps.", "output": "Ein Mann schläft.", "position": 9}
_ALTERNATIVES_COST = 4_000
"""Cost of finding the alternatives of a word, in characters that are translated."""
_SCHEMA_BOUNDS = {"at_least": "minimum", "above": "exclusiveMinimum", "at_most": "maximum"}


class _TextRequest(BaseModel):
    """Texts to translate and search options; an option that is not given has the model's value."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": _EXAMPLE})
    text: Texts = Field(description="One text or several; each line is translated separately.")
    model: str | None = Field(None, description="Name of a model; by default the server's first model.")
    to: str | None = Field(None, description="Target language, e.g. de; for a model with several.")
    source: str | None = Field(
        None, description="Source language, which models such as NLLB read; detected by default."
    )
    prefix: str = Field("", description="Text that every sentence of a translation starts with.")
    glossary: dict[str, str] | None = Field(None, description="Terms, and the translations to use for them.")
    formality: Literal["formal", "informal"] | None = Field(
        None, description="How the translation addresses its reader, for models that were trained with it."
    )
    locale: bool = Field(True, description="Write numbers, prices and times as the target language does.")
    protect: bool = Field(True, description="Keep addresses, placeholders, numbers with units and emoji unchanged.")
    align: bool = Field(False, description="Return, for each token, the source token with the highest weight.")
    confidence: bool | Literal["words"] = Field(
        False,
        description="Estimate the quality of outputs, for which the model must be calibrated; `words` adds only the "
        "probabilities of words, which need no calibration.",
    )
    coverage: bool = Field(
        False, description="Return the words of the source that an output seems to lack, as `uncovered`."
    )
    sentences: bool = Field(False, description="Return the sentences that were translated, with their translations.")
    stream: bool = Field(False, description="Send each sentence when it is finished, as server-sent events.")

    def options(self, default: SearchConfig) -> SearchOptions:
        """The search options that are given; the beam grows with nbest unless it is given or outputs are sampled."""
        options = cast(SearchOptions, self.model_dump(exclude_none=True, exclude={*_TextRequest.model_fields}))
        if "nbest" in options and not options.get("sample", default.sample):
            options.setdefault("beam", max(options["nbest"], default.beam))
        return options


def _search_fields() -> dict[str, Any]:
    """Each search option as an optional field; its bounds are part of the schema, and SearchConfig checks them."""
    hints = get_type_hints(SearchConfig)
    fields: dict[str, Any] = {}
    for option in dataclasses.fields(SearchConfig):
        bounds = {_SCHEMA_BOUNDS[name]: bound for name, bound in option.metadata["bounds"].items()}
        field = Field(None, description=option.metadata["help"], json_schema_extra=bounds)
        fields[option.name] = (hints[option.name] | None, field)
    return fields


TextRequest = create_model("TextRequest", __base__=_TextRequest, __doc__=_TextRequest.__doc__, **_search_fields())


class Output(BaseModel):
    """One translation."""

    text: str
    score: float = Field(description="Ranking score: log-probability divided by the length penalty.")
    log_prob: float
    tokens: list[str]
    alignment: list[int] | None = Field(None, description="For each token, an index into source_tokens.")
    confidence: float | None = Field(None, description="Estimate of chrF / 100, between 0 and 1.")
    word_confidences: list[float] | None = Field(None, description="The probability of each word between white space.")
    uncovered: list[str] | None = Field(None, description="The words of the source that it seems to lack.")


class TranslatedSentence(BaseModel):
    """A sentence, or a piece of a long one, as the model read it, with its best translation."""

    line: int = Field(description="Index of its line in the text.")
    source: str
    text: str = Field(description="The best translation; empty for an empty line.")
    after: str = Field(description="White space between this translation and the next one of the same line.")
    confidence: float | None = None
    word_confidences: list[float] | None = None
    uncovered: list[str] | None = None
    aligned: list[tuple[tuple[int, int], tuple[int, int]]] | None = Field(
        default=None, description="With `align`: ranges of characters of `source` and of `text` that are aligned."
    )


class TranslatedText(BaseModel):
    """The translations of a text, best first."""

    source_tokens: list[str]
    outputs: list[Output]
    sentences: list[TranslatedSentence] | None = Field(None, description="The sentences of the best output.")


class TextAnswer(BaseModel):
    """The translations of all texts, in the order of the request."""

    model: str
    translations: list[TranslatedText]


class SentenceEvent(TranslatedText):
    """The translations of one sentence; sentences are sent in the order in which they finish."""

    text: int = Field(description="Index of its text in the request.")
    line: int = Field(description="Index of its line in the text.")


class AlternativesRequest(BaseModel):
    """A sentence, its translation, and a word of the translation."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": _ALTERNATIVES_EXAMPLE})
    text: str = Field(description="One sentence, as `sentences` of /v1/translate returns it.")
    output: str = Field(description="Its translation.")
    position: int = Field(ge=0, description="Index of the first character of a word in the translation.")
    model: str | None = Field(None, description="Name of a model; by default the server's first model.")
    to: str | None = Field(None, description="Target language, e.g. de; for a model with several.")
    count: int = Field(8, ge=1, le=16, description="Number of alternatives.")


class Alternative(BaseModel):
    """Another word, and the translation that begins with it from there."""

    word: str
    probability: float = Field(description="Probability of the word, given the words before it.")
    text: str = Field(description="The whole translation if this word is chosen.")
    word_confidences: list[float] = Field(description="The probability of each of its words between white space.")
    prefix: list[int] = Field(description="The ids of the tokens up to the first one of the word.")


class DetectRequest(BaseModel):
    """A text whose language is wanted."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": {"text": "Guten Morgen!"}})
    text: str


class DetectedLanguage(BaseModel):
    """The language of a text, among all that are known."""

    language: str | None = Field(description="Null if it is not certain.")
    name: str | None = Field(description="Its English name.")
    probability: float
    available: bool = Field(description="Whether a model of the server may be able to read the text.")


class Alternatives(BaseModel):
    """Alternatives, most probable first; the word itself is one of them if it is probable enough."""

    before: str = Field(description="The translation before the word.")
    alternatives: list[Alternative]


class TranslatorFacts(BaseModel):
    """A translation model of the server."""

    name: str
    directions: list[tuple[str | None, str | None]] = Field(description="Source and target; null if not known.")
    tagged: bool = Field(description="Whether requests must name the target language.")
    inspect: bool = Field(description="Whether /inspect/look accepts it.")
    aligns: bool = Field(description="Whether /v1/translate can align its outputs.")


class Translators(BaseModel):
    """The translation models of the server, and what a client needs to use them."""

    models: list[TranslatorFacts]
    languages: dict[str, str] = Field(description="The English name of each language code.")
    key_required: bool
    characters: int = Field(description="Maximum number of characters of a request.")
    formats: list[str] = Field(description="The suffixes of the documents that are translated.")


def v1_routes(service: TranslationService, models: ServedModels, keys: ApiKeys, detector: Detector) -> APIRouter:
    """Routes below /v1."""
    router = APIRouter(prefix="/v1", tags=["v1"])
    event = {
        "type": "object",
        "required": ["event", "data"],
        "properties": {"event": {"enum": ["sentence", "done", "error"]}, "data": {"type": "string"}},
    }
    stream = {"text/event-stream": {"schema": event}}

    @router.post(
        "/translate",
        response_model=TextAnswer,
        responses={200: {"content": stream}, **ERROR_RESPONSES},
        openapi_extra=request_body(TextRequest, JSON),
    )
    async def translate(request: Request) -> Any:
        """Translate one text or several.

        With `stream` the response is a stream of events: `sentence` with the translations of a sentence and the
        indices of its text and line, then `done`, or `error` with `{"error": ...}`.
        """
        keys.check(request)
        body = await read_json(TextRequest, request, service.workers)
        model = models.by_name(body.model)
        pending = await service.accept(
            model,
            [body.text] if isinstance(body.text, str) else body.text,
            prefix=body.prefix,
            to=TargetLanguage(body.to, body.source) if body.to and body.source else body.to,
            align=body.align,
            confidence=body.confidence,
            coverage=body.coverage,
            glossary=body.glossary,
            formality=body.formality,
            locale=body.locale,
            protect=body.protect,
            **body.options(model.translator.config),
        )
        if body.stream:
            return StreamingResponse(_events(pending, body.sentences), media_type="text/event-stream")
        split = await pending.all()
        content = await service.workers.run(split.cost, _answer, model.name, split, body.sentences)
        return Response(content, media_type=JSON)

    @router.post("/alternatives", responses=ERROR_RESPONSES, openapi_extra=request_body(AlternativesRequest, JSON))
    async def alternatives(request: Request) -> Alternatives:
        """The most probable words at a place of a translation, each with the translation that follows from it."""
        keys.check(request)
        body = await read_json(AlternativesRequest, request, service.workers)
        service.check_size([body.text], [body.output])
        model = models.by_name(body.model)
        parts = await service.workers.run(_ALTERNATIVES_COST, _forced_parts, model.translator, body)
        split = await (await service.accept_parts(model, parts, "words")).all()
        start = _prefix_length(model.translator, parts[0])
        found: dict[str, Alternative] = {}
        for part, lines in zip(parts, split.texts, strict=True):
            alternative = _alternative(model.translator, part, split.outputs(lines)[0], start)
            found.setdefault(alternative.word, alternative)
        ranked = sorted(found.values(), key=lambda alternative: -alternative.probability)
        return Alternatives(before=body.output[:start], alternatives=ranked)

    @router.post("/detect", responses=ERROR_RESPONSES, openapi_extra=request_body(DetectRequest, JSON))
    async def detect(request: Request) -> DetectedLanguage:
        """The language of a text if it is certain; it may be one that no model of the server reads."""
        keys.check(request)
        body = await read_json(DetectRequest, request, service.workers)
        service.check_size([body.text], [])
        found = await service.workers.run(DETECTION_COST, detector.detect, body.text)
        name = language_name(found.language) if found.language else None
        return DetectedLanguage(name=name, **vars(found))

    @router.get("/translators")
    async def translators() -> Translators:
        """The translation models with their directions; needs no key."""
        codes = dict.fromkeys(code for model in models.models for pair in model.directions for code in pair if code)
        return Translators(
            models=[
                TranslatorFacts(
                    name=model.name,
                    directions=list(dict.fromkeys(model.directions)),
                    tagged=model.translator.tagged,
                    inspect=can_inspect(model.translator),
                    aligns=model.translator.any_model.aligns,
                )
                for model in models.models
            ],
            languages={code: language_name(code) for code in codes},
            key_required=bool(keys),
            characters=service.limits.characters,
            formats=document_suffixes(),
        )

    return router


def _answer(model: str, split: SplitTexts, with_sentences: bool) -> str:
    """The response to a request, as JSON."""
    translations = []
    for lines in split.texts:
        check_deadline()
        translations.append(TranslatedText(**_translated(split, lines, with_sentences)))
    return TextAnswer(model=model, translations=translations).model_dump_json()


def _translated(split: SplitTexts, lines: Sequence[RequestLine], with_sentences: bool) -> dict[str, Any]:
    """The fields of a TranslatedText, from lines that are done."""
    return {
        "source_tokens": split.source_tokens(lines),
        "outputs": [Output(**vars(translation)) for translation in split.outputs(lines)],
        "sentences": _sentences(split, lines) if with_sentences else None,
    }


def _sentences(split: SplitTexts, lines: Sequence[RequestLine]) -> list[TranslatedSentence]:
    """The sentences of lines that are done; an empty line is one empty sentence."""
    sentences = []
    for line in lines:
        if not line.jobs:
            sentences.append(TranslatedSentence(line=line.index, source="", text="", after=""))
        for part, output, after in split.best_parts(line):
            sentence = TranslatedSentence(
                line=line.index,
                source=part.text,
                text=output.text,
                after=after,
                confidence=output.confidence,
                word_confidences=output.word_confidences,
                uncovered=output.uncovered,
                aligned=split.aligned_part(part, output),
            )
            sentences.append(sentence)
    return sentences


async def _events(pending: PendingTranslation, with_sentences: bool) -> AsyncIterator[str]:
    """The translations of each line as server-sent events."""
    try:
        async for line in pending.lines():
            fields = _translated(pending.split, [line], with_sentences)
            event = SentenceEvent(text=line.text, line=line.index, **fields)
            yield f"event: sentence\ndata: {event.model_dump_json()}\n\n"
    except Exception as error:  # too late for another status
        message = error.message if isinstance(error, HttpError) else "internal error"
        yield f"event: error\ndata: {ErrorResponse(error=message).model_dump_json()}\n\n"
        return
    yield "event: done\ndata: {}\n\n"


_MOST_FRAGMENTS = 8
"""How many times as many tokens are looked at as are wanted: those that continue a word cannot replace one."""


def _forced_parts(translator: Translator, request: AlternativesRequest) -> list[Segment]:
    """The sentence with a forced prefix up to the word and each of the most probable tokens there."""
    part = translator.whole(request.text, request.to)
    if request.position >= len(request.output):
        raise DataError(f"position {request.position} is not in the output, which has {len(request.output)} characters")
    tokens, replaced = _tokens_at(translator, part, request.output, request.position)
    likeliest = _likeliest(translator, part, tokens, _MOST_FRAGMENTS * request.count)
    if _begins_word(translator, replaced):
        likeliest = [token for token in likeliest if _begins_word(translator, [token])]
    likeliest = likeliest[: request.count]
    return [dataclasses.replace(part, prefix=[*tokens, token]) for token in likeliest]


def _likeliest(translator: Translator, part: Segment, tokens: list[int], count: int) -> list[int]:
    """The most probable tokens after the first tokens of an output."""
    with needs_torch():
        import torch

        from transduce.data.batch import Batch

        model = translator.model
        with torch.inference_mode():
            batch = Batch.of(model.device, src=[[*part.tokens, EOS]], tgt=[[BOS, *tokens]])
            logits_V = model.logits(model(batch)[-1:])[0].float()
            logits_V[[*NEVER_GENERATED, EOS]] = -float("inf")
            return logits_V.topk(min(count, len(logits_V))).indices.tolist()


def _begins_word(translator: Translator, tokens: list[int]) -> bool:
    """Whether the first token, if there is one, would not be joined to a word before it."""
    return bool(tokens) and not translator.tokenizer.target.pieces(tokens[:1])[0][:1].isalnum()


def _tokens_at(translator: Translator, part: Segment, output: str, position: int) -> tuple[list[int], list[int]]:
    """The tokens of an output before the one that has the character at a position, and this one."""
    marked = escape(output)
    for slot, required in part.slots.items():
        marked = marked.replace(escape(required.text), slot, 1)
    tokens = translator.tokenizer.target.encode_all([marked], marked=True)[0]
    most = output_limit(part, translator.config, translator.any_model.longest)
    if len(tokens) > most:
        raise DataError(f"the output has {len(tokens):,} tokens; one of this text has at most {most}: shorten it")
    for count in range(len(tokens)):
        (text,) = translator.tokenizer.target.decode_all([tokens[: count + 1]], marked=True)
        if len(output_text(text, part)) > position:
            return tokens[:count], tokens[count : count + 1]
    return tokens, []


def _prefix_length(translator: Translator, part: Segment) -> int:
    """The number of characters of an output before the last forced token."""
    if len(part.prefix) == 1:
        return 0
    (text,) = translator.tokenizer.target.decode_all([part.prefix[:-1]], marked=True)
    return len(output_text(text, part))


def _alternative(translator: Translator, part: Segment, output: Translation, start: int) -> Alternative:
    words = list(re.finditer(r"\S+", output.text))
    index = next((n for n, word in enumerate(words) if word.end() > start), len(words) - 1)
    probabilities = output.word_confidences or []
    if not words or index >= len(probabilities):
        return Alternative(word="", probability=0.0, text=output.text, word_confidences=[], prefix=part.prefix)
    word = output.text[max(start, words[index].start()) : words[index].end()]
    if not has_spaces(word[0]):  # the whole sentence would be one word: show the token
        word = translator.tokenizer.target.decode([part.prefix[-1]]).strip() or word
    return Alternative(
        word=word,
        probability=probabilities[index],
        text=output.text,
        word_confidences=probabilities,
        prefix=part.prefix,
    )
