"""What the public classes have in common that are loaded from a model folder: how they are shown and pickled."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from transduce.errors import ModelError

P = ParamSpec("P")
L = TypeVar("L", bound="Loaded")


class Loaded:
    """A model that is ready to use. Its pickle holds the arguments of `load`, and is loaded from the folder again."""

    _loading: tuple[str, Callable[[], "Loaded"]] | None = None
    """The folder, and the call of `load`; None if the model was made in memory."""

    def _facts(self) -> Iterator[str]:
        """What `repr` tells besides the folder: languages, engine and device."""
        raise NotImplementedError

    def __repr__(self) -> str:
        folder = self._loading[0] if self._loading else "in memory"
        return f"<{type(self).__name__} {', '.join([folder, *self._facts()])}>"

    def __reduce__(self) -> tuple[Callable[[], "Loaded"], tuple[()]]:
        if self._loading is None:
            raise ModelError(
                f"only a {type(self).__name__} that was loaded from a folder can be pickled; save the model with "
                f"save_model, and call {type(self).__name__}.load in each process"
            )
        return self._loading[1], ()


def remember_arguments(load: Callable[Concatenate[Any, P], L]) -> Callable[Concatenate[Any, P], L]:
    """Decorate `load` of a class, so that what it loads can be shown and pickled."""

    @functools.wraps(load)
    def run(cls: Any, /, *paths: P.args, **options: P.kwargs) -> L:
        loaded = load(cls, *paths, **options)
        path = paths[0] if paths else options.get("path")
        names = [str(name) for name in (path if isinstance(path, list | tuple) else [path or "bundled"])]
        loaded._loading = " + ".join(names), functools.partial(cls.load, *paths, **options)
        return loaded

    return run
