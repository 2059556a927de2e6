"""The translator: text in, text out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Literal, Unpack, get_args, overload

from transduce.config import build
from transduce.errors import ConfigError, DataError
from transduce.fast.choose import pick_engine
from transduce.files.texts import require_list, require_texts
from transduce.models.folder import find_model
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig, SearchOptions
from transduce.translation.confidence import read_calibrations
from transduce.translation.glossary import as_glossary
from transduce.translation.loading import load_models
from transduce.translation.part import Part
from transduce.translation.part_translator import PartTranslator, Terms
from transduce.translation.protect import Protection
from transduce.translation.scoring import score_pairs
from transduce.translation.stream import translate_stream
from transduce.translation.translation import PairScore, Translation

LongInput = Literal["split", "refuse"]
Target = str | Sequence[str | None] | None
"""The target language of all texts, or of each; None if the model has only one."""

_AHEAD_ON_GPU, _AHEAD_ON_CPU = 8192, 256
"""Texts that are read ahead; reading more does not increase throughput."""


class Translator(PartTranslator):
    """A trained model, ready to translate."""

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
        return cls(
            model,
            tokenizer,
            config=config,
            max_source_length=facts.get("max_length", 256),
            engine=pick_engine(engine, model, threads, batch_tokens),
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
        if prefixes is not None:
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
        pairs = list(zip(sources, targets, strict=True))
        return score_pairs(self.reader, self.tokenizer, pairs, tags, protection, self.any_model.longest)

    def source_tokens(self, text: str, to: str | None = None, glossary: Terms | None = None) -> list[str]:
        """The source tokens that the indices of an alignment refer to; the options are those of the translation."""
        return [token for part in self.parts(text, to=to, glossary=glossary) for token in self.source_pieces(part)]

    def describe_engine(self) -> str:
        """The engine that runs the search and, if it is not the chosen one, the reason."""
        reason = self.engine.supports(self.any_model, self.config)
        description = self.engine_for(self.config).description
        if self.any_model.config.architecture == "ensemble":
            return f"{description}, because gpu and native have no ensembles"
        return f"{description}, because {self.engine.name} has {reason}" if reason else description


def _require_targets(to: Target, texts: int) -> None:
    """Raise a DataError if several target languages are given, but not one for each text."""
    if to is None or isinstance(to, str):
        return
    require_list(to, "to")
    if len(to) != texts:
        raise DataError(f"{texts:,} texts but {len(to):,} target languages; give one for each text")
