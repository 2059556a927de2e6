"""The training loop: one function to be read from top to bottom."""

import json
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from transduce.config import require, to_table
from transduce.data.plan import BatchPlan
from transduce.data.prepare import Prepared, prepare
from transduce.disk import write_whole
from transduce.errors import RunError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.device import pick_device
from transduce.text.tokenizer import Tokenizer
from transduce.training.average import load_average
from transduce.training.budget import largest_batch
from transduce.training.checkpoint import (
    Progress,
    adam_moments,
    find_damage,
    list_checkpoints,
    load_checkpoint,
    newest_intact,
    newest_step,
    prune,
    read_progress,
    save_checkpoint,
    scheduled,
)
from transduce.training.display import Display
from transduce.training.loader import dropout_growth
from transduce.training.processes import ALONE, Processes
from transduce.training.profile import StepProfile
from transduce.training.recipe import Recipe
from transduce.training.report import write_report
from transduce.training.run_folder import RunFolder
from transduce.training.sharded import gathered, shard
from transduce.training.signals import Interrupted, StopRequest, stop_on_signals
from transduce.training.steps import Steps, use_bfloat16
from transduce.training.validate import Validation, attention_picture

_SUSPICIOUS, _SKIPPED_AT_MOST = 3, 10
"""Steps in a row without finite gradients: so many, and no checkpoint is written; so many, and the run ends."""


@dataclass(frozen=True)
class Outcome:
    """How a sitting of training ended."""

    out: Path
    step: int
    finished: bool
    stop_signal: int | None
    """The signal that ended it early."""
    scores: dict[str, float]
    """Of the finished model on the validation set."""


def run_training(
    recipe: Recipe, out: Path, display: Display, *, profile: bool = False, processes: Processes = ALONE
) -> Outcome:
    """Train a recipe in a folder, from the start or from where it was left; with `profile`, record a few steps."""
    run = RunFolder(out, display.say)
    with ExitStack() as stack:
        with processes.first_before_others():
            recipe = run.check(recipe)
            if processes.is_first:
                stack.enter_context(run.lock())
        stop = stack.enter_context(stop_on_signals(many_processes=processes.count > 1))
        try:
            return _train(recipe, run, display, stop, processes, profile=profile)
        except Interrupted:  # while it began or ended; during steps, the loop sees to it
            display.say("stopped; run the same command to go on")
            return Outcome(out, newest_step(run.checkpoints), False, stop.signal, {})


