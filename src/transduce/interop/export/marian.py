"""Export for Marian: `model.npz`, the SentencePiece vocabulary, and settings for `marian-decoder`.

With 8-bit integers, the model is the binary file that Bergamot runs, the engine of Firefox Translations.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from transduce.errors import ModelError
from transduce.interop.export.exporter import (
    SOURCE_EMBEDDING,
    Consumer,
    Exported,
    Exporter,
    require_exportable,
    transformers_weights,
)
from transduce.interop.export.verify import OwnReader
from transduce.interop.marian_file import (
    BINARY_MODEL,
    EPSILON,
    MODEL,
    SEPARATE_VOCABULARIES,
    SETTINGS,
    VOCABULARY,
    is_matrix,
    layer_names,
    write_binary,
)
from transduce.interop.vocabulary import NEVER
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.model import Model
from transduce.search.decoder import NEVER_GENERATED

_NEEDED = {"positions": "marian", "zero_start": True, "norm_epsilon": EPSILON}


def check(model: Model) -> EncoderDecoder:
    found = require_exportable(
        model,
        "Marian",
        decoder_cell=("attention", "ssru"),
        norm=("post",),
        activation=("relu", "swish"),
        embedding=("scaled",),
        tie_output=(True,),
    )
    if any(getattr(found.config, name) != value for name, value in _NEEDED.items()):
        settings = ", ".join(f"model.{name} = {str(value).lower()}" for name, value in _NEEDED.items())
        raise ModelError(f"Marian has sinusoids, a start of outputs and norms of its own: train with {settings}")
    return found


def write(exported: Exported, folder: Path) -> None:
    vocabulary = exported.vocabulary
    if vocabulary.source_pieces is None and vocabulary.source_spm != vocabulary.target_spm:
        raise ModelError("Marian has no two SentencePiece models with one list of tokens, as this model has")
    model, weights = exported.model, transformers_weights(exported.model)
    bias_V = weights["final_logits_bias"].clone()
    bias_V[:, NEVER_GENERATED] = NEVER
    arrays: dict[str, Any] = {"decoder_ff_logit_out_b": _array(bias_V)}
    if vocabulary.source_pieces is None:
        arrays["Wemb"] = _array(weights["model.shared.weight"])
    else:
        arrays["encoder_Wemb"] = _array(weights[SOURCE_EMBEDDING])
        arrays["decoder_Wemb"] = _array(weights["model.shared.weight"])
    for side, layers in (("encoder", model.config.encoder_layers), ("decoder", model.config.decoder_layers)):
        for n in range(layers):
            for name, theirs in layer_names(side, model.config.decoder_cell).items():
                x = weights[f"model.{side}.layers.{n}.{name}"]
                arrays[f"{side}_l{n + 1}_{theirs}"] = _array(x.T if is_matrix(name) else x[None])
    settings = _settings(exported)
    arrays[SETTINGS] = np.frombuffer(settings.encode() + b"\0", np.int8)
    if exported.quantization == "int8":
        (folder / MODEL).unlink(missing_ok=True)
        write_binary(folder / BINARY_MODEL, arrays)
    else:
        np.savez(folder / MODEL, **arrays)
    for name, spm in zip(_files(exported), (vocabulary.source_spm, vocabulary.target_spm), strict=True):
        (folder / name).write_bytes(spm)
    (folder / "config.yml").write_text(_decoder_settings(exported), encoding="utf-8")


def _model_file(exported: Exported) -> str:
    return BINARY_MODEL if exported.quantization == "int8" else MODEL


def _files(exported: Exported) -> tuple[str, str]:
    """The names of the vocabularies of source and target."""
    return (VOCABULARY, VOCABULARY) if exported.vocabulary.source_pieces is None else SEPARATE_VOCABULARIES


def _array(x: Tensor) -> npt.NDArray[Any]:
    return np.ascontiguousarray(x.numpy())


def _settings(exported: Exported) -> str:
    """The settings inside the model."""
    config, size = exported.model.config, exported.model.vocab_size
    shared = config.source_vocab_size is None
    return _yaml({
        "type": "transformer",
        "dim-vocabs": [config.source_vocab_size or size, size],
        "dim-emb": config.d_model, "enc-depth": config.encoder_layers, "dec-depth": config.decoder_layers,
        "transformer-heads": config.num_heads,
        "transformer-dim-ffn": config.d_ff, "transformer-decoder-dim-ffn": config.d_ff,
        "transformer-ffn-depth": 2, "transformer-decoder-ffn-depth": 2,
        "transformer-ffn-activation": config.activation,
        "transformer-preprocess": "", "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d", "transformer-postprocess-top": "",
        "transformer-decoder-autoreg": "rnn" if config.decoder_cell == "ssru" else "self-attention",
        "dec-cell": "ssru", "dec-cell-base-depth": 2, "dec-cell-high-depth": 1,
        "transformer-no-projection": False, "transformer-no-bias": False, "transformer-no-affine": False,
        "transformer-pool": False, "transformer-tied-layers": [], "transformer-train-position-embeddings": False,
        "transformer-guided-alignment-layer": "last",
        "tied-embeddings": not shared, "tied-embeddings-src": False, "tied-embeddings-all": shared,
        "ulr": False, "skip": False, "layer-normalization": False, "input-types": [], "lemma-dim-emb": 0,
        "version": "v1.12.0",
    })  # fmt: skip


def _decoder_settings(exported: Exported) -> str:
    """The settings of `marian-decoder`."""
    search = exported.search
    settings: dict[str, Any] = {
        "relative-paths": True,
        "models": [_model_file(exported)],
        "vocabs": list(_files(exported)),
        "beam-size": search.beam,
        "normalize": search.length_penalty if search.beam > 1 else 0,
        "max-length": exported.max_source_length,
        "max-length-factor": 3,
        "word-penalty": 0,
    }
    if exported.quantization == "int8":
        settings["gemm-precision"] = "int8shiftAll"
    return _yaml(settings)


def _yaml(settings: dict[str, Any]) -> str:
    def written(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list):
            return "[" + ", ".join(map(written, value)) + "]"
        return f'"{value}"' if isinstance(value, str) else str(value)

    return "".join(f"{name}: {written(value)}\n" for name, value in settings.items())


def limits(exported: Exported) -> list[str]:
    notes = [
        "Beam search of Marian divides log-probabilities by n^a (`normalize`), not by ((5 + n) / 6)^a, so some outputs "
        "of beam search differ. Greedy outputs are the same.",
        "Outputs end at 3 times the length of the source (`max-length-factor`).",
        "Marian itself was not run: the files were read back by transduce import.",
    ]
    if exported.quantization == "int8":
        notes.append(
            f"Bergamot, the engine of Firefox Translations, runs `{BINARY_MODEL}` with `gemm-precision: int8shiftAll`. "
            "It also rounds activations to 8 bits, which transduce import does not."
        )
    return notes


def usage(exported: Exported, name: str) -> str:
    vocabularies = ", ".join(f'"{name}/{file}"' for file in _files(exported))
    model = f"{name}/{_model_file(exported)}"
    return f"""from pymarian import Translator

translator = Translator(models="{model}", vocabs=[{vocabularies}], beam_size={exported.search.beam})
print(translator.translate("Hello!"))
"""


def consumer(exported: Exported, folder: Path) -> Consumer:
    """`transduce import`, because Marian does not give logits."""
    return OwnReader(folder)


MARIAN = Exporter("Marian", check, write, consumer, limits, usage, quantizations=("float32", "int8"))
