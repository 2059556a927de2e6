"""The structures and constants of structs.h."""

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int8, c_int32, c_void_p
from itertools import count, takewhile

from transduce.fast.limits import ANY, ANY_BUT_END, MAX_BEAM
from transduce.models.weights_file import FEWEST_ON_GRID
from transduce.tokenizers.tokenizer import BOS, EOS

PANEL, PADDING, TILE_ROWS, LOGIT_PANELS, ENCODER_TOKENS, FEW_ROWS = 16, 64, 16, 32, 128, 2
CHUNK, LARGE_GROUPS = 320, 4
INTEGER_BYTES = 2
"""The most bytes that an activation takes: some instructions multiply integers of 16 bits."""


class Linear(ctypes.Structure):
    """x W^T + b with 8-bit integers."""

    _fields_ = (
        ("width_in", c_int32), ("padded_in", c_int32), ("width_out", c_int32), ("panels", c_int32),
        ("weight", c_void_p), ("scale", c_void_p), ("bias", c_void_p), ("start", c_void_p),
    )  # fmt: skip


class Chunk(ctypes.Structure):
    """Activations of a row, without their low bytes."""

    _fields_ = (
        ("high", c_int8 * 4 * LARGE_GROUPS), ("scale", c_float), ("start", c_int32), ("offset", c_int32 * LARGE_GROUPS),
    )  # fmt: skip


class Norm(ctypes.Structure):
    """Layer norm, or RMSNorm if it has no shift."""

    _fields_ = (("width", c_int32), ("epsilon", c_float), ("gain", c_void_p), ("shift", c_void_p))


class Layer(ctypes.Structure):
    """A layer of the encoder, which has no cross-attention, or of the decoder."""

    _fields_ = (
        *((name, Linear) for name in ("qkv", "out", "q", "kv", "cross_out", "inner", "outer")),
        ("norms", Norm * 3),
    )  # fmt: skip


class Input(ctypes.Structure):
    """What a token becomes before the first layer."""

    _fields_ = (("positions", c_void_p), ("norm", Norm), ("embedding", Linear))


class Model(ctypes.Structure):
    _fields_ = (
        *((name, c_int32) for name in (
            "vocabulary", "width", "heads", "d_k", "d_v", "encoder_layers", "decoder_layers", "norm_first",
            "activation", "ssru", "alignment_layer", "start",
        )),
        ("embedding_scale", c_float), ("encoder", POINTER(Layer)), ("decoder", POINTER(Layer)),
        ("encoder_norm", Norm), ("decoder_norm", Norm), ("source", Input), ("target", Input), ("projection", Linear),
    )  # fmt: skip


class Shortlist(ctypes.Structure):
    """Tokens, and the rows of the projection for them."""

    _fields_ = (("tokens", c_void_p), ("projection", Linear))


class Job(ctypes.Structure):
    """A sentence and its hypotheses."""

    _fields_ = (
        *((name, c_int32) for name in ("beam", "positions", "source_length", "limit", "begin", "nbest")),
        ("alpha", c_float),
        *((name, c_int32) for name in ("position", "finished_count", "done", "first_symbol", "symbols", "half")),
        *((name, c_void_p) for name in (
            "self_kv", "cross_kv", "states", "ancestor", "tokens", "missing", "forced",
        )),
        ("common", POINTER(Shortlist)), ("own", Shortlist),
        *((name, c_void_p) for name in (
            "head_attention", "attention", "token_log_prob", "entropy", "log_prob", "finished_tokens",
            "finished_length", "finished_log_prob", "finished_score",
        )),
    )  # fmt: skip


class Row(ctypes.Structure):
    """A row of a batch: one hypothesis of a job."""

    _fields_ = (("job", c_void_p), ("hypothesis", c_int32))


class Candidate(ctypes.Structure):
    _fields_ = (("log_prob", c_float), ("token", c_int32))


class Batch(ctypes.Structure):
    """The rows that are computed together, and the buffers for them."""

    _fields_ = (
        ("count", c_int32), ("parts", c_int32), ("scratch_size", c_int32),
        *((name, c_void_p) for name in (
            "row", "x", "y", "wide", "quantised", "scale", "chunks", "scratch", "logits", "max_logit", "exp_sum",
            "logit_sum", "candidates",
        )),
    )  # fmt: skip


REALS = ("F32", "F64", "F16", "BF16")
"""The types of stored numbers, by their names in safetensors; the index of each is its constant in structs.h."""
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "swish", "geglu", "swiglu")
"""The index of each is its constant in structs.h."""


class LanguageModel(ctypes.Structure):
    _fields_ = (
        *((name, c_int32) for name in (
            "vocabulary", "width", "heads", "kv_heads", "d_k", "d_v", "layers", "norm_first", "activation",
            "inner_width",
        )),
        ("embedding_scale", c_float), ("positions", c_void_p), ("rotations", c_void_p), ("layer", POINTER(Layer)),
        ("embedding_norm", Norm), ("final_norm", Norm), ("embedding", Linear), ("projection", Linear),
    )  # fmt: skip


class Sequence(ctypes.Structure):
    """The KV cache of one text."""

    _fields_ = (("keys", c_void_p), ("values", c_void_p), ("capacity", c_int32))


class Token(ctypes.Structure):
    _fields_ = (("sequence", POINTER(Sequence)), ("token", c_int32), ("position", c_int32))


class _Entry(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("offset", c_int32), ("size", c_int32))


def check_layout(library: ctypes.CDLL) -> None:
    """Compare all of the above with the library's; a difference is a mistake in structs.py or structs.h."""
    ours: list[tuple[str, int, int]] = []
    for struct in (
        Linear,
        Chunk,
        Norm,
        Layer,
        Model,
        Input,
        Shortlist,
        Job,
        Row,
        Candidate,
        Batch,
        LanguageModel,
        Sequence,
        Token,
    ):
        ours.append((struct.__name__, 0, ctypes.sizeof(struct)))
        fields = [(field[0], getattr(struct, field[0])) for field in struct._fields_]
        ours += [(f"{struct.__name__}.{name}", field.offset, field.size) for name, field in fields]
    constants = {
        "PANEL": PANEL, "PADDING": PADDING, "TILE_ROWS": TILE_ROWS, "LOGIT_PANELS": LOGIT_PANELS,
        "ENCODER_TOKENS": ENCODER_TOKENS, "MAX_BEAM": MAX_BEAM, "FEW_ROWS": FEW_ROWS,
        "CHUNK": CHUNK, "LARGE_GROUPS": LARGE_GROUPS,
        "FEWEST_ON_GRID": FEWEST_ON_GRID,
        "BOS": BOS, "EOS": EOS, "ANY": ANY, "ANY_BUT_END": ANY_BUT_END,
    }  # fmt: skip
    for names in (REALS, ACTIVATIONS):
        constants |= {name.upper(): number for number, name in enumerate(names)}
    ours += [(name, value, 0) for name, value in constants.items()]
    library.layout.restype = POINTER(_Entry)
    entries = takewhile(lambda entry: entry.name, map(library.layout().__getitem__, count()))
    theirs = [(entry.name.decode(), entry.offset, entry.size) for entry in entries]
    if differences := sorted(set(ours) ^ set(theirs)):
        raise AssertionError(f"structs.py and structs.h differ in (name, offset, size): {differences}")
