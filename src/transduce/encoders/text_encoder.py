"""Encoders of texts: fill in masked tokens, and compute vectors of texts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.config import require_count
from transduce.data.batch import BATCH_TOKENS, Batch, batches_by_length
from transduce.errors import DataError, ModelError
from transduce.fast.choose import pick_encoder
from transduce.fast.native.encoder import NativeEncoder
from transduce.files.texts import require_text, require_texts
from transduce.models.encoder_only import EncoderOnly, mean_of_segments
from transduce.models.ensemble import open_model
from transduce.models.loaded import Loaded, remember_arguments
from transduce.nn.segments import Segments
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import BYTE_TOKEN, MASK, SPACE_MARK, unescape
from transduce.tokenizers.tokenizer import BOS, EOS, Tokenizer

MASK_TEXT = "<mask>"
"""How a mask is written in texts."""
_IMPORTED_MASKS = ("[MASK]", "<mask>")
_NEWLINE = "\n"
_CPU_BATCH_TOKENS = 1024
"""Tokens in a batch on a CPU: in larger ones, lengths differ more, and attention computes more that is not needed."""

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Filling:
    """A token that may fill a mask."""

    token: str
    """Its text, without the space before it; the token of a byte is written <0xE2>."""
    probability: float
    text: str
    """The text with this token in place of the mask; other masks stay."""


class TextEncoder(Loaded):
    """An encoder-only model of texts, trained on masked tokens or as a classifier."""

    def __init__(
        self,
        model: Any,
        tokenizer: AnyTokenizer,
        *,
        max_length: int = 512,
        pooling: str = "mean",
        engine: str = "auto",
        threads: int | None = None,
    ) -> None:
        if not isinstance(model, EncoderOnly) or model.config.source != "text":
            raise ModelError("this is not a model of the architecture encoder_only that reads texts")
        self.model, self.tokenizer = model, tokenizer
        self.max_length = max_length if model.longest is None else min(max_length, model.longest - 1)
        """Maximum number of tokens of a text, without markers."""
        if pooling not in _POOLINGS:
            raise ModelError(f"facts.pooling must be {' or '.join(_POOLINGS)}, not {pooling!r:.40}")
        self.pooling = pooling
        """How one vector is made of those of the tokens of a text."""
        self._engine, self._threads = engine, threads
        self.texts_cut = 0
        """Number of texts so far of which `embed` read only the first `max_length` tokens."""
        if engine != "auto":
            assert self._native or engine == "plain"  # an engine that cannot run is refused

    def _facts(self) -> Iterator[str]:
        yield self.model.config.architecture
        yield f"device {self.model.device}"

    @classmethod
    @remember_arguments
    def load(
        cls, path: str | Path, *, device: str = "auto", engine: str = "auto", threads: int | None = None
    ) -> "TextEncoder":
        """Load a model folder or a run (its finished model, otherwise its newest checkpoint).

        `embed` uses the engine: `native` on a CPU, with 8-bit integers, or `plain`; `auto` is the fastest.
        """
        folder, saved = open_model(path, device=device, threads=threads)
        try:
            facts = saved.facts
            length, pooling = facts.get("max_length", 512), facts.get("pooling", "mean")
            options = {"max_length": length, "pooling": pooling, "engine": engine, "threads": threads}
            return cls(saved.model, saved.tokenizer, **options)
        except ModelError as error:
            raise ModelError(f"{folder}: {error}") from None

    @torch.inference_mode()
    def fill(self, text: str, *, top: int = 5) -> list[list[Filling]]:
        """For each `<mask>` of a text, the `top` tokens that are most likely in its place, best first.

        A mask stands for one token; if a space is before it, or nothing, for a token that begins a word.
        """
        if self.model.config.classes:
            raise ModelError("the model is a classifier; use one that was trained with the task masked")
        require_text(text, "the text to fill")
        require_count(top, "top")
        parts = text.split(MASK_TEXT)
        if len(parts) == 1:
            raise DataError(f"{text!r:.60} has no {MASK_TEXT}")
        ids, places = self.encode_masked(text)
        batch = Batch.of(self.model.device, text=[ids])
        batch = replace(batch, positions_L=torch.tensor(places, device=self.model.device))
        logits_LV = self.model.logits(self.model(batch)).float()
        fillings = []
        for number, probability_V in enumerate(logits_LV.softmax(-1)):
            begins_word = parts[number].endswith(" ") or (number == 0 and not parts[0])
            allowed_X = torch.tensor(self._candidates[begins_word], device=self.model.device)
            best = probability_V[allowed_X].topk(min(top, len(allowed_X)))
            tokens = zip(allowed_X[best.indices].tolist(), best.values.tolist(), strict=True)
            fillings.append([self._filling(parts, number, *candidate) for candidate in tokens])
        return fillings

    def encode_masked(self, text: str) -> tuple[list[int], list[int]]:
        """The tokens of a text with `<mask>`, with markers, and the positions of the masks."""
        mask = mask_id(self.tokenizer)
        if mask is None:
            raise ModelError("the vocabulary of the model has no mask symbol")
        first, *others = _encode_parts(self.tokenizer, text.split(MASK_TEXT))
        ids, places = [BOS, *first], []
        for part in others:  # the text may also have the mask symbol of an imported vocabulary, which is not asked for
            places.append(len(ids))
            ids += [mask, *part]
        if (tokens := len(ids) - 1) > self.max_length:
            raise DataError(f"{text!r:.60} has {tokens} tokens; the model reads at most {self.max_length}")
        return [*ids, EOS], places

    @cached_property
    def _candidates(self) -> dict[bool, list[int]]:
        """The tokens that may fill a mask, by whether they begin a word."""
        symbols = set(self.tokenizer.symbol_ids.values())
        raw = {token: self.tokenizer.raw_bytes(token) for token in range(EOS + 1, self.tokenizer.vocab_size)}
        tokens = [token for token, content in raw.items() if content and token not in symbols]
        starts = {token: raw[token].startswith(b" ") for token in tokens}
        return {begins: [token for token in tokens if starts[token] == begins] or tokens for begins in (True, False)}

    def _filling(self, parts: list[str], number: int, token: int, probability: float) -> Filling:
        (piece,) = self.tokenizer.pieces([token])
        try:
            word = unescape(self.tokenizer.raw_bytes(token).decode())
        except UnicodeDecodeError:  # a part of a character
            word = piece.replace(SPACE_MARK, " ")
        before, after = MASK_TEXT.join(parts[: number + 1]).removesuffix(" "), MASK_TEXT.join(parts[number + 1 :])
        filled = (before + word if before else word.lstrip(" ")) + after
        name = piece if BYTE_TOKEN.fullmatch(piece) else word.removeprefix(" ") or piece
        return Filling(name, probability, filled)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector for each text, of length 1, made of those of its tokens (`pooling`); longer texts are cut."""
        require_texts(texts, "texts")
        encoded = self.tokenizer.encode_all(list(texts), threads=-1)
        self.texts_cut += sum(len(tokens) > self.max_length for tokens in encoded)
        ids = [tokens[: self.max_length] for tokens in encoded]
        vectors_BD = np.zeros((len(ids), self.model.config.d_model), np.float32)
        most = _CPU_BATCH_TOKENS if self.model.device.type == "cpu" else BATCH_TOKENS
        for numbers in batches_by_length([len(tokens) + 2 for tokens in ids], most):
            vectors_BD[numbers] = self._embed([[BOS, *ids[number], EOS] for number in numbers]).cpu().numpy()
        return vectors_BD

    @cached_property
    def _native(self) -> NativeEncoder | None:
        """The model in the native engine, unless `embed` runs it in torch."""
        return pick_encoder(self._engine, self.model, self._threads)

    @torch.inference_mode()
    def _embed(self, sequences: list[list[int]]) -> Tensor:
        if self._native:
            vectors_ND, segments = self._native.encode(sequences), Segments.of_lengths([*map(len, sequences)])
            hidden_ND = torch.from_numpy(vectors_ND)
        else:
            hidden_ND, segments = self.model.encode(Batch.of(self.model.device, text=sequences))
        return F.normalize(_POOLINGS[self.pooling](hidden_ND.float(), segments), dim=1)


