"""Options that several commands share."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from transduce.config import MAX_THREADS
from transduce.errors import ConfigError
from transduce.features import FEATURES
from transduce.search.options import SearchConfig

ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model", "-m", help="A run or a model folder.", show_default="the bundled model: English, German, French"
    ),
]
ToOption = Annotated[
    str | None, typer.Option(help="Target language, e.g. fr; needed if the model has several.", show_default=False)
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", help="Source language, e.g. en, to check that the model has it.", show_default=False),
]
ModelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        help="A run or a model folder; several with the same vocabulary are an ensemble.",
        show_default="the bundled model: English, German, French",
    ),
]
ReverseOption = Annotated[
    bool | None,
    typer.Option(
        "--reverse/--no-reverse",
        help="Whether the second side of the pairs is the source.",
        show_default="by the languages in its name, or as in training",
    ),
]
DeviceOption = Annotated[str, typer.Option(help="Device to run on: auto, cpu, cuda, cuda:1 ...")]
EngineOption = Annotated[str, typer.Option(help="Engine to run: auto (the fastest available), gpu, native or plain.")]
ThreadsOption = Annotated[
    int | None, typer.Option(help="Number of CPU threads.", min=1, max=MAX_THREADS, show_default="the number of cores")
]
EnsembleOption = Annotated[
    bool, typer.Option("--ensemble", help="Score the models as one ensemble instead of comparing them.")
]
MbrOption = Annotated[
    bool,
    typer.Option(
        "--mbr",
        help="Parse with minimum Bayes risk: take the constituents with more than half of the beam's probability.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any setting of docs/settings.md, e.g. train.steps=2000; may be repeated.",
        metavar="SECTION.KEY=VALUE",
    ),
]
SrcOption = Annotated[list[Path] | None, typer.Option(help="Source text, one sentence per line; may be repeated.")]
TgtOption = Annotated[list[Path] | None, typer.Option(help="The translation of --src, line by line.")]
TrainOption = Annotated[list[Path] | None, typer.Option(help="Instead: both in one file, .tsv or .jsonl.")]
ValidSrcOption = Annotated[list[Path] | None, typer.Option(help="Source text for validation.")]
ValidTgtOption = Annotated[list[Path] | None, typer.Option(help="The translation of --valid-src.")]
ValidOption = Annotated[
    list[Path] | None, typer.Option(help="Instead: both in one file, .tsv or .jsonl; or running text.")
]
_TASKS = [name for feature in FEATURES.values() for name in feature.tasks]
TASK_HELP = f"What the model learns: {', '.join(_TASKS[:-1])} or {_TASKS[-1]}."
PresetOption = Annotated[str | None, typer.Option(help="Size of the model: tiny, small, base or big.")]
StyleOption = Annotated[
    str | None,
    typer.Option(help="Member of the family: paper, gpt2, llama, bert, t5, bart, marian, vit or whisper."),
]


def text_argument(help: str, metavar: str = "TEXT") -> Any:
    """Texts that a command reads from standard input if no argument gives them."""
    return typer.Argument(help=help, metavar=metavar, show_default="each line of standard input")


def model_option(help: str) -> Any:
    return typer.Option("--model", "-m", help=help)


def scored_together(models: Sequence[Path], ensemble: bool) -> list[list[Path]]:
    """The models of each system to score: all of an ensemble, otherwise one."""
    if ensemble and len(models) < 2:
        raise ConfigError("--ensemble is for several models; give --model more than once")
    return [[*models]] if ensemble else [[model] for model in models]


class Command(TyperCommand):
    """A command that refuses a repeated option, unless the option takes several values; Click uses the last one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line, after a check for repeated options."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option in order:
            if order.count(option) > 1 and not option.multiple:
                raise ConfigError(f"{max(option.opts, key=len)} is given more than once; give it only once")
        return super().parse_args(ctx, args)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of the engine that runs a search."""

    device: DeviceOption = "auto"
    engine: EngineOption = "auto"
    threads: ThreadsOption = None
    batch_tokens: Annotated[
        int | None, typer.Option(help="Source tokens times beam in one batch.", min=1, show_default="as many as fit")
    ] = None


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command whose type is a dataclass by an option for each field of the dataclass."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        for name, group in groups.items():
            arguments[name] = group(**{option.name: arguments.pop(option.name) for option in fields(group)})
        command(**arguments)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        group = groups[parameter.name]
        types = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(
                option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=types[option.name]
            )
            for option in fields(group)
        ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


class Conflict:
    """A row of a table of conflicts: options that need something else, or that something else excludes."""

    def __init__(self, *options: str, message: str, needs: str = "", excludes: str = "") -> None:
        self.options, self.needs, self.excludes, self.message = options, needs, excludes, message
        """In the message, {} stands for those of the options that are given."""


def refuse_conflicts(conflicts: Iterable[Conflict], facts: Mapping[str, object], *groups: Any) -> None:
    """Raise the ConfigError of the first conflict between what is given: the fields of option groups, and `facts`."""
    found = {
        f"--{option.name.replace('_', '-')}": getattr(group, option.name)
        for group in groups
        for option in fields(group)
    }
    found |= facts
    for conflict in conflicts:
        named = [option for option in conflict.options if found.get(option)]
        met = bool(found.get(conflict.needs)) if conflict.needs else not found.get(conflict.excludes)
        if named and not met:
            raise ConfigError(conflict.message.format(", ".join(named)))


_SIGNS = {"at_least": ">=", "above": ">", "at_most": "<="}


def search_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a command's parameter `options` by an option for each of these fields of SearchConfig (default: all).

    The command receives in `options` a dictionary of those that the user gives.
    """
    chosen = [option for option in fields(SearchConfig) if option.name in names or not names]
    hints = get_type_hints(SearchConfig)
    added = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=typer.Option(None, help=_help(option)),
            annotation=hints[option.name] | None,
        )
        for option in chosen
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            options = {option.name: arguments.pop(option.name) for option in chosen}
            command(**arguments, options={name: value for name, value in options.items() if value is not None})

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            unchanged = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
            parameters += added if parameter.name == "options" else unchanged
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _help(option: Field[Any]) -> str:
    """Help with default and bounds as typer shows those of other options; SearchConfig itself checks the bounds."""
    default = "none" if option.default is None else f"no-{option.name}" if option.default is False else option.default
    bounds = [f"x{_SIGNS[name]}{bound}" for name, bound in option.metadata["bounds"].items()]
    return f"{option.metadata['help']}  [{'; '.join([f'default: {default}', *bounds])}]"
