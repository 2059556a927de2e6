"""The training loop, in one function."""

import json
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from transduce.disk import write_atomically
from transduce.errors import RunError
from transduce.features import HOOKS
from transduce.files.html_page import HtmlPage
from transduce.models.folder import read_card
from transduce.training.checkpoint import Progress, adam_moments, list_checkpoints, newest_step
from transduce.training.display import Display
from transduce.training.learner import make_optimizer
from transduce.training.metrics import describe_session
from transduce.training.milestones import Milestones
from transduce.training.mistakes import refuse_mistakes, warn
from transduce.training.processes import (
    SINGLE_PROCESS,
    Interrupted,
    Processes,
    StopRequest,
    group_of_one,
    stop_on_signals,
)
from transduce.training.profile import StepProfile
from transduce.training.recipe import Recipe
from transduce.training.resolve import ResolvedRecipe, facts_of, resolve
from transduce.training.run_folder import RunFolder
from transduce.training.schedule import Ending
from transduce.training.sharded import gathered
from transduce.training.start_from import find_start
from transduce.training.steps import Steps, is_out_of_memory

_SUSPICIOUS, _SKIPPED_AT_MOST = 3, 10
"""Consecutive steps without finite gradients after which no checkpoint is written, and after which the run ends."""
_CHECKPOINT_SECONDS = 600
"""A checkpoint is written after this much time, even if `train.save_every` is not reached."""


@dataclass(frozen=True)
class Outcome:
    """The result of `train`."""

    out: Path
    step: int
    finished: bool
    stop_signal: int | None
    """The signal that stopped the run early."""
    scores: dict[str, float]
    """Scores of the finished model on the validation data."""

    def _repr_html_(self) -> str:
        """The report of the run, for notebooks."""
        report = self.out / "report.html"
        return HtmlPage(report.read_text(encoding="utf-8"))._repr_html_() if report.exists() else ""


def run_training(
    recipe: Recipe, out: Path, display: Display, *, profile: bool = False, processes: Processes = SINGLE_PROCESS
) -> Outcome:
    """Train a recipe in a folder, or resume it; with `profile`, record a few steps."""
    HOOKS["require_tracking"](recipe)
    run = RunFolder(out, display.log)
    with ExitStack() as stack:
        with processes.main_process_first():
            recipe = run.check(recipe)
            if not run.config.exists():  # a run that exists can only be resumed with its settings
                refuse_mistakes(recipe)
            if processes.is_main:
                stack.enter_context(run.lock())
        if recipe.train.shard and not processes.communicates:
            stack.enter_context(group_of_one())
        stop = stack.enter_context(stop_on_signals(many_processes=processes.count > 1))
        try:
            return _train(recipe, run, display, stop, processes, stack, profile=profile)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise RunError(
                    "out of memory; use a smaller model, or lower train.batch_tokens and raise train.accumulate"
                ) from None
            raise
        except Interrupted:  # before the first step or after the last; during the steps, the loop handles it
            display.log("stopped; run the same command to resume")
            return Outcome(out, newest_step(run.checkpoints), False, stop.signal, {})


