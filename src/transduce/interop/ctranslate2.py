"""CTranslate2: reading models of Whisper and Transformers, and writing translation models.

`model.bin` has a version, the name and revision of the specification, the variables (name, shape, type, bytes) and the
names of variables that are the same as another one. All integers are little-endian.
"""

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.interop.exchange import (
    ByteReader,
    Consumer,
    Exported,
    Exporter,
    Original,
    position_table,
    require_exportable,
    write_json,
)
from transduce.interop.family import fairseq_modules, place
from transduce.interop.imported_tokenizers import ImportedTokenizer
from transduce.interop.vocabulary import (
    DEFAULT_NAMES,
    NEVER,
    parse_json,
    read_bytes,
    read_tokenizer,
    separate_vocabularies,
    shared_vocabulary,
)
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.folder import read_notes
from transduce.models.model import Model
from transduce.models.weights_file import physical_memory
from transduce.nn.kinds import ADDED, NormPlacement
from transduce.search.decoder import NEVER_GENERATED
from transduce.tokenizers.any_tokenizer import TokenizerPair
from transduce.tokenizers.tokenizer import BOS, EOS, UNK

_VERSIONS = (5, 6)
_TYPES = {0: torch.float32, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.float16, 5: torch.bfloat16}
_MAX_VARIABLES, _MAX_RANK = 100_000, 8
_NUMBERED = ("relu", "gelu_new", "swish", "gelu")
"""The activations that can be imported, by their number."""
_WRITTEN_VERSION, _REVISION = 6, 7
"""Of the binary format, and of the specification of Transformers."""
_MODULES = {
    "self_attn.q_proj": "self_attention/linear_0", "self_attn.out_proj": "self_attention/linear_1",
    "self_attn_layer_norm": "self_attention/layer_norm", "encoder_attn.q_proj": "attention/linear_0",
    "encoder_attn.k_proj": "attention/linear_1", "encoder_attn.out_proj": "attention/linear_2",
    "encoder_attn_layer_norm": "attention/layer_norm", "fc1": "ffn/linear_0", "fc2": "ffn/linear_1",
    "final_layer_norm": "ffn/layer_norm",
}  # fmt: skip
"""The modules of a layer in transformers, of several that are joined the first one, and their names here."""
ACTIVATIONS = {"relu": 0, "gelu_tanh": 1, "swish": 2, "gelu": 3}
"""CTranslate2's number of each activation."""
_ABSENT = (
    "encoder/embeddings_merge", "encoder/multi_query_attention", "decoder/alibi",
    "decoder/alibi_use_positive_positions", "decoder/scale_alibi", "decoder/start_from_zero_embedding",
)  # fmt: skip
"""Options that our models do not have."""
_DEFAULTS = {"pre_norm": 1, "activation": 0, "scale_embeddings": 1}
"""Options of encoder and decoder, which have to agree, and what holds if one is missing."""
_WHISPER = {"pre_norm": 1, "activation": 3, "scale_embeddings": 0, "start_from_zero_embedding": 0}
"""Options of the decoder of Whisper with the only value that can be imported."""
_READ = re.compile(
    r"(en|de)coder/(num_heads|pre_norm|activation|scale_embeddings|start_from_zero_embedding|alignment_(heads|layer)"
    r"|embeddings_merge|alibi_use_positive_positions|scale_alibi)"
)
"""Numbers that are read, or that have no effect on outputs; others must be 0."""
_WEIGHTS = re.compile(
    r"(en|de)coder/(embeddings(_0)?/weight|position_encodings/encodings|layer_norm/(gamma|beta)"
    rf"|(projection|conv[12]|layer_\d+/({'|'.join(_MODULES.values())}))/(weight|bias|gamma|beta))"
)
_OPTIONS = (
    "unk_token", "bos_token", "eos_token", "decoder_start_token", "add_source_eos", "layer_norm_epsilon",
    "suppress_ids", "suppress_ids_begin", "lang_ids", "alignment_heads",
)  # fmt: skip
"""Options of `config.json` that are read, or that have no effect on what is computed; others must be empty or false."""


