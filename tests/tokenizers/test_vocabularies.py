"""Vocabularies that are not trained by the run: `tokenizer.path`, and symbols added to the vocabulary of a model."""

import io
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from commands import complaint
from safetensors.torch import load_file
from toy_run import TINY, Pairs, as_sets, write_lines

from transduce.errors import ConfigError, ModelError
from transduce.tokenizers.tokenizer import Tokenizer

WITHOUT_VOCABULARY = as_sets({name: value for name, value in TINY.items() if not name.startswith("tokenizer.")})
SYMBOLS = '["<name>", "<ü>"]'


def write_spm(path: Path, pairs: Pairs, **options: Any) -> Path:
    """A vocabulary that SentencePiece itself has trained."""
    model = io.BytesIO()
    texts = [text for pair in pairs for text in pair]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=300, hard_vocab_limit=False, minloglevel=2,
        **{"model_type": "bpe", **options},
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    return path


OURS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "byte_fallback": True}


def test_an_existing_vocabulary_is_used(transduce: Any, trained: Any, toy_pairs: Pairs, tmp_path: Path) -> None:
    path = write_spm(tmp_path / "spm.model", toy_pairs, **OURS)
    text = trained.words[: trained.words.index("--preset")]
    words = [*text, *WITHOUT_VOCABULARY, "--set", "train.steps=2", "--set", "tokenizer.path=spm.model", "--out", "run"]
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    for name in ("tokenizer.model", "model/tokenizer.model"):
        assert (tmp_path / "run" / name).read_bytes() == path.read_bytes()
    card = json.loads((tmp_path / "run/model/model.json").read_text())
    assert card["vocab_size"] == Tokenizer.load(path).vocab_size
    path.unlink()  # the run has a copy
    again = transduce(*words, "--set", "train.steps=3", cwd=tmp_path)
    assert again.code == 0, again.err
    assert "resuming from" in again.err


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        ({"byte_fallback": True}, [], "the ids of padding, unknown, begin and end are -1, 0, 1, 2, but must be"),
        ({**OURS, "byte_fallback": False}, [], "it has no byte pieces"),
        (OURS, ["tokenizer.vocab_size=400"], "tokenizer.vocab_size has no effect beside tokenizer.path; leave it out"),
        (OURS | {"model_type": "unigram"}, ["train.bpe_dropout=0.1"], "needs a vocabulary of type BPE"),
        (None, [], "spm.model: no such file"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_one_line(
    transduce: Any, trained: Any, toy_pairs: Pairs, tmp_path: Path, options: Any, settings: list[str], message: str
) -> None:
    if options:
        write_spm(tmp_path / "spm.model", toy_pairs, **options)
    text = trained.words[: trained.words.index("--preset")]
    sets = [word for setting in ["tokenizer.path=spm.model", *settings] for word in ("--set", setting)]
    outcome = transduce(*text, *WITHOUT_VOCABULARY, *sets, "--out", "run", cwd=tmp_path)
    assert message in complaint(outcome)
    assert not (tmp_path / "run").exists()


def test_symbols_are_added_to_the_vocabulary_of_a_model(transduce: Any, trained: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "new.tsv", [f"<name> ba {n}\tbo <ü><name> {n}" for n in range(20)])
    words = ["train", "--train", "new.tsv", "--start-from", trained.run, "--set", f"tokenizer.symbols={SYMBOLS}"]
    words += ["--set", "train.steps=1", "--set", "train.learning_rate=1e-12", "--set", "train.save_every=1"]
    outcome = transduce(*words, "--out", "tuned", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    old, new = Tokenizer.load(trained.run / "tokenizer.model"), Tokenizer.load(tmp_path / "tuned/tokenizer.model")
    size = old.vocab_size
    assert new.vocab_size == size + 2
    ids = new.encode("<name> ba <ü>")
    assert {size, size + 1} <= set(ids)
    assert new.decode(ids) == "<name> ba <ü>"
    plain = "ba bo x 汉 <nam"
    assert new.encode(plain) == old.encode(plain)

    start, end = (load_file(run / "model/model.safetensors") for run in (trained.run, tmp_path / "tuned"))
    for name, weight in start.items():
        torch.testing.assert_close(end[name][: len(weight)], weight, atol=1e-9, rtol=0)
    rows = end["embedding.weight_VD"][size:]
    mean, spread = start["embedding.weight_VD"].mean(dim=0), start["embedding.weight_VD"].std(dim=0)
    assert not torch.equal(rows[0], rows[1])
    assert ((rows - mean).abs() < 0.6 * spread).all()

    config = tomllib.loads((tmp_path / "tuned/config.toml").read_text(encoding="utf-8"))
    assert config["tokenizer"]["symbols"] == json.loads(SYMBOLS)
    again = transduce(*words, "--set", "train.steps=2", "--out", "tuned", cwd=tmp_path)
    assert again.code == 0, again.err
    more = ["--set", "tokenizer.symbols=<date>", "--set", "train.steps=1", "--set", "train.learning_rate=1e-6"]
    third = transduce("train", "--train", "new.tsv", "--start-from", "tuned", *more, "--out", "third", cwd=tmp_path)
    assert third.code == 0, third.err
    config = tomllib.loads((tmp_path / "third/config.toml").read_text(encoding="utf-8"))
    assert config["tokenizer"]["symbols"] == [*json.loads(SYMBOLS), "<date>"]
    assert Tokenizer.load(tmp_path / "third/tokenizer.model").vocab_size == size + 3
    translated = transduce("translate", "-m", "third", stdin="ba <name>\n", cwd=tmp_path)
    assert translated.code == 0, translated.err


def test_a_symbol_that_is_a_piece_already_is_refused(toy_tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="is a piece of the vocabulary already"):
        toy_tokenizer.with_symbols([toy_tokenizer._all_pieces[-1]])


def test_long_symbols_are_added(toy_tokenizer: Tokenizer) -> None:
    symbol = "<" + "x" * 300 + ">"
    extended = toy_tokenizer.with_symbols([symbol])
    assert extended.encode(f"ba {symbol}")[-1] == toy_tokenizer.vocab_size
    assert extended.with_symbols(["<y>"]).vocab_size == toy_tokenizer.vocab_size + 2


def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.model").write_bytes(b"garbage")
    with pytest.raises(ModelError, match=r"bad\.model: not a SentencePiece model"):
        Tokenizer.load_foreign(tmp_path / "bad.model")
