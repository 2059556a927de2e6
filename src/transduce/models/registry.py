"""The table of models: `[model] architecture = "..."` names a row. A new architecture is a file and a row here."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from transduce.config import build, suggestion
from transduce.errors import ConfigError
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnly, EncoderOnlyConfig
from transduce.models.model import Model, ModelConfig
from transduce.predecessors.convolutional import ConvolutionalConfig, ConvolutionalModel
from transduce.predecessors.recurrent import RecurrentConfig, RecurrentModel


class Architecture(NamedTuple):
    """The classes of one architecture."""

    config: type[ModelConfig]
    model: type[Model]


MODELS: dict[str, Architecture] = {
    "encoder_decoder": Architecture(EncoderDecoderConfig, EncoderDecoder),
    "decoder_only": Architecture(DecoderOnlyConfig, DecoderOnly),
    "encoder_only": Architecture(EncoderOnlyConfig, EncoderOnly),
    "recurrent": Architecture(RecurrentConfig, RecurrentModel),
    "convolutional": Architecture(ConvolutionalConfig, ConvolutionalModel),
}


def config_class(table: Mapping[str, Any]) -> type[ModelConfig]:
    """The class of the settings in a [model] table."""
    return _architecture(table.get("architecture", ModelConfig.architecture)).config


def build_config(architecture: str, table: Mapping[str, Any], where: str) -> ModelConfig:
    """The settings of a saved model; `where` names its file in messages."""
    return build(_architecture(architecture, f"{where}: ").config, {**table, "architecture": architecture}, where)


def create_model(config: ModelConfig, vocab_size: int) -> Model:
    """A model with random weights."""
    return _architecture(config.architecture).model(config, vocab_size)


def _architecture(name: Any, where: str = "") -> Architecture:
    if not isinstance(name, str) or name not in MODELS:
        hint = suggestion(str(name), list(MODELS))
        raise ConfigError(f"{where}no architecture {name!r:.40}{hint}; use {', '.join(MODELS)}")
    return MODELS[name]
