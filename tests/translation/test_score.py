"""`transduce score` and `transduce rerank`: log-probabilities of given translations."""

import gzip
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import complaint
from helpers import small_model

from transduce.data.batch import Batch, in_batches
from transduce.errors import DataError
from transduce.models import likelihood
from transduce.models.folder import load_model, save_model
from transduce.tokenizers.tokenizer import BOS, EOS, Tokenizer
from transduce.translation.translator import Translator


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def defined_log_probs(translator: Translator, source: str, target: str) -> list[float]:
    """The log-probability of each target token and the end marker, one pair at a time."""
    src, tgt = (translator.tokenizer.encode(text) for text in (source, target))
    model = translator.model
    with torch.inference_mode():
        hidden_TD = model(Batch.of(src=[[*src, EOS]], tgt=[[BOS, *tgt]]))
        log_prob_TV = (hidden_TD @ model.output_weight_VD.T).log_softmax(-1)
    return [log_prob_TV[t, token].item() for t, token in enumerate([*tgt, EOS])]


@pytest.fixture(scope="module")
def translator(trained: Any) -> Translator:
    return Translator.load(trained.run, engine="plain", device="cpu")


def test_scores_are_those_of_the_search(translator: Translator, trained: Any) -> None:
    sources = lines(trained.folder / "valid.src")
    found = translator.hypotheses(sources, beam=4, nbest=4)
    pairs = [
        (source, one)
        for source, best in zip(sources, found, strict=True)
        for one in best
        # The search may also find another segmentation of a text than the tokenizer's.
        if translator.tokenizer.pieces(translator.tokenizer.encode(one.text)) == one.tokens
    ]
    assert len(pairs) > 20
    scores = translator.score([source for source, _ in pairs], [one.text for _, one in pairs])
    for (_, one), score in zip(pairs, scores, strict=True):
        assert score.log_prob == pytest.approx(one.log_prob, abs=1e-4)
        assert score.tokens == [*one.tokens, "</s>"]


@pytest.mark.parametrize(("batch_tokens", "logits"), [(4096, 1 << 24), (20, 1 << 24), (4096, 1)])
def test_scores_do_not_depend_on_batches(
    translator: Translator, trained: Any, batch_tokens: int, logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihood, "in_batches", partial(in_batches, most=batch_tokens))
    monkeypatch.setattr(likelihood, "_LOGITS", logits)
    sources, targets = [*lines(trained.folder / "valid.src"), "", "ba"], [*lines(trained.folder / "valid.tgt"), "x", ""]
    for score, source, target in zip(translator.score(sources, targets), sources, targets, strict=True):
        expected = defined_log_probs(translator, source, target)
        assert score.token_log_probs == pytest.approx(expected, abs=1e-4)
        assert score.log_prob == pytest.approx(sum(expected), abs=1e-4)
        assert score.per_token == pytest.approx(sum(expected) / len(expected), abs=1e-4)


def test_pairs_that_cannot_be_scored_are_refused(toy_tokenizer: Tokenizer) -> None:
    model = small_model(0, toy_tokenizer.vocab_size, positions="learned", max_positions=4).eval()
    short = Translator(model, toy_tokenizer)
    with pytest.raises(DataError, match=r"the text 'dedu gigo dudu babo' has \d+ tokens, more than the 3 this model"):
        short.score(["ba"], ["dedu gigo dudu babo"])
    with pytest.raises(DataError, match="2 sources but 1 targets"):
        short.score(["a", "b"], ["c"])
    assert short.score([], []) == []


