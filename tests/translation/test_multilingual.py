"""Multilingual models: language tags on the command line, in Python and over HTTP."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import complaint, content, copied_until, metrics
from serving import ServerProcess, serve_in_thread
from toy_languages import ENOUGH, WORDS, evaluate, sentence, write_pairs
from toy_run import TrainedRun, as_sets

from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def multilingual(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A model from English to German and French; French has a sixteenth of the pairs, and its first side is French."""
    folder = tmp_path_factory.mktemp("multilingual")
    write_pairs(folder / "train.en-de.tsv", "en", "de", 32)
    write_pairs(folder / "train.fr-en.tsv", "fr", "en", 2)
    write_pairs(folder / "valid.en-de.tsv", "en", "de")
    write_pairs(folder / "valid.en-fr.tsv", "en", "fr")
    settings = {
        "data.directions.en-de.train": "train.en-de.tsv",
        "data.directions.en-de.valid": "valid.en-de.tsv",
        "data.directions.en-fr.train": "train.fr-en.tsv",
        "data.directions.en-fr.reverse": "true",
        "data.temperature": 2.0,
    }
    words = ["train", "--preset", "tiny", *as_sets({**ENOUGH, **settings})]
    outcome = transduce(*words, "--out", "run", cwd=folder)
    assert outcome.code == 0, outcome.err
    return TrainedRun(folder, outcome, words)


def test_temperature_repeats_small_directions(multilingual: TrainedRun) -> None:
    # Shares of 16 to 1 become 4 to 1: the pairs of the small direction are used four times.
    assert "data: en-de: 128 pairs\n" in multilingual.outcome.err
    assert "data: en-fr: 8 pairs, each 4.00 times in an epoch (data.temperature)" in multilingual.outcome.err
    assert f"data: {128 + 4 * 8} pairs," in multilingual.outcome.err
    assert "is read as" not in multilingual.outcome.err  # no file name contradicts its direction


@pytest.mark.parametrize("engine", ["plain", "native"])
def test_the_target_language_selects_the_output(transduce: Any, multilingual: TrainedRun, engine: str) -> None:
    for language in ("de", "fr"):
        words = ("translate", "-m", "run", "--to", language, "--engine", engine)
        outcome = transduce(*words, cwd=multilingual.folder, stdin="".join(word + "\n" for word in WORDS))
        assert outcome.out.splitlines() == [sentence(language, word) for word in WORDS]


def test_every_sentence_of_a_text_has_the_tag(multilingual: TrainedRun) -> None:
    translator = Translator.load(multilingual.run, device="cpu", engine="plain")
    for parts in (translator.segments("ba " * 300, to="fr"), translator.segments("ba", to="fr")):
        assert parts
        for part in parts:
            assert translator.tokenizer.pieces(part.tokens)[:2] == ["▁", "⟨fr⟩"]
            assert len(part.tokens) <= translator.max_source_length
    assert translator.translate(["ba", "ba"], to=["de", "fr"]) == [sentence("de", "ba"), sentence("fr", "ba")]


def test_a_text_cannot_contain_a_tag(multilingual: TrainedRun) -> None:
    from transduce.tokenizers.symbols import language_tag

    translator = Translator.load(multilingual.run, device="cpu", engine="plain")
    (part,) = translator.segments(f"{language_tag('fr')} ba", to="de")
    tags = {translator.tokenizer.symbol_ids[language_tag(code)] for code in ("de", "fr")}
    assert [token for token in part.tokens if token in tags] == [translator.tokenizer.symbol_ids[language_tag("de")]]


def test_wrong_and_missing_target_languages_are_refused(transduce: Any, multilingual: TrainedRun) -> None:
    common = ("translate", "-m", "run", "ba")
    message = complaint(transduce(*common, "--to", "es", cwd=multilingual.folder))
    assert message == "this model does not translate to es; it translates en to de, en to fr"
    message = complaint(transduce(*common, "--to", "de", "--from", "fr", cwd=multilingual.folder))
    assert message == "this model does not translate from fr to de; it translates en to de, en to fr"
    for words in (common, ("inspect", "-m", "run", "ba"), ("evaluate", "-m", "run", "--src", "a", "--ref", "a")):
        message = complaint(transduce(*words, cwd=multilingual.folder))
        assert message == "this model translates to de, fr; choose the target language (--to)"


