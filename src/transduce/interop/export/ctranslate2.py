"""Export as a CTranslate2 folder: `model.bin`, `config.json`, the vocabulary and the SentencePiece models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from torch import Tensor

from transduce.interop.ctranslate2_file import LAYER_MODULES, write_variables
from transduce.interop.export.exporter import (
    SOURCE_EMBEDDING,
    Consumer,
    Exported,
    Exporter,
    position_table,
    require_exportable,
    transformers_weights,
    write_json,
)
from transduce.interop.export.verify import OwnReader
from transduce.interop.vocabulary import NEVER
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.model import Model
from transduce.nn.kinds import ADDED
from transduce.search.decoder import NEVER_GENERATED
from transduce.tokenizers.tokenizer import BOS, EOS, UNK

ACTIVATIONS = {"relu": 0, "gelu_tanh": 1, "swish": 2, "gelu": 3}
"""CTranslate2's number of each activation."""
_ABSENT = (
    "encoder/embeddings_merge", "encoder/multi_query_attention", "decoder/alibi",
    "decoder/alibi_use_positive_positions", "decoder/scale_alibi", "decoder/start_from_zero_embedding",
)  # fmt: skip
"""Options that our models do not have."""


def check(model: Model) -> EncoderDecoder:
    return require_exportable(
        model, "CTranslate2", activation=tuple(ACTIVATIONS), embedding=("scaled", "plain"),
        positions=ADDED,
    )  # fmt: skip


def write(exported: Exported, folder: Path) -> None:
    write_model(exported, folder)
    (folder / "source.spm").write_bytes(exported.vocabulary.source_spm)
    (folder / "target.spm").write_bytes(exported.vocabulary.target_spm)


def write_model(exported: Exported, folder: Path) -> None:
    """Write the files of a folder that CTranslate2 itself reads."""
    pieces = list(exported.vocabulary.pieces)
    variables = _variables(exported.model)
    aliases = dict.fromkeys(_same_as_embeddings(variables), "decoder/embeddings/weight")
    if exported.quantization == "int8":
        for name in [name for name, x in variables.items() if name.endswith("/weight") and name not in aliases]:
            variables[name], variables[f"{name}_scale"] = quantize(variables[name])
        aliases |= {f"{name}_scale": "decoder/embeddings/weight_scale" for name in aliases}
    aliases["encoder/position_encodings/encodings"] = "decoder/position_encodings/encodings"
    stored = {name: x for name, x in variables.items() if name not in aliases}
    write_variables(folder / "model.bin", "TransformerSpec", stored, aliases)
    settings = {
        "add_source_bos": False,
        "add_source_eos": True,
        "bos_token": pieces[BOS],
        "decoder_start_token": pieces[BOS],
        "eos_token": pieces[EOS],
        "unk_token": pieces[UNK],
        "layer_norm_epsilon": exported.model.config.norm_epsilon,
        "multi_query_attention": False,
    }
    write_json(folder / "config.json", settings)
    if exported.vocabulary.source_pieces is None:
        write_json(folder / "shared_vocabulary.json", pieces)
    else:
        write_json(folder / "source_vocabulary.json", list(exported.vocabulary.source_pieces))
        write_json(folder / "target_vocabulary.json", pieces)


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix as 8-bit integers, and the factor of each row."""
    largest = weight.abs().amax(1)
    scale = 127 / torch.where(largest == 0, 127, largest)
    return (weight * scale[:, None]).round().to(torch.int8), scale


def _variables(model: EncoderDecoder) -> dict[str, Tensor]:
    config, theirs = model.config, transformers_weights(model)
    last = [*model.decoder_layers()][-1].cross_attention
    flags = {
        "pre_norm": config.norm == "pre",
        "activation": ACTIVATIONS[config.activation],
        "scale_embeddings": config.embedding == "scaled",
    }
    options = {f"{side}/{name}": value for side in ("encoder", "decoder") for name, value in flags.items()}
    options |= dict.fromkeys(_ABSENT, 0)
    numbers = dict.fromkeys(("encoder/num_heads", "decoder/num_heads", "decoder/alignment_heads"), config.num_heads)
    numbers["decoder/alignment_layer"] = -1 if model.alignment_attention is last else -2
    variables = {name: torch.tensor(value, dtype=torch.int8) for name, value in options.items()}
    variables |= {name: torch.tensor(value, dtype=torch.int16) for name, value in numbers.items()}
    variables |= {
        "encoder/embeddings_0/weight": theirs.get(SOURCE_EMBEDDING, theirs["model.shared.weight"]),
        "encoder/position_encodings/encodings": position_table(model),
        "decoder/embeddings/weight": theirs["model.shared.weight"],
        "decoder/position_encodings/encodings": position_table(model),
        "decoder/projection/weight": theirs["lm_head.weight"],
        "decoder/projection/bias": theirs["final_logits_bias"][0].clone(),
    }
    variables["decoder/projection/bias"][NEVER_GENERATED] = NEVER
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        if config.norm == "pre":
            variables |= _module(theirs, f"{side}/layer_norm", [f"model.{side}.layer_norm"])
        for n in range(layers):
            for module, names in LAYER_MODULES.items():
                if f"model.{side}.layers.{n}.{names[0]}.weight" in theirs:
                    paths = [f"model.{side}.layers.{n}.{name}" for name in names]
                    variables |= _module(theirs, f"{side}/layer_{n}/{module}", paths)
    return variables


def _module(theirs: Mapping[str, Tensor], name: str, paths: Sequence[str]) -> dict[str, Tensor]:
    """Linear layers joined to one, or a norm."""
    kinds = ("gamma", "beta") if name.endswith("layer_norm") else ("weight", "bias")
    return {
        f"{name}/{kind}": torch.cat([theirs[f"{path}.{parameter}"] for path in paths])
        for kind, parameter in zip(kinds, ("weight", "bias"), strict=True)
    }


def _same_as_embeddings(variables: Mapping[str, Tensor]) -> list[str]:
    shared = variables["decoder/embeddings/weight"]
    names = ("encoder/embeddings_0/weight", "decoder/projection/weight")
    return [name for name in names if variables[name] is shared or torch.equal(variables[name], shared)]


def limits(exported: Exported) -> list[str]:
    return [
        "Beam search of CTranslate2 divides log-probabilities by n^a (`length_penalty`), not by ((5 + n) / 6)^a, so "
        "some outputs of beam search differ. Greedy outputs are the same.",
        "Outputs end at `max_decoding_length` tokens, by default 256, however long the source is.",
    ]


def usage(exported: Exported, name: str) -> str:
    search = exported.search
    return f"""import ctranslate2
