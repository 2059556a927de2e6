"""ONNX: an encoder, a decoder for the first step and one with past keys and values, as optimum names them.

The computation is written as graphs, which read their weights from one file beside them. Only such folders are read.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece
import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.interop.exchange import (
    ACTIVATIONS,
    CARD,
    SOURCE_EMBEDDING,
    Consumer,
    Exported,
    Exporter,
    Original,
    position_table,
    require_exportable,
    transformers_weights,
)
from transduce.interop.family import complete_settings
from transduce.interop.huggingface import marian_order, source_order, their_ids, write_settings
from transduce.interop.vocabulary import read_tokenizer
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.folder import read_card, read_notes
from transduce.models.model import Model
from transduce.models.weights_file import physical_memory
from transduce.nn.kinds import ADDED
from transduce.search.decoder import NEVER_GENERATED
from transduce.tokenizers.tokenizer import BOS, EOS, UNK

ENCODER, DECODER, WITH_PAST = "encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"
WEIGHTS = "weights.bin"
_OPSET = 17
_IR_VERSION = 9
_MASKED = -1e9
_ALIGNMENT = 64


def check(model: Model) -> EncoderDecoder:
    _import_onnx()
    _import_runtime()
    return require_exportable(
        model, "the ONNX export", activation=tuple(ACTIVATIONS), embedding=("scaled", "plain"),
        positions=ADDED,
    )  # fmt: skip


def write(exported: Exported, folder: Path) -> None:
    library, model = _import_onnx(), exported.model
    order = marian_order(model)
    weights = transformers_weights(model)
    weights |= {name: weights[name][order] for name in ("model.shared.weight", "lm_head.weight")}
    if (source := source_order(model)) is not None:
        weights[SOURCE_EMBEDDING] = weights[SOURCE_EMBEDDING][source]
    weights["bias"], weights["positions"] = weights["final_logits_bias"][0, order], position_table(model)
    file = ExternalWeights(folder)

    def graph() -> Graph:
        return Graph(library, model.config, weights, file)

    add_encoder(encoder := graph())
    encoder.save(folder / ENCODER, "encoder")
    for name, past in ((DECODER, False), (WITH_PAST, True)):
        add_decoder(decoder := graph(), past=past)
        decoder.save(folder / name, "decoder")
    write_settings(exported, folder)


def read_onnx(folder: Path, settings: Mapping[str, Any]) -> Original:
    """The model that `transduce export` wrote to a folder, given the content of its `config.json`."""
    if not (folder / CARD).exists():
        raise ModelError(f"{folder} is an ONNX model without {CARD}; import the model that it was made of")
    theirs, card = complete_settings(settings), read_card(folder, CARD)["model"]
    unknown = ("decoder_vocab_size", "share_encoder_decoder_embeddings")
    ours = {name: value for name, value in theirs.items() if name not in (*unknown, "architectures")}
    ours |= {"model_type": "transformer", "layer_norm_epsilon": card["norm_epsilon"]}
    ours["normalize_before"] = card["norm"] == "pre"
    if not theirs["share_encoder_decoder_embeddings"]:
        ours |= {"source_vocab_size": theirs["vocab_size"], "vocab_size": theirs["decoder_vocab_size"]}
    tokenizer = read_tokenizer(folder, theirs, theirs["vocab_size"])
    return Original("ONNX", ours, _read_weights(folder), tokenizer, read_notes(folder))


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a folder with their names in transformers."""
    library, weights = _import_onnx(), dict[str, Tensor]()
    for name in (ENCODER, DECODER, WEIGHTS):
        require_file(folder / name, physical_memory() // 4, "this machine has memory for")
    content = (folder / WEIGHTS).read_bytes()
    try:
        for name in (ENCODER, DECODER):
            for tensor in library.load(str(folder / name), load_external_data=False).graph.initializer:
                place = {entry.key: entry.value for entry in tensor.external_data}
                if place.get("location") == WEIGHTS:
                    array = np.frombuffer(content, np.float32, math.prod(tensor.dims), int(place["offset"]))
                    x = torch.from_numpy(array.reshape(tensor.dims).copy())
                    weights[tensor.name.removesuffix(".T")] = x.T if tensor.name.endswith(".T") else x
        weights["final_logits_bias"] = weights.pop("bias")
        weights["model.decoder.embed_positions.weight"] = weights.pop("positions")
    except Exception:  # the package raises whatever a damaged file leads to
        raise ModelError(f"{folder}: not an ONNX model of transduce export, or damaged") from None
    return weights


def consumer(exported: Exported, folder: Path) -> Consumer:
    vocabulary = exported.vocabulary
    return OnnxRuntime(_import_runtime(), folder, exported.model, vocabulary.source_pieces or vocabulary.pieces)


class OnnxRuntime:
    """The three graphs in onnxruntime on one CPU thread, and greedy search."""

    def __init__(self, library: Any, folder: Path, model: EncoderDecoder, pieces: Sequence[str]) -> None:
        self.name = f"onnxruntime {library.__version__}"
        options = library.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._encoder, self._decoder, self._with_past = (
            library.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, DECODER, WITH_PAST)
        )
        self._source = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
        self._ours = marian_order(model)
        self._theirs = their_ids(self._ours)
        self._ids = {pieces[ours]: theirs for theirs, ours in enumerate(source_order(model) or self._ours)}

    def logits(self, text: str, output: Sequence[int]) -> Tensor:
        """A decoder step with all tokens but the last, and one with past for that."""
        tokens = [self._theirs[token] for token in (BOS, *output)]
        first = tokens[:-1] or tokens
        memory = self._encode(text)
        logits, state = self._first(memory, first)
        if len(first) < len(tokens):
            last, _ = self._next(memory, tokens[-1], state)
            logits = np.concatenate([logits, last])
        return torch.from_numpy(logits[:, [self._theirs[token] for token in range(len(self._theirs))]])

    def translate(self, texts: Sequence[str], limits: Sequence[int]) -> list[list[int]]:
        never = [self._theirs[token] for token in NEVER_GENERATED]
        outputs = []
        for text, limit in zip(texts, limits, strict=True):
            memory, tokens = self._encode(text), list[int]()
            logits, state = self._first(memory, [self._theirs[BOS]])
            while len(tokens) < limit:
                logits[-1, [*never, *([self._theirs[EOS]] if not tokens else [])]] = -np.inf
                if (token := int(logits[-1].argmax())) == self._theirs[EOS]:
                    break
                tokens.append(self._ours[token])
                logits, state = self._next(memory, token, state)
            outputs.append(tokens)
        return outputs

    def _encode(self, text: str) -> dict[str, Any]:
        """The inputs of the decoder that stay the same."""
        pieces = self._source.encode(text, out_type=str)
        ids = [self._ids.get(piece, self._theirs[UNK]) for piece in pieces]
        source = np.array([[*ids, self._theirs[EOS]]])
        mask = np.ones_like(source)
        (memory,) = self._encoder.run(None, {"input_ids": source, "attention_mask": mask})
        return {"encoder_hidden_states": memory, "encoder_attention_mask": mask}

    def _first(self, memory: dict[str, Any], tokens: Sequence[int]) -> tuple[Any, dict[str, Any]]:
        return self._run(self._decoder, {**memory, "input_ids": np.array([tokens])})

    def _next(self, memory: dict[str, Any], token: int, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask = {"encoder_attention_mask": memory["encoder_attention_mask"]}
        logits, new = self._run(self._with_past, {**mask, "input_ids": np.array([[token]]), **state})
        return logits, state | new

    @staticmethod
    def _run(session: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Logits, and the keys and values under the names of the inputs."""
        names = [output.name.replace("present", "past_key_values") for output in session.get_outputs()]
        results = dict(zip(names, session.run(None, inputs), strict=True))
        return results.pop("logits")[0], results


def _import(package: str, purpose: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        message = f"ONNX {purpose} the package {package}: pip install 'transduce[export]'"
        raise ModelError(message) from None


_import_onnx = partial(_import, "onnx", "needs")
_import_runtime = partial(_import, "onnxruntime", "is verified with")


class ExternalWeights:
    """The file with the weights: each is written once, however many graphs use it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / WEIGHTS
        self._path.write_bytes(b"")
        self._places: dict[str, tuple[int, int]] = {}

    def place(self, name: str, array: npt.NDArray[np.float32]) -> tuple[int, int]:
        """Offset and length of an array in the file."""
        if name not in self._places:
            with self._path.open("ab") as file:
                file.write(bytes(-file.tell() % _ALIGNMENT))
                self._places[name] = file.tell(), array.nbytes
                file.write(array.tobytes())
        return self._places[name]


@dataclass
class Graph:
    """An ONNX graph under construction. Methods that compute something return the name of the result."""

    library: Any
    """The package onnx."""
    config: EncoderDecoderConfig
    weights: dict[str, Tensor]
    """With their names in transformers, and `positions`."""
    file: ExternalWeights
    nodes: list[Any] = field(default_factory=list)
    initializers: dict[str, Any] = field(default_factory=dict)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def input(self, name: str, shape: Sequence[str | int], *, integers: bool = False) -> str:
        self.inputs.append(self._value(name, shape, integers=integers))
        return name

    def output(self, name: str, value: str, shape: Sequence[str | int]) -> None:
        """Declare a computed value as an output."""
        self.nodes.append(self.library.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self._value(name, shape))

    def save(self, path: Path, name: str) -> None:
        """Write the graph, whose weights are in the file."""
        helper = self.library.helper
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.initializers.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="transduce")
        model.ir_version = _IR_VERSION
        self.library.save_model(model, str(path))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        result = f"{kind}_{len(self.nodes)}"
        self.nodes.append(self.library.helper.make_node(kind, list(inputs), [result], **attributes))
        return result

    def constant(self, value: Any, kind: type[np.generic] = np.int64) -> str:
        array = np.array(value, kind)
        name = f"{array.dtype}_{array.tolist()}"
        if name not in self.initializers:
            self.initializers[name] = self.library.numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        """A weight of the file; the same matrix is stored once in each orientation that is used."""
        key = f"{name}.T" if transposed else name
        if key not in self.initializers:
            x = self.weights[name]
            array = np.ascontiguousarray((x.T if transposed else x).numpy())
            offset, length = self.file.place(key, array)
            tensor = self.library.TensorProto(name=key, data_type=self.library.TensorProto.FLOAT, dims=array.shape)
            tensor.data_location = self.library.TensorProto.EXTERNAL
            for option, value in (("location", WEIGHTS), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=option, value=str(value))
            self.initializers[key] = tensor
        return key

    def embed(self, ids: str, position_T: str, table: str = "model.shared.weight") -> str:
        """Embeddings (B, T, D) of tokens at positions."""
        x = self.op("Gather", self.weight(table), ids)
        if self.config.embedding == "scaled":
            x = self.op("Mul", x, self.constant(math.sqrt(self.config.d_model), np.float32))
        return self.op("Add", x, self.op("Gather", self.weight("positions"), position_T))

    def size(self, x: str, axis: int) -> str:
        """The size of a dimension, as a scalar."""
        return self.op("Gather", self.op("Shape", x), self.constant(axis))

    def range(self, start: str, end: str) -> str:
        return self.op("Range", start, end, self.constant(1))

    def linear(self, name: str, x: str) -> str:
        """x W^T + b."""
        product = self.op("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.op("Add", product, self.weight(f"{name}.bias"))

    def norm(self, name: str, x: str) -> str:
        weights = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.op("LayerNormalization", x, *weights, axis=-1, epsilon=self.config.norm_epsilon)

    def heads(self, name: str, projections: str, x: str) -> Iterator[str]:
        """Projections (B, H, T, K) of x (B, T, D), such as "kv", of an attention."""
        for projection in projections:
            projected = self.linear(f"{name}.{projection}_proj", x)
            split = self.op("Reshape", projected, self.constant([0, 0, self.config.num_heads, -1]))
            yield self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attend(self, name: str, q: str, k: str, v: str, mask: str) -> str:
        """The output (B, T, D) of attention, for queries, keys and values of each head, and a mask that is added."""
        scale = self.constant((self.config.d_model // self.config.num_heads) ** -0.5, np.float32)
        scores = self.op("MatMul", self.op("Mul", q, scale), self.op("Transpose", k, perm=[0, 1, 3, 2]))
        weights = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        joined = self.op("Transpose", self.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.linear(f"{name}.out_proj", self.op("Reshape", joined, self.constant([0, 0, -1])))

    def feed_forward(self, name: str, x: str) -> str:
        return self.linear(f"{name}.fc2", self.activate(self.linear(f"{name}.fc1", x)))

    def activate(self, x: str) -> str:
        kind = self.config.activation
        if kind == "relu":
            return self.op("Relu", x)
        if kind == "swish":
            return self.op("Mul", x, self.op("Sigmoid", x))

        def number(value: float) -> str:
            return self.constant(value, np.float32)

        if kind == "gelu":
            curve = self.op("Erf", self.op("Mul", x, number(math.sqrt(0.5))))
        else:
            cube = self.op("Mul", self.op("Mul", self.op("Mul", x, x), x), number(0.044715))
            curve = self.op("Tanh", self.op("Mul", self.op("Add", x, cube), number(math.sqrt(2 / math.pi))))
        return self.op("Mul", self.op("Mul", x, number(0.5)), self.op("Add", curve, number(1.0)))

    def residual(self, norm: str, x: str, sublayer: Callable[[str], str]) -> str:
        if self.config.norm == "pre":
            return self.op("Add", x, sublayer(self.norm(norm, x)))
        return self.norm(norm, self.op("Add", x, sublayer(x)))

    def source_mask(self, mask_BS: str) -> str:
        """The mask (B, 1, 1, S) to add to scores, of ones for tokens and zeros for padding."""
        ones = self.op("Cast", mask_BS, to=self.library.TensorProto.FLOAT)
        absent = self.op("Sub", self.constant(1.0, np.float32), ones)
        masked = self.op("Mul", absent, self.constant(_MASKED, np.float32))
        return self.op("Unsqueeze", masked, self.constant([1, 2]))

    def causal_mask(self, position_T: str, keys: str) -> str:
        """The mask (T, S) to add to the scores of queries at these positions and the first `keys` positions."""
        position_S = self.range(self.constant(0), keys)
        later = self.op("Greater", position_S, self.op("Unsqueeze", position_T, self.constant([1])))
        return self.op("Where", later, self.constant(_MASKED, np.float32), self.constant(0.0, np.float32))

    def logits(self, x: str) -> str:
        """The logits (B, T, V) of hidden vectors; the matrix is not transposed, because it may be the embedding."""
        name = "model.shared.weight" if self.config.tie_output else "lm_head.weight"
        width = self.constant([-1, self.config.d_model])
        product = self.op("Gemm", self.op("Reshape", x, width), self.weight(name), self.weight("bias"), transB=1)
        batch = self.op("Slice", self.op("Shape", x), self.constant([0]), self.constant([2]))
        return self.op("Reshape", product, self.op("Concat", batch, self.constant([-1]), axis=0))

    def _value(self, name: str, shape: Sequence[str | int], *, integers: bool = False) -> Any:
        kind = self.library.TensorProto.INT64 if integers else self.library.TensorProto.FLOAT
        return self.library.helper.make_tensor_value_info(name, kind, list(shape))


def add_encoder(graph: Graph) -> None:
    """input_ids and attention_mask (B, S) to last_hidden_state (B, S, D)."""
    ids = graph.input("input_ids", ["batch", "source"], integers=True)
    mask = graph.source_mask(graph.input("attention_mask", ["batch", "source"], integers=True))
    table = "model.shared.weight" if graph.config.source_vocab_size is None else SOURCE_EMBEDDING
    x = graph.embed(ids, graph.range(graph.constant(0), graph.size(ids, 1)), table)
    for n in range(graph.config.encoder_layers):
        name = f"model.encoder.layers.{n}"

        def attend_self(x: str, name: str = f"{name}.self_attn") -> str:
            q, k, v = graph.heads(name, "qkv", x)
            return graph.attend(name, q, k, v, mask)

        x = graph.residual(f"{name}.self_attn_layer_norm", x, attend_self)
        x = graph.residual(f"{name}.final_layer_norm", x, partial(graph.feed_forward, name))
    if graph.config.norm == "pre":
        x = graph.norm("model.encoder.layer_norm", x)
    graph.output("last_hidden_state", x, ["batch", "source", graph.config.d_model])


def add_decoder(graph: Graph, *, past: bool) -> None:
    """The decoder. Without `past`, it gives the keys and values of all layers, which it otherwise reads and extends."""
    config = graph.config
    mask = graph.source_mask(graph.input("encoder_attention_mask", ["batch", "source"], integers=True))
    ids = graph.input("input_ids", ["batch", "target"], integers=True)
    memory = "" if past else graph.input("encoder_hidden_states", ["batch", "source", config.d_model])
    heads, width = config.num_heads, config.d_model // config.num_heads
    kept: dict[str, str] = {}
    if past:
        for n in range(config.decoder_layers):
            for part, length in (("decoder", "past"), ("encoder", "source")):
                for kind in ("key", "value"):
                    name = f"{n}.{part}.{kind}"
                    kept[name] = graph.input(f"past_key_values.{name}", ["batch", heads, length, width])
    start = graph.size(kept["0.decoder.key"], 2) if past else graph.constant(0)
    end = graph.op("Add", start, graph.size(ids, 1))
    position_T = graph.range(start, end)
    causal = graph.causal_mask(position_T, end)
    x = graph.embed(ids, position_T)
    present: dict[str, str] = {}
    for n in range(config.decoder_layers):
        name = f"model.decoder.layers.{n}"

        def attend_self(x: str, n: int = n, name: str = f"{name}.self_attn") -> str:
            q, k, v = graph.heads(name, "qkv", x)
            if past:
                k = graph.op("Concat", kept[f"{n}.decoder.key"], k, axis=2)
                v = graph.op("Concat", kept[f"{n}.decoder.value"], v, axis=2)
            present[f"{n}.decoder.key"], present[f"{n}.decoder.value"] = k, v
            return graph.attend(name, q, k, v, causal)

        def attend_source(x: str, n: int = n, name: str = f"{name}.encoder_attn") -> str:
            if past:
                k, v = kept[f"{n}.encoder.key"], kept[f"{n}.encoder.value"]
            else:
                k, v = graph.heads(name, "kv", memory)
                present[f"{n}.encoder.key"], present[f"{n}.encoder.value"] = k, v
            (q,) = graph.heads(name, "q", x)
            return graph.attend(name, q, k, v, mask)

        x = graph.residual(f"{name}.self_attn_layer_norm", x, attend_self)
        x = graph.residual(f"{name}.encoder_attn_layer_norm", x, attend_source)
        x = graph.residual(f"{name}.final_layer_norm", x, partial(graph.feed_forward, name))
    if config.norm == "pre":
        x = graph.norm("model.decoder.layer_norm", x)
    graph.output("logits", graph.logits(x), ["batch", "target", len(graph.weights["bias"])])
    for name, value in present.items():
        length = "source" if ".encoder." in name else "length"
        graph.output(f"present.{name}", value, ["batch", heads, length, width])


ONNX = Exporter("onnx", check, write, consumer)
