"""Separate vocabularies of source and target: as files, and on a toy language pair with different scripts."""

import json
import shutil
from dataclasses import asdict
from itertools import permutations
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from commands import complaint, inspected_header
from safetensors.torch import load_file
from serving import serve_in_thread
from toy_run import as_sets, write_lines

from transduce.data.augment import AugmentConfig
from transduce.data.data_config import DataConfig
from transduce.data.plan import BatchPlan
from transduce.data.prepare import cache_key
from transduce.data.shards import TokenShards, write_index, write_shard
from transduce.data.variation import Variation
from transduce.errors import ModelError
from transduce.models.folder import load_model
from transduce.tokenizers.any_tokenizer import TokenizerPair, load_tokenizer, tokenizer_of_stream
from transduce.tokenizers.symbols import BACK_TRANSLATED, SLOTS, language_tag
from transduce.tokenizers.tokenizer import EOS, Tokenizer, TokenizerConfig
from transduce.training.checkpoint import read_progress
from transduce.translation.stages.protect import Protection
from transduce.translation.translator import Translator

GREEK, CYRILLIC = ["αβγ δεζ 42", "ηθι κλμ"] * 20, ["где абв 42", "клм жзи"] * 20


@pytest.fixture(scope="module")
def pair() -> TokenizerPair:
    sides = zip((400, 410), (GREEK, CYRILLIC), strict=True)
    return TokenizerPair(*(Tokenizer.train(lines, TokenizerConfig(vocab_size=size)) for size, lines in sides))


def test_a_pair_is_saved_and_loaded(pair: TokenizerPair, tmp_path: Path) -> None:
    (tmp_path / pair.file_name).write_bytes(pair.model)
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, TokenizerPair)
    assert loaded.model == pair.model
    assert (loaded.vocab_size, loaded.target.vocab_size) == (400, 410)
    for text in ("αβγ", "где", "汉"):  # what a side does not know is written in bytes
        assert loaded.decode(loaded.encode(text)) == text
        assert loaded.target.decode(loaded.target.encode(text)) == text
    assert len(loaded.encode("αβγ")) < len(loaded.target.encode("αβγ"))
    assert tokenizer_of_stream(loaded, "tgt") is loaded.target
    assert tokenizer_of_stream(loaded, "src") is loaded


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"source": 1, "target": 2}',
        b'{"source": {"file": "x", "content": ""}, "target": {}}',
        b'{"source": {"file": "tokenizer.model", "content": "%"}, "target": {}}',
        b'{"source": {"file": "tokenizer.model", "content": "AAAA"}, "target": {}}',
        b'{"source": {"file": "tokenizer.json", "content": "e30="}, "target": {}}',
        b"[" * 100_000,
    ],
)
def test_damaged_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / TokenizerPair.file_name
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"tokenizers\.json: "):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "settings", [{"bpe_dropout": 0.5}, {"augment": AugmentConfig(spans=1.0)}, {"augment": AugmentConfig(upper=1.0)}]
)
def test_examples_are_varied_with_the_vocabulary_of_each_side(
    settings: dict[str, Any], pair: TokenizerPair, tmp_path: Path
) -> None:
    sides = pair.encode_all(GREEK), pair.target.encode_all(CYRILLIC)
    write_shard(tmp_path, 0, sides, 410)
    write_index(tmp_path, {"vocab_size": 410, "max_length": 64, "report": []})
    plan = BatchPlan(TokenShards(tmp_path), 128, 0, growth=4.0)
    varied = Variation(pair, **settings).examples(plan, 0)
    before = plan.examples(0)
    assert any(
        len(new[0]) != len(old[0]) or list(new[0]) != list(old[0]) for new, old in zip(varied, before, strict=True)
    )
    texts = {text.upper() for text in GREEK}, {text.upper() for text in CYRILLIC}
    for example in varied:
        for side, ids, known in zip((pair.source, pair.target), example, texts, strict=True):
            (marked,) = side.decode_all([np.asarray(ids).tolist()], marked=True)
            for slot in SLOTS:
                marked = marked.removeprefix(f"{slot} ").removesuffix(f" {slot}").replace(slot, "42")
            assert marked.upper() in known | {f"{text} 42" for text in known} | {f"42 {text}" for text in known}