def test_evaluate_tests_one_direction(transduce: Any, multilingual: TrainedRun, tmp_path: Path) -> None:
    model = ("-m", multilingual.run)
    for language in ("de", "fr"):
        write_pairs(tmp_path / f"test.{language}-en.tsv", language, "en")
        bleu, said = evaluate(transduce, tmp_path, *model, "--test", f"test.{language}-en.tsv")
        assert bleu > 90
        assert f"en to {language}; the source is the second side of test.{language}-en.tsv" in said
    write_pairs(tmp_path / "test.tsv", "en", "fr")
    assert evaluate(transduce, tmp_path, *model, "--test", "test.tsv", "--to", "fr")[0] > 90
    assert evaluate(transduce, tmp_path, *model, "--test", "test.tsv", "--to", "de")[0] < 20


def test_score_and_rerank_use_the_tag(transduce: Any, multilingual: TrainedRun, tmp_path: Path) -> None:
    words = ("score", "-m", multilingual.run, "--test", write_pairs(tmp_path / "test.tsv", "en", "fr"))
    right, wrong = (transduce(*words, "--to", language, cwd=tmp_path).out for language in ("fr", "de"))
    assert min(map(float, right.split())) > -3 > max(map(float, wrong.split()))
    outputs = [{"text": sentence(language, "ba"), "log_prob": 0.0, "tokens": []} for language in ("de", "fr")]
    (tmp_path / "nbest.jsonl").write_text(json.dumps({"source": "ba", "translations": outputs}), encoding="utf-8")
    words = ("rerank", "nbest.jsonl", "-m", multilingual.run)
    for language in ("de", "fr"):
        assert transduce(*words, "--to", language, cwd=tmp_path).out == sentence(language, "ba") + "\n"
    assert "choose the target language" in complaint(transduce(*words, cwd=tmp_path))
    message = complaint(transduce(*words, "--to", "de", "--reverse-model", multilingual.run, cwd=tmp_path))
    assert message == (
        "the models do not score the same direction: a model translates en to de, en to fr; "
        "the reverse model translates en to de, en to fr"
    )


def test_info_and_metrics_name_the_directions(transduce: Any, multilingual: TrainedRun, tmp_path: Path) -> None:
    info = transduce("info", "-m", "run", cwd=multilingual.folder)
    assert re.search(r"^directions +en to de, en to fr$", info.out, re.MULTILINE)
    words = [*multilingual.words, "--set", "data.directions.en-fr.valid=valid.fr-en.tsv", "--set", "train.steps=2"]
    write_pairs(multilingual.folder / "valid.fr-en.tsv", "fr", "en")
    outcome = transduce(*words, "--out", tmp_path / "run", cwd=multilingual.folder)
    assert outcome.code == 0, outcome.err
    final = metrics(tmp_path / "run")[-1]
    assert set(final["files"]) == {"en-de", "en-fr"}
    assert final["valid_bleu"] == sum(scores["bleu"] for scores in final["files"].values()) / 2


