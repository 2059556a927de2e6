"""Languages and directions on the command line: the reverse direction, and multilingual models."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import complaint, content, copied_until, metrics
from conftest import TINY, TrainedRun, as_sets
from serving import ServerProcess, serve_in_thread

from transduce.translator import Translator

# A word of one language is a sentence of each of the others, which a tiny model learns by heart in seconds.
WORDS = ["ba", "do", "gi", "ku"]
SENTENCES = {"de": "das ist ein wort wie {}", "fr": "VOICI LE MOT {}", "en": "{}"}
ENOUGH = {
    **TINY,
    "model.dropout": 0.0,
    "train.learning_rate_scale": 0.3,
    "train.steps": 160,
    "train.save_every": 80,
    "train.average": 1,
    "train.log_every": 40,
}


def sentence(language: str, word: str) -> str:
    return SENTENCES[language].format(word.upper() if language == "fr" else word)


def write_pairs(path: Path, first: str, second: str, repeats: int = 1) -> Path:
    rows = [f"{sentence(first, word)}\t{sentence(second, word)}\n" for word in WORDS * repeats]
    path.write_text("".join(rows), encoding="utf-8")
    return path


def evaluate(transduce: Any, cwd: Path, *words: str | Path) -> tuple[float, str]:
    """BLEU, and what was said about the direction."""
    outcome = transduce("evaluate", *words, "--json", cwd=cwd)
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)[0]["value"], outcome.err


# The reverse direction


@pytest.fixture(scope="module")
def reverse_run(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A model from English words to German sentences, trained on files with German on the first side."""
    folder = tmp_path_factory.mktemp("reverse")
    for name, repeats in (("train", 20), ("valid", 1)):
        write_pairs(folder / f"{name}.de-en.tsv", "de", "en", repeats)
    words = ["train", "--train", "train.de-en.tsv", "--valid", "valid.de-en.tsv", "--preset", "tiny"]
    words += [*as_sets(ENOUGH), "--set", "data.reverse=true"]
    outcome = transduce(*words, "--out", "run", cwd=folder)
    assert outcome.code == 0, outcome.err
    return TrainedRun(folder, outcome, words)


def test_languages_are_inferred_from_file_names_and_stored(transduce: Any, reverse_run: TrainedRun) -> None:
    assert "data: en to de, by the names of the files" in reverse_run.outcome.err
    config = tomllib.loads((reverse_run.run / "config.toml").read_text(encoding="utf-8"))
    assert (config["data"]["src_lang"], config["data"]["tgt_lang"]) == ("en", "de")
    facts = json.loads((reverse_run.run / "model" / "model.json").read_text(encoding="utf-8"))["facts"]
    assert facts["directions"] == [["en", "de"]]
    assert facts["reverse"] is True
    info = transduce("info", "-m", "run", cwd=reverse_run.folder)
    assert re.search(r"^directions +en to de$", info.out, re.MULTILINE)


def test_evaluate_reads_the_side_that_the_model_translates(
    transduce: Any, reverse_run: TrainedRun, tmp_path: Path
) -> None:
    model = ("-m", reverse_run.run)
    write_pairs(tmp_path / "test.tsv", "de", "en")
    write_pairs(tmp_path / "test.en-de.tsv", "en", "de")
    bleu, said = evaluate(transduce, tmp_path, *model, "--test", "test.tsv")
    assert bleu > 90
    assert "en to de; the source is the second side of test.tsv, the reference is the first" in said
    bleu, said = evaluate(transduce, tmp_path, *model, "--test", "test.en-de.tsv")  # the name tells the sides
    assert bleu > 90
    assert "the source is the first side of test.en-de.tsv" in said
    assert evaluate(transduce, tmp_path, *model, "--test", "test.tsv", "--no-reverse")[0] < 20


def test_score_reads_the_side_that_the_model_translates(
    transduce: Any, reverse_run: TrainedRun, tmp_path: Path
) -> None:
    write_pairs(tmp_path / "test.tsv", "de", "en")
    right = transduce("score", "-m", reverse_run.run, "--test", "test.tsv", cwd=tmp_path)
    wrong = transduce("score", "-m", reverse_run.run, "--test", "test.tsv", "--no-reverse", cwd=tmp_path)
    assert "en to de; the source is the second side of test.tsv" in right.err
    likely, unlikely = (list(map(float, outcome.out.split())) for outcome in (right, wrong))
    assert min(likely) > -3 > max(unlikely)


def test_evaluate_refuses_what_it_cannot_honour(transduce: Any, reverse_run: TrainedRun, tmp_path: Path) -> None:
    write_pairs(tmp_path / "test.en-fr.tsv", "en", "fr")
    common = ("evaluate", "-m", reverse_run.run)
    message = complaint(transduce(*common, "--test", "test.en-fr.tsv", cwd=tmp_path))
    assert message.startswith("the name of test.en-fr.tsv tells en and fr, but the model translates en to de; ")
    message = complaint(transduce(*common, "--src", "test.en-fr.tsv", "--ref", "a", "--reverse", cwd=tmp_path))
    assert message.startswith("--reverse is for --test")


def test_models_in_opposite_directions_are_not_compared(
    transduce: Any, reverse_run: TrainedRun, tmp_path: Path
) -> None:
    write_pairs(tmp_path / "test.tsv", "de", "en")
    other = shutil.copytree(reverse_run.run / "model", tmp_path / "other")
    card = json.loads((other / "model.json").read_text(encoding="utf-8"))
    card["facts"] |= {"reverse": False, "directions": [["de", "en"]]}
    (other / "model.json").write_text(json.dumps(card), encoding="utf-8")
    words = ("evaluate", "-m", reverse_run.run, "-m", "other", "--test", "test.tsv")
    assert "opposite directions" in complaint(transduce(*words, cwd=tmp_path))