def test_one_line_for_each_pair_and_the_total_on_stderr(
    transduce: Any, trained: Any, translator: Translator, tmp_path: Path
) -> None:
    src, tgt = trained.folder / "valid.src", trained.folder / "valid.tgt"
    expected = translator.score(lines(src), lines(tgt))
    tokens, total = sum(len(one.tokens) for one in expected), sum(one.log_prob for one in expected)
    outcome = transduce("score", "-m", trained.run, "--src", src, "--tgt", tgt, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert [float(line) for line in outcome.out.splitlines()] == pytest.approx(
        [one.log_prob for one in expected], abs=1e-3
    )
    perplexity = f"perplexity {math.exp(-total / tokens):.2f}"
    assert outcome.err == f"transduce: 20 pairs, {tokens} tokens: log-probability {total:.2f}, {perplexity}\n"

    both = tmp_path / "both.tsv"
    both.write_text("".join(f"{a}\t{b}\n" for a, b in zip(lines(src), lines(tgt), strict=True)))
    columns = transduce("score", "-m", trained.run, "--test", both, "--per-token", cwd=tmp_path).out
    rows = [tuple(map(float, line.split("\t"))) for line in columns.splitlines()]
    assert rows == [pytest.approx((one.log_prob, one.per_token), abs=1e-3) for one in expected]
    for line, one, target in zip(
        transduce("score", "-m", trained.run, "--test", both, "--jsonl", cwd=tmp_path).out.splitlines(),
        expected,
        lines(tgt),
        strict=True,
    ):
        record = json.loads(line)
        assert (record["target"], record["tokens"]) == (target, one.tokens)
        assert record["token_log_probs"] == pytest.approx(one.token_log_probs, abs=1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give the pairs to score either with --src and --tgt, or with --test"),
        (["--src", "a.txt"], "give the pairs to score either with --src and --tgt, or with --test"),
        (["--src", "a.txt", "--tgt", "b.txt", "--test", "c.tsv"], "give the pairs to score either"),
        (["--src", "a.txt", "--tgt", "b.txt"], "a.txt has 3 lines and b.txt has 2"),
        (["--test", "c.tsv"], "c.tsv cannot be scored line by line: left out 1 pair"),
        (["--test", "nothing.tsv"], "nothing.tsv: no such file"),
        (["--src", "c.tsv", "--tgt", "b.txt"], "c.tsv is a file of pairs or rows"),
    ],
)
def test_pairs_that_do_not_match_are_refused(
    transduce: Any, trained: Any, tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "a.txt").write_text("ba\nbe\nbi\n")
    (tmp_path / "b.txt").write_text("ba\nbe\n")
    (tmp_path / "c.tsv").write_text("ba\tbe\nbi\n")
    assert message in complaint(transduce("score", "-m", trained.run, *words, cwd=tmp_path))


# Reranking


