"""The models of all features (features.py): `[model] architecture = "..."` names one."""

from collections.abc import Mapping
from typing import Any

from transduce.config import build, suggestion
from transduce.errors import ConfigError
from transduce.features import Registry
from transduce.models.model import Model, ModelConfig

MODELS: Registry[type[Model]] = Registry("models")
MODEL_SETTINGS: Registry[type[ModelConfig]] = Registry("model_settings")


def config_class(table: Mapping[str, Any]) -> type[ModelConfig]:
    """The class of the settings in a [model] table."""
    return MODEL_SETTINGS[_known(table.get("architecture", ModelConfig.architecture))]


def build_config(architecture: str, table: Mapping[str, Any], where: str) -> ModelConfig:
    """The settings of a saved model; `where` names its file in messages."""
    config = MODEL_SETTINGS[_known(architecture, f"{where}: ")]
    return build(config, {**table, "architecture": architecture}, where)


def create_model(config: ModelConfig, vocab_size: int) -> Model:
    """A model with random weights."""
    return MODELS[_known(config.architecture)](config, vocab_size)


def _known(name: Any, where: str = "") -> str:
    if not isinstance(name, str) or name not in MODELS:
        hint = suggestion(str(name), list(MODELS))
        raise ConfigError(f"{where}no architecture {name!r:.40}{hint}; use {', '.join(MODELS)}")
    return name