def _train(
    recipe: Recipe, run: RunFolder, display: Display, stop: StopRequest, processes: Processes, *, profile: bool
) -> Outcome:
    with stop.interrupting():
        with processes.first_before_others():
            prepared = prepare(recipe.data, recipe.tokenizer, display.say)
        device = processes.device(pick_device(recipe.train.device))
        model = _new_model(recipe, prepared, device, processes)
        if recipe.train.batch_tokens == "auto":
            recipe = _settle_batch_tokens(recipe, model, prepared, display, processes)
        config, tokenizer = recipe.train, prepared.tokenizer
        assert config.batch_tokens != "auto"
        validation = Validation(
            prepared.valid, tokenizer, recipe.data.max_length, config.valid_sentences, processes, stop
        )
        growth = dropout_growth(prepared.train, tokenizer, config.bpe_dropout) if config.bpe_dropout else 1.0
        plan = BatchPlan(prepared.train, config.batch_tokens, config.seed, growth)
        optimizer = torch.optim.Adam(
            model.parameters(),
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            fused=device.type in ("cpu", "cuda"),
        )
        with processes.first_before_others():
            progress = _resume(run, model, optimizer, prepared, display)
    if processes.is_first:
        run.begin(recipe, tokenizer)
        run.metrics.start_at(progress.step)
    if progress.step >= config.steps and (scores := run.finished_scores(progress.step)) is not None:
        display.say(f"{run.model} is finished; raise train.steps above {config.steps:,} to train it further")
        return Outcome(run.path, progress.step, True, None, scores)

    facts = _facts(recipe, prepared)
    updates_per_epoch = plan.batches_per_epoch / config.accumulate
    together = f" and {processes.count - 1} other processes" if processes.count > 1 else ""
    display.say(
        f"{model.parameters_count:,} parameters on {device}{together}; "
        f"{config.steps:,} steps, {updates_per_epoch:,.0f} to an epoch"
    )

    stopping = False
    with (
        display.begin(progress.step, config.steps),
        Steps(recipe, plan, tokenizer, model, optimizer, display.say, processes) as steps,
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
                    _give_up(run, steps, progress.step, skipped)
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
                        _validate(recipe, run, model_now, validation, progress, display)
                    moments = adam_moments(model, optimizer)
                    if processes.is_first:
                        must = is_last or stopping
                        _save(recipe, run, model_now, moments, tokenizer, progress, facts, display, must=must)
                    del model_now, moments
                if stopping:
                    saved = run.checkpoints / f"step-{progress.step}"
                    display.say(f"stopped at step {progress.step:,} ({saved}); run the same command to resume")

    processes.wait()  # until the first has written the last checkpoint
    finished = progress.step >= config.steps
    scores = _finish(recipe, run, gathered(model), validation, progress, facts, display) if finished else {}
    return Outcome(run.path, progress.step, finished, None if finished else stop.signal, scores)


def _new_model(recipe: Recipe, prepared: Prepared, device: torch.device, processes: Processes) -> EncoderDecoder:
    torch.manual_seed(recipe.train.seed)
    model = EncoderDecoder(recipe.model, prepared.tokenizer.vocab_size).to(device)
    model.embedding.positions.require(recipe.data.max_length + 1)
    if recipe.train.shard:
        require(processes.count > 1, "train.shard spreads a model over processes: start them with torchrun")
        shard(model, processes.count, half=use_bfloat16(recipe.train.precision, device))
    return model


def _resume(
    run: RunFolder, model: EncoderDecoder, optimizer: torch.optim.Adam, prepared: Prepared, display: Display
) -> Progress:
    """Go on from the newest intact checkpoint, if there is one."""
    corpus, sources = prepared.train.folder.name, prepared.sources
    checkpoint = newest_intact(run.checkpoints, display.say)
    if checkpoint is None:
        return Progress(corpus=corpus, sources=sources)
    before = read_progress(checkpoint)
    if before.corpus != corpus:
        known = set(before.sources.values())
        changed = [name for name, digest in sources.items() if digest not in known]
        raise RunError(
            f"the training text has changed since {run.path} was begun ({', '.join(changed) or 'other files'}); "
            "restore it to resume, or choose another --out to start anew"
        )
    progress = load_checkpoint(checkpoint, model, optimizer)
    display.say(f"resuming from {checkpoint}")
    return progress


def _save(
    recipe: Recipe,
    run: RunFolder,
    model: EncoderDecoder,
    moments: dict[str, torch.Tensor],
    tokenizer: Tokenizer,
    progress: Progress,
    facts: dict[str, Any],
    display: Display,
    *,
    must: bool,
) -> None:
    """Write a checkpoint and the report; a disk that takes no more ends a run only where this `must` be saved."""
    config = recipe.train
    try:
        save_checkpoint(run.checkpoints, model, moments, tokenizer, progress, facts)
    except OSError as error:
        step = newest_step(run.checkpoints)
        last = f"the last is of step {step:,}" if step else "there is none yet"
        if must:
            raise RunError(
                f"no checkpoint at step {progress.step:,}: {error}; {last}. Make room, then run the same command"
            ) from None
        display.say(f"warning: no checkpoint at step {progress.step:,}: {error}; {last}. Training goes on")
    try:
        prune(run.checkpoints, config.keep, progress.best_step, config.save_every, config.steps)
        write_report(run.report, recipe, run.metrics)
    except OSError as error:
        display.say(f"warning: {run.path} is not up to date: {error}. Training goes on")


def _give_up(run: RunFolder, steps: Steps, step: int, skipped: int) -> NoReturn:
    """Write down what could not be learnt from, and stop."""
    bad = {f"step {number + 1}": steps.pairs(number) for number in range(step - skipped, step)[-_SKIPPED_AT_MOST:]}
    write_whole(run.bad_batches, json.dumps(bad, indent=1).encode())
    raise RunError(
        f"the gradients of {skipped} steps in a row, up to step {step}, were not finite numbers; the checkpoints are "
        f"older than that, the numbers of the pairs in those steps are in {run.bad_batches}. "
        "Look at them, lower train.learning_rate_scale, or set train.clip_norm=1.0"
    )


def _settle_batch_tokens(
    recipe: Recipe, model: EncoderDecoder, prepared: Prepared, display: Display, processes: Processes
) -> Recipe:
    """The recipe with the largest batch that fits."""
    require(processes.count == 1, "train.batch_tokens = auto is for one process; give several a number")
    half = use_bfloat16(recipe.train.precision, model.embedding.weight_VD.device)
    tokens = largest_batch(recipe, model, max(prepared.train.index["tokens"]), half=half)
    display.say(f"train.batch_tokens: {tokens:,} is the most that fits the memory")
    return replace(recipe, train=replace(recipe.train, batch_tokens=tokens))


def _validate(
    recipe: Recipe,
    run: RunFolder,
    model: EncoderDecoder,
    validation: Validation,
    progress: Progress,
    display: Display,
) -> None:
    """Loss, BLEU (greedy, for speed) and samples of the weights as they are now; nothing, where a signal comes."""
    model.eval()
    try:
        loss, perplexity = validation.loss(model, recipe.train.label_smoothing)
        values: dict[str, Any] = {"loss": loss, "perplexity": perplexity}
        score, metric, line = -loss, "loss", f"valid loss {loss:.3f}  ppl {perplexity:.2f}"
        if validation.sentences:
            metric = "bleu"
            score, samples = validation.translate(model, beam=1)
            values |= {"bleu": score, "samples": samples[: recipe.train.samples]}
            line += f"  BLEU {score:.1f}"
    except Interrupted:
        display.say(f"validation at step {progress.step:,} broken off")
        return
    finally:
        model.train()
    if validation.is_first:
        run.metrics.add("valid", step=progress.step, **values)
    if score > progress.best_score or metric != progress.best_metric:
        progress.best_step, progress.best_score, progress.best_metric = progress.step, score, metric
    display.say(f"step {progress.step:,}  {line}")
    display.show_samples(values.get("samples", [])[:2])


def _finish(
    recipe: Recipe,
    run: RunFolder,
    model: EncoderDecoder,
    validation: Validation,
    progress: Progress,
    facts: dict[str, Any],
    display: Display,
) -> dict[str, float]:
    """Average the last checkpoints, score the result as a user will meet it, and write it down."""
    last = [p for p in scheduled(run.checkpoints, recipe.train.save_every, recipe.train.steps) if not find_damage(p)]
    last = last[-recipe.train.average :] or list_checkpoints(run.checkpoints)[-1:]
    load_average(model, last)
    model.eval()
    scores: dict[str, float] = {}
    samples: list[dict[str, str]] = []
    if validation.pairs:
        scores["valid_loss"], scores["valid_perplexity"] = validation.loss(model, recipe.train.label_smoothing)
        if validation.sentences:
            scores["valid_bleu"], samples = validation.translate(model, **to_table(recipe.search))
            samples = samples[: recipe.train.samples]
    if not validation.is_first:
        return scores
    if samples:
        run.metrics.add("final", step=progress.step, **scores, samples=samples)
    seconds = round(progress.seconds, 1)
    facts = facts | {"steps": progress.step, "seconds": seconds, "averaged": len(last), "scores": scores}
    try:
        run.write_model(model, validation.tokenizer, facts)
        write_report(run.report, recipe, run.metrics, attention_picture(model, validation.tokenizer, samples))
    except OSError as error:
        raise RunError(
            f"all {progress.step:,} steps are made and saved, but {run.model} could not be written: {error}. "
            "Make room, then run the same command"
        ) from None
    summary = "".join(f", {name.replace('_', ' ')} {value:.2f}" for name, value in scores.items())
    display.say(f"finished: {run.model} (mean of {len(last)} checkpoints{summary}); report: {run.report}")
    return scores


def _facts(recipe: Recipe, prepared: Prepared) -> dict[str, Any]:
    src_tokens, tgt_tokens = prepared.train.index["tokens"]
    return {
        "max_length": recipe.data.max_length,
        "search": to_table(recipe.search),
        "data": {
            "train": [list(files) for files in recipe.data.train],
            "pairs": len(prepared.train),
            "source_tokens": src_tokens,
            "target_tokens": tgt_tokens,
            "valid_pairs": len(prepared.valid),
        },
    }
