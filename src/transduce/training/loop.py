"""The training loop: one function to be read from top to bottom."""

import json
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from transduce.data.plan import BatchPlan
from transduce.data.prepare import prepare
from transduce.disk import write_atomically
from transduce.distributed.processes import ALONE, Processes
from transduce.distributed.sharded import gathered
from transduce.distributed.signals import Interrupted, StopRequest, stop_on_signals
from transduce.errors import RunError
from transduce.nn.device import pick_device
from transduce.runs.checkpoint import adam_moments, newest_step
from transduce.runs.recipe import Recipe
from transduce.runs.run_folder import RunFolder
from transduce.tasks.registry import TASKS
from transduce.tasks.validation import Validation
from transduce.training.display import Display
from transduce.training.loader import dropout_growth
from transduce.training.milestones import Milestones
from transduce.training.profile import StepProfile
from transduce.training.start import (
    facts_of,
    new_model,
    require_text,
    resume,
    settle_batch_tokens,
    taken_over,
    vocabulary_of,
    warn,
)
from transduce.training.steps import Steps

_SUSPICIOUS, _SKIPPED_AT_MOST = 3, 10
"""Consecutive steps without finite gradients after which no checkpoint is written, and after which the run ends."""


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


def run_training(
    recipe: Recipe, out: Path, display: Display, *, profile: bool = False, processes: Processes = ALONE
) -> Outcome:
    """Train a recipe in a folder, or resume it; with `profile`, record a few steps."""
    run = RunFolder(out, display.say)
    with ExitStack() as stack:
        with processes.first_before_others():
            recipe = run.check(recipe)
            if processes.is_first:
                stack.enter_context(run.lock())
        stop = stack.enter_context(stop_on_signals(many_processes=processes.count > 1))
        try:
            return _train(recipe, run, display, stop, processes, profile=profile)
        except Interrupted:  # during start-up or the end; during steps, the loop handles it
            display.say("stopped; run the same command to resume")
            return Outcome(out, newest_step(run.checkpoints), False, stop.signal, {})


def _train(
    recipe: Recipe, run: RunFolder, display: Display, stop: StopRequest, processes: Processes, *, profile: bool
) -> Outcome:
    with stop.interrupting():
        device = processes.device(pick_device(recipe.train.device))
        recipe = taken_over(recipe, run, display.say)
        require_text(recipe)
        with processes.first_before_others():
            prepared = prepare(recipe.data, vocabulary_of(recipe, run), display.say, TASKS[recipe.task].reader)
        model = new_model(recipe, run, prepared, device, processes)
        if recipe.train.batch_tokens == "auto":
            recipe = settle_batch_tokens(recipe, model, prepared, display, processes)
        config, tokenizer = recipe.train, prepared.tokenizer
        assert config.batch_tokens != "auto"
        task = TASKS[recipe.task]()
        validation = Validation(task, recipe.data, prepared, config.valid_sentences, display.say, processes, stop)
        growth = dropout_growth(prepared.train, tokenizer, config.bpe_dropout) if config.bpe_dropout else 1.0
        plan = BatchPlan(prepared.train, config.batch_tokens, config.seed, growth)
        optimizer = torch.optim.Adam(
            model.parameters(),
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            fused=device.type in ("cpu", "cuda"),
        )
        with processes.first_before_others():
            progress = resume(run, model, optimizer, prepared, display)
    if processes.is_first:
        run.begin(recipe, tokenizer)
        run.metrics.start_at(progress.step)
    if progress.step >= config.steps and (scores := run.finished_scores(progress.step)) is not None:
        display.say(f"{run.model} is finished; raise train.steps above {progress.step:,} to train it further")
        return Outcome(run.path, progress.step, True, None, scores)

    warn(recipe, display.say)
    milestones = Milestones(recipe, task, run, validation, facts_of(recipe, prepared), display)
    updates_per_epoch = plan.batches_per_epoch / config.accumulate
    together = f" and {processes.count - 1} other processes" if processes.count > 1 else ""
    display.say(
        f"{model.parameters_count:,} parameters on {device}{together}; "
        f"{config.steps:,} steps, {updates_per_epoch:,.0f} to an epoch"
    )

    stopping = False
    with (
        display.begin(progress.step, config.steps),
        Steps(recipe, task, plan, tokenizer, model, optimizer, display.say, processes) as steps,
        StepProfile(run.profile, device, display.say) if profile and processes.is_first else nullcontext() as recording,
    ):
        while progress.step < config.steps and not stopping:
            rate, norm = steps.take(progress.step)
            progress.step += 1
            if recording:
                recording.after_step()
            is_last, stopping = progress.step == config.steps, processes.any(bool(stop))
            saving = progress.step % config.save_every == 0 or is_last or stopping

            if progress.step % config.log_every == 0 or saving:
                measured = steps.meter.read()
                skipped = steps.meter.skipped_in_a_row()
                if skipped >= _SKIPPED_AT_MOST or (is_last and skipped >= _SUSPICIOUS):
                    _give_up(run, steps, progress.step, skipped, processes)
                if saving and skipped >= _SUSPICIOUS:
                    saving = False
                    display.say(f"no checkpoint at step {progress.step:,}: {skipped} steps before it were skipped")
                progress.seconds += measured.pop("seconds")
                finite_norm = norm.item() if norm.isfinite() else None
                if processes.is_first:
                    display.show(
                        run.metrics.add(
                            "train", step=progress.step, **measured, learning_rate=rate, grad_norm=finite_norm
                        )
                    )

            if saving:
                with steps.meter.paused():
                    model_now = gathered(model)
                    if prepared.valid and not stopping:
                        milestones.validate(model_now, progress)
                        stopping = processes.any(bool(stop))
                    moments = adam_moments(model, optimizer)
                    if processes.is_first:
                        milestones.save(model_now, moments, progress, must=is_last or stopping)
                    del model_now, moments
                if stopping:
                    saved = run.checkpoints / f"step-{progress.step}"
                    display.say(f"stopped at step {progress.step:,} ({saved}); run the same command to resume")

    processes.wait()  # until the first process has written the last checkpoint
    finished = progress.step >= config.steps
    scores = milestones.finish(gathered(model), progress) if finished else {}
    return Outcome(run.path, progress.step, finished, None if finished else stop.signal, scores)


def _give_up(run: RunFolder, steps: Steps, step: int, skipped: int, processes: Processes) -> NoReturn:
    """Write the numbers of the examples whose gradients were not finite, and stop."""
    if processes.is_first:
        numbers = range(step - skipped, step)[-_SKIPPED_AT_MOST:]
        bad = {f"step {number + 1}": steps.examples(number) for number in numbers}
        write_atomically(run.bad_batches, json.dumps(bad, indent=1).encode())
    raise RunError(
        f"the gradients of {skipped} steps in a row, up to step {step}, were not finite numbers; the checkpoints are "
        f"older than that, the numbers of the pairs in those steps are in {run.bad_batches}. "
        "Look at them, lower train.learning_rate_scale, or set train.clip_norm=1.0"
    )
