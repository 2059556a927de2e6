"""Milestones of a run: validation, checkpoints, and the finished model."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from transduce.disk import write_atomically
from transduce.errors import RunError
from transduce.features import HOOKS
from transduce.models.model import Model
from transduce.search.options import SearchConfig
from transduce.training.checkpoint import (
    Progress,
    find_damage,
    list_checkpoints,
    load_average,
    mix_in,
    newest_step,
    prune,
    save_checkpoint,
    scheduled,
)
from transduce.training.display import Display, clock_time, sparkline
from transduce.training.metrics import figure_text, points_of
from transduce.training.processes import Interrupted
from transduce.training.recipe import Recipe
from transduce.training.run_folder import RunFolder
from transduce.training.schedule import Ending
from transduce.training.task import Task, ValidationScore
from transduce.training.train_config import DEFAULT_BLEU_TOKENIZER
from transduce.training.validation import Validation

_TRIAL_SENTENCES = 16
"""Number of sentences of each validation file that are scored to measure how long it takes."""
_GREEDY = SearchConfig(beam=1)
"""The search by which checkpoints are scored; the finished model is scored by that of the recipe."""
_CLEARLY_WORSE = 0.1
"""If the validation loss of the averaged checkpoints exceeds that of the last one by this, the last one is used."""


@dataclass(frozen=True)
class Milestones:
    """The objects that milestones need, which stay the same while a run is trained."""

    recipe: Recipe
    task: Task
    run: RunFolder
    validation: Validation
    facts: dict[str, Any]
    """Metadata for model folders: how the model was made."""
    display: Display
    ending: Ending

    def validate(self, model: Model, progress: Progress) -> None:
        """Compute loss and score of the current weights, with greedy search; a signal interrupts it."""
        validation, config, began = self.validation, self.recipe.train, time.monotonic()
        model.eval()
        try:
            values: dict[str, Any] = dict(validation.measure(model, config.label_smoothing))
            line = f"valid loss {figure_text('loss', values['loss'])}  ppl {values['perplexity']:.2f}"
            line += "".join(f"  {name.lower()} {values[key]:.2f}" for key, name in self._own_figures(values))
            self.display.phase("scoring")
            scored = self.task.score(model, validation, _GREEDY)
        except Interrupted:
            self.display.log(f"validation at step {progress.step:,} interrupted")
            return
        finally:
            model.train()
            self.display.phase("")
        self.ending.validation_seconds = validation.processes.of_main(time.monotonic() - began)
        tokenizer = ""
        if scored:
            values |= self._scores(scored) | {"scored": validation.count, "samples": scored.samples[: config.samples]}
            values |= {"search": _GREEDY.name} if self.task.searches else {}
            line += self._describe(scored, self._before(progress.step))
            line += f"  ({_GREEDY.name})" if self.task.searches else ""
            tokenizer = "" if scored.tokenizer == DEFAULT_BLEU_TOKENIZER else scored.tokenizer
        criterion = next(name for name in (config.criterion, self.task.score_name.lower(), "loss") if name in values)
        # Scores on other data or with another tokenizer are not comparable.
        metric = f"{criterion} of {validation.digest}" + (f" by {tokenizer}" if tokenizer else "")
        loss = values["loss"]
        if progress.step:  # the model that training starts from is no checkpoint of this run
            progress.compare(metric, -loss if criterion == "loss" else values[criterion], loss)
            values |= {"criterion": criterion, "best_step": progress.best_step}
        if validation.processes.is_main:
            self.run.metrics.add("valid", step=progress.step, **values)
        self.display.log(f"step {progress.step:,}  {line}")
        losses = [loss for _, loss in points_of(self.run.metrics.of("train"), "loss")]
        if self.display.console.is_terminal and len(losses) > 1:
            self.display.log(f"  training loss {losses[0]:.2f} {sparkline(losses)} {losses[-1]:.2f}")
        self.display.show_samples(values.get("samples", [])[:2])

    def adapt(self, model: Model) -> None:
        """Adapt settings to `train.minutes`; a few sentences are scored to know how long validation takes."""
        validation, began = self.validation, time.monotonic()
        validation.score_first(_TRIAL_SENTENCES)
        sentences = validation.count
        model.eval()
        try:
            scored = self.task.score(model, validation, _GREEDY) if sentences else None
        except Interrupted:
            scored = None
        per_sentence = (time.monotonic() - began) * len(validation.scored) / sentences if scored else 0.0
        of_loss = validation.estimate_seconds(model, self.recipe.train.label_smoothing)
        model.train()
        self.display.phase("")
        self.ending.adapt(*map(validation.processes.of_main, (per_sentence, of_loss)))
        validation.score_first(self.ending.config.valid_sentences)

    def _own_figures(self, values: dict[str, Any]) -> list[tuple[str, str]]:
        """The keys and names of the task's own figures among these values."""
        return [(key, name) for key, name in self.task.figures.items() if key in values]

    def _scores(self, scored: ValidationScore) -> dict[str, Any]:
        """The scores as they are kept in the metrics of the run."""
        scores: dict[str, Any] = {name.lower(): value for name, value in self._named(scored).items()}
        scores |= {"files": scored.files} if scored.files else {}
        scores |= {"confusion": scored.confusion} if scored.confusion else {}
        return scores | ({"tokenizer": scored.tokenizer} if scored.tokenizer else {})

    def _before(self, step: int) -> dict[str, Any]:
        """The measurements of the validation before this step; empty without one on the same number of examples."""
        records = [record for record in self.run.metrics.of("valid") if record["step"] < step]
        return records[-1] if records and self._is_comparable(records[-1]) else {}

    def _is_comparable(self, record: dict[str, Any]) -> bool:
        """Whether the scores of a validation are of as many examples as are scored now."""
        return bool(record.get("scored", self.validation.count) == self.validation.count)

    def _describe(self, scored: ValidationScore, before: dict[str, Any]) -> str:
        """The scores for a line of the log with their change, followed by those of each file."""
        text = ""
        for name, value in self._named(scored).items():
            text += f"  {name} {value:.2f}"
            if name.lower() in before:
                text += f" ({value - before[name.lower()]:+.2f})"
        files = (f"{name} {' / '.join(f'{value:.2f}' for value in of.values())}" for name, of in scored.files.items())
        return f"{text}  ({', '.join(files)})" if scored.files else text

    def _named(self, scored: ValidationScore) -> dict[str, float]:
        """The score, if there is one, by its name, and the other metrics."""
        return ({} if scored.value is None else {self.task.score_name: scored.value}) | scored.more

    def without_improvement(self, progress: Progress) -> int:
        """Number of validations since the best one."""
        return len({record["step"] for record in self.run.metrics.of("valid") if record["step"] > progress.best_step})

    def save(self, model: Model, moments: dict[str, torch.Tensor], progress: Progress, *, must: bool) -> None:
        """Write a checkpoint and the report; a full disk ends the run only if this checkpoint `must` be saved."""
        run, config, log = self.run, self.ending.config, self.display.log
        try:
            save_checkpoint(run.checkpoints, model, moments, self.validation.tokenizer, progress, self.facts)
        except OSError as error:
            step = newest_step(run.checkpoints)
            last = f"the last is of step {step:,}" if step else "there is no other yet"
            if must:
                raise RunError(
                    f"no checkpoint at step {progress.step:,}: {error}; {last}. "
                    "Free disk space, then run the same command"
                ) from None
            log(f"warning: no checkpoint at step {progress.step:,}: {error}; {last}. Training continues")
        try:
            prune(run.checkpoints, config.keep, progress.best_step, config.save_every, self.ending.last_step)
            HOOKS["write_report"](run.report, self.recipe, run.metrics)
        except OSError as error:
            log(f"warning: {run.path} is not up to date: {error}. Training continues")

    def finish(self, model: Model, progress: Progress) -> dict[str, float]:
        """Average the last checkpoints, score the result with the recipe's search options, and write the model."""
        recipe, run, validation = self.recipe, self.run, self.validation
        search = replace(recipe.search, shortlist=False)  # the model has none yet
        model.eval()
        last, measured = self._average(model)
        if recipe.train.start_share:
            mix_in(model, run.start, recipe.train.start_share)
        scores: dict[str, float] = {}
        kept: dict[str, Any] = {"samples": []}
        outputs: list[dict[str, str]] = []
        if validation.texts:
            if not measured or recipe.train.start_share:
                measured = validation.measure(model, recipe.train.label_smoothing)
            scores |= {f"valid_{name}": value for name, value in measured.items()}
            self.display.phase("scoring the finished model")
            if scored := self.task.score(model, validation, search):
                scores |= {f"valid_{name.lower()}": value for name, value in self._named(scored).items()}
                kept = {"search": search.name} if self.task.searches else {}
                kept |= {"files": scored.files} if scored.files else {}
                kept |= {"confusion": scored.confusion} if scored.confusion else {}
                kept["samples"] = scored.samples[: recipe.train.samples]
                outputs = scored.samples if recipe.train.samples else []
                if worst := self.task.worst(scored.samples, recipe.train.samples):
                    kept["worst"] = worst
        gains = self._gains(model, scores, measured, search)
        if not validation.processes.is_main:
            return scores
        run.metrics.add("final", step=progress.step, **scores, **kept, ended_by=self.ending.reason)
        seconds = round(progress.seconds, 3)
        facts = self.facts | {"steps": progress.step, "seconds": seconds, "averaged": len(last), "scores": scores}
        self.display.phase("calibrating the confidence")
        if calibrations := self.task.calibrate(model, validation, search):
            facts["confidence"] = calibrations
        try:
            if recipe.train.lora_merge:
                model.low_rank = model.base = None
            run.write_model(model, validation.tokenizer, facts)
            if outputs:
                lines = (json.dumps(sample, ensure_ascii=False) + "\n" for sample in outputs)
                write_atomically(run.outputs, "".join(lines).encode())
            picture = self.task.picture(model, validation, kept["samples"])
            HOOKS["write_report"](run.report, recipe, run.metrics, picture)
        except OSError as error:
            raise RunError(
                f"all {progress.step:,} steps are done and saved, but {run.model} could not be written: {error}. "
                "Free disk space, then run the same command"
            ) from None
        made = f"mean of {len(last)} checkpoints" if len(last) > 1 else "the last checkpoint"
        made += f", mixed with {recipe.train.start_share:g} of the weights before" if recipe.train.start_share else ""
        summary = "".join(
            f", {name.replace('_', ' ')} {figure_text(name, value)}"
            + (f" ({gains[name]:+.2f} by this run)" if gains.get(name) else "")
            for name, value in scores.items()
        )
        if "search" in kept:
            are_greedy = len(gains) > len(measured) and search != _GREEDY  # more than those measured without a search
            summary += f"; {search.name}" + (", gains greedy" if are_greedy else "")
        self.display.log(
            f"finished: {run.model} ({made}{summary}); report: {run.report}; "
            f"{progress.step:,} steps in {clock_time(progress.seconds)}"
        )
        return scores

    def _gains(
        self, model: Model, scores: dict[str, float], measured: dict[str, float], search: SearchConfig
    ) -> dict[str, float]:
        """What each figure has gained since the start of training from another model, by the same search.

        If other examples were scored then, only the figures `measured` on all examples are comparable.
        """
        before = next((record for record in self.run.metrics.of("valid") if record["step"] == 0), {})
        comparable = self.validation.processes.of_main(bool(before) and self._is_comparable(before))
        if not comparable:
            before = {name: before[name] for name in measured if name in before}
        now = dict(scores)
        if comparable and self.task.searches and search != _GREEDY:
            scored = self.task.score(model, self.validation, _GREEDY)
            now |= {f"valid_{name.lower()}": value for name, value in self._named(scored).items()} if scored else {}
        return {name: now[name] - before[key] for name in scores if (key := name.removeprefix("valid_")) in before}

    def _average(self, model: Model) -> tuple[list[Path], dict[str, float]]:
        """Load the mean of the last checkpoints, or the last one if that is clearly better.

        Returns the checkpoints that were used, and the validation loss if it was measured.
        """
        config, checkpoints = self.ending.config, self.run.checkpoints
        intact = [p for p in scheduled(checkpoints, config.save_every, self.ending.last_step) if not find_damage(p)]
        last = intact[-config.average :] or list_checkpoints(checkpoints)[-1:]
        if len(last) == 1 or not self.validation.texts:
            load_average(model, last)
            return last, {}
        load_average(model, last[-1:])
        of_last = self.validation.measure(model, config.label_smoothing)
        load_average(model, last)
        of_mean = self.validation.measure(model, config.label_smoothing)
        if of_last["loss"] >= of_mean["loss"] - _CLEARLY_WORSE:
            return last, of_mean
        self.display.log(  # in a short run, the checkpoints may be too different
            f"the mean of the last {len(last)} checkpoints (valid loss {of_mean['loss']:.3f}) is worse than the last "
            f"one ({of_last['loss']:.3f}), which is used instead"
        )
        load_average(model, last[-1:])
        return last[-1:], of_last
