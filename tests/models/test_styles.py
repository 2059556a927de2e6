"""Each style against the model that transformers' is converted to."""

import pytest
from transformers_family import bart, gpt2, llama, marian, relative, t5_untied
from transformers_models import randomized

from transduce.config import build, to_table
from transduce.interop.family import convert
from transduce.models.registry import config_class
from transduce.training.recipe import read_style

FAMILY_SETTINGS = (
    "architecture", "norm", "norm_type", "activation", "positions", "bias", "embedding", "tie_output",
    "share_positions", "source", "qk_norm", "decoder_tag", "score_cap", "logit_cap", "global_every",
)  # fmt: skip


@pytest.mark.parametrize(
    "style", ["gpt2", "llama", "mistral", "qwen3", "gemma2", "gemma", "t5", "bart", "marian", "m2m"]
)
def test_a_style_is_what_its_converter_gives(style: str) -> None:
    """All settings but the sizes are equal."""
    tied = {"tie_word_embeddings": True}
    makers = {"gpt2": gpt2, "llama": lambda: llama(**tied), "t5": t5_untied, "bart": bart, "marian": marian}
    makers |= {
        name: lambda name=name: relative(name, **tied) for name in ("mistral", "qwen3", "gemma2", "gemma", "m2m")
    }  # type: ignore[misc]
    theirs = randomized(makers[style]())
    config, _ = convert(theirs.config.to_dict(), theirs.state_dict())
    wanted = read_style(style)["model"]
    given = to_table(config)
    if style == "marian":  # its sinusoids, whose halves lie side by side, are imported as a table
        given["positions"] = "sinusoidal"
    if style == "m2m":  # a vocabulary with tags of languages tells it
        given["decoder_tag"] = True
    complete = to_table(build(config_class(wanted), wanted, style))
    assert {name: given.get(name) for name in FAMILY_SETTINGS} == {name: complete.get(name) for name in FAMILY_SETTINGS}
