"""Model folders with low-rank updates (LoRA), which are merged with the weights of another folder, the base.

Such a folder has `adapter.safetensors` instead of `model.safetensors`, and its card a table `base`: where the base is,
the sha256 of the base's weights, and the scale of the updates (`nn/low_rank.py`).
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transduce.config import build
from transduce.disk import digest
from transduce.errors import ConfigError, ModelError, needs_torch
from transduce.models.weights_file import LARGEST, Array, Precision, Shapes, WeightsFile
from transduce.nn.kinds import LORA_A, LORA_B

ADAPTER = "adapter.safetensors"
BUNDLED = "bundled"
"""The path of a base, and value of `train.start_from`, that means the model that ships with the package."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """The table `base` of a card."""

    path: str
    """The base's folder or run, also relative to the folder with the updates, or "bundled"."""
    beside: str = ""
    """The same folder, relative to the one with the updates, if both were moved."""
    sha256: str
    """Digest of the base's weights."""
    scale: float

    @classmethod
    def of(cls, folder: Path, weights: str, scale: float, *, bundled: bool) -> "Base":
        path = BUNDLED if bundled else str(folder.resolve())
        return cls(path=path, sha256=digest(folder / weights), scale=scale)

    def table(self, folder: Path) -> dict[str, Any]:
        """The table in the card of `folder`."""
        if self.path == BUNDLED:
            return asdict(self)
        return asdict(self) | {"beside": os.path.relpath(self.path, folder.resolve())}


def read_base(table: Any, card: Path) -> Base:
    try:
        return build(Base, table if isinstance(table, dict) else {}, f"{card}: base")
    except ConfigError as error:
        raise ModelError(str(error)) from None


def find_base(base: Base, folder: Path, weights: str, bundled: Path) -> Path:
    """The folder of the base, which may be named by its run; an error if it is missing or its weights are others."""
    named = [Path(base.path), folder / base.path, *([folder / base.beside] if base.beside else [])]
    places = [bundled] if base.path == BUNDLED else [place for path in named for place in (path, path / "model")]
    present = [place for place in places if (place / weights).is_file()]
    fix = "restore it, or name its folder as base.path in model.json"
    if not present:
        raise ModelError(f"{folder}: its base {base.path} is missing; {fix}")
    for place in present:
        if digest(place / weights) == base.sha256:
            return place
    raise ModelError(f"{folder}: the weights of its base {base.path} have changed; {fix}")


class MergedWeights(WeightsFile):
    """The weights of a base with low-rank updates, as float32; each is computed when it is used."""

    def __init__(self, path: Path, base: Path, base_precision: Precision, scale: float) -> None:
        super().__init__(path)
        self._base, self._scale = WeightsFile(base, base_precision), scale
        self._updates = {name: shape for name, shape in self.stored_shapes.items() if name.endswith((LORA_A, LORA_B))}
        whole = {name: shape for name, shape in self.stored_shapes.items() if name not in self._updates}
        shapes = {name: shape for name, shape in self._base.stored_shapes.items() if not name.endswith(LARGEST)} | whole
        for name in {name.removesuffix(LORA_A).removesuffix(LORA_B) for name in self._updates}:
            a, b, shape = (
                self._updates.get(name + LORA_A, ()),
                self._updates.get(name + LORA_B, ()),
                shapes.get(name, ()),
            )
            if [len(a), len(b)] != [2, 2] or a[0] != b[1] or (b[0], a[1]) != shape or name in whole:
                raise ModelError(
                    f"{path}: does not fit {base}: the update of {name[:80]} is {b} times {a}, not {shape}"
                )
        self.stored_shapes = shapes

    def require_shapes(self, expected: Shapes) -> None:
        """See `WeightsFile`; the base may have weights that the model has not, as those of another task's head."""
        kept = {
            name: shape for name, shape in self.stored_shapes.items() if name in expected or name in self._file.shapes
        }
        self.stored_shapes = kept
        super().require_shapes(expected)

    def __getitem__(self, name: str) -> Array:
        with needs_torch():
            from transduce.models.weight_tensors import module_arrays, to_tensor
            from transduce.nn.low_rank import updated

        if name in self._file.shapes:  # trained entirely
            return self._file.read(name)
        weight = to_tensor(self._base[name])
        if name + LORA_A in self._updates:
            a_RK, b_NR = (to_tensor(self._file.read(name + suffix)) for suffix in (LORA_A, LORA_B))
            weight = updated(weight, a_RK, b_NR, self._scale)
        return module_arrays({name: weight})[name]._replace(origin=f"{self.path}: {name}")
