"""Detects which of the served languages a text is in."""

import math
import threading
from collections import Counter
from typing import Any

from starlette.concurrency import run_in_threadpool

from transduce.files.languages import LANGUAGES, language_name
from transduce.serve.errors import HttpError
from transduce.serve.served_models import AUTO, ServedModels

_MAX_CHARACTERS = 1_000
"""Characters of a text that are considered, which bounds the time."""
_CERTAIN = 0.9
"""Probability from which a text is not taken for one in another language, although that one could be translated."""


class Detector:
    """Ranks languages by py3langid's probabilities, restricted to the languages of the models."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models
        served = {code: None for model in models.models for pair in model.directions for code in pair if code}
        self._codes = {code.partition("-")[0]: code for code in reversed(served)} or {code: code for code in LANGUAGES}
        """The served code of each language that can be detected; any language, if none is known."""
        self._lock = threading.Lock()
        self._identifier: Any = None

    async def rank(self, text: str) -> list[tuple[str, float]]:
        """Languages with their probabilities, most probable first; none if the text has no letters."""
        text = text[:_MAX_CHARACTERS]
        if not any(map(str.isalpha, text)):
            return []
        return await run_in_threadpool(self._rank, text)

    async def source(self, text: str, target: str) -> tuple[str, float]:
        """The most probable source language among those that are translated to the target, and its probability.

        It is the target itself if the text certainly is in that language, and AUTO with probability 0 if the source
        languages are not known. A text that certainly is in a language without this target is an error.
        """
        sources = [
            source
            for model in self._models.models
            for source, own_target in model.directions
            if source and (own_target == target or (own_target is None and model.supports(source, target)))
        ]
        ranked = dict(await self.rank(text)) if sources else {}
        if not sources:
            return AUTO, 0.0
        best = max(sources, key=lambda code: ranked.get(code, 0.0))
        first = max(ranked, key=lambda code: ranked[code], default=best)
        if first not in sources and ranked[first] >= _CERTAIN:
            if first != target:
                names = [f"{language_name(code)} ({code})" for code in (first, target)]
                raise HttpError(400, f"the text is in {names[0]}, which no model translates to {names[1]}")
            best = target
        return best, ranked.get(best, 0.0)

    def _rank(self, text: str) -> list[tuple[str, float]]:
        with self._lock:  # loading takes a second
            if self._identifier is None:
                self._identifier = self._load()
            ranking = self._identifier.rank(text)
        return [(self._codes[code], float(probability)) for code, probability in ranking]

    def _load(self) -> Any:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        identifier.set_languages([code for code in self._codes if code in identifier.labels])
        sources = Counter(source for model in self._models.models for source, _ in model.directions)
        # A language from which more directions start is the more probable one if a text is short.
        identifier.nb_pc = identifier.nb_pc + [
            math.log(sources[self._codes[label]] or 1) for label in identifier.nb_classes
        ]
        return identifier