def test_the_cache_key_of_one_vocabulary_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corpora that versions without these settings prepared are found, so their runs resume."""

    def key(**settings: Any) -> str:
        return cache_key(DataConfig(train=(("a", "b"),)), TokenizerConfig(**settings), {"a": "1", "b": "2"}, "pairs")

    now = key()
    assert key(separate=True) != now
    fields = asdict(TokenizerConfig())
    del fields["separate"], fields["target_path"]
    monkeypatch.setattr("transduce.data.prepare.asdict", lambda _: fields)
    assert key() == now


WORDS = {"αβγ": "абв", "δεζ": "где", "ηθι": "жзи", "κλμ": "клм", "νξο": "ноп", "πρσ": "рст"}
SENTENCES = [*([word] for word in WORDS), *permutations(WORDS, 2)]
PAIRS = [(" ".join(words), " ".join(WORDS[word] for word in words)) for words in SENTENCES]
SETTINGS: dict[str, Any] = {
    "tokenizer.vocab_size": 420, "model.d_model": 32, "model.d_ff": 64, "model.num_heads": 2, "model.norm": "pre",
    "model.encoder_layers": 1, "model.decoder_layers": 1, "model.dropout": 0, "train.batch_tokens": 128,
    "train.learning_rate": 0.01, "train.warmup": 10, "train.steps": 140, "train.save_every": 140,
    "train.label_smoothing": 0,
}  # fmt: skip
TRAIN = ["train", "--train", "train.tsv", "--preset", "tiny", *as_sets(SETTINGS)]


@pytest.fixture(scope="module")
def folder(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text and a trained model, `run`."""
    folder = tmp_path_factory.mktemp("separate")
    write_lines(folder / "train.tsv", ["\t".join(pair) for pair in PAIRS])
    outcome = transduce(*TRAIN, "--set", "tokenizer.separate=true", "--out", "run", cwd=folder)
    assert outcome.code == 0, outcome.err
    assert "learning two vocabularies of 420 tokens" in outcome.err
    return folder


def test_each_side_has_the_characters_of_its_language(folder: Path) -> None:
    pair = TokenizerPair.parse((folder / "run/model/tokenizers.json").read_bytes())
    for side, own, other in ((pair.source, "αβγ", "абв"), (pair.target, "абв", "αβγ")):
        pieces = "".join(side.pieces(range(side.vocab_size)))
        assert set(own) <= set(pieces)
        assert not set(other) & set(pieces)
    weights = load_file(folder / "run/model/model.safetensors")
    assert len(weights["source_weight_VD"]) == pair.source.vocab_size
    assert len(weights["embedding.weight_VD"]) == pair.target.vocab_size
    card = json.loads((folder / "run/model/model.json").read_text())
    assert (card["vocab_size"], card["model"]["source_vocab_size"]) == (pair.target.vocab_size, pair.vocab_size)


def test_the_model_translates_and_is_scored(transduce: Any, folder: Path) -> None:
    """In both engines of a CPU; the scores of right translations are better than those of wrong ones."""
    for engine in ("plain", "native"):
        outcome = transduce("evaluate", "-m", "run", "--test", "train.tsv", "--engine", engine, "--json", cwd=folder)
        assert outcome.code == 0, outcome.err
        assert {one["metric"]: one["value"] for one in json.loads(outcome.out)}["chrF2"] > 95
    source, expected = PAIRS[-1]
    write_lines(folder / "pairs.tsv", [f"{source}\t{expected}", f"{source}\tабв где"])
    outcome = transduce("score", "-m", "run", "--test", "pairs.tsv", "--jsonl", cwd=folder)
    right, wrong = map(json.loads, outcome.out.splitlines())
    assert right["log_prob"] > wrong["log_prob"] + 2
    assert "".join(right["tokens"][:-1]).replace("▁", " ").strip() == expected

    nbest = transduce("translate", "-m", "run", "--nbest", "2", "--jsonl", source, cwd=folder)
    (folder / "nbest.jsonl").write_text(nbest.out, encoding="utf-8")
    outcome = transduce("rerank", "nbest.jsonl", "-m", "run", cwd=folder)
    assert outcome.out.strip() == expected, outcome.err


def test_what_other_commands_make_of_it(transduce: Any, folder: Path) -> None:
    """An 8-bit model, the mean of checkpoints, an ensemble, a page: each translates as the model does."""
    source, expected = "αβγ πρσ", "абв рст"

    def run(*words: str) -> str:
        outcome = transduce(*words, cwd=folder)
        assert outcome.code == 0, outcome.err
        return str(outcome.out)

    run("shrink", "-m", "run", "--out", "small")
    assert run("translate", "-m", "small", source).strip() == expected
    run("average", "run", "small", "--out", "mean")
    assert run("translate", "-m", "mean", source).strip() == expected
    assert run("translate", "-m", "run", "-m", "small", source).strip() == expected
    run("inspect", "-m", "run", "--out", "page.html", source)
    header = inspected_header(folder / "page.html")
    pieces = [header["tokens"][str(token)][0] for token in header["source"] if token > EOS]
    assert "".join(pieces).replace("▁", " ").strip() == source
    assert header["translation"] == expected
    pieces = [header["tokens"][str(token)][0] for token in header["target"] if token > EOS]
    assert "".join(pieces).replace("▁", " ").strip() == expected