@pytest.fixture(scope="module")
def nbest(transduce: Any, trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The n-best lists of an early checkpoint, with a blank line among the sources."""
    folder = tmp_path_factory.mktemp("nbest")
    (folder / "in").write_text("\n".join([*lines(trained.folder / "valid.src")[:16], "", "babo"]) + "\n")
    early = trained.run / "checkpoints" / "step-20"
    outcome = transduce("translate", "-m", early, "--jsonl", "--nbest", "4", "in", "--out", "nbest.jsonl", cwd=folder)
    assert outcome.code == 0, outcome.err
    return folder / "nbest.jsonl"


@pytest.mark.parametrize("weight", [None, 0.5])
def test_the_output_that_other_models_score_best_is_chosen(
    transduce: Any, trained: Any, nbest: Path, tmp_path: Path, weight: float | None
) -> None:
    folders = [trained.run / "checkpoints" / "step-40", trained.run]
    forward = [Translator.load(folder, engine="plain", device="cpu") for folder in folders]
    words = [word for folder in folders for word in ("-m", folder)]
    if weight is not None:
        words += ["--reverse-model", trained.run, "--weight", str(weight)]
    texts, records = (transduce("rerank", nbest, *words, *more, cwd=tmp_path) for more in ([], ["--jsonl"]))
    assert (texts.code, texts.err) == (0, "")
    moved = 0
    for text, line, original in zip(
        texts.out.splitlines(), records.out.splitlines(), map(json.loads, lines(nbest)), strict=True
    ):
        record = json.loads(line)

        def defined(output: str, source: str = original["source"]) -> float:
            scores = [defined_log_probs(model, source, output) for model in forward]
            total = sum(sum(one) / len(one) for one in scores) / len(scores)
            channel = defined_log_probs(forward[1], output, source)
            return total + (weight or 0.0) * sum(channel) / len(channel)

        expected = sorted((defined(one["text"]) for one in original["translations"]), reverse=True)
        assert [one["score"] for one in record["translations"]] == pytest.approx(expected, abs=1e-4)
        assert text == record["translations"][0]["text"]
        same = [{key: value for key, value in one.items() if key != "score"} for one in original["translations"]]
        assert all({k: v for k, v in one.items() if k != "score"} in same for one in record["translations"])
        moved += text != original["translations"][0]["text"]
    assert moved, "the order never changes, so nothing was tested"


def test_without_models_the_scores_of_the_file_count(transduce: Any, trained: Any, nbest: Path, tmp_path: Path) -> None:
    outcome = transduce(
        "rerank", "--reverse-model", trained.run, "--weight", "0", "--jsonl", cwd=tmp_path, stdin=nbest.read_bytes()
    )
    assert outcome.code == 0, outcome.err
    (tmp_path / "nbest.jsonl.gz").write_bytes(gzip.compress(nbest.read_bytes()))
    words = ("rerank", "nbest.jsonl.gz", "--reverse-model", trained.run, "--weight", "0", "--jsonl")
    assert transduce(*words, cwd=tmp_path).out == outcome.out
    for line in outcome.out.splitlines():
        for one in json.loads(line)["translations"]:
            assert one["score"] == pytest.approx(one["log_prob"] / (len(one["tokens"]) + 1), abs=1e-6)


def test_languages_that_a_model_does_not_tell_are_refused(
    transduce: Any, translator: Translator, trained: Any, nbest: Path
) -> None:
    for words in (["-m", trained.run, "--to", "de"], ["--reverse-model", trained.run, "--from", "de"]):
        message = complaint(transduce("rerank", nbest, *words, cwd=trained.folder))
        assert message.startswith("this model does not tell its languages, so de cannot be checked")
    with pytest.raises(DataError, match="2 texts but 1 target languages; give one for each text"):
        translator.score(["babo", "gigo"], ["babo", "gigo"], to=["de"])


@pytest.mark.parametrize(
    "line",
    [
        "babo",
        "{}",
        "[]",
        '{"source": "a", "translations": []}',
        '{"source": 1, "translations": [{"text": 1}]}',
        '{"source": "\\ud83d", "translations": [{"text": "a", "log_prob": -1, "tokens": ["a"]}]}',
    ],
)
def test_other_lines_are_refused(transduce: Any, trained: Any, nbest: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "bad.jsonl").write_text(f"{lines(nbest)[0]}\n{line}\n")
    message = complaint(transduce("rerank", "bad.jsonl", "-m", trained.run, cwd=tmp_path))
    assert message == "bad.jsonl, line 2: not a line of output of: transduce translate --jsonl"
    (tmp_path / "nan.jsonl").write_text(
        '{"source": "a", "translations": [{"text": "a", "log_prob": NaN, "tokens": []}]}\n'
    )
    message = complaint(transduce("rerank", "nan.jsonl", "--reverse-model", trained.run, cwd=tmp_path))
    assert message == "nan.jsonl, line 1: a log-probability is not a number"


def test_rerank_needs_a_model(transduce: Any, nbest: Path, tmp_path: Path) -> None:
    assert complaint(transduce("rerank", nbest, cwd=tmp_path)) == (
        "there is no model to rerank with; give -m, --reverse-model or both"
    )
    for words, message in (
        (("-m", "x", "--weight", "2"), "--weight is the weight of --reverse-model"),
        (("--reverse-model", "x", "--weight", "inf"), "--weight must be finite"),
        (("-m", "x", "--from", "en"), "--from is the language that --reverse-model translates to"),
        (("--reverse-model", "x", "--to", "de"), "--to is the language that the models of -m translate to"),
    ):
        assert message in complaint(transduce("rerank", nbest, *words, cwd=tmp_path))


def test_rerank_refuses_models_of_the_wrong_direction(
    transduce: Any, trained: Any, nbest: Path, tmp_path: Path
) -> None:
    there, back = trained.run, tmp_path / "back"
    saved = load_model(there / "model")
    save_model(back, saved.model, saved.tokenizer, saved.facts | {"reverse": True})
    message = complaint(transduce("rerank", nbest, "-m", there, "-m", back, cwd=tmp_path))
    assert message.startswith(f"{there} and {back} translate in opposite directions, as only one of them was trained")
    message = complaint(transduce("rerank", nbest, "-m", back, "--reverse-model", back, cwd=tmp_path))
    assert message.startswith(f"{back} and {back} were both trained with data.reverse")
    assert transduce("rerank", nbest, "-m", there, "--reverse-model", back, cwd=tmp_path).code == 0