import sentencepiece

translator = ctranslate2.Translator("{name}")
source = sentencepiece.SentencePieceProcessor(model_file="{name}/source.spm")
target = sentencepiece.SentencePieceProcessor(model_file="{name}/target.spm")
tokens = source.encode({exported.example!r}, out_type=str)
options = {{"beam_size": {search.beam}, "length_penalty": {search.length_penalty}}}
print(target.decode(translator.translate_batch([tokens], **options)[0].hypotheses[0]))
"""


def consumer(exported: Exported, folder: Path) -> Consumer:
    try:
        import ctranslate2
    except ImportError:
        return OwnReader(folder)
    spm = (folder / "source.spm").read_bytes()
    return CTranslate2(ctranslate2, folder, spm, exported.vocabulary.pieces)


class CTranslate2:
    """CTranslate2's `Translator` on one CPU thread."""

    def __init__(self, library: Any, folder: Path, spm: bytes, pieces: Sequence[str]) -> None:
        self.name = f"CTranslate2 {library.__version__}"
        self._translator = library.Translator(str(folder), inter_threads=1, intra_threads=1)
        self._source = sentencepiece.SentencePieceProcessor(model_proto=spm)
        self._pieces, self._ids = list(pieces), {piece: number for number, piece in enumerate(pieces)}

    def logits(self, text: str, output: Sequence[int]) -> Tensor:
        """The output is a prefix that the search is held to."""
        (result,) = self._translator.translate_batch(
            self._source.encode([text], out_type=str), target_prefix=[[self._pieces[token] for token in output]],
            beam_size=1, max_decoding_length=len(output) + 2, min_decoding_length=0, max_input_length=0,
            return_logits_vocab=True,
        )  # fmt: skip
        return torch.from_numpy(np.stack([np.array(row) for row in result.logits[0][: len(output) + 1]]))

    def translate(self, texts: Sequence[str], limits: Sequence[int]) -> list[list[int]]:
        results = self._translator.translate_batch(
            self._source.encode(list(texts), out_type=str), beam_size=1, max_decoding_length=max(limits) + 1,
            max_batch_size=16, max_input_length=0,
        )  # fmt: skip
        return [[self._ids[piece] for piece in result.hypotheses[0]] for result in results]


CTRANSLATE2 = Exporter("CTranslate2", check, write, consumer, limits, usage, quantizations=("float32", "int8"))