def _train(
    recipe: Recipe,
    run: RunFolder,
    display: Display,
    stop: StopRequest,
    processes: Processes,
    stack: ExitStack,
    *,
    profile: bool,
) -> Outcome:
    began = time.monotonic()
    with stop.interrupting():
        resolved = resolve(recipe, run, display, processes, stop)
        recipe, task, prepared, model = resolved.recipe, resolved.task, resolved.prepared, resolved.model
        config, plan, device = recipe.train, resolved.plan, model.device
        optimizer = make_optimizer(model, config)
        with processes.main_process_first():
            progress = run.resume(model, optimizer, prepared)
    elapsed_before, ending = progress.elapsed, Ending(recipe, progress, display.log)
    if ending.reached() and (scores := run.finished_scores(progress.step, recipe, ending.reason)) is not None:
        return Outcome(run.path, progress.step, True, None, scores)

    facts = _begin(resolved, run, progress, display, processes, stack)
    milestones = Milestones(recipe, task, run, resolved.validation, facts, display, ending)
    resolved.validation.score_first(ending.config.valid_sentences)
    stopping, saved_at = False, time.monotonic()
    display.counted = task.counted
    stack.enter_context(display.begin(progress.step, ending.last_step, ending.seconds_left(elapsed_before)))
    if (
        config.start_from
        and not progress.step
        and prepared.valid
        and not processes.of_main(len(run.metrics.of("valid")))
    ):
        milestones.validate(gathered(model), progress)  # to show what training gains
    with (
        Steps(recipe, task, plan, resolved.variation, model, optimizer, display.log, processes) as steps,
        StepProfile(run.profile, device, display.log) if profile and processes.is_main else nullcontext() as recording,
    ):
        steps.learner.precision.magnitudes = progress.magnitudes
        while not ending.reached() and not stopping:
            rate = ending.rate(progress.step + 1)
            sums, labels, work = steps.gradients(progress.step)
            norm = steps.learner.update(progress.step + 1, rate, labels)
            steps.meter.add(sums, labels, norm, work)
            progress.step += 1
            progress.elapsed = elapsed_before + time.monotonic() - began
            display.step_done(progress.step, work, norm, config.log_every)
            if recording:
                recording.after_step()
            if config.minutes is not None:
                ending.after_step(*map(processes.of_main, (progress.seconds + steps.meter.seconds, progress.elapsed)))
                if ending.can_adapt():
                    with steps.meter.paused():
                        milestones.adapt(gathered(model))
            display.set_end(ending.last_step, may_be_earlier=ending.may_be_earlier)

            overdue = processes.is_main and time.monotonic() - saved_at >= _CHECKPOINT_SECONDS
            stopping, overdue = (count > 0 for count in processes.total(bool(stop), overdue))
            is_last = ending.reached()
            validating = progress.step % ending.config.save_every == 0 or is_last
            saving = validating or stopping or overdue

            if progress.step % config.log_every == 0 or saving:
                measured = steps.meter.read()
                skipped = steps.meter.skipped_in_a_row()
                if skipped >= _SKIPPED_AT_MOST or (is_last and skipped >= _SUSPICIOUS):
                    _give_up(run, steps, progress.step, skipped, processes)
                if saving and skipped >= _SUSPICIOUS:
                    saving = False
                    display.log(f"no checkpoint at step {progress.step:,}: the {skipped} steps before it were skipped")
                progress.seconds += measured.pop("seconds")
                measured |= {"learning_rate": rate, "grad_norm": norm.item() if norm.isfinite() else None}
                if processes.is_main:
                    seconds = round(progress.seconds, 3)
                    display.show(run.metrics.add("train", step=progress.step, **measured, seconds=seconds))

            if saving:
                with steps.meter.paused():
                    model_now = gathered(model)
                    if validating and prepared.valid and not stopping:
                        milestones.validate(model_now, progress)
                        if config.patience:
                            ending.after_validation(int(processes.of_main(milestones.without_improvement(progress))))
                            is_last = ending.reached()
                        stopping = processes.any(bool(stop))
                    progress.magnitudes = steps.learner.precision.magnitudes
                    moments = adam_moments(model, optimizer, keep=processes.is_main)
                    if processes.is_main:
                        milestones.save(model_now, moments, progress, must=is_last or stopping)
                    del model_now, moments
                saved_at = time.monotonic()

    processes.wait()  # until the main process has written the last checkpoint
    if ending.reached():
        return Outcome(run.path, progress.step, True, None, milestones.finish(gathered(model), progress))
    saved = run.checkpoints / f"step-{progress.step}"
    display.log(f"stopped at step {progress.step:,} ({saved}); run the same command to resume")
    return Outcome(run.path, progress.step, False, stop.signal, {})


def _begin(
    resolved: ResolvedRecipe,
    run: RunFolder,
    progress: Progress,
    display: Display,
    processes: Processes,
    stack: ExitStack,
) -> dict[str, Any]:
    """Write the settings into the folder, start the metrics, and log what is trained; returns the run's metadata."""
    recipe, model, config = resolved.recipe, resolved.model, resolved.recipe.train
    if not config.shard:
        processes.require_same(model.parameters())
    if processes.is_main:
        run.begin(recipe, resolved.tokenizer)
        run.metrics.start_at(progress.step)
        run.metrics.on_add = stack.enter_context(HOOKS["tracking"](recipe, run.path, progress.step, display.log))
    warn(recipe, processes.count, display.log)
    facts = facts_of(recipe, resolved.task, resolved.prepared)
    if config.start_from:  # the tokens that end an output, if there are several
        before = (list_checkpoints(run.checkpoints) or [find_start(config.start_from)])[-1]
        facts |= {name: value for name, value in read_card(before)["facts"].items() if name == "ends"}
    if processes.is_main:
        session = describe_session(model.device, processes.count, model.parameters_count, facts["data"])
        run.metrics.add("start", step=progress.step, **session)
    updates_per_epoch = resolved.plan.batches_per_epoch / config.accumulate
    together = f" and {processes.count - 1} other processes" if processes.count > 1 else ""
    count = sum(weight.numel() for _, weight in model.trained.named_parameters())
    trained = f" and updates of rank {config.lora} with {count:,}" if model.low_rank else ""
    limit = "" if config.minutes is None else f"{config.minutes:g} minutes, at most "
    display.log(
        f"{model.parameters_count:,} parameters{trained} on {model.device}{together}; "
        f"{limit}{config.steps:,} steps, {updates_per_epoch:,.0f} per epoch"
    )
    return facts


def _give_up(run: RunFolder, steps: Steps, step: int, skipped: int, processes: Processes) -> NoReturn:
    """Write the numbers of the examples whose gradients were not finite, and stop."""
    if processes.is_main:
        numbers = range(step - skipped, step)[-_SKIPPED_AT_MOST:]
        bad = {f"step {number + 1}": steps.examples(number) for number in numbers}
        write_atomically(run.bad_batches, json.dumps(bad, indent=1).encode())
    raise RunError(
        f"the gradients of {skipped} steps in a row, up to step {step}, were not finite numbers; the checkpoints are "
        f"from before that; the numbers of the pairs in those steps are in {run.bad_batches}. "
        "Check those pairs, lower train.learning_rate_scale, or set train.clip_norm=1.0"
    )
