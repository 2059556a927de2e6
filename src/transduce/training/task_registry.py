"""The tasks of all features (features.py): `task = "..."` in a recipe names one."""

from typing import Any

from transduce.features import Registry, feature_with, load
from transduce.training.task import Task

TASKS: Registry[type[Task]] = Registry("tasks")
TASK_SETTINGS: Registry[type[Any]] = Registry("task_settings")


def settings_class(task: str) -> type[Any] | None:
    """The class of the settings of a task, if it has any."""
    feature = feature_with("tasks", task)
    reference = feature and feature.task_settings.get(task)
    return load(reference) if reference else None