def read_ctranslate2(folder: Path, options: Mapping[str, Any]) -> Original:
    """The model of a folder, given the content of its `config.json`."""
    for name, value in options.items():
        if (name not in _OPTIONS and value) or (name == "decoder_start_token" and not isinstance(value, str)):
            raise ModelError(f"config.json: a CTranslate2 model with {name:.60} = {value!s:.40} cannot be imported")
    settings, weights = _read_model(folder / "model.bin")
    if settings["model_type"] == "whisper":
        settings |= {"suppress_tokens": options.get("suppress_ids")}
        settings |= {"begin_suppress_tokens": options.get("suppress_ids_begin")}
        tokenizer = read_tokenizer(folder, settings, settings["vocab_size"])
    else:
        settings["layer_norm_epsilon"] = options.get("layer_norm_epsilon")
        tokenizer = _read_vocabulary(folder, settings, options)
    return Original("CTranslate2", settings, weights, tokenizer, read_notes(folder))


def _read_vocabulary(
    folder: Path, settings: Mapping[str, Any], options: Mapping[str, Any]
) -> ImportedTokenizer | TokenizerPair:
    """The SentencePiece models beside a Transformer of CTranslate2, and its vocabulary; `options` is config.json."""
    files = ("source.spm", "target.spm")
    if (folder / "sentencepiece.model").exists():
        files = ("sentencepiece.model", "sentencepiece.model")
    if missing := [name for name in files if not (folder / name).exists()]:
        raise ModelError(f"{folder}: the folder has no {missing[0]}; copy the model's SentencePiece files there")
    roles = {"unk": "unk_token", "eos": "eos_token", "decoder_start": "decoder_start_token"}
    names = {role: options[option] for role, option in roles.items() if isinstance(options.get(option), str)}
    names = {**DEFAULT_NAMES, "decoder_start": "<s>", **names}
    shared = _listed(folder, "shared")
    if "source_vocab_size" not in settings:
        return shared_vocabulary(folder, files, _read_list(shared), settings, names)
    paths = [shared] * 2 if shared.exists() else [_listed(folder, kind) for kind in ("source", "target")]
    lists = [_read_list(path) for path in paths]
    sizes = settings["source_vocab_size"], settings["vocab_size"]
    return separate_vocabularies(folder, files, (lists[0], lists[1]), sizes, settings, names)


def _listed(folder: Path, kind: str) -> Path:
    """The list of tokens of CTranslate2: JSON, or text as older versions wrote it."""
    text = folder / f"{kind}_vocabulary.txt"
    return text if text.exists() and not text.with_suffix(".json").exists() else text.with_suffix(".json")


def _read_list(path: Path) -> list[str]:
    """The texts in a JSON list, or the lines of a `.txt` file."""
    if path.suffix == ".txt":
        try:
            return read_bytes(path).decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise ModelError(f"{path}: not UTF-8: {error}") from None
    content = parse_json(path)
    if not isinstance(content, list) or not all(isinstance(text, str) for text in content):
        raise ModelError(f"{path}: not a list of texts")
    return content


