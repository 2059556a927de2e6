"""The file `tokenizer.json` of an imported model: the original vocabulary, and the order of ids (`token_order.py`)."""

import base64
import binascii
import json
from pathlib import Path
from typing import Any

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.tokenizers.imported_tokenizer import MARKERS, ImportedTokenizer
from transduce.tokenizers.library_tokenizer import LibraryTokenizer
from transduce.tokenizers.sentencepiece_pair import SentencePiecePair
from transduce.tokenizers.token_order import TokenOrder

_MAX_BYTES = 1 << 27


def load_imported_tokenizer(path: Path) -> ImportedTokenizer:
    """Read a saved vocabulary."""
    require_file(path, _MAX_BYTES, "a vocabulary can have")
    try:
        return parse_imported_tokenizer(path.read_bytes())
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def parse_imported_tokenizer(file: bytes) -> ImportedTokenizer:
    """The vocabulary of a saved file with this content: the inverse of `ImportedTokenizer.model`."""
    try:
        content = json.loads(file)
        order = TokenOrder(tuple(map(_integer, content["markers"])), _integer(content["size"]))  # type: ignore[arg-type]
        before = [_integer(token) for token in content.get("before", [])]
        if len(order.markers) != len(MARKERS) or not all(0 <= token < len(order.originals) for token in before):
            raise ValueError("its markers do not fit")
        if "tokenizer" in content:
            return LibraryTokenizer(content["tokenizer"], order, before)
        source, target = (base64.b64decode(content[side], validate=True) for side in ("source", "target"))
        return SentencePiecePair(source, target, content["pieces"], order, before)
    except RecursionError:
        raise ModelError("nested too deeply") from None
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise ModelError(f"not the vocabulary of an imported model: {error}") from None


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("a token is not a number")
    return value
