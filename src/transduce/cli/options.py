"""Options that several commands share."""

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, fields, is_dataclass
from glob import escape, glob
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from transduce.config import MAX_THREADS
from transduce.errors import ConfigError, TransduceError
from transduce.features import FEATURES
from transduce.search.options import SearchConfig


def complete_models(incomplete: str) -> list[str]:
    """The runs and model folders whose paths start with what is typed, at most one folder further down."""
    from transduce.models.folder import find_model

    found: list[str] = []
    for path in sorted((*glob(f"{escape(incomplete)}*"), *glob(f"{escape(incomplete)}*/*"))):
        with suppress(TransduceError):
            if os.path.dirname(path) not in found and find_model(Path(path)):
                found.append(path)
    return found


def _languages(ctx: typer.Context, side: int) -> list[tuple[str, str]]:
    """The source (0) or target (1) languages of the model that the command line names."""
    from transduce.files.languages import directions_of, language_name
    from transduce.models.folder import find_model, read_card

    model = ctx.params.get("model")
    with suppress(TransduceError):
        folder = find_model(Path(model[0] if isinstance(model, list | tuple) else model) if model else None)
        codes = sorted({pair[side] for pair in directions_of(read_card(folder)["facts"])})
        return [(code, language_name(code)) for code in codes]
    return []


def model_option(help: str, **settings: Any) -> Any:
    """The option --model of a command, with this help."""
    return typer.Option("--model", "-m", help=help, autocompletion=complete_models, **settings)


def choice_option(help: str, *choices: str) -> Any:
    """An option whose help lists its values in place of {}; the shell completes them."""
    listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
    return typer.Option(help=help.format(listed), autocompletion=lambda: list(choices))


BUNDLED_MODEL = "the bundled model: English, German, French"
ModelOption = Annotated[Path | None, model_option("A run or a model folder.", show_default=BUNDLED_MODEL)]
ToOption = Annotated[
    str | None,
    typer.Option(
        help="Target language, e.g. fr; needed if the model has several.",
        show_default=False,
        autocompletion=lambda ctx: _languages(ctx, 1),
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Source language, e.g. en, to check that the model has it.",
        show_default=False,
        autocompletion=lambda ctx: _languages(ctx, 0),
    ),
]
ModelsOption = Annotated[
    list[Path] | None,
    model_option(
        "A run or a model folder; several with the same vocabulary are an ensemble.", show_default=BUNDLED_MODEL
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
ReverseOption = Annotated[
    bool | None,
    typer.Option(
        "--reverse/--no-reverse",
        help="Whether the second side of the pairs is the source.",
        show_default="by the languages in its name, or as in training",
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(help="Device to run on: auto, cpu, cuda, cuda:1 ...", autocompletion=lambda: ["auto", "cpu", "cuda"]),
]
EngineOption = Annotated[str, choice_option("Engine to run: {} (the fastest).", "gpu", "native", "plain", "auto")]
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
PresetOption = Annotated[str | None, choice_option("Size of the model: {}.", "tiny", "small", "base", "big")]
StyleOption = Annotated[
    str | None,
    choice_option(
        "Member of the family: {}.",
        *(
            "paper",
            "gpt2",
            "llama",
            "mistral",
            "qwen3",
            "gemma2",
            "gemma",
            "bert",
            "t5",
            "bart",
            "marian",
            "m2m",
            "vit",
            "whisper",
        ),
    ),
]


def text_argument(help: str, metavar: str = "TEXT") -> Any:
    """Texts that a command reads from standard input if no argument gives them."""
    return typer.Argument(help=help, metavar=metavar, show_default="each line of standard input")


def scored_together(models: Sequence[Path], ensemble: bool) -> list[list[Path]]:
    """The models of each system to score: all of an ensemble, otherwise one."""
    if ensemble and len(models) < 2:
        raise ConfigError("--ensemble is for several models; give --model more than once")
    return [[*models]] if ensemble else [[model] for model in models]


_HYPHEN = "\N{NON-BREAKING HYPHEN}"


class _Formatter(typer.Context.formatter_class):  # type: ignore[misc, valid-type]
    """Help whose lines are not broken inside words with hyphens."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(self, rows: Sequence[tuple[str, str]], **layout: int) -> None:
        super().write_dl([(name, text.replace("-", _HYPHEN)) for name, text in rows], **layout)

    def getvalue(self) -> str:
        return str(super().getvalue().replace(_HYPHEN, "-"))


class _Context(typer.Context):
    formatter_class = _Formatter


class Group(TyperGroup):
    """A group of commands, whose help shows the first sentence of each command, however long it is."""

    context_class = _Context

    def command_rows(self, ctx: Any) -> dict[str, tuple[str, str]]:
        """The names and descriptions of the commands; all names are equally wide."""
        width = max(map(len, self.list_commands(ctx)))
        return {name: (f"{name:<{width}}", command.get_short_help_str(999)) for name, command in self.commands.items()}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*self.command_rows(ctx).values()])


class Command(TyperCommand):
    """A command that refuses a repeated option, unless the option takes several values; Click uses the last one."""

    context_class = _Context

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line, after a check for repeated options."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option in order:
            if order.count(option) > 1 and not option.multiple:
                raise ConfigError(f"{max(option.opts, key=len)} is given more than once; give it only once")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TransduceError as error:
            error.args = (
                _with_flags(str(error), {option.name or "": max(option.opts, key=len) for option in self.params}),
            )
            raise


_WORDS = ("out", "to", "long")
"""Names of options that are also words of sentences."""


def _with_flags(message: str, flags: Mapping[str, str]) -> str:
    """A message of the library about options, in which they are named as on the command line: "--nbest must be ..."."""
    start = re.match(r"(\w+) (?:must be|needs|has no effect|is for)\b", message)
    names = "|".join(name for name in flags if name not in _WORDS or (start and name == start[1]))
    pattern = rf"(?<![\w-])({names})(?![\w-])" if start and start[1] in flags else r"(?<=language \()to(?=\))"
    message = re.sub(
        rf"(?<![\w.-])({'|'.join(flags)})=(?=\w)", lambda name: f"{flags[name[1]]} " if name[1] else name[0], message
    )
    return re.sub(pattern, lambda name: flags.get(name[0], name[0]), message)


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

    added = {}
    for name, group in groups.items():
        types = get_type_hints(group, include_extras=True)
        added[name] = [_parameter(option.name, option.default, types[option.name]) for option in fields(group)]
    return _with_parameters(run, added)


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _with_parameters(
    command: Callable[..., None], added: Mapping[str, Sequence[inspect.Parameter]]
) -> Callable[..., None]:
    """The command with others in the place of some parameters, for typer, which reads the signature."""
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += added.get(name) or [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


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
        _parameter(option.name, typer.Option(None, help=_help(option)), hints[option.name] | None) for option in chosen
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            options = {option.name: arguments.pop(option.name) for option in chosen}
            command(**arguments, options={name: value for name, value in options.items() if value is not None})

        return _with_parameters(run, {"options": added})

    return decorate


def _help(option: Field[Any]) -> str:
    """Help with default and bounds as typer shows those of other options; SearchConfig itself checks the bounds."""
    default = "none" if option.default is None else f"no-{option.name}" if option.default is False else option.default
    bounds = [f"x{_SIGNS[name]}{bound}" for name, bound in option.metadata["bounds"].items()]
    return f"{option.metadata['help']}  [{'; '.join([f'default: {default}', *bounds])}]"