def _read_model(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings of `config.json` and the weights with their names in transformers."""
    name, variables = read_variables(path)
    if name not in _MODELS:
        raise ModelError(
            f"{path}: CTranslate2 models of type {name!r:.40} cannot be imported; only {' and '.join(_MODELS)} can"
        )
    try:
        settings = _MODELS[name](variables)
        return settings, _weights(settings, variables)
    except KeyError as error:
        raise ModelError(f"{path}: the model has no variable {error}") from None
    except (ValueError, TypeError, RuntimeError):
        raise ModelError(f"{path}: damaged: the shapes of its variables do not fit {name}") from None


def read_variables(path: Path) -> tuple[str, dict[str, Tensor]]:
    """The name of the specification, and all variables; 8-bit weights as float32."""
    require_file(path, physical_memory() // 4, "this machine has memory for")
    file = _Reader(bytearray(path.read_bytes()))  # writable, as torch requires
    try:
        version = file.number("I")
        if version not in _VERSIONS:
            raise ModelError(f"{path}: not a CTranslate2 model of version {' or '.join(map(str, _VERSIONS))}")
        name, _revision = file.string(), file.number("I")
        count = file.number("I")
        if count > _MAX_VARIABLES:
            raise ValueError(f"{count:,} variables")
        variables = dict(file.variable() for _ in range(count))
        for _ in range(file.number("I")):
            alias, original = file.string(), file.string()
            variables[alias] = variables[original]
    except (KeyError, ValueError, struct.error, RuntimeError) as error:
        raise ModelError(f"{path}: damaged: {error}") from None
    scales = {key: variables.pop(key) for key in [*variables] if key.endswith("/weight_scale")}
    for key, scale in scales.items():  # one for each row, or one for the matrix
        weight = variables.get(key.removesuffix("_scale"))
        if weight is None or weight.dim() == 0 or scale.numel() not in (1, len(weight)):
            raise ModelError(f"{path}: {key[:60]} does not fit the variable that it belongs to")
        variables[key.removesuffix("_scale")] = weight.float() / scale.reshape(-1, *[1] * (weight.dim() - 1))
    return name, variables


def write_variables(path: Path, name: str, variables: Mapping[str, Tensor], aliases: Mapping[str, str]) -> None:
    """Write a model of this specification; `aliases` are names of variables that are the same as another one."""

    def string(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    types = {dtype: number for number, dtype in _TYPES.items()}
    content = [struct.pack("<I", _WRITTEN_VERSION), string(name), struct.pack("<II", _REVISION, len(variables))]
    for variable, x in sorted(variables.items()):
        array = np.ascontiguousarray(x.numpy())
        shape = struct.pack(f"<B{x.dim()}I", x.dim(), *x.shape)
        content += [string(variable), shape, struct.pack("<BI", types[x.dtype], array.nbytes), array.tobytes()]
    content.append(struct.pack("<I", len(aliases)))
    content += [string(alias) + string(original) for alias, original in sorted(aliases.items())]
    path.write_bytes(b"".join(content))


class _Reader(ByteReader):
    def string(self) -> str:
        length = self.number("H")  # with a zero at the end
        return self.take(length)[: length - 1].decode()

    def variable(self) -> tuple[str, Tensor]:
        name, rank = self.string(), self.number("B")
        if rank > _MAX_RANK:
            raise ValueError(f"{name[:60]} has {rank} dimensions")
        shape = self.numbers("I", rank)
        kind, size = self.number("B"), self.number("I")
        if kind not in _TYPES:
            raise ValueError(f"{name[:60]} is of the unknown type {kind}")
        return name, torch.frombuffer(self.take(size), dtype=_TYPES[kind]).reshape(shape)


def _whisper_settings(variables: dict[str, Tensor]) -> dict[str, Any]:
    _require_known(variables, {f"decoder/{option}": value for option, value in _WHISPER.items()})
    return _sizes(variables) | {
        "model_type": "whisper", "max_source_positions": len(variables["encoder/position_encodings/encodings"]),
        "max_target_positions": len(variables["decoder/position_encodings/encodings"]),
        "num_mel_bins": variables["encoder/conv1/weight"].shape[1], "activation_function": "gelu", "dropout": 0.0,
    }  # fmt: skip


def _transformer_settings(variables: dict[str, Tensor]) -> dict[str, Any]:
    """Those of the type "transformer" of ours."""
    for side, embeddings in (("encoder", "embeddings_0"), ("decoder", "embeddings")):  # of older versions
        if (flag := variables.pop(f"{side}/{embeddings}/multiply_by_sqrt_depth", None)) is not None:
            variables.setdefault(f"{side}/scale_embeddings", flag)
    _require_known(variables, {})
    options = {}
    for name, default in _DEFAULTS.items():
        missing = torch.tensor(default, dtype=torch.int8)
        encoder, options[name] = (variables.get(f"{side}/{name}", missing) for side in ("encoder", "decoder"))
        if not torch.equal(encoder, options[name]):
            different = f"encoder/{name} = {float(encoder):g} and decoder/{name} = {float(options[name]):g}"
            raise ModelError(f"a CTranslate2 model with {different} cannot be imported")
    if (number := int(options["activation"])) not in range(len(_NUMBERED)):
        raise ModelError(f"a CTranslate2 model with the activation {number} cannot be imported")
    embedding, output = variables["decoder/embeddings/weight"], variables["decoder/projection/weight"]
    source = variables["encoder/embeddings_0/weight"]
    tables = [variables[f"{side}/position_encodings/encodings"] for side in ("encoder", "decoder")]
    if not torch.equal(*tables):
        raise ModelError("a CTranslate2 model whose encoder and decoder have different positions cannot be imported")
    settings = _sizes(variables) | {
        "model_type": "transformer", "normalize_before": bool(options["pre_norm"]),
        "activation_function": _NUMBERED[number], "max_position_embeddings": len(tables[0]),
        "scale_embedding": _is_scaled(options["scale_embeddings"], width=embedding.shape[1]),
        "tie_word_embeddings": torch.equal(output, embedding),
        "start_from_zero": bool(variables.get("decoder/start_from_zero_embedding", 0)), "dropout": 0.1,
    }  # fmt: skip
    return settings if torch.equal(source, embedding) else settings | {"source_vocab_size": len(source)}


def _require_known(variables: Mapping[str, Tensor], only: Mapping[str, int]) -> None:
    """Raise an error for a variable that is not read, or that differs from the only value that can be imported."""
    for name, x in variables.items():
        if name in only:
            known = float(x) == only[name]
        else:
            known = (_READ if x.dim() == 0 else _WEIGHTS).fullmatch(name) is not None or (x.dim() == 0 and not x)
        if not known:
            shown = f"{name:.80} = {float(x):g}" if x.dim() == 0 else f"{name:.80}"
            raise ModelError(f"a CTranslate2 model with {shown} cannot be imported")


def _is_scaled(value: Tensor, width: int) -> bool:
    """Whether embeddings are multiplied by the square root of the width: a flag, or the factor itself."""
    factor = float(value) if value.is_floating_point() else math.sqrt(width) if value else 1.0
    if not (factor == 1 or math.isclose(factor, math.sqrt(width), rel_tol=1e-6)):
        raise ModelError(f"a CTranslate2 model whose embeddings are multiplied by {factor:.4g} cannot be imported")
    return factor != 1


def _sizes(variables: dict[str, Tensor]) -> dict[str, Any]:
    vocabulary, width = variables["decoder/embeddings/weight"].shape
    sizes = {"vocab_size": vocabulary, "d_model": width}
    inner = len(variables["encoder/layer_0/ffn/linear_0/bias"])
    for side in ("encoder", "decoder"):
        layers = {match[1] for name in variables if (match := re.match(rf"{side}/layer_(\d+)/", name))}
        sizes[f"{side}_layers"], sizes[f"{side}_ffn_dim"] = len(layers), inner
        sizes[f"{side}_attention_heads"] = int(variables[f"{side}/num_heads"])
    return sizes


def _weights(settings: Mapping[str, Any], variables: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights with their names in transformers."""
    whisper = settings["model_type"] == "whisper"
    named = {
        "model.encoder.embed_tokens.weight": "encoder/embeddings_0/weight",
        "model.decoder.embed_tokens.weight": "decoder/embeddings/weight",
        "model.decoder.embed_positions.weight": "decoder/position_encodings/encodings",
        "proj_out.weight" if whisper else "lm_head.weight": "decoder/projection/weight",
        "proj_out.bias" if whisper else "final_logits_bias": "decoder/projection/bias",
    }
    for name, kind in product(("conv1", "conv2"), ("weight", "bias")):
        named[f"model.encoder.{name}.{kind}"] = f"encoder/{name}/{kind}"
    weights = {name: variables[theirs].float() for name, theirs in named.items() if theirs in variables}
    if not whisper:
        weights.setdefault("final_logits_bias", torch.zeros(settings["vocab_size"]))
    sizes = {name: settings[name] for name in ("encoder_layers", "decoder_layers")}
    norm: NormPlacement = "pre" if whisper or settings["normalize_before"] else "post"
    for _, names in fairseq_modules(EncoderDecoderConfig(**sizes, norm=norm)):
        for parameter, theirs in _parameters(names[0]):
            if theirs in variables:
                parts = variables[theirs].float().chunk(len(names))
                weights |= {f"model.{name}.{parameter}": x for name, x in zip(names, parts, strict=True)}
    return weights


def _parameters(name: str) -> Iterator[tuple[str, str]]:
    """The parameters of a module of transformers, each with the name of its variable."""
    side, layer, module = place(name)
    path = f"{side}/layer_norm" if layer is None else f"{side}/layer_{layer}/{_MODULES[module]}"
    kinds = ("gamma", "beta") if path.endswith("layer_norm") else ("weight", "bias")
    for parameter, kind in zip(("weight", "bias"), kinds, strict=True):
        yield parameter, f"{path}/{kind}"


_MODELS: dict[str, Callable[..., dict[str, Any]]] = {
    "TransformerSpec": _transformer_settings,
    "WhisperSpec": _whisper_settings,
}
"""The name of a specification, and the function that reads its settings."""


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
        "add_source_bos": False, "add_source_eos": True, "bos_token": pieces[BOS], "decoder_start_token": pieces[BOS],
        "eos_token": pieces[EOS], "unk_token": pieces[UNK], "layer_norm_epsilon": exported.model.config.norm_epsilon,
        "multi_query_attention": False,
    }  # fmt: skip
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
    config, ours = model.config, {name: x.detach().float() for name, x in model.state_dict().items()}
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
    embedding_VD, bias_V = ours["embedding.weight_VD"], ours.get("output.bias_V", torch.zeros(model.vocab_size)).clone()
    bias_V[NEVER_GENERATED] = NEVER
    variables |= {
        "encoder/embeddings_0/weight": ours.get("source_weight_VD", embedding_VD),
        "encoder/position_encodings/encodings": position_table(model),
        "decoder/embeddings/weight": embedding_VD,
        "decoder/position_encodings/encodings": position_table(model),
        "decoder/projection/weight": embedding_VD if config.tie_output else ours["output.weight_VD"],
        "decoder/projection/bias": bias_V,
    }
    for module, names in fairseq_modules(config):
        variables |= {theirs: ours[f"{module}.{parameter}"] for parameter, theirs in _parameters(names[0])}
    return variables


def _same_as_embeddings(variables: Mapping[str, Tensor]) -> list[str]:
    shared = variables["decoder/embeddings/weight"]
    names = ("encoder/embeddings_0/weight", "decoder/projection/weight")
    return [name for name in names if variables[name] is shared or torch.equal(variables[name], shared)]


def consumer(exported: Exported, folder: Path) -> Consumer | None:
    spm = (folder / "source.spm").read_bytes()
    return CTranslate2(found, folder, spm, exported.vocabulary.pieces) if (found := library()) else None


def library() -> Any:
    """The package CTranslate2; None if it is not installed."""
    try:
        import ctranslate2
    except ImportError:
        return None
    return ctranslate2


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


CTRANSLATE2 = Exporter("ctranslate2", check, write, consumer, quantizations=("float32", "int8"))
