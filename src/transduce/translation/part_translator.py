"""Translates the parts of texts: what the translator, documents, the server and the inspection share."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from transduce.errors import ConfigError, ModelError
from transduce.fast.choose import pick_engine
from transduce.fast.native.shortlist import model_shortlist
from transduce.files.languages import Direction, ModelLanguages
from transduce.models.any_model import AnyModel
from transduce.models.forced_decoding import OutputReader
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine, cannot_generate
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import SLOTS, language_tag
from transduce.translation.confidence import ANY, Calibration
from transduce.translation.glossary import Glossary, as_glossary
from transduce.translation.outputs import decode_outputs, pieces
from transduce.translation.part import Part
from transduce.translation.parts import Splitter
from transduce.translation.protect import Protection
from transduce.translation.repair import Repairer
from transduce.translation.sentences import join_sentences
from transduce.translation.translation import Translation, join

if TYPE_CHECKING:
    from transduce.models.model import Model

_ELLIPSIS = re.compile(r"…|\.\.\.")
Terms = Glossary | Mapping[str, str]
"""A glossary, or its terms and their translations."""
Confidence = bool | Literal["words"]
"""Whether outputs have a confidence; "words" are only the probabilities of words, which need no calibration."""


class PartTranslator:
    """A trained model with its vocabulary, its engine, and everything that is known about its languages."""

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
        protection: Protection | None = None,
        directions: Sequence[Direction] = (),
        tagged: bool = False,
        default_to: str | None = None,
        calibrations: Mapping[str, Calibration] | None = None,
    ) -> None:
        self.any_model = model
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
            aligns=model.aligns,
            truecases=truecases,
            longest_prefix=model.longest,
        )
        """How texts are split into the parts that are translated."""
        self._repairer = Repairer(self.reader, tokenizer)

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
        return self.splitter.max_source_length

    @property
    def on_gpu(self) -> bool:
        """Whether the model is on a GPU."""
        return self.any_model.device_type == "cuda"

    @property
    def languages(self) -> ModelLanguages:
        """The languages of the model."""
        return ModelLanguages(self.directions, self.tagged, self.default_to)

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
        return self._plain if reason else self.engine

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
        outputs = decode_outputs(self.reader, self.tokenizer, parts, results, align=align, calibrations=calibrations)
        return ([_with_ellipsis(one, part) for one in best] for part, best in zip(parts, outputs, strict=True))

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


def _with_ellipsis(output: Translation, part: Part) -> Translation:
    """The output; it ends with an ellipsis as the source does, which models drop."""
    is_whole = not part.prefix and part.tagged is None
    if not (is_whole and part.text.endswith("…") and output.text) or _ELLIPSIS.search(output.text):
        return output
    return replace(output, text=output.text.removesuffix(".").removesuffix("!") + "…")
