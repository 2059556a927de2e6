"""The translator: text in, text out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args, overload

from transduce.config import build
from transduce.errors import ConfigError, DataError, ModelError, needs_torch
from transduce.fast.choose import pick_engine, runs_on_cpu
from transduce.fast.native.shortlist import model_shortlist
from transduce.features import HOOKS, feature_with
from transduce.files.html_page import HtmlPage
from transduce.files.languages import Direction, ModelLanguages, describe_directions, directions_of
from transduce.files.texts import require_list, require_texts
from transduce.models.any_model import AnyModel
from transduce.models.folder import find_model, read_model
from transduce.models.forced_decoding import OutputReader
from transduce.models.loaded import Loaded, remember_arguments
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine, cannot_generate, search_all
from transduce.search.options import SearchConfig, SearchOptions
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import language_tag
from transduce.translation.confidence import ANY, Calibration, confidences, read_calibrations, uncovered_words
from transduce.translation.detection import Detected, Detector
from transduce.translation.pipeline import Line, Pipeline
from transduce.translation.scoring import score_pairs
from transduce.translation.stages.address import with_one_form
from transduce.translation.stages.protect import Protection
from transduce.translation.stages.recheck import Rechecker
from transduce.translation.stages.repair import Repairer
from transduce.translation.stages.search import Searches, decode, line_spans, pieces, run_searches, translate_stream
from transduce.translation.stages.slots import reserved_tokens
from transduce.translation.text import Segment
from transduce.translation.token_ranges import Span as Range
from transduce.translation.token_ranges import align_characters
from transduce.translation.translation import PairScore, Translation, Translations, distinct, join
from transduce.translation.wording import DEFAULT_WORDING, TranslateOptions, Wording, split_options

if TYPE_CHECKING:
    from transduce.models.model import Model


LongInput = Literal["split", "refuse"]
Target = str | Sequence[str | None] | None
"""The target language of all texts, or of each; None if the model has only one."""
Confidence = bool | Literal["words"]
"""Whether outputs have a confidence; "words" are only the probabilities of words, which need no calibration."""

_AHEAD_ON_GPU, _AHEAD_ON_CPU = 8192, 256
"""Texts that are read ahead; reading more does not increase throughput."""
_DECODING_SPEED = 16
"""How many times as fast outputs are made texts as they are aligned, or their confidence is estimated."""


class Translator(Loaded):
    """A trained model, ready to translate: with its vocabulary, its engine, and what is known about its languages."""

    def __init__(
        self,
        model: AnyModel,
        tokenizer: AnyTokenizer,
        *,
        config: SearchConfig | None = None,
        max_source_length: int = 256,
        engine: Engine | None = None,
        by_sentence: bool = False,
        truecases: bool = False,
        uses_slots: bool = False,
        knows_formality: bool = False,
        protection: Protection | None = None,
        directions: Sequence[Direction] = (),
        tagged: bool = False,
        default_to: str | None = None,
        source_tags: bool = False,
        names: Mapping[str, str] | None = None,
        calibrations: Mapping[str, Calibration] | None = None,
        context: bool = False,
    ) -> None:
        self.any_model = model
        """The model as the engine needs it: a torch module, or as it is stored in its folder."""
        self.tokenizer = tokenizer
        if reason := cannot_generate(model):
            raise ModelError(reason)
        if getattr(model.config, "source", "text") != "text":
            raise ModelError("this model reads sound; use it with: transduce transcribe")
        self._threads: int | None = getattr(engine, "threads", None)  # of the engine native
        self.engine: Engine = engine or self._plain
        """The engine that runs the search; `plain` runs instead if this one does not support the options."""
        self.config = config or SearchConfig()
        if model.longest is not None:
            max_source_length = min(max_source_length, model.longest)
        if tagged and not all(language_tag(target) in tokenizer.symbol_ids for _, target in directions):
            raise ModelError("the vocabulary of this multilingual model does not have the tags of its languages")
        self.languages = ModelLanguages(list(directions), tagged, default_to, source_tags, names or {})
        """The directions of the model, and how a request names them."""
        self.directions = self.languages.directions
        """Source and target language of each direction of the model; empty if they are not known."""
        self.tagged = tagged
        """Whether a tag selects the target language, as in multilingual models."""
        self.default_to = default_to
        """The target language that `transduce translate` takes if none is named and there are several."""
        self.calibrations = dict(calibrations or {})
        """The calibration of confidence for each target language of a multilingual model, or for `ANY`."""
        uses_slots = uses_slots and all(reserved_tokens(side) for side in (tokenizer, tokenizer.target))
        self.pipeline = Pipeline(
            tokenizer,
            max_source_length,
            by_sentence=by_sentence,
            directions=self.directions,
            tagged=tagged,
            protection=protection,
            uses_slots=uses_slots,
            knows_formality=knows_formality,
            aligns=model.aligns,
            truecases=truecases,
            longest_prefix=model.longest,
            context=context,
            source_tags=source_tags,
        )
        """What happens to a text before and after the search."""
        self.rechecker = Rechecker(self.pipeline)
        self._repairer = Repairer(self.reader, self.pipeline)

    def _facts(self) -> Iterator[str]:
        yield describe_directions(self.directions) or "languages unknown"
        yield f"engine {self.engine.description}"
        yield f"device {self.any_model.device_type}"

    @classmethod
    @remember_arguments
    def load(
        cls,
        path: str | Path | Sequence[str | Path] | None = None,
        *,
        device: str = "auto",
        engine: str = "auto",
        threads: int | None = None,
        batch_tokens: int | None = None,
        protect: bool | Sequence[str] = True,
        **options: Unpack[SearchOptions],
    ) -> "Translator":
        """Load a model folder or a run (its finished model, otherwise its newest checkpoint).

        Several paths are an ensemble: the log-probability of a token is the mean over the models, which must have the
        same vocabulary. Without a path, load the bundled model.

        `engine` is auto (the fastest available), gpu, native (CPU, 8-bit) or plain. `threads` (of the CPU) and
        `batch_tokens` (source tokens times beam in one batch) are chosen automatically by default. `protect` keeps
        addresses, placeholders, file names, numbers with units and emoji unchanged; a list of regular expressions
        protects what they match as well. `options` are the fields of SearchConfig; they become the defaults of every
        translation.
        """
        paths = [path] if path is None or isinstance(path, str | Path) else path
        folders = [find_model(None if path is None else Path(path)) for path in paths]
        model, tokenizer, facts = _load_models(folders, device)
        config = build(SearchConfig, facts.get("search", {}), str(folders[0])).with_options(options, "load")
        return cls(
            model,
            tokenizer,
            config=config,
            max_source_length=facts.get("max_length", 256),
            engine=pick_engine(engine, model, threads, batch_tokens),
            by_sentence=bool(facts.get("by_sentence")),
            truecases=bool(facts.get("truecase")),
            uses_slots=bool(facts.get("augment", {}).get("spans")),
            knows_formality=bool(facts.get("augment", {}).get("formality")),
            protection=Protection([] if protect is True else protect) if protect is not False else None,
            directions=directions_of(facts),
            tagged=bool(facts.get("tagged")),
            default_to=facts.get("default_to"),
            source_tags=bool(facts.get("source_tags")),
            names=facts.get("languages"),
            # The calibration of one model does not hold for an ensemble.
            calibrations=read_calibrations(facts, folders[0]) if len(folders) == 1 else None,
            context=bool(facts.get("context")),
        )

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, texts: str, *, to: str | None = None, source: str | None = None, **options: Unpack[TranslateOptions]
    ) -> str: ...
    @overload
    def translate(
        self, texts: Sequence[str], *, to: Target = None, source: str | None = None, **options: Unpack[TranslateOptions]
    ) -> list[str]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        to: Target = None,
        source: str | None = None,
        **options: Unpack[TranslateOptions],
    ) -> str | list[str]:
        """Translate one text, or each text of a list.

        `to` is the target language, which a model with several target languages requires; a list names one for each
        text. `source` is the language of the texts, which models such as NLLB read; by default, it is detected. Of the
        options, `glossary` has terms whose translations every sentence uses, and `formality` is formal or
        informal (for models that were trained with augment.formality), and `locale=False` leaves numbers, prices and
        times as they are instead of writing them as the target language does; the others are the fields of SearchConfig
        (beam=1 is greedy).
        """
        split_options(options, "translate")
        if options.get("nbest", 1) != 1:
            raise ConfigError(
                f"translate returns the best output only; call hypotheses(texts, nbest={options['nbest']}) for more"
            )
        if isinstance(texts, str):
            return self.hypotheses([texts], to=to, source=source, **options)[0][0].text
        return [best[0].text for best in self.hypotheses(texts, to=to, source=source, **options)]

    def hypotheses(
        self,
        texts: Sequence[str],
        *,
        to: Target = None,
        source: str | None = None,
        prefixes: Sequence[str] | None = None,
        align: bool = False,
        long: LongInput = "split",
        first_line: int = 1,
        confidence: bool = False,
        **options: Unpack[TranslateOptions],
    ) -> list[list[Translation]]:
        """Translate each text of a list; return its n best translations with scores, best first.

        `to`, `source` and `options` are as in `translate`. Translations are distinct unless they are sampled, so there
        may be fewer than `nbest`. Every sentence of an output starts with its text's prefix. A text longer than
        `max_source_length` is split and translated in segments, or, with long="refuse", raises a DataError with its
        line number, counted from `first_line`. The translation of an empty text is empty. `align` adds to each token
        the source token that it is aligned with. `confidence` adds the confidence of outputs and words, for which the
        model must be calibrated (`transduce calibrate`).
        """
        split_options(options, "hypotheses")
        require_list(texts, "texts")
        texts = list(texts)
        if prefixes is not None:
            require_list(prefixes, "prefixes")
            prefixes = list(prefixes)
            if len(prefixes) != len(texts):
                raise DataError(f"{len(texts):,} texts but {len(prefixes):,} prefixes; give one for each text")
        _require_targets(to, len(texts))
        translations = self.stream(
            texts,
            to=to,
            source=source,
            prefixes=prefixes,
            align=align,
            long=long,
            first_line=first_line,
            confidence=confidence,
            **options,
        )
        return list(translations)

    def stream(
        self,
        texts: Iterable[str],
        *,
        to: str | Iterable[str | None] | None = None,
        source: str | None = None,
        prefixes: Iterable[str] | None = None,
        contexts: Iterable[str] | None = None,
        align: bool = False,
        long: LongInput = "split",
        first_line: int = 1,
        confidence: bool = False,
        window: int | None = None,
        text_done: Callable[[], object] = lambda: None,
        **options: Unpack[TranslateOptions],
    ) -> Iterator[Translations]:
        """Like `hypotheses`, but yield results one by one; at most 2 * `window` texts are in memory at a time.

        Results keep the order of the texts. There may be more prefixes than texts. `contexts` are the texts before each
        text, for models with data.context; an empty one is that of the first text of a document. `text_done` is called
        when a text is translated, possibly before those that precede it: it serves to show progress.
        """
        wording, search = split_options(options, "stream")
        ahead = window or (_AHEAD_ON_GPU if self.any_model.device_type == "cuda" else _AHEAD_ON_CPU)
        config = self.config.with_options(search)
        if confidence and not self.calibrations:
            self.calibration(None)
        if long not in get_args(LongInput):
            raise ConfigError(f"long must be one of {', '.join(get_args(LongInput))}, not {long!r:.40}")
        require_list(texts, "texts")
        if prefixes is not None:
            require_list(prefixes, "prefixes")
        line_prefixes = repeat("") if prefixes is None else prefixes

        def checked(language: str | None) -> str | None:
            target = self.target(language, source)
            self.require_shortlist(config, target)
            self.pipeline.require_formality(wording.formality, target)
            return target

        targets = repeat(checked(to)) if to is None or isinstance(to, str) else map(checked, to)
        earlier = repeat("") if contexts is None else contexts
        lines = enumerate(zip(texts, line_prefixes, targets, earlier, strict=False), start=first_line)

        def restore(lines: list[list[Segment]], found: list[list[list[Hypothesis]]]) -> Iterator[list[Translation]]:
            searches = self.translation_searches(lines, found, config, align, confidence, coverage=confidence)
            return iter(run_searches(self.repairing_engine(config), searches))

        batches = (
            self.pipeline.segments(
                [Line(text, prefix, target, number, before) for number, (text, prefix, target, before) in read],
                wording,
                refuse_long=long == "refuse",
            )
            for read in iter(lambda: list(islice(lines, ahead)), [])
        )
        engine = self.engine_for(config)
        for segments, outputs in translate_stream(engine, config, batches, restore, ahead, first_line, text_done):
            yield self.join_by_rank(segments, outputs)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, to: Target = None, source: str | None = None
    ) -> list[PairScore]:
        """The log-probability of each target given its source; a pair is scored as a whole, however long it is.

        `to` and `source` are as in `translate`. Protected spans that both sides have are in slots if the model was
        trained with them.
        """
        require_texts(sources, "sources")
        require_texts(targets, "targets")
        if len(sources) != len(targets):
            raise DataError(f"{len(sources):,} sources but {len(targets):,} targets; give one for each source")
        _require_targets(to, len(sources))
        languages = [to] * len(sources) if to is None or isinstance(to, str) else to
        tags = [target if self.tagged else None for target in (self.target(language, source) for language in languages)]
        if self.languages.source_tags:
            lines = (Line(text, target=target) for text, target in zip(sources, tags, strict=True))
            tags = [self.pipeline.languages(line)[1] for line in lines]
        protection = self.pipeline.protection if self.pipeline.uses_slots else None
        pairs = list(zip(sources, targets, strict=True))
        return score_pairs(self.reader, self.tokenizer, pairs, tags, protection, self.any_model.longest)

    def segments(
        self,
        text: str,
        prefix: str = "",
        to: str | None = None,
        wording: Wording = DEFAULT_WORDING,
        *,
        protect: bool = True,
        before: str = "",
    ) -> list[Segment]:
        """The segments of a text, each of which is a job for an engine; spans are only protected if `protect`.

        `before` is the text before it, for models with data.context.
        """
        target = self.target(to)
        self.pipeline.require_formality(wording.formality, target)
        return self.pipeline.segments([Line(text, prefix, target, before=before)], wording, protect=protect)[0]

    def whole(self, text: str, to: str | None = None) -> Segment:
        """A text as one segment, even if it has several sentences; a DataError if it is empty or too long."""
        return self.pipeline.whole(text, self.target(to))

    def translation_searches(
        self,
        texts: Sequence[list[Segment]],
        found: Sequence[list[list[Hypothesis]]],
        config: SearchConfig,
        align: bool,
        confidence: Confidence = False,
        portion_tokens: int | None = None,
        coverage: bool = False,
    ) -> Searches[list[list[Translation]]]:
        """The translations of all segments of texts, from the hypotheses of a search, with what the segments require.

        `repairing_engine` runs the searches that this needs. A text does not mix forms of address. With `coverage`,
        translations have the source words that they seem to lack. What follows the searches is done for about
        `portion_tokens` output tokens at a time; between two portions, this yields no segments, so that the caller can
        do other things. Portions are larger if no model reads the outputs, and smaller if it tests each word.

        Translations of a text are distinct, unless they are sampled.
        """
        if self.pipeline.knows_formality:
            found = yield from with_one_form(self.pipeline, texts, found, config)
        segments, results = [*chain(*texts)], [*chain(*found)]
        results = yield from self._completed(segments, results, config)
        translations: list[list[Translation]] = [[] for _ in segments]
        if portion_tokens is not None and coverage:
            portion_tokens //= _DECODING_SPEED
        elif portion_tokens is not None and not (align or confidence or any(part.original.marks for part in segments)):
            portion_tokens *= _DECODING_SPEED
        for number, portion in enumerate(_portions(results, portion_tokens)):
            if number:
                yield (), config
            parts = [segments[index] for index, _ in portion]
            hypotheses = [hypothesis for _, hypothesis in portion]
            estimates: Iterator[tuple[float | None, list[float] | None]] = repeat((None, None))
            if confidence:
                calibrations = [self.calibration(segment.target) if confidence is True else None for segment in parts]
                estimates = confidences(self.reader, self.tokenizer, parts, hypotheses, calibrations)
            lacking: Iterator[list[str] | None] = repeat(None)
            if coverage:
                lacking = uncovered_words(self.reader, self.tokenizer, parts, hypotheses, self.directions)
            outputs = decode(self.reader, self.tokenizer, parts, hypotheses, align=align)
            for (index, hypothesis), output in zip(portion, outputs, strict=True):
                text = self.pipeline.restore(output, segments[index]).text
                alignment = output.alignment if align else None
                scores = hypothesis.score, hypothesis.log_prob
                known = text, *scores, output.tokens, alignment
                uncovered = next(lacking)
                if uncovered is not None:
                    lost = self.rechecker.lost_words(segments[index], hypothesis)
                    uncovered += (word for word in lost if word not in uncovered)
                translations[index].append(Translation(*known, *next(estimates), uncovered=uncovered))
        return translations if config.sample else distinct(texts, translations)

    def _completed(
        self, segments: Sequence[Segment], results: Sequence[list[Hypothesis]], config: SearchConfig
    ) -> Searches[list[list[Hypothesis]]]:
        """The results of a search, with what their segments state and require."""
        results = yield from self.rechecker.searches(segments, results, config)
        return (yield from self._repairer.searches(segments, results, config, self.repairing_engine(config)))

    def repairing_engine(self, config: SearchConfig) -> Engine:
        """The engine that searches again for outputs without what is required."""
        engine = self.engine_for(config)
        return self._plain if engine.name == "gpu" else engine  # gpu has one session at a time, which is in use now

    def calibration(self, target: str | None) -> Calibration:
        """The calibration of confidence for a target language; a ModelError if the model is not calibrated."""
        key = target if self.tagged and target else ANY
        if key not in self.calibrations:
            to, option = (f" to {key}", f" --to {key}") if key != ANY else ("", "")
            raise ModelError(
                f"the confidence of this model's translations{to} is not calibrated; calibrate it with: transduce "
                f"calibrate -m MODEL --test valid.tsv{option}"
            )
        return self.calibrations[key]

    def source_tokens(self, segments: Sequence[Segment]) -> list[str]:
        """The source tokens that the indices of an alignment refer to; a slot is the text that it stands for."""
        return [piece for segment in segments for piece in pieces(self.tokenizer, segment, segment.tokens)]

    def aligned_spans(self, segments: Sequence[Segment], translation: Translation) -> list[tuple[Range, Range]]:
        """Ranges of characters of a text and of its translation that are aligned; none if it has no alignment."""
        if not translation.alignment:
            return []
        spans = [span for segment in segments for span in line_spans(self.tokenizer, segment)]
        return align_characters(spans, translation.tokens, translation.text, translation.alignment)

    def join_by_rank(self, segments: Sequence[Segment], outputs: Sequence[list[Translation]]) -> Translations:
        """Join the translations of a text's segments by rank: best with best, second with second."""
        if not segments:
            return Translations([Translation("", 0.0, 0.0, [])], segments)
        joined = (
            join(self.pipeline.split.restore([output.text for output in rank], segments), segments, rank)
            for rank in zip(*outputs, strict=False)
        )
        return Translations(joined, segments)

    def detect(self, text: str) -> Detected:
        """The language of a text if it is certain, which may be one that the model does not read."""
        return Detector(self.directions, [self.tokenizer]).detect(text)

    def explain(
        self, text: str, *, to: str | None = None, **options: Unpack[TranslateOptions]
    ) -> list[tuple[int, str, str]]:
        """What happens to a text, step by step: only stages that change something, then those that restore the output.

        A step is the number of a segment, or 0 for the line, the name of a stage, and the text after it.
        """
        wording, search = split_options(options, "explain")
        config = self.config.with_options(search)
        segments = self.segments(text, to=to, wording=wording)
        results, engine = search_all(self.engine_for(config), segments, config), self.repairing_engine(config)
        found, repaired = (
            decode(self.reader, self.tokenizer, segments, [best for best, *_ in nbest], align=False)
            for nbest in (results, run_searches(engine, self._completed(segments, results, config)))
        )
        line = Line(text, target=self.target(to))
        return list(self.pipeline.explain(line, wording, segments, found, repaired))

    def inspect(self, text: str, *, to: str | None = None) -> HtmlPage:
        """The page of `transduce inspect`: attention, search and predictions of a translation, e.g. in a notebook."""
        page: HtmlPage = HOOKS["inspect_translation"](self, text, to)
        return page

    @property
    def model(self) -> "Model":
        """The model as a torch module; if it was loaded for the engine native, it is built when this is first used."""
        return self.any_model.module()

    @property
    def reader(self) -> OutputReader:
        """What reads given outputs: the engine if it can, otherwise the module."""
        if isinstance(self.engine, OutputReader):
            return self.engine
        from transduce.models.likelihood import ModuleReader  # torch is imported only if it is needed

        return ModuleReader(self.model)

    @cached_property
    def _plain(self) -> Engine:
        """The engine for searches that the chosen one does not support."""
        return pick_engine("plain", self.model, self._threads)

    @property
    def max_source_length(self) -> int:
        """Maximum number of source tokens in one forward pass; longer texts are split."""
        return self.pipeline.max_source_length

    def target(self, to: str | None, source: str | None = None) -> str | None:
        """The target language of a request, as in `ModelLanguages.target`."""
        return self.languages.target(to, source)

    def engine_for(self, config: SearchConfig) -> Engine:
        """The engine that runs this search: `engine` if it supports the options, otherwise `plain`.

        A lexical shortlist is not replaced by a search without it: a ConfigError if `engine` does not support it.
        """
        reason = self.engine.supports(self.any_model, config)
        if reason and config.shortlist:
            raise ConfigError(
                f"engine {self.engine.name} has {reason}; a shortlist needs the engine native on a CPU and a model "
                "that has one (make it with: transduce shortlist)"
            )
        if not reason:
            return self.engine
        with needs_torch(f"engine {self.engine.name} has {reason}, and plain"):
            import torch  # noqa: F401
        return self._plain

    def describe_engine(self) -> str:
        """The engine that runs the search and, if it is not the chosen one, the reason."""
        reason = self.engine.supports(self.any_model, self.config)
        description = self.engine_for(self.config).description
        if self.any_model.config.architecture == "ensemble":
            return f"{description}, because gpu and native have no ensembles"
        return f"{description}, because {self.engine.name} has {reason}" if reason else description

    def require_shortlist(self, config: SearchConfig, target: str | None) -> None:
        """Raise a ConfigError if the search uses a lexical shortlist that was not learned for a target language."""
        if not (config.shortlist and self.tagged and target):
            return
        shortlist, tag = model_shortlist(self.any_model), self.tokenizer.symbol_ids.get(language_tag(target))
        if shortlist and tag is not None and not shortlist.is_for(tag):
            raise ConfigError(
                f"the model's shortlist is not for translations to {target}; translate without it, or learn it from "
                "pairs of all target languages at once (transduce shortlist)"
            )