def test_a_multilingual_run_resumes_bit_for_bit(transduce: Any, multilingual: TrainedRun, tmp_path: Path) -> None:
    run = copied_until(multilingual.run, tmp_path / "run", 50)
    outcome = transduce(*multilingual.words, "--out", run, cwd=multilingual.folder)
    assert outcome.code == 0, outcome.err
    assert f"resuming from {run}/checkpoints/step-50" in outcome.err
    for folder in ("model", "checkpoints/step-100"):
        there, here = content(multilingual.run / folder), content(run / folder)
        assert there["model.safetensors"] == here["model.safetensors"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.directions.english.train=a.tsv"], "english is not a direction; write the source and the target"),
        (["data.directions.en-es.reverse=true"], "the direction en-es has no training text (train)"),
        (["data.train=a.tsv"], "train cannot be set beside directions; each direction has its own"),
        (["data.src_lang=en"], "src_lang cannot be set beside directions; each direction has its own"),
        (["data.directions.en-de.tain=a.tsv"], "unknown key tain (did you mean train?)"),
        (["data.temperature=0.5"], "temperature must be at least 1"),
    ],
)
def test_mistakes_in_directions(
    transduce: Any, multilingual: TrainedRun, tmp_path: Path, settings: list[str], message: str
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    outcome = transduce(*multilingual.words, *words, "--out", tmp_path / "run", cwd=multilingual.folder)
    assert message in complaint(outcome)
    assert not (tmp_path / "run").exists()


def test_fine_tuning_needs_the_tags(transduce: Any, multilingual: TrainedRun, tmp_path: Path) -> None:
    start = [*as_sets(ENOUGH), "--preset", "tiny", "--set", f"train.start_from={multilingual.run}", "--out", "run"]
    write_pairs(tmp_path / "train.tsv", "en", "de", 20)
    outcome = transduce("train", "--train", "train.tsv", *start, cwd=tmp_path)
    assert (outcome.code, "is multilingual: name the languages" in outcome.err) == (2, True)
    words = ["train", *start, "--set", "data.directions.en-es.train=train.tsv"]
    outcome = transduce(*words, cwd=tmp_path)
    assert (outcome.code, "has no tag for es" in outcome.err) == (2, True)
    words = ["train", *start, "--set", "data.directions.en-de.train=train.tsv", "--set", "train.steps=1"]
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err


def test_http_requests_choose_the_direction(multilingual: TrainedRun) -> None:
    translator = Translator.load(multilingual.run, device="cpu", engine="plain")
    with serve_in_thread([("box", translator)]) as (address, _):
        languages = httpx.get(f"{address}/languages").json()
        assert languages == [
            {"code": "en", "name": "English", "targets": ["de", "fr"]},
            {"code": "de", "name": "German", "targets": []},
            {"code": "fr", "name": "French", "targets": []},
        ]
        for language in ("de", "fr"):
            libre = {"q": "ba", "source": "auto", "target": language}
            response = httpx.post(f"{address}/translate", json=libre).json()
            assert response["translatedText"] == sentence(language, "ba")
            assert response["detectedLanguage"]["language"] == "en"
            response = httpx.post(f"{address}/v1/translate", json={"text": "ba", "to": language}).json()
            assert response["translations"][0]["outputs"][0]["text"] == sentence(language, "ba")
        refused = httpx.post(f"{address}/translate", json={"q": "ba", "source": "de", "target": "fr"})
        assert refused.status_code == 400
        assert refused.json()["error"] == "no model for this language pair; available: en to de, en to fr"
        for body in ({"text": "ba", "to": "es"}, {"text": "ba"}):
            refused = httpx.post(f"{address}/v1/translate", json=body)
            assert refused.status_code == 400
            assert "de" in refused.json()["error"]


def test_serve_prints_the_directions(transduce: Any, multilingual: TrainedRun, tmp_path: Path) -> None:
    with ServerProcess("-m", multilingual.run, log=tmp_path / "log", start=transduce.background) as server:
        pass  # it has printed its address
    assert "transduce: serving run (en to de, en to fr) on http://" in server.stderr


def test_a_shortlist_names_the_target_languages_that_it_lacks(
    transduce: Any, multilingual: TrainedRun, tmp_path: Path
) -> None:
    shutil.copytree(multilingual.run / "model", tmp_path / "model")
    german, french = (multilingual.folder / f"train.{name}.tsv" for name in ("en-de", "fr-en"))
    outcome = transduce("shortlist", "-m", "model", "--train", german, cwd=tmp_path)
    assert "warning: the list is not for translations to fr, so --shortlist is refused there" in outcome.err
    words = ("translate", "-m", "model", "--engine", "native", "--shortlist", "ba", "--to")
    assert transduce(*words, "de", cwd=tmp_path).out == sentence("de", "ba") + "\n"
    refusal = "the model's shortlist is not for translations to fr; translate without it, or learn it from pairs"
    assert complaint(transduce(*words, "fr", cwd=tmp_path)).startswith(refusal)
    with serve_in_thread([("toy", Translator.load(tmp_path / "model", device="cpu", engine="native"))]) as (address, _):
        request = {"text": "ba", "shortlist": True}
        assert httpx.post(f"{address}/v1/translate", json={**request, "to": "de"}).status_code == 200
        answer = httpx.post(f"{address}/v1/translate", json={**request, "to": "fr"})
        assert (answer.status_code, answer.json()["error"][: len(refusal)]) == (400, refusal)
    outcome = transduce("shortlist", "-m", "model", "--train", german, "--train", french, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "warning" not in outcome.err
