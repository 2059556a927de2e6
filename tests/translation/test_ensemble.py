"""Ensembles: `translate -m A -m B` averages the models' log-probabilities."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import complaint
from helpers import small_model

from transduce.data.batch import Batch
from transduce.errors import ModelError
from transduce.models.folder import load_model, save_model
from transduce.search.beam import beam_search
from transduce.tokenizers.tokenizer import BOS, EOS, Tokenizer, TokenizerConfig
from transduce.translation.translator import Translator

SEARCH = ("--engine", "plain", "--jsonl", "--nbest", "3")


def records(outcome: Any) -> list[dict[str, Any]]:
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_a_model_with_itself_gives_what_it_gives_alone(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = (*SEARCH, trained.folder / "valid.src")
    alone = transduce("translate", "-m", trained.run, *words, cwd=tmp_path)
    twice = transduce("translate", "-m", trained.run, "-m", trained.run, *words, cwd=tmp_path)
    assert len(records(alone)) == 20
    assert records(twice) == records(alone)
    assert alone.err == ""
    expected = "transduce: engine plain (cpu, float32), because gpu and native have no ensembles\n"
    assert twice.err == expected


def mean_log_probs(folders: list[Path], source: list[int], target: list[int]) -> torch.Tensor:
    """The definition: the mean of the models' log-probabilities (T, V), normalized."""
    total = torch.zeros(())
    for folder in folders:
        model = load_model(folder).model
        with torch.inference_mode():
            hidden_TD = model(Batch.of(src=[[*source, EOS]], tgt=[[BOS, *target]]))
            total = total + (hidden_TD @ model.output_weight_VD.T).log_softmax(-1)
    return (total / len(folders)).log_softmax(-1)


def test_log_probabilities_are_averaged(transduce: Any, trained: Any, tmp_path: Path) -> None:
    folders = [trained.run / "checkpoints" / name for name in ("step-20", "step-60")]
    tokenizer = load_model(folders[0]).tokenizer
    models = [word for folder in folders for word in ("-m", folder)]
    found = records(transduce("translate", *models, *SEARCH, trained.folder / "valid.src", cwd=tmp_path))
    ids = {piece: number for number, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))}
    single = records(transduce("translate", "-m", folders[1], *SEARCH, trained.folder / "valid.src", cwd=tmp_path))
    for record in found[:8]:
        for one in record["translations"]:
            target = [ids[piece] for piece in one["tokens"]]
            log_prob_TV = mean_log_probs(folders, tokenizer.encode(record["source"]), target)
            expected = sum(log_prob_TV[t, token].item() for t, token in enumerate([*target, EOS]))
            assert one["log_prob"] == pytest.approx(expected, abs=1e-4)
            assert len(one["alignment"]) == len(target)
    assert found != single


def test_the_search_sees_the_averaged_distribution(trained: Any) -> None:
    """Beam search over a decoder that computes the definition anew at every step finds the same outputs."""
    folders = [trained.run / "checkpoints" / name for name in ("step-20", "step-60")]

    class Definition:
        def start(self, source: list[int]) -> list[Any]:
            return [(source, [])]

        def step(self, token_R: torch.Tensor, state: list[Any]) -> tuple[torch.Tensor, list[Any]]:
            rows = [(source, [*said, token]) for (source, said), token in zip(state, token_R.tolist(), strict=True)]
            return torch.stack([mean_log_probs(folders, source, said[1:])[-1] for source, said in rows]), rows

        def reorder(self, state: list[Any], index_BW: torch.Tensor) -> list[Any]:
            return [state[row] for row in index_BW.flatten().tolist()]

    translator = Translator.load(folders, max_extra=2, beam=2, nbest=2, device="cpu")
    source = translator.tokenizer.encode("babo dedu")
    (expected,) = beam_search(
        Definition(), source, [len(source) + 2], beam=2, alpha=translator.config.length_penalty, nbest=2, min_length=1
    )
    (found,) = translator.hypotheses(["babo dedu"])
    assert [one.tokens for one in found] == [translator.tokenizer.pieces(one.tokens) for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)


def test_different_vocabularies_are_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["xaxo zeze qiqa xexe"] * 50, TokenizerConfig(vocab_size=400))
    save_model(tmp_path / "other", small_model(0, tokenizer.vocab_size), tokenizer, {})
    outcome = transduce("translate", "-m", trained.run, "-m", "other", "babo", cwd=tmp_path)
    assert complaint(outcome) == (
        f"{trained.run}/model and other have different vocabularies; name models that were trained with the same one"
    )


def test_the_fast_engines_refuse_an_ensemble(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = ("-m", trained.run, "-m", trained.run, "--engine", "native", "babo")
    assert (
        complaint(transduce("translate", *words, cwd=tmp_path)) == "engine native has no ensembles; use auto or plain"
    )


def test_the_shortest_limits_hold_and_no_model_is_refused(tmp_path: Path, toy_tokenizer: Tokenizer) -> None:
    for name, positions, facts in (("a", 30, {"max_length": 40}), ("b", 20, {"max_length": 25, "by_sentence": True})):
        model = small_model(0, toy_tokenizer.vocab_size, positions="learned", max_positions=positions)
        save_model(tmp_path / name, model, toy_tokenizer, facts)
    translator = Translator.load([tmp_path / "a", tmp_path / "b"], device="cpu")
    assert (translator.model.longest, translator.max_source_length, translator.pipeline.split.by_sentence) == (
        19,
        19,
        True,
    )
    with pytest.raises(ModelError, match="there is no model to load"):
        Translator.load([])


def test_an_ensemble_is_evaluated_as_one_system(transduce: Any, trained: Any, tmp_path: Path) -> None:
    members = [word for step in (20, 60) for word in ("-m", trained.run / "checkpoints" / f"step-{step}")]
    source, reference = trained.folder / "valid.src", trained.folder / "valid.tgt"
    translated = transduce("translate", *members, source, "--out", "hyp.txt", cwd=tmp_path)
    assert translated.code == 0, translated.err
    pair = ("--src", source, "--ref", reference, "--json")
    as_one = json.loads(transduce("evaluate", *members, "--ensemble", *pair, cwd=tmp_path).out)
    given = json.loads(transduce("evaluate", "--hyp", "hyp.txt", *pair[2:], cwd=tmp_path).out)
    assert [one["value"] for one in as_one] == [one["value"] for one in given]
    refused = transduce("evaluate", *members[:2], "--ensemble", *pair, cwd=tmp_path)
    assert complaint(refused) == "--ensemble is for several models; give --model more than once"
