"""`transduce paper`: the claims of "Attention Is All You Need", measured."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transduce.cli.loading import ended_by_signals
from transduce.cli.options import (
    Command,
    DeviceOption,
    EnsembleOption,
    MbrOption,
    SetOption,
    ThreadsOption,
    scored_together,
)
from transduce.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from transduce.paper.section import Section
    from transduce.training.loop import Outcome

paper = typer.Typer(help="Check the claims of the paper.", no_args_is_help=True, rich_markup_mode=None)

OutOption = Annotated[Path, typer.Option("--out", "-o", help="Folder of paper.html, results.json and all runs.")]
TrainOption = Annotated[
    list[Path] | None,
    typer.Option(help="Training pairs, .tsv or .jsonl; may be repeated. Without them nothing is trained."),
]
ValidOption = Annotated[list[Path] | None, typer.Option(help="Validation pairs, on which models are compared.")]
DEFAULT_OUT = Path("paper")


def table1(out: OutOption = DEFAULT_OUT, device: DeviceOption = "auto", threads: ThreadsOption = None) -> None:
    """Complexity, sequential operations and path length of layers, and section 3.2.1 on scores of attention."""
    with ended_by_signals():
        from transduce.paper.score_functions import measure_scores
        from transduce.paper.table1 import measure_table1
    chosen = _device(device, threads)
    _make_folder(out)  # before minutes of measurements
    _keep("table1", measure_table1(chosen), out)
    _keep("scores", measure_scores(chosen), out)


def scores(
    out: OutOption = DEFAULT_OUT,
    train: TrainOption = None,
    valid: ValidOption = None,
    steps: Annotated[
        int | None, typer.Option(help="Number of steps of every model.", min=1, show_default="3000")
    ] = None,
    set_: SetOption = None,
) -> None:
    """Section 3.2.1: models with scaled, unscaled and additive scores, for several d_k.

    Models that are finished are kept; a command that was stopped continues where it stopped.
    """
    with ended_by_signals():
        from transduce.paper.section import Results
        from transduce.paper.trained_scores import train_scores, trained_scores_section
        from transduce.paper.training import Corpus
    _refuse_without_text(train, {"--valid": valid, "--steps": steps, "--set": set_})
    stopped = train_scores(Corpus(train, _required(valid)), steps or 3000, set_ or (), out) if train else None
    _keep("trained_scores", trained_scores_section(Results(out)), out)
    _exit_if_stopped(stopped)


def table2(
    out: OutOption = DEFAULT_OUT,
    train: TrainOption = None,
    valid: ValidOption = None,
    pair: Annotated[str, typer.Option(help="Name of the corpus in the results, e.g. en-de.")] = "en-de",
    models: Annotated[
        str | None,
        typer.Option(help="Models to train, of base, recurrent, convolutional and big.", show_default="all but big"),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train every model for this time.")] = None,
    steps: Annotated[int | None, typer.Option(help="Train every model for this number of steps.", min=1)] = None,
    peak_tflops: Annotated[
        float | None,
        typer.Option(help="Peak speed of the GPU, for time × peak.", min=0, show_default="by the GPU's name"),
    ] = None,
    set_: SetOption = None,
) -> None:
    """Quality and training cost of the Transformer and its predecessors.

    Models that are finished are kept; a command that was stopped continues where it stopped.
    """
    with ended_by_signals():
        from transduce.paper.section import Results
        from transduce.paper.table2 import models_named, table2_section, train_table2
        from transduce.paper.training import Corpus
    chosen, stopped = models_named(models), None
    given = {"--valid": valid, "--models": models, "--minutes": minutes, "--steps": steps, "--set": set_}
    _refuse_without_text(train, given)
    if train:
        if minutes is None and steps is None:
            raise ConfigError("give --minutes, --steps or both: how long every model is trained")
        corpus = Corpus(train, _required(valid))
        stopped = train_table2(chosen, corpus, pair, minutes=minutes, steps=steps, sets=set_ or (), out=out)
    peak = 1e12 * peak_tflops if peak_tflops else _peak()
    _keep("table2", table2_section(Results(out), peak), out)
    _exit_if_stopped(stopped)


def table3(
    out: OutOption = DEFAULT_OUT,
    train: TrainOption = None,
    valid: ValidOption = None,
    rows: Annotated[str | None, typer.Option(help="Rows to train, e.g. base,A1,C2.", show_default="all")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps of every row.", min=1, show_default="5000")] = None,
    set_: SetOption = None,
) -> None:
    """Variations of the base model: parameter counts, and quality after the same training.

    The base model is trained with three seeds. Rows that are finished are kept; a command that was stopped continues
    where it stopped.
    """
    with ended_by_signals():
        from transduce.paper.section import Results
        from transduce.paper.table3 import rows_named, table3_section, train_table3
        from transduce.paper.training import Corpus
    chosen, stopped = rows_named(rows), None
    _refuse_without_text(train, {"--valid": valid, "--rows": rows, "--steps": steps, "--set": set_})
    if train:
        stopped = train_table3(chosen, Corpus(train, _required(valid)), steps or 5000, set_ or (), out)
    _keep("table3", table3_section(Results(out)), out)
    _exit_if_stopped(stopped)


def table4(
    out: OutOption = DEFAULT_OUT,
    model: Annotated[
        list[Path] | None, typer.Option("--model", "-m", help="A parser to score; may be repeated.")
    ] = None,
    ensemble: EnsembleOption = False,
    mbr: MbrOption = False,
    test: Annotated[list[Path] | None, typer.Option(help="Trees, one a line, to score it on; may be repeated.")] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """English constituency parsing: the paper's figures beside those of parsers that were trained here."""
    with ended_by_signals():
        from transduce.paper.section import Results
        from transduce.paper.table4 import table4_section
        from transduce.parsing.evaluate import read_test_trees, tree_scores
        from transduce.parsing.parser import Parser
    if bool(model) != bool(test) or (mbr and not model):
        raise ConfigError("give both --model and --test to score a parser")
    references = {path: read_test_trees(path) for path in test or ()}
    for folders in scored_together(model or [], ensemble):
        parser = Parser.load(folders, device=device, threads=threads, mbr=mbr)
        name = " + ".join(folder.name for folder in folders) + (", minimum Bayes risk" if mbr else "")
        for path, trees in references.items():
            scores = tree_scores(parser.parse([tree.words for tree in trees]), trees)
            row = {"model": name, "test": path.name, "architecture": parser.model.config.architecture, **scores}
            Results(out).add_row("table4", f"{name} {path.name}", row)
    _keep("table4", table4_section(Results(out)), out)


