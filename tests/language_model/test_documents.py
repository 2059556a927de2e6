"""Documents: reading them in pieces, and encoding them exactly."""

import gzip
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ConfigError, DataError
from transduce.files.pairs import ReadReport
from transduce.language_model import documents
from transduce.language_model.documents import read_documents, read_pieces
from transduce.tokenizers import tokenizer as tokenizer_module
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig, encoding_units

TEXT = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n  Speak, speak.\n" * 20


def read(*paths: Path) -> list[str]:
    return [text for (text,) in read_documents([(str(path),) for path in paths], ReadReport())]


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    lines = [*TEXT.splitlines(), "naïve 東京 ümlaut"]
    return {
        "bpe": Tokenizer.train_on_documents(lines, TokenizerConfig(vocab_size=450)),
        "unigram": Tokenizer.train_on_documents(lines, TokenizerConfig(vocab_size=450, type="unigram")),
        "sentences": Tokenizer.train(lines, TokenizerConfig(vocab_size=450)),
    }


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_a_file_is_one_document_with_all_its_line_breaks(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"play.txt{suffix}"
    text = "\n one\r\n\n  two\t\n three"
    packed = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix](text.encode())
    path.write_bytes(packed)
    assert read(path) == [text]


@pytest.mark.parametrize("line", ["short lines\n", "words without a line break ", "x"])
def test_long_documents_come_in_pieces_that_join_to_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(documents, "PIECE", 100)
    text = line * 1000
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": text}) + "\n" + json.dumps({"text": "end"}) + "\n")
    for name, count in (("a.txt", 1), ("b.jsonl", 2)):
        pieces = list(read_pieces([(str(tmp_path / name),)], ReadReport()))
        assert len(pieces) > 5
        assert max(len(piece.text) for piece in pieces) < 200
        assert sum(piece.is_last for piece in pieces) == count
        assert read(tmp_path / name) == [text, "end"][:count]


def test_rows_that_are_no_documents_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [b'{"text": "one\\ntwo"}', b"[]", b'{"text": 3}', b"\xff", b'{"text": " "}', b'{"text": "a\\u0000"}', b"{"]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join([*rows, b'{"text": "last", "id": 7}']))
    report = ReadReport()
    path = str(tmp_path / "rows.jsonl")
    assert list(read_documents([(path,)], report)) == [("one\ntwo",), ("last",)]
    assert report.lines() == [
        f'left out 3 documents not a row with a text "text" (first: {path}, line 2)',
        f"left out 1 document not UTF-8 (first: {path}, line 4)",
        f"left out 1 document without text (first: {path}, line 5)",
        f"left out 1 document with a NUL byte (first: {path}, line 6)",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\ntwo \xff\n", "line 2: not UTF-8; convert the file, e.g. with: iconv -f"),
        (b"one\n\ntwo\0\n", "line 3: a NUL character"),
        (b"cut \xe6\xbc", "line 1: not UTF-8"),
        (b" \n\n", "no text; left out 1 document without text"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


@given(st.text(st.sampled_from("ab \n漢\r\t▁"), max_size=300), st.integers(1, 9))
def test_units_join_to_the_text_and_are_short(text: str, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_module, "_UNIT", most)
        units = list(encoding_units(text))
    assert "".join(units) == text
    assert all(0 < len(unit) <= most for unit in units)
    assert all("\n" not in unit[:-1] for unit in units)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "sentences"])
@given(text=st.text(st.sampled_from("abe sS\n漢\r\t▁é\ue000\ue105\ufffd"), max_size=80))
def test_decoding_restores_documents_exactly(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers[kind]
    assert tokenizer.decode(tokenizer.encode_document(text)) == text


def test_tokens_of_a_document_are_those_of_its_whole_text(
    tokenizers: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_module, "_UNIT", 30)
    for kind in ("bpe", "sentences"):
        assert tokenizers[kind].encode_document(TEXT) == tokenizers[kind].encode(TEXT)
    newline = tokenizers["bpe"].pieces(tokenizers["bpe"].encode("\n"))
    assert newline == ["\n"]


def test_a_vocabulary_of_characters_has_no_other_tokens() -> None:
    config = TokenizerConfig(type="char", vocab_size=100)
    tokenizer = Tokenizer.train_on_documents(["ab c"], config, alphabet="abc d\n")
    assert sorted(tokenizer.pieces(range(4, tokenizer.vocab_size))) == ["\n", "a", "b", "c", "d", "▁"]
    assert tokenizer.decode(tokenizer.encode_document("a b\n\ncd ")) == "a b\n\ncd "
    assert tokenizer.encode("e") == [1]  # unknown


def test_characters_that_do_not_fit_are_written_in_bytes_or_refused() -> None:
    alphabet = [chr(code) for code in range(0x4E00, 0x4E00 + 600)]
    with pytest.raises(ConfigError, match=r"tokenizer.vocab_size is 300, but the text has 600 characters"):
        Tokenizer.train_on_documents(["".join(alphabet)], TokenizerConfig(type="char", vocab_size=300))
    tokenizer = Tokenizer.train_on_documents(["".join(alphabet)], TokenizerConfig(type="char", vocab_size=500))
    assert tokenizer.vocab_size <= 500
    assert tokenizer.decode(tokenizer.encode("".join(alphabet))) == "".join(alphabet)
