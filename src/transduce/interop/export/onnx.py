"""Export as ONNX: an encoder, a decoder for the first step and one with past keys and values, as optimum names them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.interop.export.exporter import Consumer, Exported, Exporter
from transduce.interop.export.hf import ACTIVATIONS, example, marian_order, source_order, their_ids, write_settings
from transduce.interop.export.onnx_graph import Graph, WeightsFile, add_decoder, add_encoder
from transduce.interop.export.weights import (
    SOURCE_EMBEDDING,
    position_table,
    require_exportable,
    transformers_weights,
)
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.model import Model
from transduce.nn.kinds import ADDED
from transduce.search.decoder import NEVER_GENERATED
from transduce.tokenizers.tokenizer import BOS, EOS, UNK

ENCODER, DECODER, WITH_PAST = "encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"
_LENGTH = 1024
"""Number of positions: sinusoids have no limit of their own."""


def check(model: Model) -> EncoderDecoder:
    """See `Exporter.check`."""
    _import_onnx()
    _import_runtime()
    return require_exportable(
        model, "the ONNX export", activation=tuple(ACTIVATIONS), embedding=("scaled", "plain"),
        positions=ADDED,
    )  # fmt: skip


def write(exported: Exported, folder: Path) -> None:
    """See `Exporter.write`."""
    library, model = _import_onnx(), exported.model
    order = marian_order(model)
    weights = transformers_weights(model)
    weights |= {name: weights[name][order] for name in ("model.shared.weight", "lm_head.weight")}
    if (source := source_order(model)) is not None:
        weights[SOURCE_EMBEDDING] = weights[SOURCE_EMBEDDING][source]
    weights["bias"], weights["positions"] = weights["final_logits_bias"][0, order], position_table(model, _LENGTH)
    file = WeightsFile(folder)

    def graph() -> Graph:
        return Graph(library, model.config, weights, file)

    add_encoder(encoder := graph())
    encoder.save(folder / ENCODER, "encoder")
    for name, past in ((DECODER, False), (WITH_PAST, True)):
        add_decoder(decoder := graph(), past=past)
        decoder.save(folder / name, "decoder")
    write_settings(exported, folder)


def limits(exported: Exported) -> list[str]:
    """See `Exporter.limits`."""
    return [
        "ONNX has no search: a program has to call the decoder for each token, forbid the padding, unknown and begin "
        "markers, and stop at the end marker; optimum's `ORTModelForSeq2SeqLM` does this. Its beam search divides "
        "log-probabilities by n^a, not by ((5 + n) / 6)^a.",
    ]


def usage(exported: Exported, name: str) -> str:
    """See `Exporter.usage`."""
    return f"""from optimum.onnxruntime import ORTModelForSeq2SeqLM
from transformers import MarianTokenizer

tokenizer, model = MarianTokenizer.from_pretrained("{name}"), ORTModelForSeq2SeqLM.from_pretrained("{name}")
batch = tokenizer([{example(exported)!r}], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
"""


def consumer(exported: Exported, folder: Path) -> Consumer:
    """See `Exporter.consumer`: onnxruntime."""
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
        """See `Consumer`: a decoder step with all tokens but the last, and one with past for that."""
        tokens = [self._theirs[token] for token in (BOS, *output)]
        first = tokens[:-1] or tokens
        memory = self._encode(text)
        logits, state = self._first(memory, first)
        if len(first) < len(tokens):
            last, _ = self._next(memory, tokens[-1], state)
            logits = np.concatenate([logits, last])
        return torch.from_numpy(logits[:, [self._theirs[token] for token in range(len(self._theirs))]])

    def translate(self, texts: Sequence[str], limits: Sequence[int]) -> list[list[int]]:
        """See `Consumer`."""
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
        names = [output.name for output in session.get_outputs()]
        results = dict(zip(names, session.run(None, inputs), strict=True))
        logits = results.pop("logits")[0]
        return logits, {name.replace("present", "past_key_values"): value for name, value in results.items()}


def _import_onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise ModelError("the ONNX export needs the package onnx: pip install 'transduce[export]'") from None
    return onnx


def _import_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise ModelError(
            "the ONNX export is verified with the package onnxruntime: pip install 'transduce[export]'"
        ) from None
    return onnxruntime


ONNX = Exporter("ONNX", check, write, consumer, limits, usage)