def _max_of_segments(x_ND: Tensor, segments: Segments) -> Tensor:
    index_ND = segments.segment_N.long()[:, None].expand_as(x_ND)
    largest_BD = x_ND.new_zeros(len(segments), x_ND.shape[1])
    return largest_BD.scatter_reduce(0, index_ND, x_ND, "amax", include_self=False)


_POOLINGS: dict[str, Callable[[Tensor, Segments], Tensor]] = {
    "mean": mean_of_segments,
    "first": lambda x_ND, segments: x_ND[segments.offsets_B1[:-1].long()],
    "last": lambda x_ND, segments: x_ND[segments.offsets_B1[1:].long() - 1],
    "max": _max_of_segments,
}
"""Functions of the vectors (N, D) of tokens, markers included, and their segments, none of which is empty."""


def mask_id(tokenizer: AnyTokenizer) -> int | None:
    """The id of the mask symbol: our own, or that of an imported vocabulary; None if there is none."""
    if MASK in tokenizer.symbol_ids or isinstance(tokenizer, Tokenizer):
        return tokenizer.symbol_ids.get(MASK)
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    return next((pieces.index(name) for name in _IMPORTED_MASKS if name in pieces), None)


def _encode_parts(tokenizer: AnyTokenizer, parts: Sequence[str]) -> list[list[int]]:
    """The tokens of a text's parts between masks; the space before a mask belongs to the masked token."""
    last = len(parts) - 1
    cut = [part.removesuffix(" ") if number < last else part for number, part in enumerate(parts)]
    skip = len(tokenizer.encode(_NEWLINE))
    encoded = []
    for number, part in enumerate(cut):
        if number == 0 or not (isinstance(tokenizer, Tokenizer) and tokenizer.adds_prefix):
            encoded.append(tokenizer.encode(part))
        elif part.startswith(" "):
            encoded.append(tokenizer.encode(part[1:]))  # the tokenizer adds this space
        else:
            encoded.append(tokenizer.encode(_NEWLINE + part)[skip:])
    return encoded
