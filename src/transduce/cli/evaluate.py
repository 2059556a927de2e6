"""`transduce evaluate`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from transduce.cli.messages import announce
from transduce.cli.options import (
    DeviceOption,
    EngineOption,
    EnsembleOption,
    ForceOption,
    FromOption,
    JsonOption,
    MbrOption,
    ReverseOption,
    ThreadsOption,
    ToOption,
    model_option,
    scored_together,
    search_options,
)
from transduce.errors import ConfigError, ModelError
from transduce.features import Registry, feature_with
from transduce.files.pairs import ReadReport
from transduce.search.options import SINGLE_OUTPUT_OPTIONS, SearchOptions
from transduce.training.train_config import BleuTokenizer

T = TypeVar("T")
TRANSLATE = "translate"
"""The task of models whose card names none, and of translations that are given."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A call of `transduce evaluate`: what is scored, and with which options."""

    task: str
    models: Sequence[Path | None]
    """The models as the user names them; None is the bundled model. There may be none, but translations (`hyps`)."""
    folders: Sequence[Path]
    """The folder of each model."""
    facts: Sequence[dict[str, Any]]
    """The facts of each model's card."""
    systems: Sequence[Sequence[Path]]
    """The folders of each system: one, or all models of an ensemble."""
    src: Path | None = None
    refs: Sequence[Path] = ()
    test: Path | None = None
    hyps: Sequence[Path] = ()
    out: Path | None = None
    tokenize: str = "auto"
    to: str | None = None
    source: str | None = None
    """The source language (--from)."""
    reverse: bool | None = None
    search: SearchOptions = field(default_factory=SearchOptions)
    device: str = "auto"
    engine: str = "auto"
    threads: int | None = None
    mbr: bool = False
    as_json: bool = False

    def require_effect(self, *effective: str) -> None:
        """Raise an error if the user gives an option, of those that not every task has, that is not among these."""
        others = {
            "tokenize": self.tokenize != "auto",
            "to": self.to,
            "from": self.source,
            "engine": self.engine != "auto",
        }
        for option in [*self.search, *(option for option, value in others.items() if value)]:
            if option not in effective:
                reason = (
                    f"on a model of the task {self.task}"
                    if self.models
                    else "on translations that are given with --hyp"
                )
                raise ConfigError(f"--{option.replace('_', '-')} has no effect {reason}; leave it out")
        if self.mbr and "mbr" not in effective:
            raise ConfigError("--mbr has an effect on parsers only; leave it out")

    def only_test(self, kind: str) -> Path:
        """The file of --test; an error that begins with `kind` if there are other files, or several models."""
        self.require_effect()
        others = [*self.refs, *self.hyps, *([self.src] if self.src else []), *([self.out] if self.out else [])]
        if self.test is None or others or len(self.folders) > 1 or self.reverse is not None:
            raise ConfigError(f"{kind}: give one model and --test FILE, and no other file")
        return self.test


def read_test_set(read: Callable[..., Iterable[T]], *files: str) -> list[T]:
    """Every example of a test set, of which none may be left out; `read` is that of a reader (files/readers.py)."""
    report = ReadReport()
    examples = list(read([files], report))
    if report.left_out:
        raise ConfigError(f"{' + '.join(files)} cannot be a test set: {'; '.join(report.lines())}")
    return examples


EVALUATIONS: Registry[Callable[[Evaluation], None]] = Registry("evaluations")


@search_options(*SINGLE_OUTPUT_OPTIONS)
def evaluate(
    model: Annotated[
        list[Path] | None,
        model_option("A run or a model folder; several are compared.", show_default="without --hyp: the bundled model"),
    ] = None,
    ensemble: EnsembleOption = False,
    src: Annotated[Path | None, typer.Option(help="Text for the model to translate.")] = None,
    ref: Annotated[
        list[Path] | None,
        typer.Option(help="Reference translations, line by line; repeat it for several of each line."),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Instead of --src and --ref: both in one .tsv or .jsonl; for a parser, trees.")
    ] = None,
    hyp: Annotated[list[Path] | None, typer.Option(help="Translations to score; several are compared.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write the model's translations to.")] = None,
    force: ForceOption = False,
    tokenize: Annotated[
        BleuTokenizer,
        typer.Option(
            help="BLEU's tokenizer, one of sacreBLEU's, e.g. char; auto: by the language or script of the references.",
            metavar="NAME",
        ),
    ] = "auto",
    to: ToOption = None,
    from_: FromOption = None,
    reverse: ReverseOption = None,
    *,
    options: SearchOptions,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
    mbr: MbrOption = False,
    as_json: JsonOption = False,
) -> None:
    """Score models, or their outputs, on a test set.

    Translations are scored with BLEU, chrF and TER (sacreBLEU), a parser with labelled bracketing F1, a classifier with
    accuracy, macro F1 and the confusion matrix, and a speech model with the word error rate. Of a language model, the
    loss, perplexity and bits per byte of a text are printed, of a masked model the loss and accuracy of masked tokens.

    Several systems are compared by paired bootstrap resampling. A search option that is not given has the value stored
    with the model, usually the default shown here.
    """
    from transduce.cli.outputs import refuse_overwriting, require_line_output
    from transduce.models.folder import find_model, read_card

    if reverse is not None and not test:
        raise ConfigError("--reverse is for --test, which has two sides; --src and --ref name the sides themselves")
    refs, hyps = ref or [], hyp or []
    if out:
        require_line_output(out)
        refuse_overwriting(out, [*([src] if src else []), *([test] if test else []), *refs, *hyps], force=force)
    models: list[Path | None] = [*model] if model else [] if hyps else [None]  # None is the bundled model
    if len({*map(str, models), *map(str, hyps)}) < len(models) + len(hyps):
        raise ConfigError("the same model or file is given twice")
    folders = [find_model(path) for path in models]
    systems = scored_together(folders, ensemble)
    if models and not (src or test):
        alternative = "leave out -m to score only those of --hyp" if hyps else "give translations to score with --hyp"
        raise ConfigError(
            f"there is no text for the model to translate; give --src (--test has both sides), or {alternative}"
        )
    facts = [read_card(folder)["facts"] for folder in folders]
    tasks = [fact.get("task", TRANSLATE) for fact in facts]
    task = next((task for task in tasks if task != TRANSLATE), TRANSLATE)
    if task not in EVALUATIONS and (feature := feature_with("uses", task)):
        raise ModelError(f"{folders[0]} was trained for the task {task}; {feature.uses[task]}")
    with announce("loading PyTorch"):
        run = EVALUATIONS.get(task) or EVALUATIONS[TRANSLATE]
    run(
        Evaluation(
            task=task, models=models, folders=folders, facts=facts, systems=systems, src=src, refs=refs, test=test,
            hyps=hyps, out=out, tokenize=tokenize, to=to, source=from_, reverse=reverse, search=options, device=device,
            engine=engine, threads=threads, mbr=mbr, as_json=as_json,
        )
    )  # fmt: skip
