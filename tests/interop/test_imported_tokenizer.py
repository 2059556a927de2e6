"""Files of imported vocabularies that are damaged or hostile are refused in one line."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from transduce.errors import DataError, ModelError
from transduce.interop.gguf import read_gguf
from transduce.interop.imported_tokenizers import LibraryTokenizer, TokenOrder
from transduce.speech.sound import read_sound
from transduce.tokenizers.any_tokenizer import load_tokenizer

tokenizers: Any = pytest.importorskip("tokenizers")


def words() -> LibraryTokenizer:
    model = tokenizers.models.WordLevel({"a": 0, "b": 1, "<unk>": 2, "<s>": 3, "</s>": 4}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return LibraryTokenizer(tokenizer.to_str(), TokenOrder((4, 2, 3, 4), 5))


def test_ids_outside_of_the_embedding_are_unknown(tmp_path: Path) -> None:
    tokenizer = words()
    assert tokenizer.encode("a b c") == [4, 5, 1]
    short = LibraryTokenizer(json.loads(tokenizer.model)["tokenizer"], TokenOrder((0, 2, 3, 3), 4))
    assert short.encode("a </s>") == [0, *[1] * 3]  # punctuation is split off


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"markers": [0, 1, 2]}, "not the vocabulary of an imported model"),
        ({"markers": ["0", 1, 2, 3]}, "a token is not a number"),
        ({"markers": [0, 1, 2, 77]}, "the marker 77 is not one of the 5 tokens"),
        ({"size": 10**12}, "must have between"),
        ({"before": [99]}, "its markers do not fit"),
        ({"tokenizer": "{}"}, "the tokenizers library cannot read it"),
        ({"tokenizer": 7}, "not the vocabulary of an imported model"),
        ({"tokenizer": None, "source": "?"}, "not the vocabulary of an imported model"),
    ],
)
def test_damaged_files(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    content = json.loads(words().model) | change
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError) as error:
        load_tokenizer(tmp_path)
    assert str(error.value).startswith(f"{path}: ")
    assert complaint in str(error.value)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_bytes(words().model)
    for name in ("tokenizers", "gguf", "soundfile"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "a").touch()
    with pytest.raises(ModelError, match=r"tokenizers: pip install 'transduce\[import\]'"):
        load_tokenizer(tmp_path)
    with pytest.raises(ModelError, match=r"gguf: pip install 'transduce\[import\]'"):
        read_gguf(tmp_path / "a")
    with pytest.raises(DataError, match=r"soundfile: pip install 'transduce\[import\]'"):
        read_sound(tmp_path / "a")


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"markers": [0, 1, 2, 3], "size": 9}'])
def test_files_that_are_something_else(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json: "):
        load_tokenizer(tmp_path)


def test_damaged_sentencepiece_models(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    content = {"markers": [0, 1, 2, 3], "size": 5, "pieces": ["a"] * 5}
    path.write_text(json.dumps(content | {"source": "AAAA", "target": "AAAA"}))
    with pytest.raises(ModelError, match="not a SentencePiece model"):
        load_tokenizer(tmp_path)
    path.write_text(json.dumps(content | {"source": "?", "target": ""}))
    with pytest.raises(ModelError, match="not the vocabulary of an imported model"):
        load_tokenizer(tmp_path)
