"""What happens once in a while, and at the end: validation, a checkpoint, the finished model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from transduce.config import to_table
from transduce.distributed.signals import Interrupted
from transduce.errors import RunError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.runs.average import load_average
from transduce.runs.checkpoint import (
    Progress,
    find_damage,
    list_checkpoints,
    newest_step,
    prune,
    save_checkpoint,
    scheduled,
)
from transduce.runs.recipe import Recipe
from transduce.runs.report import write_report
from transduce.runs.run_folder import RunFolder
from transduce.tasks.translate import Validation, attention_picture
from transduce.training.display import Display

_CLEARLY_WORSE = 0.1
"""Validation loss by which a mean of checkpoints may be above the last one's, and still be the finished model."""


@dataclass(frozen=True)
class Milestones:
    """What they need, which stays the same for a whole sitting."""

    recipe: Recipe
    run: RunFolder
    validation: Validation
    facts: dict[str, Any]
    """What a model folder says of how it was made."""
    display: Display

    def validate(self, model: EncoderDecoder, progress: Progress) -> None:
        """Loss, BLEU (greedy, for speed) and samples of the weights as they are now; nothing, where a signal comes."""
        validation, config = self.validation, self.recipe.train
        model.eval()
        try:
            loss, perplexity = validation.loss(model, config.label_smoothing)
            values: dict[str, Any] = {"loss": loss, "perplexity": perplexity}
            score, kind, line = -loss, "loss", f"valid loss {loss:.3f}  ppl {perplexity:.2f}"
            if validation.sentences:
                kind = "bleu"
                score, samples = validation.translate(model, beam=1)
                values |= {"bleu": score, "samples": samples[: config.samples]}
                line += f"  BLEU {score:.1f}"
        except Interrupted:
            self.display.say(f"validation at step {progress.step:,} broken off")
            return
        finally:
            model.train()
        if validation.is_first:
            self.run.metrics.add("valid", step=progress.step, **values)
        metric = f"{kind} of {validation.digest}"  # scores of other text do not compare
        if score > progress.best_score or metric != progress.best_metric:
            progress.best_step, progress.best_score, progress.best_metric = progress.step, score, metric
        self.display.say(f"step {progress.step:,}  {line}")
        self.display.show_samples(values.get("samples", [])[:2])

    def save(self, model: EncoderDecoder, moments: dict[str, torch.Tensor], progress: Progress, *, must: bool) -> None:
        """Write a checkpoint and the report; a disk that takes no more ends a run only where this `must` be saved."""
        run, config, say = self.run, self.recipe.train, self.display.say
        try:
            save_checkpoint(run.checkpoints, model, moments, self.validation.tokenizer, progress, self.facts)
        except OSError as error:
            step = newest_step(run.checkpoints)
            last = f"the last is of step {step:,}" if step else "there is none yet"
            if must:
                raise RunError(
                    f"no checkpoint at step {progress.step:,}: {error}; {last}. Make room, then run the same command"
                ) from None
            say(f"warning: no checkpoint at step {progress.step:,}: {error}; {last}. Training goes on")
        try:
            prune(run.checkpoints, config.keep, progress.best_step, config.save_every, config.steps)
            write_report(run.report, self.recipe, run.metrics)
        except OSError as error:
            say(f"warning: {run.path} is not up to date: {error}. Training goes on")

    def finish(self, model: EncoderDecoder, progress: Progress) -> dict[str, float]:
        """Average the last checkpoints, score the result as a user will meet it, and write it down."""
        recipe, run, validation = self.recipe, self.run, self.validation
        model.eval()
        last = self._average(model)
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
        facts = self.facts | {"steps": progress.step, "seconds": seconds, "averaged": len(last), "scores": scores}
        try:
            run.write_model(model, validation.tokenizer, facts)
            write_report(run.report, recipe, run.metrics, attention_picture(model, validation.tokenizer, samples))
        except OSError as error:
            raise RunError(
                f"all {progress.step:,} steps are made and saved, but {run.model} could not be written: {error}. "
                "Make room, then run the same command"
            ) from None
        made = f"mean of {len(last)} checkpoints" if len(last) > 1 else "the last checkpoint"
        summary = "".join(f", {name.replace('_', ' ')} {value:.2f}" for name, value in scores.items())
        self.display.say(f"finished: {run.model} ({made}{summary}); report: {run.report}")
        return scores

    def _average(self, model: EncoderDecoder) -> list[Path]:
        """Give the model the mean of the last checkpoints, or the last where that is clearly better; returns which."""
        config, checkpoints = self.recipe.train, self.run.checkpoints
        intact = [p for p in scheduled(checkpoints, config.save_every, config.steps) if not find_damage(p)]
        last = intact[-config.average :] or list_checkpoints(checkpoints)[-1:]
        if len(last) == 1 or not self.validation.pairs:
            load_average(model, last)
        else:  # in a short run they may be too far apart
            load_average(model, last[-1:])
            of_last, _ = self.validation.loss(model, config.label_smoothing)
            load_average(model, last)
            of_mean, _ = self.validation.loss(model, config.label_smoothing)
            if of_last < of_mean - _CLEARLY_WORSE:
                self.display.say(
                    f"the mean of the last {len(last)} checkpoints (valid loss {of_mean:.3f}) is worse than the last "
                    f"alone ({of_last:.3f}), which is taken instead"
                )
                last = last[-1:]
                load_average(model, last)
        return last
