"""The section [augment] of a recipe; `translation/augment.py` changes the pairs."""

from dataclasses import asdict, dataclass

import numpy as np

from transduce.config import require


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """Augmentation: for each change, the share of training pairs that it is applied to, drawn anew in every epoch."""

    upper: float = 0.0
    """Both sides in capitals."""
    title: float = 0.0
    """Every word of both sides begins with a capital."""
    typos: float = 0.0
    """One to three typing errors in the source: letters exchanged, missing, doubled or wrong."""
    punctuation: float = 0.0
    """The final punctuation mark is removed from both sides or, in one of three cases, doubled."""
    emoji: float = 0.0
    """An emoji before or after both sides."""
    spans: float = 0.0
    """Text that both sides share, such as names, numbers and addresses, is replaced by a slot on both sides. A model
    that is trained with this translates text with protected spans in slots."""
    names: float = 0.0
    """A name that both sides share is replaced by an invented one, so that the model learns to copy names."""
    formality: float = 0.0
    """A symbol before the source says whether the target addresses its reader formally (German "Sie") or informally
    ("du"), if it does. A model that is trained with this translates in the form of address that the user wants."""

    def __post_init__(self) -> None:
        for name, share in asdict(self).items():
            require(0 <= share <= 1, f"{name} must be between 0 and 1")

    @property
    def enabled(self) -> bool:
        return any(asdict(self).values())


def choose(count: int, config: AugmentConfig, seed: int) -> dict[int, list[str]]:
    """The changes of each pair, of `count`, that is to be changed."""
    names, shares = zip(*asdict(config).items(), strict=True)
    drawn = np.random.Generator(np.random.PCG64([seed, 1])).random((count, len(names))) < np.array(shares)
    return {int(row): [names[i] for i in np.flatnonzero(drawn[row])] for row in np.flatnonzero(drawn.any(axis=1))}
