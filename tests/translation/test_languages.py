"""Directions on the command line: languages by the names of files, and the reverse direction."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import complaint
from toy_languages import ENOUGH, evaluate, sentence, write_pairs
from toy_run import TrainedRun, as_sets

from transduce.errors import DataError
from transduce.files.languages import choose_target


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


@pytest.mark.parametrize(
    ("source", "target", "hint"),
    [
        (None, "DE", "to DE (did you mean de?)"),
        ("en-GB", "de", "from en-GB to de (did you mean en to de?)"),
        (None, "es", "to es"),
        ("de", "FR", "from de to FR"),
    ],
)
def test_a_language_in_another_spelling_is_suggested_if_it_is_possible(
    source: str | None, target: str, hint: str
) -> None:
    directions = [("en", "de"), ("de", "en"), ("en", "fr")]
    with pytest.raises(DataError) as error:
        choose_target(directions, source, target)
    assert str(error.value).startswith(f"this model does not translate {hint}; it translates en to de")


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
    outcome = transduce(*words, "--set", "train.steps=101", "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    facts = json.loads((tmp_path / "run" / "model" / "model.json").read_text(encoding="utf-8"))["facts"]
    assert facts["directions"] == [["en", "de"]]


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
