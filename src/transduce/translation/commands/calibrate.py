"""`transduce calibrate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from transduce.cli.messages import log
from transduce.cli.options import (
    DeviceOption,
    EngineOption,
    FromOption,
    ReverseOption,
    ThreadsOption,
    ToOption,
    model_option,
)


def calibrate(
    model: Annotated[Path, model_option("A run or a model folder; its card is changed.")],
    test: Annotated[
        list[Path] | None, typer.Option(help="Pairs to calibrate with, .tsv or .jsonl; may be repeated.")
    ] = None,
    check: Annotated[
        list[Path] | None, typer.Option(help="Other pairs, to measure the calibration with; may be repeated.")
    ] = None,
    human: Annotated[
        list[Path] | None,
        typer.Option(help="Tables of translations with human scores (mlqe-pe), to measure with; may be repeated."),
    ] = None,
    to: ToOption = None,
    from_: FromOption = None,
    reverse: ReverseOption = None,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Calibrate the confidence of a model's translations.

    The pairs are those that the model was not trained on. It translates the sources, and its confidence is fitted to
    the chrF of the outputs with the targets: a few hundred pairs of the kind of text to be translated are enough. A
    model with several target languages has a calibration for each (--to). Without --test, only the existing calibration
    is measured (--check, --human).
    """
    from transduce.disk import MANIFEST
    from transduce.errors import ConfigError
    from transduce.files.pairs import count_pairs
    from transduce.models.folder import find_model, read_card, write_fact
    from transduce.translation.calibration import fit_calibration, human_agreement, measure_calibration
    from transduce.translation.commands.direction import evaluated_direction, logged_pairs
    from transduce.translation.confidence import ANY
    from transduce.translation.translator import Translator

    tests, checks = test or [], check or []
    if not tests and not checks and not human:
        raise ConfigError("there are no pairs to calibrate with; give --test")
    folder = find_model(model)
    if tests and (folder / MANIFEST).exists():
        raise ConfigError(f"{folder} is a checkpoint, which cannot be changed; calibrate the finished model")
    facts = read_card(folder)["facts"]
    directions = {path: evaluated_direction(facts, path, from_, to, reverse) for path in (*tests, *checks)}
    targets = {direction.target for direction in directions.values()}
    targets |= {evaluated_direction(facts, None, from_, to, reverse).target} if human else set()
    if facts.get("tagged") and len(targets) > 1:
        raise ConfigError(f"the pairs have several target languages ({', '.join(map(str, targets))}); calibrate each")
    target = targets.pop() if facts.get("tagged") else None
    pairs = {path: list(logged_pairs(path, direction.reverse)) for path, direction in directions.items()}
    translator = Translator.load(folder, device=device, engine=engine, threads=threads, protect=False)
    for path, direction in directions.items():
        log(direction.describe(path).removesuffix("; "))
    log(f"engine {translator.describe_engine()}")
    if tests:
        chosen = [pair for path in tests for pair in pairs[path]]
        calibration, measured = fit_calibration(translator, chosen, target)
        translator.calibrations[target or ANY] = calibration
        tables: dict[str, Any] = {**facts.get("confidence", {}), target or ANY: calibration.to_table()}
        write_fact(folder, "confidence", tables)
        print(f"{folder}: calibrated with {count_pairs(len(chosen))}: {measured}")
    for path in checks:
        print(f"{path}: {count_pairs(len(pairs[path]))}: {measure_calibration(translator, pairs[path], target)}")
    for path in human or []:
        print(f"{path}: {human_agreement(translator, path, target)}")