def test_a_language_that_the_model_does_not_have_is_refused(transduce: Any, reverse_run: TrainedRun) -> None:
    common = ("translate", "-m", "run", "ba")
    expected = {sentence("de", "ba") + "\n"}
    assert {transduce(*common, *words, cwd=reverse_run.folder).out for words in ([], ["--to", "de"])} == expected
    message = complaint(transduce(*common, "--to", "fr", cwd=reverse_run.folder))
    assert message == "this model does not translate to fr; it translates en to de"
    message = complaint(transduce(*common, "--from", "de", cwd=reverse_run.folder))
    assert message == "this model does not translate from de; it translates en to de"


def test_a_model_without_languages_refuses_a_language(transduce: Any, trained: TrainedRun) -> None:
    message = complaint(transduce("translate", "-m", "run", "--to", "de", "ba", cwd=trained.folder))
    assert message.startswith("this model does not tell its languages, so de cannot be checked")


def test_languages_that_contradict_the_file_names_get_a_warning(
    transduce: Any, reverse_run: TrainedRun, tmp_path: Path
) -> None:
    words = [*reverse_run.words, "--set", "data.src_lang=de", "--set", "data.tgt_lang=en", "--set", "train.steps=1"]
    outcome = transduce(*words, "--out", tmp_path / "run", cwd=reverse_run.folder)
    assert outcome.code == 0, outcome.err
    assert (
        "warning: the model is to translate de to en, but the names of the training files and data.reverse=true tell "
        "en to de" in outcome.err
    )


def test_names_of_other_text_that_contradict_the_direction_get_a_warning(
    transduce: Any, reverse_run: TrainedRun, tmp_path: Path
) -> None:
    for name in ("valid.en-de", "synthetic.de-en"):
        write_pairs(tmp_path / f"{name}.tsv", *name.rpartition(".")[2].split("-"))
    words = [*reverse_run.words, "--valid", tmp_path / "valid.en-de.tsv", "--set", "train.steps=1"]
    words += ["--set", f"data.back_translated={tmp_path / 'synthetic.de-en.tsv'}"]
    outcome = transduce(*words, "--out", tmp_path / "run", cwd=reverse_run.folder)
    assert outcome.code == 0, outcome.err
    for name in ("valid.en-de", "synthetic.de-en"):
        expected = f"warning: {tmp_path / name}.tsv is read as en to de, but its name tells de to en; check its sides"
        assert expected in outcome.err
    assert "valid.de-en.tsv is read" not in outcome.err


def test_a_file_that_is_both_sides_gets_a_warning(transduce: Any, trained: TrainedRun, tmp_path: Path) -> None:
    words = [word.replace("train.tgt", "train.src") for word in trained.words]
    outcome = transduce(*words, "--set", "train.steps=1", "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert f"warning: {trained.folder / 'train.src'} is both the source and the target" in outcome.err


def test_a_run_keeps_its_languages_when_its_files_move(transduce: Any, reverse_run: TrainedRun, tmp_path: Path) -> None:
    for name in ("train", "valid"):
        shutil.copy(reverse_run.folder / f"{name}.de-en.tsv", tmp_path / f"{name}.tsv")
    shutil.copytree(reverse_run.run, tmp_path / "run", symlinks=True)
    words = [word.replace(".de-en", "") for word in reverse_run.words]
    outcome = transduce(*words, "--set", "train.steps=161", "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    facts = json.loads((tmp_path / "run" / "model" / "model.json").read_text(encoding="utf-8"))["facts"]
    assert facts["directions"] == [["en", "de"]]


# Several directions in one model


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
    for parts in (translator.parts("ba " * 300, to="fr"), translator.parts("ba", to="fr")):
        assert parts
        for part in parts:
            assert translator.tokenizer.pieces(part.tokens)[:2] == ["▁", "⟨fr⟩"]
            assert len(part.tokens) <= translator.max_source_length
    assert translator.translate(["ba", "ba"], to=["de", "fr"]) == [sentence("de", "ba"), sentence("fr", "ba")]


def test_a_text_cannot_contain_a_tag(multilingual: TrainedRun) -> None:
    from transduce.text.symbols import language_tag

    translator = Translator.load(multilingual.run, device="cpu", engine="plain")
    (part,) = translator.parts(f"{language_tag('fr')} ba", to="de")
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
        assert message == "this model translates to de, fr; choose the target language (to)"


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
    run = copied_until(multilingual.run, tmp_path / "run", 80)
    outcome = transduce(*multilingual.words, "--out", run, cwd=multilingual.folder)
    assert outcome.code == 0, outcome.err
    assert f"resuming from {run}/checkpoints/step-80" in outcome.err
    for folder in ("model", "checkpoints/step-160"):
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
    server = ServerProcess("-m", multilingual.run, log=tmp_path / "log", environment=transduce.environment)
    server.process.terminate()
    server.process.wait(120)
    assert "transduce: serving run (en to de, en to fr) on http://" in server.stderr


@pytest.mark.parametrize("directions", ["en-de", [["en"]], [["en", 1]], [["en", "../de"]], [None]])
def test_damaged_directions_are_refused(
    transduce: Any, reverse_run: TrainedRun, tmp_path: Path, directions: object
) -> None:
    model = shutil.copytree(reverse_run.run / "model", tmp_path / "model")
    card = json.loads((model / "model.json").read_text(encoding="utf-8"))
    card["facts"]["directions"] = directions
    (model / "model.json").write_text(json.dumps(card), encoding="utf-8")
    message = complaint(transduce("info", "-m", "model", cwd=tmp_path))
    assert message == "model/model.json: facts.directions must be a list of pairs of language codes"


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
