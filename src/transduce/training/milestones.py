"""What happens once in a while, and at the end: validation, a checkpoint, the finished model."""

from typing import Any

import torch

from transduce.config import to_table
from transduce.errors import RunError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.text.tokenizer import Tokenizer
from transduce.training.average import load_average
from transduce.training.checkpoint import (
    Progress,
    find_damage,
    list_checkpoints,
    newest_step,
    prune,
    save_checkpoint,
    scheduled,
)
from transduce.training.display import Display
from transduce.training.recipe import Recipe
from transduce.training.report import write_report
from transduce.training.run_folder import RunFolder
from transduce.training.signals import Interrupted
from transduce.training.validation import Validation, attention_picture


def validate(
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
        score, kind, line = -loss, "loss", f"valid loss {loss:.3f}  ppl {perplexity:.2f}"
        if validation.sentences:
            kind = "bleu"
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
    metric = f"{kind} of {validation.digest}"  # scores of other text do not compare
    if score > progress.best_score or metric != progress.best_metric:
        progress.best_step, progress.best_score, progress.best_metric = progress.step, score, metric
    display.say(f"step {progress.step:,}  {line}")
    display.show_samples(values.get("samples", [])[:2])


def save(
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


def finish(
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
    if scores:
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