def test_protected_text_is_copied_between_the_vocabularies(folder: Path) -> None:
    """A source that has nothing to translate is encoded anew for the output; spans are inserted with target ids."""
    saved = load_model(folder / "run/model")
    for uses_slots in (True, False):
        translator = Translator(saved.model, saved.tokenizer, protection=Protection(), uses_slots=uses_slots)
        assert "https://example.org" in translator.translate("αβγ https://example.org κλμ")
        if uses_slots:
            assert translator.translate("https://example.org/αβγ") == "https://example.org/αβγ"


def test_serving(folder: Path) -> None:
    """Tokens and alignments of an answer are those of the side that they belong to."""
    translator = Translator.load(folder / "run", engine="native", threads=1)
    texts = [source for source, _ in PAIRS[:4]]
    body = {"text": texts, "nbest": 2, "align": True}
    with serve_in_thread([("run", translator)]) as (address, _):
        response = httpx.post(f"{address}/v1/translate", json=body)
    assert response.status_code == 200, response.text
    for answer, (source, expected) in zip(response.json()["translations"], PAIRS[:4], strict=True):
        assert "".join(answer["source_tokens"]).replace("▁", " ").strip() == source
        best, other = answer["outputs"]
        assert best["text"] == expected != other["text"]
        assert "".join(best["tokens"]).replace("▁", " ").strip() == expected
        assert max(best["alignment"]) < len(answer["source_tokens"])


