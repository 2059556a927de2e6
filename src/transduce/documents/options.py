"""How a document is read."""

from dataclasses import dataclass

from transduce.errors import DataError
from transduce.translation.rules import base_language


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may need to know besides the file."""

    source: str | None = None
    """Source language, if it is known."""
    target: str | None = None
    """Target language, if it is known."""
    retranslate: bool = False
    """Whether texts that have a translation in the file are translated again."""

    def require_languages(self, name: str, source: str | None, target: str | None) -> None:
        """Raise an error if the file called `name` tells other languages; regions and unusual codes are ignored."""
        for side, told, wanted in (("source", source, self.source), ("target", target, self.target)):
            code = base_language(told)
            if code and wanted and code.isalpha() and len(code) <= 3 and code != base_language(wanted):
                raise DataError(f"{name}: the {side} language of the file is {told}, not {wanted}")
