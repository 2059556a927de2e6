"""The training loop: one function to be read from top to bottom."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from transduce.config import to_table
from transduce.data.plan import BatchPlan
from transduce.data.prepare import Prepared, prepare
from transduce.errors import RunError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.device import pick_device
from transduce.training.average import load_average
from transduce.training.budget import largest_batch
from transduce.training.checkpoint import (
    Progress,
    find_damage,
    list_checkpoints,
    load_checkpoint,
    newest_intact,
    prune,
    read_progress,
    save_checkpoint,
    scheduled,
)
from transduce.training.display import Display
from transduce.disk import write_whole
from transduce.training.loader import dropout_growth
from transduce.training.profile import StepProfile
from transduce.training.recipe import Recipe
from transduce.training.report import write_report
from transduce.training.run_folder import RunFolder
from transduce.training.signals import stop_on_signals
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


def run_training(recipe: Recipe, out: Path, display: Display, *, profile: bool = False) -> Outcome:
    """Train a recipe in a folder, from the start or from where it was left; with `profile`, record a few steps."""
    run = RunFolder(out)
    recipe = run.check(recipe)
    with run.lock():
        return _train(recipe, run, display, profile=profile)


def _train(recipe: Recipe, run: RunFolder, display: Display, *, profile: bool) -> Outcome:
    device = pick_device(recipe.train.device)
    prepared = prepare(recipe.data, recipe.tokenizer, display.say)
    tokenizer, corpus = prepared.tokenizer, prepared.train.folder.name
    torch.manual_seed(recipe.train.seed)
    model = EncoderDecoder(recipe.model, tokenizer.vocab_size).to(device)
    model.embedding.positions.require(recipe.data.max_length + 1)
    if recipe.train.batch_tokens == "auto":
        recipe = _settle_batch_tokens(recipe, model, prepared, display)
    config = recipe.train
    assert config.batch_tokens != "auto"
    validation = Validation(prepared.valid, tokenizer, recipe.data.max_length, config.valid_sentences)
    growth = dropout_growth(prepared.train, tokenizer, config.bpe_dropout) if config.bpe_dropout else 1.0
    plan = BatchPlan(prepared.train, config.batch_tokens, config.seed, growth)
    optimizer = torch.optim.Adam(
        model.parameters(), betas=(config.beta1, config.beta2), eps=config.epsilon, fused=device.type in ("cpu", "cuda")
    )
    progress = Progress(corpus=corpus)
    if checkpoint := newest_intact(run.checkpoints, display.say):
        if read_progress(checkpoint).corpus != corpus:
            raise RunError(
                f"the training text has changed since {run.path} was begun; restore it to resume, or choose another "
                "--out to start anew"
            )
        progress = load_checkpoint(checkpoint, model, optimizer)
        display.say(f"resuming from {checkpoint}")
    run.begin(recipe, tokenizer)
    run.metrics.start_at(progress.step)
    if progress.step >= config.steps and (scores := run.finished_scores(progress.step)) is not None:
        display.say(f"{run.model} is finished; raise train.steps above {config.steps:,} to train it further")
        return Outcome(run.path, progress.step, True, None, scores)

    facts = _facts(recipe, prepared)
    updates_per_epoch = plan.batches_per_epoch / config.accumulate
    display.say(
        f"{model.parameters_count:,} parameters on {device}; "
        f"{config.steps:,} steps, {updates_per_epoch:,.0f} to an epoch"
    )

    stopping = False
    with (
        stop_on_signals() as stop,
        display.begin(progress.step, config.steps),
        Steps(recipe, plan, tokenizer, model, optimizer, display.say) as steps,
        StepProfile(run.profile, device, display.say) if profile else nullcontext() as recording,
    ):
        while progress.step < config.steps and not stopping:
            rate, norm = steps.take(progress.step)
            progress.step += 1
            if recording:
                recording.after_step()
            is_last, stopping = progress.step == config.steps, bool(stop)
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
                record = run.metrics.add(
                    "train", step=progress.step, **measured, learning_rate=rate, grad_norm=finite_norm
                )
                display.show(record)

            if saving:
                with steps.meter.paused():
                    if prepared.valid and not stopping:
                        _validate(model, validation, run, progress, display, config.label_smoothing)
                    saved = save_checkpoint(run.checkpoints, model, optimizer, tokenizer, progress, facts)
                    prune(run.checkpoints, config.keep, progress.best_step, config.save_every, config.steps)
                    write_report(run.report, recipe, run.metrics)
                if stopping:
                    display.say(f"stopped at step {progress.step:,} ({saved}); run the same command to resume")

    finished = progress.step >= config.steps
    scores = _finish(recipe, run, model, validation, progress, facts, display) if finished else {}
    return Outcome(run.path, progress.step, finished, None if finished else stop.signal, scores)


def _give_up(run: RunFolder, steps: Steps, step: int, skipped: int) -> NoReturn:
    """Write down what could not be learnt from, and stop."""
    bad = {f"step {number + 1}": steps.pairs(number) for number in range(step - skipped, step)[-_SKIPPED_AT_MOST:]}
    write_whole(run.bad_batches, json.dumps(bad, indent=1).encode())
    raise RunError(
        f"the gradients of {skipped} steps in a row, up to step {step}, were not finite numbers; the checkpoints are "
        f"older than that, the numbers of the pairs in those steps are in {run.bad_batches}. "
        "Look at them, lower train.learning_rate_scale, or set train.clip_norm=1.0"
    )


def _settle_batch_tokens(recipe: Recipe, model: EncoderDecoder, prepared: Prepared, display: Display) -> Recipe:
    """The recipe with the largest batch that fits."""
    half = use_bfloat16(recipe.train.precision, model.embedding.weight_VD.device)
    tokens = largest_batch(recipe, model, max(prepared.train.index["tokens"]), half=half)
    display.say(f"train.batch_tokens: {tokens:,} is the most that fits the memory")
    return replace(recipe, train=replace(recipe.train, batch_tokens=tokens))


def _validate(
    model: EncoderDecoder,
    validation: Validation,
    run: RunFolder,
    progress: Progress,
    display: Display,
    smoothing: float,
) -> None:
    """Loss, BLEU (greedy, for speed) and samples of the weights as they are now."""
    model.eval()
    loss, perplexity = validation.loss(model, smoothing)
    values: dict[str, Any] = {"loss": loss, "perplexity": perplexity}
    score, metric, line = -loss, "loss", f"valid loss {loss:.3f}  ppl {perplexity:.2f}"
    if validation.sentences:
        metric = "bleu"
        score, samples = validation.translate(model, beam=1)
        values |= {"bleu": score, "samples": samples}
        line += f"  BLEU {score:.1f}"
    model.train()
    run.metrics.add("valid", step=progress.step, **values)
    if score > progress.best_score or metric != progress.best_metric:
        progress.best_step, progress.best_score, progress.best_metric = progress.step, score, metric
    display.say(f"step {progress.step:,}  {line}")
    for sample in values.get("samples", [])[:2]:
        display.say(f"    {sample['source']}\n  → {sample['output']}\n  = {sample['reference']}")


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
            run.metrics.add("final", step=progress.step, **scores, samples=samples)
    seconds = round(progress.seconds, 1)
    facts = facts | {"steps": progress.step, "seconds": seconds, "averaged": len(last), "scores": scores}
    run.write_model(model, validation.tokenizer, facts)
    write_report(run.report, recipe, run.metrics, attention_picture(model, validation.tokenizer, samples))
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
