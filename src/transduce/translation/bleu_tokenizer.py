"""The tokenizer of BLEU, by the target language: the words of Japanese are not separated by spaces.

The tokenizers are sacreBLEU's. Those for Japanese and Korean need packages; `flores101` and `flores200` download a
model when they are used for the first time, so nothing but a setting selects them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from transduce.config import require
from transduce.errors import ConfigError
from transduce.files.scripts import script
from transduce.training.train_config import DEFAULT_BLEU_TOKENIZER, BleuTokenizer

DEFAULT = DEFAULT_BLEU_TOKENIZER

_BY_LANGUAGE = {
    **{"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"},
    # Other languages without spaces between words: 13a would compare whole phrases.
    **dict.fromkeys(("bo", "dz", "km", "lo", "my", "th"), "char"),
}
_SCRIPTS = {
    # The language that selects the tokenizer, and a description.
    "KANA": ("ja", "in Japanese"),
    "CJK": ("zh", "in Chinese"),
    "HANGUL": ("ko", "in Korean"),
    "THAI": ("th", "in Thai"),
    "LAO": ("lo", "in Lao"),
    "KHMER": ("km", "in Khmer"),
    "MYANMAR": ("my", "in Burmese"),
    "TIBETAN": ("bo", "in Tibetan"),
}
_KANA = 0.05
"""Share of kana among kana and Han characters from which a text is Japanese: Chinese has hardly any."""
_EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}


@dataclass(frozen=True)
class TokenizerChoice:
    """A tokenizer of sacreBLEU and the reason for it."""

    name: str
    reason: str
    language: str | None
    """Code of the language that was given or recognized by its script."""

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


def choose_tokenizer(setting: str, language: str | None, references: Iterable[str]) -> TokenizerChoice:
    """The tokenizer of a setting; for `auto`, that of the target language, which the references tell if it is None."""
    require(
        setting in get_args(BleuTokenizer),
        f"there is no tokenizer {setting!r:.40} of BLEU; use one of {', '.join(get_args(BleuTokenizer))}",
    )
    reason = f"the target language is {language}"
    if not language:
        language, description = _language_of_script(references)
        reason = f"the references are {description}"
    if setting != "auto":
        return TokenizerChoice(setting, "as set", language)
    return TokenizerChoice(_BY_LANGUAGE.get(language or "", DEFAULT), reason, language)


def load_tokenizer(choice: TokenizerChoice, option: str) -> None:
    """Load a tokenizer of sacreBLEU now; if that fails, the error names its package.

    `option` selects another tokenizer if a name is appended to it.
    """
    from sacrebleu.metrics.bleu import BLEU

    try:
        BLEU(tokenize=choice.name)
    except (ImportError, OSError, RuntimeError) as error:
        if extra := _EXTRAS.get(choice.name):
            problem = f"needs a package: pip install 'transduce[{extra}]'"
        else:
            problem = f"could not be downloaded: {error}; check the network"
        raise ConfigError(
            f"sacreBLEU's tokenizer {choice} {problem}, or choose another one, e.g. {option}char"
        ) from None


def _language_of_script(texts: Iterable[str]) -> tuple[str | None, str]:
    """The language whose script most letters belong to, if it needs a tokenizer of its own, and a description."""
    characters, counts = Counter[str](), Counter[str]()
    for text in texts:
        characters.update(text)
    for char, count in characters.items():
        if name := script(char):
            counts[name if name in _SCRIPTS else ""] += count
    if counts["KANA"] and counts["KANA"] >= _KANA * (counts["KANA"] + counts["CJK"]):
        counts["KANA"] += counts.pop("CJK", 0)
    return _SCRIPTS.get(max(counts, key=lambda name: counts[name], default=""), (None, "written with spaces"))