def all_(out: OutOption = DEFAULT_OUT, device: DeviceOption = "auto", threads: ThreadsOption = None) -> None:
    """Everything that needs no training: all tables, with the rows that have been trained before."""
    table1(out, device, threads)
    scores(out)
    table2(out)
    table3(out)
    table4(out)


commands: dict[str, Callable[..., None]] = {
    "table1": table1, "scores": scores, "table2": table2, "table3": table3, "table4": table4, "all": all_,
}  # fmt: skip
for name, command in commands.items():
    paper.command(name, cls=Command)(command)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be made: {error.strerror or error}") from None


def _keep(name: str, section: "Section", out: Path) -> None:
    """Add a section to the results and the page, and print it."""
    from transduce.paper.page import PAGE, write_page
    from transduce.paper.section import Results
    from transduce.paper.text import section_text

    results = Results(out)
    results.add_section(name, section)
    write_page(out / PAGE, results.sections)
    print(section_text(section))
    print(f"wrote {out / PAGE}\n")


def _device(name: str, threads: int | None) -> "torch.device":
    import torch

    from transduce.nn.device import pick_device

    if threads:
        torch.set_num_threads(threads)
    return pick_device(name)


def _peak() -> float | None:
    """The peak speed of this machine's GPU, if it is known."""
    import torch

    from transduce.paper.table2 import PEAK_FLOPS

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return next((speed for key, speed in PEAK_FLOPS.items() if key in name), None)


def _refuse_without_text(train: list[Path] | None, options: Mapping[str, object]) -> None:
    """Raise an error if options for training are given without training text."""
    for name in [name for name, value in options.items() if value is not None and not train]:
        raise ConfigError(f"{name} is for training, but there is no training text; give it with --train")


def _required(valid: list[Path] | None) -> list[Path]:
    if not valid:
        raise ConfigError("models are compared on validation text: give it with --valid")
    return valid


def _exit_if_stopped(outcome: "Outcome | None") -> None:
    if outcome and outcome.stop_signal is not None:
        raise typer.Exit(128 + outcome.stop_signal)