def test_several_target_languages(transduce: Any, tmp_path: Path) -> None:
    """The tags of languages are tokens of the source; the vocabulary of the targets has both languages."""
    write_lines(tmp_path / "train.el-ru.tsv", ["\t".join(pair) for pair in WORDS.items()])
    write_lines(tmp_path / "train.bg-el.tsv", [f"{target.upper()}\t{source}" for source, target in WORDS.items()])
    files = {
        "data.directions.el-ru.train": "train.el-ru.tsv", "data.directions.el-bg.train": "train.bg-el.tsv",
        "data.directions.el-bg.reverse": "true", "tokenizer.separate": "true",
    }  # fmt: skip
    sets = as_sets(SETTINGS | files | {"train.steps": 100, "train.save_every": 100})
    outcome = transduce("train", "--preset", "tiny", *sets, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    translator = Translator.load(tmp_path / "run", engine="native", threads=1)
    texts = [*WORDS]
    assert translator.translate(texts, to="ru") == [*WORDS.values()]
    assert translator.translate(texts, to="bg") == [word.upper() for word in WORDS.values()]
    (part,) = translator.segments(texts[0], to="bg")
    assert part.tokens[1] == translator.tokenizer.symbol_ids[language_tag("bg")]
    assert translator.tokenizer.pieces(part.tokens)[:2] == ["▁", "⟨bg⟩"]


def test_back_translation(transduce: Any, folder: Path, private_cache: Path, tmp_path: Path) -> None:
    """The model makes sources of a new one, which reads the symbol of such pairs with its source vocabulary."""
    texts = [source for source, _ in PAIRS]
    write_lines(tmp_path / "mono.txt", texts)
    outcome = transduce("backtranslate", "-m", folder / "run", "mono.txt", "-o", "synthetic.tsv", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    synthetic = [tuple(line.split("\t")) for line in (tmp_path / "synthetic.tsv").read_text("utf-8").splitlines()]
    assert [target for _, target in synthetic] == texts
    assert sum((target, source) in PAIRS for source, target in synthetic) > len(PAIRS) // 2
    write_lines(tmp_path / "train.tsv", ["\t".join(pair) for pair in PAIRS[:20]])
    more = {
        "train.steps": 1, "tokenizer.separate": "true", "data.reverse": "true", "data.back_translated": "synthetic.tsv",
    }  # fmt: skip
    words = ("train", "--train", "train.tsv", "--preset", "tiny", *as_sets(SETTINGS | more))
    outcome = transduce(*words, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    pair = TokenizerPair.parse((tmp_path / "run/tokenizers.json").read_bytes())
    symbol = pair.symbol_ids[BACK_TRANSLATED]
    shards = TokenShards(private_cache / read_progress(tmp_path / "run/checkpoints/step-1").corpus)
    tagged = []
    for source, target in shards.pairs(range(len(shards))):
        ids = [token for token in source.tolist() if token != symbol]
        decoded = pair.decode(ids).strip(), pair.target.decode(target.tolist())
        tagged.append(source.tolist().count(symbol))
        assert decoded in synthetic if tagged[-1] else decoded[::-1] in PAIRS
    assert sorted(tagged) == [0] * 20 + [1] * len(synthetic)


def test_fine_tuning_and_resuming(transduce: Any, folder: Path, tmp_path: Path) -> None:
    """A new run takes over both vocabularies and adds symbols to both; a run resumes with its settings."""
    words = ["train", "--train", "train.tsv", "--start-from", "run", "--set", "tokenizer.symbols=<x>"]
    words += [*as_sets({"train.steps": 1, "train.save_every": 1, "train.learning_rate": 1e-9}), "--out"]
    outcome = transduce(*words, tmp_path / "tuned", cwd=folder)
    assert outcome.code == 0, outcome.err
    old, new = (
        TokenizerPair.parse((run / "tokenizers.json").read_bytes()) for run in (folder / "run", tmp_path / "tuned")
    )
    assert (new.vocab_size, new.target.vocab_size) == (old.vocab_size + 1, old.target.vocab_size + 1)
    assert new.encode("<x>")[-1] == old.vocab_size
    assert new.target.encode("<x>")[-1] == old.target.vocab_size
    outcome = transduce("translate", "-m", tmp_path / "tuned", "αβγ δεζ", cwd=folder)
    assert outcome.out.strip() == "абв где"

    shutil.copytree(folder / "run", tmp_path / "again", symlinks=True)
    more = [*TRAIN, "--set", "tokenizer.separate=true", "--set", "train.steps=142", "--out", str(tmp_path / "again")]
    outcome = transduce(*more, cwd=folder)
    assert outcome.code == 0, outcome.err
    assert "resuming from" in outcome.err
    outcome = transduce(*TRAIN, "--set", "train.steps=142", "--out", tmp_path / "again", cwd=folder)
    assert "tokenizer.separate (there true, here false)" in complaint(outcome)


def test_own_files_for_each_side(transduce: Any, folder: Path, tmp_path: Path) -> None:
    pair = TokenizerPair.parse((folder / "run/tokenizers.json").read_bytes())
    for name, side in (("a", pair.source), ("b", pair.target)):
        (tmp_path / f"{name}.model").write_bytes(side.model)
    sizes = as_sets({name: value for name, value in SETTINGS.items() if not name.startswith("tokenizer.")})
    words = ["train", "--train", folder / "train.tsv", "--preset", "tiny", *sizes, "--set", "train.steps=1"]
    files = ["--set", "tokenizer.path=a.model", "--set", "tokenizer.target_path=b.model"]
    outcome = transduce(*words, *files, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    own = TokenizerPair.parse((tmp_path / "run/model/tokenizers.json").read_bytes())
    assert isinstance(own.source, Tokenizer)
    assert (own.source.model, own.target.model) == (pair.source.model, pair.target.model)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.architecture=recurrent"], "the architecture recurrent has one embedding matrix for source, target"),
        (["task=denoise"], "tokenizer.separate is for the task translate, not for denoise"),
        (["tokenizer.path=a.model"], "separate vocabularies need target_path, the model of the target, beside path"),
        (
            ["tokenizer.separate=false", "model.source_vocab_size=420"],
            "model.source_vocab_size follows from the vocabularies: leave it out, and set tokenizer.separate=true",
        ),
    ],
)
def test_refusals(transduce: Any, folder: Path, tmp_path: Path, settings: list[str], message: str) -> None:
    chosen = [word for setting in ["tokenizer.separate=true", *settings] for word in ("--set", setting)]
    words = ["train", "--train", folder / "train.tsv", "--preset", "tiny", "--set", "tokenizer.vocab_size=420", *chosen]
    assert message in complaint(transduce(*words, "--out", "run", cwd=tmp_path))
    assert not (tmp_path / "run").exists()


def test_vocabularies_that_do_not_fit_the_model_are_refused(transduce: Any, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "run/model", tmp_path / "model")
    file = tmp_path / "model/tokenizers.json"
    pair = TokenizerPair.parse(file.read_bytes())
    assert isinstance(pair.source, Tokenizer)
    file.write_bytes(TokenizerPair(pair.source.with_symbols(["<x>"]), pair.target).model)
    message = complaint(transduce("translate", "-m", "model", "αβγ", cwd=tmp_path))
    assert "(source_vocab_size) is one of 420 tokens, but tokenizers.json has one of 421 tokens" in message
    file.write_text("{}")
    assert "not two vocabularies: 'source'" in complaint(transduce("translate", "-m", "model", "α", cwd=tmp_path))
