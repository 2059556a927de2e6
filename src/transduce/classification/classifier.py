"""The classifier: labels of texts or images, with probabilities."""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from transduce.classification.labelled import Image, load_image
from transduce.config import require
from transduce.data.batch import Batch, Stream, batches_by_length
from transduce.errors import DataError, ModelError
from transduce.files.texts import require_texts
from transduce.models.encoder_only import EncoderOnly, EncoderOnlyConfig
from transduce.models.ensemble import open_model
from transduce.models.loaded import Loaded, remember_arguments
from transduce.nn.dropout import Dropout
from transduce.nn.linear import projections
from transduce.nn.segments import Segments
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.tokenizer import BOS, EOS

_IMAGES_AT_ONCE = 256

Input = str | Path | Image
"""A text; or an image file, or an array (height, width, channels)."""
Probabilities = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Classification:
    """The class of a text or an image."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """The probability of each class, the most likely one first."""


class Classifier(Loaded):
    """A model that classifies texts or images."""

    def __init__(self, model: Any, tokenizer: AnyTokenizer, labels: Sequence[str], *, max_length: int = 512) -> None:
        if not isinstance(model, EncoderOnly) or not labels or model.config.classes != len(labels):
            raise ModelError("this is not a classifier; train one with: transduce train --task classify")
        self.model, self.tokenizer, self.labels = model, tokenizer, list(labels)
        self.max_length = max_length if model.longest is None else min(max_length, model.longest - 1)
        """Maximum number of tokens of a text, without markers; longer texts are cut."""
        self.texts_cut = 0
        """Number of texts so far of which only the first `max_length` tokens were read."""

    def _facts(self) -> Iterator[str]:
        yield f"{len(self.labels):,} classes"
        yield f"device {self.model.device}"

    @classmethod
    @remember_arguments
    def load(cls, path: str | Path, *, device: str = "auto", threads: int | None = None) -> "Classifier":
        """Load a model folder or a run (its finished model, otherwise its newest checkpoint)."""
        folder, saved = open_model(path, device=device, threads=threads)
        labels = saved.facts.get("labels", [])
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ModelError(f"{folder}: facts.labels must be a list of names")
        try:
            return cls(saved.model, saved.tokenizer, labels, max_length=saved.facts.get("max_length", 512))
        except ModelError as error:
            raise ModelError(f"{folder}: {error}") from None

    @property
    def reads_images(self) -> bool:
        """Whether inputs are images; otherwise they are texts."""
        return self.model.config.source == "image"

    def classify(self, inputs: Sequence[Input]) -> list[Classification]:
        """The class of each text or image, in order."""
        result = []
        for probabilities in self.probabilities(inputs).tolist():
            ranked = sorted(zip(probabilities, self.labels, strict=True), key=lambda pair: -pair[0])
            result.append(Classification(ranked[0][1], ranked[0][0], {label: p for p, label in ranked}))
        return result

    def probabilities(self, inputs: Sequence[Input]) -> Probabilities:
        """The probability of each class, in the order of `labels`, for each text or image."""
        if not self.reads_images:
            require_texts(inputs, "inputs")
        elif isinstance(inputs, str) or not isinstance(inputs, Sized):
            raise DataError("inputs must be a list of images; for a single image, give a list of one")
        probability_BC = np.zeros((len(inputs), len(self.labels)), np.float32)
        for numbers, batch in self._batches(inputs):
            probability_BC[numbers] = self._probabilities(batch).cpu().numpy()
        return probability_BC

    def _batches(self, inputs: Sequence[Input]) -> Iterator[tuple[list[int], Batch]]:
        device = self.model.device
        if not self.reads_images:
            texts = [str(text).strip() for text in inputs]
            complete = self.tokenizer.encode_all(texts, threads=-1)
            self.texts_cut += sum(len(ids) > self.max_length for ids in complete)
            encoded = [ids[: self.max_length] for ids in complete]
            for numbers in batches_by_length([len(ids) + 2 for ids in encoded]):
                yield numbers, Batch.of(device, text=[[BOS, *encoded[number], EOS] for number in numbers])
            return
        for start in range(0, len(inputs), _IMAGES_AT_ONCE):
            images = [self._pixels(image) for image in inputs[start : start + _IMAGES_AT_ONCE]]
            pixel_N = torch.from_numpy(np.concatenate(images).astype(np.int64)).to(device)
            segments = Segments.of_lengths([len(pixels) for pixels in images], device)
            yield (
                list(range(start, start + len(images))),
                Batch({"image": Stream(pixel_N, segments)}, torch.empty(0, dtype=torch.int64, device=device), count=0),
            )

    @torch.inference_mode()
    def _probabilities(self, batch: Batch) -> Tensor:
        return self.model.logits(self.model(batch)).float().softmax(-1)

    def _pixels(self, image: Input) -> npt.NDArray[np.uint8]:
        config = self.model.config
        size = (config.image_height, config.image_width)
        if not isinstance(image, np.ndarray | str | Path):
            raise DataError(f"an image is a path or an array of bytes, not of the type {type(image).__name__}")
        array = image if isinstance(image, np.ndarray) else load_image(Path(image), config.channels, size)
        array = array[..., None] if array.ndim == 2 else array
        if array.shape != (*size, config.channels):
            raise DataError(f"an image has the shape {array.shape}, but the model reads {(*size, config.channels)}")
        if array.dtype != np.uint8:
            raise DataError(f"the pixels of an image must be bytes (uint8) from 0 to 255, not {array.dtype}")
        return array.reshape(-1)


class Patches(nn.Module):
    """Images of H x W pixels to H W / P^2 vectors of patches, each projected, after the vector of the class token."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        self.height, self.width, self.channels = config.image_height, config.image_width, config.channels
        require(min(self.height, self.width) > 0, "a model that reads images needs image_height and image_width")
        self.size = config.patch_size
        self.count = (self.height // self.size) * (self.width // self.size)
        self.project = projections(self.channels * self.size**2, [config.d_model])
        self.class_token_D = nn.Parameter(torch.randn(config.d_model) * 0.02)
        self.positions_TD = nn.Parameter(torch.randn(self.count + 1, config.d_model) * 0.02)
        self.dropout = Dropout(config.dropout)

    def forward(self, pixel_N: Tensor, _: Segments) -> tuple[Tensor, Segments]:
        """The pixels of equal images, packed row by row with their channels, as bytes; 0 to 255 become -1 to 1."""
        pixels_BHWC = pixel_N.view(-1, self.height, self.width, self.channels)
        return self.embed(pixels_BHWC.to(self.project.weight.dtype) / 127.5 - 1)

    def embed(self, pixels_BHWC: Tensor) -> tuple[Tensor, Segments]:
        """Images of real numbers to vectors."""
        size = self.size
        patches_BTX = (
            pixels_BHWC.unflatten(1, (-1, size))
            .unflatten(3, (-1, size))
            .permute(0, 1, 3, 5, 2, 4)
            .flatten(3)
            .flatten(1, 2)
        )  # rows of patches, patches of a row, then channels, rows and columns of a patch
        B = len(patches_BTX)
        class_B1D = self.class_token_D.expand(B, 1, -1)
        x_BTD = torch.cat([class_B1D, self.project(patches_BTX.flatten(0, 1)).unflatten(0, (B, -1))], dim=1)
        x_ND = self.dropout(x_BTD + self.positions_TD).flatten(0, 1)
        T = self.count + 1
        offsets_B1 = torch.arange(0, (B + 1) * T, T, dtype=torch.int32, device=x_ND.device)
        return x_ND, Segments(offsets_B1, T, B * T)