def _portions(results: Sequence[list[Hypothesis]], most_tokens: int | None) -> Iterator[list[tuple[int, Hypothesis]]]:
    """Hypotheses with the indices of their segments, in portions of about `most_tokens`; in one if that is None."""
    portion, tokens = list[tuple[int, Hypothesis]](), 0
    for index, best in enumerate(results):
        for hypothesis in best:
            portion.append((index, hypothesis))
            tokens += len(hypothesis.tokens)
            if most_tokens is not None and tokens >= most_tokens:
                yield portion
                portion, tokens = [], 0
    if portion:
        yield portion


def _load_models(folders: Sequence[Path], device: str) -> tuple[AnyModel, AnyTokenizer, dict[str, Any]]:
    """The model of the folders, an ensemble if there are several, with its tokenizer and its facts.

    For a CPU, the module of a single model is not built yet.
    """
    if len(folders) == 1 and runs_on_cpu(device):
        folder = read_model(folders[0])
        require_translation_model(folder.facts, folders[0])
        return folder, folder.tokenizer, folder.facts
    with needs_torch():
        from transduce.models.ensemble import load_ensemble
        from transduce.nn.device import pick_device

    at = pick_device(device)
    if at.type == "meta":
        raise ConfigError("the device meta computes nothing; use auto, cpu, cuda, cuda:1 ...")
    saved = load_ensemble(folders, at)
    require_translation_model(saved.facts, folders[0])
    return saved.model, saved.tokenizer, saved.facts


def require_translation_model(facts: dict[str, Any], folder: Path) -> None:
    """Raise an error that tells what to do with a model whose task is another one than translation."""
    task = facts.get("task", "translate")
    if task != "translate" and (feature := feature_with("uses", task)):
        raise ModelError(f"{folder} was trained for the task {task}; {feature.uses[task]}")


def _require_targets(to: Target, texts: int) -> None:
    """Raise a DataError if several target languages are given, but not one for each text."""
    if to is None or isinstance(to, str):
        return
    require_list(to, "to")
    if len(to) != texts:
        raise DataError(f"{texts:,} texts but {len(to):,} target languages; give one for each text")
