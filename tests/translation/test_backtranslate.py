"""`transduce backtranslate`: synthetic pairs, resumed, and trained on with a symbol that no translation uses."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from commands import complaint
from toy_run import TINY, as_sets, make_toy_pairs, write_lines

from transduce.data.prepare import DataConfig, prepare
from transduce.data.shards import TokenShards
from transduce.errors import ConfigError
from transduce.tokenizers.symbols import BACK_TRANSLATED
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training.checkpoint import read_progress
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def mono() -> list[str]:
    """Text of the target language."""
    return [target for _, target in make_toy_pairs(60, seed=9)]


def pairs_of(path: Path) -> list[tuple[str, str]]:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    return [(source, target) for source, target in rows]


def run(transduce: Any, trained: Any, folder: Path, *words: str | Path) -> Any:
    return transduce("backtranslate", "-m", trained.run, *words, cwd=folder)


def test_every_line_becomes_a_pair_with_its_translation_as_the_source(
    transduce: Any, trained: Any, mono: list[str], tmp_path: Path
) -> None:
    write_lines(tmp_path / "mono.txt", mono)
    outcome = run(transduce, trained, tmp_path, "mono.txt", "-o", "synthetic.tsv")
    assert (outcome.code, outcome.out) == (0, "")
    pairs = pairs_of(tmp_path / "synthetic.tsv")
    translated = transduce("translate", "-m", trained.run, "mono.txt", cwd=tmp_path).out.splitlines()
    expected = [(out, line) for out, line in zip(translated, mono, strict=True) if out and out != line]
    assert pairs == expected
    assert len(pairs) > 20
    assert f"synthetic.tsv: {len(pairs)} pairs; train with --set data.back_translated=synthetic.tsv" in outcome.err
    copies = sum(out == line for out, line in zip(translated, mono, strict=True))
    assert (f"left out {copies} pairs whose back-translation is a copy" in outcome.err) == (copies > 1)
    # The format follows the name, and the input may be compressed.
    (tmp_path / "mono.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in mono).encode()))
    assert run(transduce, trained, tmp_path, "mono.gz", "-o", "synthetic.jsonl").code == 0
    records = map(json.loads, (tmp_path / "synthetic.jsonl").read_text(encoding="utf-8").splitlines())
    assert [(record["src"], record["tgt"]) for record in records] == pairs


def test_text_without_a_usable_line_is_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    outcome = run(transduce, trained, tmp_path, "empty.txt", "-o", "out.tsv")
    assert outcome.code == 2
    reason = "left out 2 pairs with an empty side (first: empty.txt, line 1)"
    assert outcome.err.splitlines()[-1] == f"transduce: empty.txt: no usable line; {reason}"


def test_unusable_lines_are_left_out_and_counted(transduce: Any, trained: Any, tmp_path: Path) -> None:
    long = " ".join(["babo"] * 300)
    (tmp_path / "mono.txt").write_bytes(f"babo dego\n\n{long}\n".encode() + b"\xff\xfe\ngibo dedu\n")
    outcome = run(transduce, trained, tmp_path, "mono.txt", "-o", "synthetic.tsv")
    assert outcome.code == 0
    assert "left out 1 pair with an empty side (first: mono.txt, line 2)" in outcome.err
    assert "left out 1 pair of more than 256 tokens (first: mono.txt, line 3)" in outcome.err
    assert "left out 1 pair not UTF-8 (first: mono.txt, line 4)" in outcome.err
    assert {target for _, target in pairs_of(tmp_path / "synthetic.tsv")} <= {"babo dego", "gibo dedu"}


@pytest.mark.parametrize("cut", [0, 1, 100, 500, 10_000])
def test_resume_continues_after_the_last_complete_pair(
    transduce: Any, trained: Any, mono: list[str], tmp_path: Path, cut: int
) -> None:
    lines = [line for text in mono for line in (text, "", text)]  # repeats and lines that are left out
    write_lines(tmp_path / "mono.txt", lines)
    assert run(transduce, trained, tmp_path, "mono.txt", "-o", "whole.tsv").code == 0
    whole = (tmp_path / "whole.tsv").read_bytes()
    (tmp_path / "part.tsv").write_bytes(whole[:cut])
    outcome = run(transduce, trained, tmp_path, "mono.txt", "-o", "part.tsv", "--resume")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "part.tsv").read_bytes() == whole


def test_sampling_gives_other_sources(transduce: Any, trained: Any, mono: list[str], tmp_path: Path) -> None:
    write_lines(tmp_path / "mono.txt", mono)
    for name, words in (("beam", []), ("sampled", ["--sample", "--seed", "3"])):
        assert run(transduce, trained, tmp_path, "mono.txt", "-o", f"{name}.tsv", *words).code == 0
    assert dict(map(reversed, pairs_of(tmp_path / "beam.tsv"))) != dict(  # type: ignore[arg-type]
        map(reversed, pairs_of(tmp_path / "sampled.tsv"))  # type: ignore[arg-type]
    )


def test_mistakes_are_refused_and_nothing_is_lost(transduce: Any, trained: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "mono.txt", ["babo dego"])
    write_lines(tmp_path / "old.tsv", ["x\ty"])
    write_lines(tmp_path / "text.en-de.tsv", ["x\ty"])

    def refused(*words: str | Path) -> str:
        return complaint(run(transduce, trained, tmp_path, *words))

    assert "old.tsv exists already; continue it with --resume" in refused("mono.txt", "-o", "old.tsv")
    assert "old.tsv, line 1: its text is not in the input" in refused("mono.txt", "-o", "old.tsv", "--resume")
    assert "text.en-de.tsv is a file of pairs" in refused("text.en-de.tsv", "-o", "new.tsv")
    assert "none.txt: no such file" in refused("mono.txt", "none.txt", "-o", "new.tsv")
    assert "end its name in .tsv, .jsonl or .ndjson" in refused("mono.txt", "-o", "new.txt")
    assert "without compression" in refused("mono.txt", "-o", "new.tsv.gz")
    assert (tmp_path / "old.tsv").read_text() == "x\ty\n"
    assert not list(tmp_path.glob("new*"))


def test_the_text_must_be_in_the_source_language_of_the_model(transduce: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "mono.fr", ["Bonjour."])
    outcome = transduce("backtranslate", "mono.fr", "-o", "new.tsv", "--to", "de", cwd=tmp_path)  # the bundled model
    assert "does not translate from fr to de" in complaint(outcome)


def test_a_mixed_corpus_trains_with_a_symbol_before_back_translations(
    transduce: Any, private_cache: Path, toy_pairs: list[tuple[str, str]], tmp_path: Path
) -> None:
    write_lines(tmp_path / "train.tsv", [f"{target}\t{source}" for source, target in toy_pairs])  # to be reversed
    synthetic = make_toy_pairs(80, seed=11)
    write_lines(tmp_path / "synthetic.tsv", [f"{source}\t{target}" for source, target in synthetic])
    settings = as_sets(TINY | {"train.steps": 20, "train.average": 1, "data.back_translated": "synthetic.tsv"})
    words = ("train", "--train", "train.tsv", "--set", "data.reverse=true", "--preset", "tiny", *settings)
    outcome = transduce(*words, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    tokenizer = Tokenizer.load(tmp_path / "run" / "tokenizer.model")
    symbol = tokenizer.symbol_ids[BACK_TRANSLATED]
    shards = TokenShards(private_cache / read_progress(tmp_path / "run" / "checkpoints" / "step-20").corpus)
    assert len(shards) == len(toy_pairs) + len(synthetic)
    decoded: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for source, target in (shards.pairs([number])[0] for number in range(len(shards))):
        ids = list(map(int, source))
        tagged = symbol in ids[:2]  # SentencePiece writes a space first
        assert ids.count(symbol) == tagged
        assert symbol not in target
        texts = tokenizer.decode(ids), tokenizer.decode(list(map(int, target)))
        decoded[tagged].append((texts[0].strip(), texts[1]))
    assert sorted(decoded[True]) == sorted(synthetic)  # data.reverse does not apply
    assert sorted(decoded[False]) == sorted(toy_pairs)
    # A file that has moved is recognised by its content.
    (tmp_path / "synthetic.tsv").rename(tmp_path / "moved.tsv")
    more = [word.replace("synthetic.tsv", "moved.tsv").replace("train.steps=20", "train.steps=25") for word in words]
    outcome = transduce(*more, "--out", "run", cwd=tmp_path)
    assert (outcome.code, "resuming from" in outcome.err) == (0, True), outcome.err
    translator = Translator.load(tmp_path / "run")
    assert all(symbol not in part.tokens for part in translator.segments("babo dego"))
    record = json.loads(transduce("translate", "-m", "run", "--jsonl", "babo", cwd=tmp_path).out)
    assert record["source_tokens"] == tokenizer.pieces(tokenizer.encode("babo"))


def test_a_vocabulary_without_the_symbol_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "train.tsv", ["babo dego\tdego babo"] * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "train.tsv"), model_prefix=str(tmp_path / "old"), vocab_size=320, byte_fallback=True,
        hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
    )  # fmt: skip
    data = DataConfig(train=(("train.tsv",),), back_translated=(("train.tsv",),))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="has no symbol for back-translations"):
        prepare(data, Tokenizer((tmp_path / "old.model").read_bytes()), print)


def test_files_of_several_languages_are_refused(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("Ein Haus.\n")
    (tmp_path / "b.fr").write_text("Une maison.\n")
    message = complaint(transduce("backtranslate", "a.de", "b.fr", "--out", "pairs.tsv", cwd=tmp_path))
    assert message == "the names of the files tell several languages (de, fr); translate each by itself"
    assert not (tmp_path / "pairs.tsv").exists()
