"""The languages of M2M-100, NLLB and mBART-50: their tokens, and our codes for them."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from transduce.errors import ModelError
from transduce.interop.imported_tokenizers import ImportedTokenizer

MULTILINGUAL = ("m2m_100", "mbart")
"""The types of models; NLLB has the first."""
_TOKENIZERS = ("M2M100", "Nllb", "MBart50", "TokenizersBackend", "PreTrainedTokenizer")
"""What the names of tokenizers begin with that begin every text with the tag of its language."""
_OPTIONS = {"legacy_behaviour": False, "language_codes": "m2m100"}
"""Options of tokenizers, with the only value that can be imported."""


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files("transduce.interop").joinpath("languages.toml").read_text(encoding="utf-8"))


def require_known_tags(kind: str, options: Mapping[str, Any]) -> None:
    """Raise an error for a tokenizer that puts the tags of languages elsewhere, such as that of mBART-25."""
    name = options.get("tokenizer_class")
    if kind in MULTILINGUAL and name and not str(name).startswith(_TOKENIZERS):
        raise ModelError(
            f"tokenizer_config.json: the tokenizer {name!s:.40} cannot be imported; those of M2M-100, NLLB and mBART-50"
            " can, which begin every text with the tag of its language"
        )
    for setting, value in _OPTIONS.items():
        if kind in MULTILINGUAL and options.get(setting) not in (None, value):
            raise ModelError(f"tokenizer_config.json: {setting} = {options[setting]!r:.40} cannot be imported")


def listed_tokens(kind: str) -> list[str]:
    """The tokens of languages after the pieces of a SentencePiece model."""
    codes = _tables()[kind]["tokens"].split()
    return [f"__{code}__" for code in codes] if kind == "m2m_100" else codes


def find_languages(kind: str, pieces: Iterable[str]) -> dict[str, str]:
    """Our codes of the languages whose tokens are among the pieces, and the model's codes."""
    found: dict[str, list[str]] = {}
    tables = ("m2m_100", "nllb") if kind == "m2m_100" else (kind,)
    patterns = [re.compile(_tables()[table]["pattern"]) for table in tables]
    iso = dict(pair.split("=") for pair in _tables()["iso"]["codes"].split())
    for piece in pieces:
        if match := next(filter(None, (pattern.fullmatch(piece) for pattern in patterns)), None):
            base = match[1].partition("_")[0]
            found.setdefault(iso.get(base, base), []).append(match[1])
    codes = {
        base if len(names) == 1 else name.replace(name.partition("_")[0], base).replace("_", "-"): name
        for base, names in found.items()
        for name in names
    }
    return dict(sorted(codes.items()))


def token_of(name: str) -> str:
    """The token of a language, given the model's code: en of M2M-100 is written __en__."""
    return name if "_" in name else f"__{name}__"


def add_languages(kind: str, tokenizer: ImportedTokenizer, vocabulary: Mapping[str, int]) -> None:
    """Let a tokenizer know the tags of the languages in its vocabulary, given the original id of each piece."""
    names = find_languages(kind, vocabulary)
    ids = {code: vocabulary[token_of(name)] for code, name in names.items()}
    tokenizer.set_languages({code: tokenizer.order.ids[original] for code, original in ids.items()}, names)
