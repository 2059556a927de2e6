"""`transduce paper`: the claims of "Attention Is All You Need", measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transduce.cli.messages import ended_by_signals
from transduce.cli.options import (
    Command,
    DeviceOption,
    EnsembleOption,
    MbrOption,
    SetOption,
    ThreadsOption,
    model_option,
    scored_together,
)
from transduce.errors import ConfigError

if TYPE_CHECKING:
    from transduce.paper.section import Section
    from transduce.paper.variations import Corpus
    from transduce.training.loop import Outcome

paper = typer.Typer(help="Check the claims of the paper.", no_args_is_help=True, rich_markup_mode=None)

OutOption = Annotated[Path, typer.Option("--out", "-o", help="Folder of paper.html, results.json and all runs.")]
TrainOption = Annotated[
    list[Path] | None,
    typer.Option(help="Training pairs, .tsv or .jsonl; may be repeated. Without them nothing is trained."),
]
ValidOption = Annotated[list[Path] | None, typer.Option(help="Validation pairs, on which models are compared.")]
DEFAULT_OUT = Path("paper")


@paper.command(cls=Command)
def table1(out: OutOption = DEFAULT_OUT, device: DeviceOption = "auto", threads: ThreadsOption = None) -> None:
    """Complexity, sequential operations and path length of layers, and section 3.2.1 on scores of attention."""
    with ended_by_signals():
        import torch

        from transduce.nn.device import pick_device
        from transduce.paper.measured import measure_scores, measure_table1
    if threads:
        torch.set_num_threads(threads)
    torch_device = pick_device(device)
    try:
        out.mkdir(parents=True, exist_ok=True)  # before minutes of measurements
    except OSError as error:
        raise ConfigError(f"{out}: cannot be made: {error.strerror or error}") from None
    _keep("table1", measure_table1(torch_device), out)
    _keep("scores", measure_scores(torch_device), out)


@paper.command(cls=Command)
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
        from transduce.paper.variations import train_scores, trained_scores_section
    corpus = _corpus(train, valid, {"--steps": steps, "--set": set_})
    stopped = train_scores(corpus, steps or 3000, set_ or (), out) if corpus else None
    _keep("trained_scores", trained_scores_section(Results(out)), out, stopped)


@paper.command(cls=Command)
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
        from transduce.paper.comparisons import models_named, peak_flops, table2_section, train_table2
        from transduce.paper.section import Results
    names, stopped = models_named(models), None
    options = {"--models": models, "--minutes": minutes, "--steps": steps, "--set": set_}
    if train and minutes is None and steps is None:
        raise ConfigError("give --minutes, --steps or both: how long every model is trained")
    if corpus := _corpus(train, valid, options):
        stopped = train_table2(names, corpus, pair, minutes=minutes, steps=steps, sets=set_ or (), out=out)
    peak = 1e12 * peak_tflops if peak_tflops else peak_flops()
    _keep("table2", table2_section(Results(out), peak), out, stopped)


@paper.command(cls=Command)
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
        from transduce.paper.variations import rows_named, table3_section, train_table3
    variations = rows_named(rows)
    corpus = _corpus(train, valid, {"--rows": rows, "--steps": steps, "--set": set_})
    stopped = train_table3(variations, corpus, steps or 5000, set_ or (), out) if corpus else None
    _keep("table3", table3_section(Results(out)), out, stopped)


@paper.command(cls=Command)
def table4(
    out: OutOption = DEFAULT_OUT,
    model: Annotated[list[Path] | None, model_option("A parser to score; may be repeated.")] = None,
    ensemble: EnsembleOption = False,
    mbr: MbrOption = False,
    test: Annotated[list[Path] | None, typer.Option(help="Trees, one a line, to score it on; may be repeated.")] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """English constituency parsing: the paper's figures beside those of parsers that were trained here."""
    with ended_by_signals():
        from transduce.cli.evaluate import read_test_set
        from transduce.paper.comparisons import table4_section
        from transduce.paper.section import Results
        from transduce.parsing.parser import Parser
        from transduce.parsing.task import tree_scores
        from transduce.parsing.trees import read_corpus
    if bool(model) != bool(test) or (mbr and not model):
        raise ConfigError("give both --model and --test to score a parser")
    references = {path: read_test_set(read_corpus, str(path)) for path in test or ()}
    for folders in scored_together(model or [], ensemble):
        parser = Parser.load(folders, device=device, threads=threads, mbr=mbr)
        name = " + ".join(folder.name for folder in folders) + (", minimum Bayes risk" if mbr else "")
        for path, trees in references.items():
            scores = tree_scores(parser.parse([tree.words for tree in trees]), trees)
            row = {"model": name, "test": path.name, "architecture": parser.model.config.architecture, **scores}
            Results(out).add_row("table4", f"{name} {path.name}", row)
    _keep("table4", table4_section(Results(out)), out)


@paper.command("all", cls=Command)
def all_(out: OutOption = DEFAULT_OUT, device: DeviceOption = "auto", threads: ThreadsOption = None) -> None:
    """Everything that needs no training: all tables, with the rows that have been trained before."""
    table1(out, device, threads)
    scores(out)
    table2(out)
    table3(out)
    table4(out)


def _keep(name: str, section: "Section", out: Path, stopped: "Outcome | None" = None) -> None:
    """Add a section to the results and the page, and print it; exit if training was stopped by a signal."""
    from transduce.paper.section import PAGE, Results, section_text, write_page

    results = Results(out)
    results.add_section(name, section)
    write_page(out / PAGE, results.sections)
    print(section_text(section))
    print(f"wrote {out / PAGE}\n")
    if stopped and stopped.stop_signal is not None:
        raise typer.Exit(128 + stopped.stop_signal)


def _corpus(train: list[Path] | None, valid: list[Path] | None, options: Mapping[str, object]) -> "Corpus | None":
    """The text to train on, if there is any; without it, options for training are an error."""
    from transduce.paper.variations import Corpus

    if train:
        if not valid:
            raise ConfigError("models are compared on validation text: give it with --valid")
        return Corpus(train, valid)
    for name, value in {"--valid": valid, **options}.items():
        if value is not None:
            raise ConfigError(f"{name} is for training, but there is no training text; give it with --train")
    return None
