"""BLEU, chrF and TER by sacreBLEU, with its signature, which makes scores comparable.

The tokenizer of BLEU depends on the target language: the words of Japanese are not separated by spaces. Those for
Japanese and Korean need packages; `flores101` and `flores200` download a model when they are used for the first time,
so nothing but a setting selects them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, get_args

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from transduce.config import require
from transduce.errors import ConfigError, DataError
from transduce.files.scripts import script
from transduce.files.texts import require_list, require_text
from transduce.training.train_config import DEFAULT_BLEU_TOKENIZER, BleuTokenizer

LOWER_IS_BETTER = {"TER"}
References = Sequence[str] | Sequence[Sequence[str]]
"""Reference translations, line by line; several of each line are several lists, in which an empty line is none."""
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
class Score:
    """The score of one system in one metric."""

    metric: str
    value: float
    signature: str


@dataclass(frozen=True)
class Comparison:
    """A system compared with the baseline, by paired bootstrap resampling."""

    metric: str
    system: str
    value: float
    mean: float
    """Mean score over the resampled test sets."""
    half_width: float
    """Half the width of the 95% confidence interval around the mean."""
    p_value: float | None
    """Probability of a difference at least this large between equally good systems; None for the baseline itself."""


def score(
    hypotheses: Sequence[str],
    references: References,
    name: str = "the system",
    *,
    tokenize: str = "auto",
    language: str | None = None,
) -> list[Score]:
    """Score one system in all metrics.

    `references` are one list of reference translations or several such lists. `tokenize` is the tokenizer of BLEU, one
    of sacreBLEU's; auto selects it by the `language` of the references, an ISO 639-1 code, or by their script.
    """
    streams = _streams(references)
    _require_equal_lengths({name: hypotheses}, streams)
    results = []
    for name, metric in _metrics(streams, tokenize, language).items():
        value = metric.corpus_score(list(hypotheses), _without_empty(streams)).score
        results.append(Score(name, value, str(metric.get_signature())))
    return results


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str = DEFAULT_BLEU_TOKENIZER) -> float:
    """Only BLEU, with this tokenizer of sacreBLEU."""
    return float(BLEU(tokenize=tokenizer).corpus_score(list(hypotheses), [list(references)]).score)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Only chrF."""
    return float(CHRF().corpus_score(list(hypotheses), [list(references)]).score)


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each sentence."""
    metric = CHRF()
    pairs = zip(hypotheses, references, strict=True)
    return [float(metric.sentence_score(hypothesis, [reference]).score) for hypothesis, reference in pairs]


def compare(
    systems: Mapping[str, Sequence[str]],
    references: References,
    samples: int = 1000,
    *,
    tokenize: str = "auto",
    language: str | None = None,
    only: str | None = None,
) -> tuple[list[Comparison], list[str]]:
    """Compare every system with the first by paired bootstrap resampling; also returns the signatures.

    References and tokenizer are those of `score`; `only` is the metric, if not all are wanted.
    """
    streams = _streams(references)
    _require_equal_lengths(systems, streams)
    metrics: Any = _metrics(streams, tokenize, language, references=_without_empty(streams))
    metrics = {only: metrics[only]} if only else metrics
    named: Any = [(name, list(lines)) for name, lines in systems.items()]
    signatures, results = PairedTest(named, metrics, references=None, test_type="bs", n_samples=samples)()
    columns: dict[str, Any] = dict(results)
    names = columns.pop("System")
    comparisons = [
        Comparison(metric, system.removeprefix("Baseline: "), r.score, float(r.mean), float(r.ci), r.p_value)
        for metric, column in columns.items()
        for system, r in zip(names, column, strict=True)
    ]
    return comparisons, [str(signature) for signature in signatures.values()]


def _metrics(streams: list[list[str]], tokenize: str, language: str | None, **options: Any) -> dict[str, Metric]:
    choice = choose_tokenizer(tokenize, language, chain.from_iterable(streams))
    load_tokenizer(choice, "--tokenize ")
    # TER counts words; with these options, sacreBLEU takes each Chinese or Japanese character as one.
    characters = choice.language in ("ja", "zh")
    return {
        "BLEU": BLEU(tokenize=choice.name, **options),
        "chrF2": CHRF(**options),
        "TER": TER(normalized=characters, asian_support=characters, **options),
    }


def _streams(references: References) -> list[list[str]]:
    """The references as sacreBLEU takes them: a list for each translator."""
    require_list(references, "references")
    untyped: Iterable[object] = references
    for index, reference in enumerate(untyped):
        if not isinstance(reference, Sequence):
            require_text(reference, f"references[{index}]")
    several = [lines for lines in references if not isinstance(lines, str)]
    return [list(lines) for lines in several] if several else [[str(line) for line in references]]


def _without_empty(streams: list[list[str]]) -> Any:
    """The references with None in place of empty lines, which sacreBLEU leaves out, if the line has another one."""
    rows: list[Sequence[str | None]] = []
    for row in zip(*streams, strict=True):
        nonempty = [line if line.strip() else None for line in row]
        rows.append(nonempty if any(nonempty) else row)
    return [list(lines) for lines in zip(*rows, strict=True)]


def _require_equal_lengths(systems: Mapping[str, Sequence[str]], streams: list[list[str]]) -> None:
    if not any(line.strip() for lines in streams for line in lines):
        raise DataError("the reference is empty")
    if any(len(lines) != len(streams[0]) for lines in streams):
        counts = ", ".join(f"{len(lines):,}" for lines in streams)
        raise DataError(f"the references have {counts} lines; they must match line by line")
    for name, lines in systems.items():
        require_list(lines, name)
        if len(lines) != len(streams[0]):
            counts = f"{name} has {len(lines):,} lines, the reference {len(streams[0]):,}"
            raise DataError(f"{counts}; they must match line by line")


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
    return TokenizerChoice(_BY_LANGUAGE.get(language or "", DEFAULT_BLEU_TOKENIZER), reason, language)


def load_tokenizer(choice: TokenizerChoice, option: str) -> None:
    """Load a tokenizer of sacreBLEU now; if that fails, the error names its package.

    `option` selects another tokenizer if a name is appended to it.
    """
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
