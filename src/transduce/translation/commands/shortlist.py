"""`transduce shortlist`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transduce.cli.messages import log
from transduce.cli.options import FromOption, ReverseOption, ToOption, model_option

if TYPE_CHECKING:
    from transduce.tokenizers.any_tokenizer import AnyTokenizer
    from transduce.translation.commands.direction import EvaluatedDirection
    from transduce.translation.learn_shortlist import Direction

_MOST_PAIRS = 300_000
"""Pairs of a direction to learn from; of more, a random sample is used."""


def shortlist(
    model: Annotated[Path, model_option("A run or a model folder, which gets the list.")],
    train: Annotated[
        list[Path], typer.Option(help="Pairs to learn from, best those of training, .tsv or .jsonl; may be repeated.")
    ],
    to: ToOption = None,
    from_: FromOption = None,
    reverse: ReverseOption = None,
    frequent: Annotated[
        int, typer.Option(help="Number of frequent tokens that every sentence may use.", min=1, max=1_000_000)
    ] = 4000,
    per_token: Annotated[
        int, typer.Option(help="Number of target tokens for each source token.", min=1, max=10_000)
    ] = 200,
) -> None:
    """Learn a lexical shortlist, which speeds up translation.

    It holds the target tokens that may translate each source token. With --shortlist, the commands translate, evaluate
    and serve search only among the tokens that the list has for a sentence, which is faster on a CPU (engine native). A
    list is learned from all pairs given at once, and replaces an earlier one. If the model translates in both
    directions of a file, both are learned, unless --to, --from or --reverse tell one.
    """
    from transduce.disk import MANIFEST
    from transduce.errors import ConfigError
    from transduce.files.pairs import Reservoir, count_pairs
    from transduce.models.config import EncoderDecoderConfig
    from transduce.models.folder import SHORTLIST, find_model, read_model
    from transduce.translation.commands.direction import logged_pairs
    from transduce.translation.learn_shortlist import learn_shortlist
    from transduce.translation.translator import require_translation_model

    folder = find_model(model)
    if (folder / MANIFEST).exists():
        raise ConfigError(f"{folder} is a checkpoint, which cannot be changed; name the finished model")
    stored = read_model(folder)
    require_translation_model(stored.facts, folder)
    if not isinstance(stored.config, EncoderDecoderConfig):
        raise ConfigError(
            f"{folder}: the architecture is {stored.config.architecture}, which the engine native, the only one that "
            "uses a shortlist, does not run"
        )
    texts: dict[str | None, Reservoir[tuple[str, str]]] = {}
    for path in train:
        for direction in _directions(stored.facts, path, from_, to, reverse):
            log(direction.describe(path).removesuffix("; "))
            target = direction.target if stored.facts.get("tagged") else None
            sample = texts.setdefault(target, Reservoir(_MOST_PAIRS))
            for pair in logged_pairs(path, direction.reverse):
                sample.offer(pair)
    directions = [_encoded(stored.tokenizer, target, sample.kept) for target, sample in texts.items()]
    used = sum(len(sample.kept) for sample in texts.values())
    learned = learn_shortlist(directions, stored.vocab_size, frequent, per_token, stored.config.source_vocab_size)
    learned.save(folder, stored.tokenizer)
    if missing := _targets(stored.facts) - {*texts}:
        log(
            f"warning: the list is not for translations to {', '.join(sorted(missing))}, so --shortlist is refused "
            "there; learn from pairs of all target languages at once"
        )
    sources = [source for direction in directions for source in direction.sources[:1000]]
    size = sum(len(learned.tokens(source)) for source in sources) / len(sources)
    print(
        f"{folder / SHORTLIST}: learned from {count_pairs(used)}; {size:,.0f} of {stored.vocab_size:,} tokens for a "
        "sentence, on average"
    )


def _directions(
    facts: dict[str, Any], path: Path, source: str | None, target: str | None, reverse: bool | None
) -> list["EvaluatedDirection"]:
    """The directions to learn from a file: those of the model that its name tells, or the one that the user names."""
    from transduce.files.languages import direction_of_entry, directions_of
    from transduce.translation.commands.direction import evaluated_direction

    named = direction_of_entry([str(path)])
    fitting = [pair for pair in directions_of(facts) if named and {*pair} == {*named}]
    if not fitting or not facts.get("tagged") or source or target or reverse is not None:
        return [evaluated_direction(facts, path, source, target, reverse)]
    return [evaluated_direction(facts, path, from_, to, None) for from_, to in fitting]


def _targets(facts: dict[str, Any]) -> set[str]:
    """The target languages of a model that has a tag for each."""
    from transduce.files.languages import directions_of

    return {target for _, target in directions_of(facts)} if facts.get("tagged") else set()


def _encoded(tokenizer: "AnyTokenizer", language: str | None, pairs: list[tuple[str, str]]) -> "Direction":
    """The tokens of the pairs of one target language; its tag, or the end marker, has the frequent tokens."""
    from transduce.tokenizers.symbols import language_tag, mark
    from transduce.tokenizers.tokenizer import EOS
    from transduce.translation.learn_shortlist import Direction

    sources = tokenizer.encode_all([mark(source, language) for source, _ in pairs], -1, marked=True)
    targets = tokenizer.target.encode_all([target for _, target in pairs], -1)
    return Direction(sources, targets, tokenizer.symbol_ids[language_tag(language)] if language else EOS)
