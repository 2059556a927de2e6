"""The translator: text in, text out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, cast, get_args, overload

from transduce.config import build
from transduce.engines.choose import pick_engine
from transduce.engines.engine import Engine, cannot_generate
from transduce.errors import ConfigError, DataError, ModelError
from transduce.models.card import find_model
from transduce.models.stored import AnyModel, StoredModel
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig, SearchOptions
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.given_texts import require_list, require_texts
from transduce.text.glossary import Glossary, as_glossary
from transduce.text.languages import Direction, choose_target
from transduce.text.protect import Protection
from transduce.text.sentences import join_sentences
from transduce.text.symbols import SLOTS, language_tag
from transduce.translator.confidence import ANY, Calibration, read_calibrations
from transduce.translator.loading import load_models
from transduce.translator.outputs import decode_outputs, pieces
from transduce.translator.parts import Part, Splitter
from transduce.translator.repair import Repairer
from transduce.translator.scoring import score_pairs
from transduce.translator.stream import translate_stream
from transduce.translator.translation import PairScore, Translation, join

if TYPE_CHECKING:
    from transduce.engines.plain import PlainEngine
    from transduce.models.model import Model

LongInput = Literal["split", "refuse"]
Target = str | Sequence[str | None] | None
"""The target language of all texts, or of each; None if the model has only one."""
Terms = Glossary | Mapping[str, str]
"""A glossary, or its terms and their translations."""
Confidence = bool | Literal["words"]
"""Whether outputs have a confidence; "words" are only the probabilities of words, which need no calibration."""

_AHEAD_ON_GPU, _AHEAD_ON_CPU = 8192, 256
"""Texts that are read ahead; reading more does not increase throughput."""


class Translator:
    """A trained model, ready to translate."""

    def __init__(
        self,
        model: "Model",
        tokenizer: AnyTokenizer,
        *,
        config: SearchConfig | None = None,
        max_source_length: int = 256,
        engine: Engine | None = None,
        by_sentence: bool = False,
        truecases: bool = False,
        uses_slots: bool = False,
        protection: Protection | None = None,
        directions: Sequence[Direction] = (),
        tagged: bool = False,
        default_to: str | None = None,
        calibrations: Mapping[str, Calibration] | None = None,
    ) -> None:
        self.any_model: AnyModel = model
        """The model as the engine needs it: a torch module, or as it is stored in its folder."""
        self.tokenizer = tokenizer
        if reason := cannot_generate(model):
            raise ModelError(reason)
        if getattr(model.config, "source", "text") != "text":
            raise ModelError("this model reads sound; use it with: transduce transcribe")
        self._module: Model | None = None
        self._threads: int | None = getattr(engine, "threads", None)  # of the engine native
        self.engine: Engine = engine or self._plain
        """The engine that runs the search; `plain` runs instead if this one does not support the options."""
        self.config = config or SearchConfig()
        if model.longest is not None:
            max_source_length = min(max_source_length, model.longest)
        if tagged and not all(language_tag(target) in tokenizer.symbol_ids for _, target in directions):
            raise ModelError("the vocabulary of this multilingual model does not have the tags of its languages")
        self.directions = list(directions)
        """Source and target language of each direction of the model; empty if they are not known."""
        self.tagged = tagged
        """Whether a tag selects the target language, as in multilingual models."""
        self.default_to = default_to
        """The target language that `transduce translate` takes if none is named and there are several."""
        self.calibrations = dict(calibrations or {})
        """The calibration of confidence for each target language of a multilingual model, or for `ANY`."""
        sides = (tokenizer, tokenizer.target)
        uses_slots = uses_slots and all(slot in side.symbol_ids for side in sides for slot in SLOTS)
        self.splitter = Splitter(
            tokenizer,
            max_source_length,
            by_sentence=by_sentence,
            directions=self.directions,
            tagged=tagged,
            protection=protection,
            uses_slots=uses_slots,
            truecases=truecases,
            longest_prefix=model.longest,
        )
        """How texts are split into the parts that are translated."""
        self._repairer = Repairer(model, tokenizer)

    @property
    def model(self) -> "Model":
        """The model as a torch module; if it was loaded for the engine native, it is built when this is first used."""
        if isinstance(self.any_model, StoredModel):
            if self._module is None:
                self._module = self.any_model.module()
            return self._module
        return self.any_model

    @cached_property
    def _plain(self) -> Engine:
        """The engine for searches that the chosen one does not support."""
        return pick_engine("plain", self.model, self._threads)

    @property
    def max_source_length(self) -> int:
        """Maximum number of source tokens in one forward pass; longer texts are split."""
        return self.splitter.max_source_length

    @classmethod
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
        folders = [find_model(None if one is None else Path(one)) for one in paths]
        model, tokenizer, facts = load_models(folders, device)
        config = build(SearchConfig, facts.get("search", {}), str(folders[0])).with_options(options)
        chosen = pick_engine(engine, model, threads, batch_tokens)
        if isinstance(model, StoredModel) and chosen.name != "native":
            model = cast("PlainEngine", chosen).model
        return cls(
            cast("Model", model),  # of an engine that needs no torch module, it is a StoredModel
            tokenizer,
            config=config,
            max_source_length=facts.get("max_length", 256),
            engine=chosen,
            by_sentence=bool(facts.get("by_sentence")),
            truecases=bool(facts.get("truecase")),
            uses_slots=bool(facts.get("augment", {}).get("spans")),
            protection=Protection([] if protect is True else protect) if protect is not False else None,
            directions=[(source, target) for source, target in facts.get("directions", [])],
            tagged=bool(facts.get("tagged")),
            default_to=facts.get("default_to"),
            # The calibration of one model does not hold for an ensemble.
            calibrations=read_calibrations(facts, folders[0]) if len(folders) == 1 else None,
        )

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, texts: str, *, to: str | None = None, glossary: Terms | None = None, **options: Unpack[SearchOptions]
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: Sequence[str],
        *,
        to: Target = None,
        glossary: Terms | None = None,
        **options: Unpack[SearchOptions],
    ) -> list[str]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        to: Target = None,
        glossary: Terms | None = None,
        **options: Unpack[SearchOptions],
    ) -> str | list[str]:
        """Translate one text, or each text of a list.

        `to` is the target language, which a model with several target languages requires; a list names one for each
        text. Every sentence uses the translations of the glossary. `options` are the fields of SearchConfig (beam=1 is
        greedy).
        """
        if isinstance(texts, str):
            return self.hypotheses([texts], to=to, glossary=glossary, **options)[0][0].text
        return [best[0].text for best in self.hypotheses(texts, to=to, glossary=glossary, **options)]

    def hypotheses(
        self,
        texts: Sequence[str],
        *,
        to: Target = None,
        prefixes: Sequence[str] | None = None,
        align: bool = False,
        long: LongInput = "split",
        first_line: int = 1,
        glossary: Terms | None = None,
        confidence: bool = False,
        **options: Unpack[SearchOptions],
    ) -> list[list[Translation]]:
        """Translate each text of a list; return its n best translations with scores, best first.

        `to` and `glossary` are as in `translate`. Every sentence of an output starts with its text's prefix. A text
        longer than `max_source_length` is split and translated in parts, or, with long="refuse", raises a DataError
        with its line number, counted from `first_line`. The translation of an empty text is empty. `confidence` adds
        the confidence of outputs and words, for which the model must be calibrated (`transduce calibrate`).
        """
        if prefixes is not None and len(prefixes) != len(texts):
            raise DataError(f"{len(texts):,} texts but {len(prefixes):,} prefixes; give one for each text")
        _require_targets(to, len(texts))
        translations = self.stream(
            texts,
            to=to,
            prefixes=prefixes,
            align=align,
            long=long,
            first_line=first_line,
            glossary=glossary,
            confidence=confidence,
            **options,
        )
        return list(translations)

    def stream(
        self,
        texts: Iterable[str],
        *,
        to: str | Iterable[str | None] | None = None,
        prefixes: Iterable[str] | None = None,
        align: bool = False,
        long: LongInput = "split",
        first_line: int = 1,
        glossary: Terms | None = None,
        confidence: bool = False,
        window: int | None = None,
        text_done: Callable[[], object] = lambda: None,
        **options: Unpack[SearchOptions],
    ) -> Iterator[list[Translation]]:
        """Like `hypotheses`, but yield results one by one; at most 2 * `window` texts are in memory at a time.

        Results keep the order of the texts. There may be more prefixes than texts. `text_done` is called when a text is
        translated, possibly before those that precede it: it serves to show progress.
        """
        terms = as_glossary(glossary)
        ahead = window or (_AHEAD_ON_GPU if self.on_gpu else _AHEAD_ON_CPU)
        config = self.config.with_options(options)
        if confidence and not self.calibrations:
            self.calibration(None)
        if long not in get_args(LongInput):
            raise ConfigError(f"long must be one of {', '.join(get_args(LongInput))}, not {long!r:.40}")
        require_list(texts, "texts")
        require_list(prefixes, "prefixes")
        line_prefixes = repeat("") if prefixes is None else prefixes

        def checked(language: str | None) -> str | None:
            target = self.target(language)
            self.require_shortlist(config, target)
            return target

        targets = repeat(checked(to)) if to is None or isinstance(to, str) else map(checked, to)
        source = enumerate(zip(texts, line_prefixes, targets, strict=False), start=first_line)

        def decode(parts: Sequence[Part], results: Sequence[list[Hypothesis]]) -> Iterator[list[Translation]]:
            return self.translations(parts, results, config, align, confidence)

        batches = (
            self.splitter.numbered_parts(read, terms, refuse_long=long == "refuse")
            for read in iter(lambda: list(islice(source, ahead)), [])
        )
        for parts, outputs in translate_stream(
            self.engine_for(config), config, batches, decode, ahead, first_line, text_done
        ):
            yield self.join_by_rank(parts, outputs)

    def score(self, sources: Sequence[str], targets: Sequence[str], *, to: Target = None) -> list[PairScore]:
        """The log-probability of each target given its source; a pair is scored as a whole, however long it is.

        `to` is as in `translate`. Protected spans that both sides have are in slots if the model was trained with them.
        """
        require_texts(sources, "sources")
        require_texts(targets, "targets")
        if len(sources) != len(targets):
            raise DataError(f"{len(sources):,} sources but {len(targets):,} targets; give one for each source")
        _require_targets(to, len(sources))
        languages = [to] * len(sources) if to is None or isinstance(to, str) else to
        tags = [target if self.tagged else None for target in map(self.target, languages)]
        protection = self.splitter.protection if self.splitter.uses_slots else None
        return score_pairs(self.any_model, self.tokenizer, list(zip(sources, targets, strict=True)), tags, protection)

    def source_tokens(self, text: str, to: str | None = None, glossary: Terms | None = None) -> list[str]:
        """The source tokens that the indices of an alignment refer to; the options are those of the translation."""
        return [token for part in self.parts(text, to=to, glossary=glossary) for token in self.source_pieces(part)]

    def target(self, to: str | None, source: str | None = None) -> str | None:
        """The target language of a request; None if it is not known.

        Raises a DataError if the model does not translate to that language (from `source`), or if it has several target
        languages and none is requested.
        """
        if not self.tagged and to is None and source is None:
            return self.directions[0][1] if len(self.directions) == 1 else None
        return choose_target(self.directions, source, to)

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
        return self._plain if reason else self.engine

    def require_shortlist(self, config: SearchConfig, target: str | None) -> None:
        """Raise a ConfigError if the search uses a lexical shortlist that was not learned for a target language."""
        if not (config.shortlist and self.tagged and target and isinstance(self.any_model, StoredModel)):
            return
        shortlist, tag = self.any_model.shortlist, self.tokenizer.symbol_ids.get(language_tag(target))
        if shortlist and tag is not None and not shortlist.is_for(tag):
            raise ConfigError(
                f"the model's shortlist is not for translations to {target}; translate without it, or learn it from "
                "pairs of all target languages at once (transduce shortlist)"
            )

    def parts(
        self,
        text: str,
        prefix: str = "",
        glossary: Terms | None = None,
        to: str | None = None,
        *,
        protect: bool = True,
    ) -> list[Part]:
        """The parts of a text, each of which is a job for an engine; protected spans are only in slots if `protect`."""
        splitter = self.splitter if protect else replace(self.splitter, protection=None)
        return splitter.numbered_parts([(1, (text, prefix, self.target(to)))], as_glossary(glossary))[0]

    def whole(self, text: str, to: str | None = None) -> Part:
        """A text as one part, even if it has several sentences; a DataError if it is empty or too long."""
        return self.splitter.whole(text, self.target(to))

    def translations(
        self,
        parts: Sequence[Part],
        results: Sequence[list[Hypothesis]],
        config: SearchConfig,
        align: bool,
        confidence: Confidence = False,
    ) -> Iterator[list[Translation]]:
        """Decode the hypotheses of parts to text, with everything that the parts require."""
        engine = self.engine_for(config)
        # The gpu engine has one session at a time, which is in use now.
        results = self._repairer.repair(parts, results, config, self._plain if engine.name == "gpu" else engine)
        calibrations = None
        if confidence:
            calibrations = [self.calibration(part.target) if confidence is True else None for part in parts]
        return decode_outputs(self.any_model, self.tokenizer, parts, results, align=align, calibrations=calibrations)

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

    def source_pieces(self, part: Part) -> list[str]:
        """The pieces of the source tokens of a part; a slot is the text that it stands for."""
        return pieces(self.tokenizer, part, part.tokens)

    def join_by_rank(self, parts: Sequence[Part], outputs: Sequence[list[Translation]]) -> list[Translation]:
        """Join the translations of a text's parts by rank: best with best, second with second."""
        if not parts:
            return [Translation("", 0.0, 0.0, [])]
        separators = [part.separator for part in parts]
        ranks = zip(*outputs, strict=False)
        before, after = parts[0].indentation, parts[-1].separator
        return [
            join(before + join_sentences([one.text for one in rank], separators, parts[0].target) + after, parts, rank)
            for rank in ranks
        ]

    @property
    def on_gpu(self) -> bool:
        """Whether the model is on a GPU."""
        return not isinstance(self.any_model, StoredModel) and self.any_model.device.type == "cuda"


def _require_targets(to: Target, texts: int) -> None:
    """Raise a DataError if several target languages are given, but not one for each text."""
    if to is not None and not isinstance(to, str) and len(to) != texts:
        raise DataError(f"{texts:,} texts but {len(to):,} target languages; give one for each text")
