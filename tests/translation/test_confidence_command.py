"""Confidence through the command line and HTTP: `transduce calibrate`, `translate --confidence`, `--min-confidence`."""

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import complaint, content, copied
from serving import TIMEOUT, serve_in_thread
from toy_run import TINY, as_sets, make_toy_pairs, write_lines

from transduce.translation.translator import Translator

TEXTS = ["babo dego", "gibo babo dedu dedu", "", "xyz 12 ?!", "gigo"]


def write_pairs(path: Path, count: int, seed: int = 5) -> Path:
    return write_lines(path, [f"{src}\t{tgt}" for src, tgt in make_toy_pairs(count, seed)])


@pytest.fixture(scope="module")
def calibrated(transduce: Any, trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the trained run whose model is calibrated."""
    folder = tmp_path_factory.mktemp("calibrated")
    run = copied(trained, folder)
    write_pairs(folder / "more.tsv", 60)
    outcome = transduce("calibrate", "-m", run, "--test", "more.tsv", "--check", "more.tsv", cwd=folder)
    assert outcome.code == 0, outcome.err
    fitted, checked = outcome.out.splitlines()
    assert fitted.startswith(f"{run}/model: calibrated with 60 pairs: Spearman correlation with chrF 0.")
    assert checked == fitted.replace(f"{run}/model: calibrated with 60 pairs", "more.tsv: 60 pairs")
    return run


def translate(transduce: Any, run: Path, *words: str, texts: list[str] = TEXTS) -> Any:
    return transduce("translate", "-m", run, *words, stdin="".join(f"{text}\n" for text in texts), cwd=run)


def as_records(outcome: Any) -> list[dict[str, Any]]:
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_only_the_card_is_changed(trained: Any, calibrated: Path) -> None:
    before, after = content(trained.run), content(calibrated)
    assert [name for name in after if after[name] != before.get(name)] == ["model/model.json"]
    old, new = (json.loads(files["model/model.json"]) for files in (before, after))
    calibration = new["facts"].pop("confidence")
    assert new == old
    assert calibration.keys() == {"any"}


def test_info_tells_whether_and_for_which_languages_a_model_is_calibrated(
    transduce: Any, calibrated: Path, tmp_path: Path
) -> None:
    def told(folder: Path) -> str:
        return json.loads(transduce("info", "-m", folder, "--json", cwd=tmp_path).out)["confidence"]

    assert told(calibrated) == "calibrated"
    model = shutil.copytree(calibrated / "model", tmp_path / "model")
    card = json.loads((model / "model.json").read_text(encoding="utf-8"))
    calibration = card["facts"]["confidence"]["any"]
    card["facts"] |= {"tagged": True, "directions": [["en", "de"], ["en", "fr"]], "confidence": {"de": calibration}}
    (model / "model.json").write_text(json.dumps(card), encoding="utf-8")
    assert told(model) == "calibrated for translations to de, not to fr"
    card["facts"]["confidence"]["fr"] = calibration
    (model / "model.json").write_text(json.dumps(card), encoding="utf-8")
    assert told(model) == "calibrated for translations to de, fr"


def test_jsonl_has_confidences_if_they_are_asked_for(transduce: Any, calibrated: Path) -> None:
    plain = as_records(translate(transduce, calibrated, "--jsonl"))
    records = as_records(translate(transduce, calibrated, "--jsonl", "--confidence"))
    assert len(records) == len(TEXTS)
    for text, record, before in zip(TEXTS, records, plain, strict=True):
        (best,) = record["translations"]
        confidence, words, uncovered = (best.pop(name) for name in ("confidence", "word_confidences", "uncovered"))
        assert record == before
        assert isinstance(uncovered, list if text else type(None))
        if text:
            assert 0 <= confidence <= 1
            assert len(words) == len(best["text"].split())
        else:
            assert (confidence, words) == (None, None)


def test_outputs_below_the_minimum_are_left_out_and_counted(transduce: Any, calibrated: Path) -> None:
    records = as_records(translate(transduce, calibrated, "--jsonl", "--confidence"))
    confidences = [record["translations"][0]["confidence"] for record in records]
    plain = translate(transduce, calibrated).out.splitlines()
    known = sorted(value for value in confidences if value is not None)
    threshold = (known[1] + known[2]) / 2
    accepted = [value is None or value >= threshold for value in confidences]
    outcome = translate(transduce, calibrated, "--min-confidence", repr(threshold))
    assert outcome.code == 0
    assert outcome.out.splitlines() == [text if ok else "" for text, ok in zip(plain, accepted, strict=True)]
    assert f"2 of 5 outputs are below the confidence {threshold:g}" in outcome.err
    outcome = translate(transduce, calibrated, "--jsonl", "--min-confidence", repr(threshold))
    assert [record["accepted"] for record in as_records(outcome)] == accepted
    assert all("confidence" in record["translations"][0] for record in as_records(outcome))


def test_without_calibration_confidence_is_refused_in_one_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    out = write_lines(tmp_path / "out.txt", ["kept"])
    for words in (["--jsonl", "--confidence"], ["--min-confidence", "0.5"]):
        outcome = transduce("translate", "-m", trained.run, *words, "ba", "-o", out, "--force", cwd=tmp_path)
        message = complaint(outcome)
        assert "is not calibrated; calibrate it with: transduce calibrate -m MODEL --test valid.tsv" in message
    assert out.read_text() == "kept\n"


def test_mistakes_are_refused_and_change_nothing(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    write_pairs(tmp_path / "few.tsv", 20)
    write_pairs(tmp_path / "many.tsv", 60)
    before = content(run)

    def refused(*words: str | Path) -> str:
        return complaint(transduce("calibrate", *words, cwd=tmp_path))

    assert "no pairs to calibrate with; give --test" in refused("-m", run)
    outcome = transduce("calibrate", "-m", run, "--test", "few.tsv", cwd=tmp_path)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].endswith("20 pairs are too few to calibrate with; give at least 50")
    checkpoint = run / "checkpoints" / "step-60"
    assert "is a checkpoint, which cannot be changed" in refused("-m", checkpoint, "--test", "many.tsv")
    assert "none.tsv: no such file" in refused("-m", run, "--test", "none.tsv")
    outcome = transduce("calibrate", "-m", run, "--check", "many.tsv", cwd=tmp_path)
    assert (outcome.code, "is not calibrated" in outcome.err) == (2, True)
    assert "--confidence needs --jsonl" in complaint(transduce("translate", "-m", run, "--confidence", cwd=tmp_path))
    assert content(run) == before


def test_a_damaged_calibration_is_refused(transduce: Any, calibrated: Path, tmp_path: Path) -> None:
    card = json.loads((calibrated / "model" / "model.json").read_text())
    run = tmp_path / "damaged"
    run.mkdir()
    for path in (calibrated / "model").iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    card["facts"]["confidence"]["any"]["entropy"][1] = 0
    (run / "model.json").write_text(json.dumps(card))
    message = complaint(transduce("translate", "-m", run, "ba", cwd=tmp_path))
    assert "model.json: facts.confidence.any is not a calibration of this version" in message
    card["facts"]["confidence"] = 7
    (run / "model.json").write_text(json.dumps(card))
    assert "facts.confidence has the wrong type" in complaint(transduce("translate", "-m", run, "ba", cwd=tmp_path))


def test_training_calibrates_if_there_are_enough_validation_pairs(transduce: Any, trained: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path / "train.tsv", 300, seed=1)
    write_pairs(tmp_path / "valid.tsv", 60, seed=2)
    settings = as_sets(TINY | {"train.steps": 20, "train.valid_sentences": 60})
    words = ("--train", "train.tsv", "--valid", "valid.tsv", "--preset", "tiny", *settings)
    assert transduce("train", *words, "--out", "run", cwd=tmp_path).code == 0
    facts = json.loads((tmp_path / "run" / "model" / "model.json").read_text())["facts"]
    assert facts["confidence"]["any"].keys() == {"intercept", "log_prob", "entropy", "overlap", "attention"}
    few = json.loads((trained.run / "model" / "model.json").read_text())["facts"]
    assert "confidence" not in few
    # 8-bit weights keep it; a mean of other weights does not.
    assert transduce("shrink", "-m", "run", "-o", "small", cwd=tmp_path).code == 0
    assert json.loads((tmp_path / "small" / "model.json").read_text())["facts"]["confidence"] == facts["confidence"]
    assert transduce("average", "run/checkpoints/step-20", "run/model", "-o", "mean", cwd=tmp_path).code == 0
    assert "confidence" not in json.loads((tmp_path / "mean" / "model.json").read_text())["facts"]


def test_an_ensemble_has_no_calibration(transduce: Any, calibrated: Path) -> None:
    outcome = transduce(
        "translate", "-m", calibrated, "-m", calibrated / "checkpoints" / "step-40", "--min-confidence", "0.5", "ba",
        cwd=calibrated,
    )  # fmt: skip
    assert "is not calibrated" in complaint(outcome)


def test_http(trained: Any, calibrated: Path) -> None:
    translator = Translator.load(calibrated)
    servers = [("calibrated", translator), ("plain", Translator.load(trained.run))]
    with serve_in_thread(servers) as (address, _), httpx.Client(base_url=address, timeout=TIMEOUT) as client:
        body = {"text": TEXTS, "confidence": True, "nbest": 2}
        answer = client.post("/v1/translate", json=body).json()
        expected = translator.hypotheses(TEXTS, confidence=True, nbest=2)
        for best, own in zip(expected, answer["translations"], strict=True):
            for one, output in zip(best, own["outputs"], strict=True):
                if one.text:
                    assert output["confidence"] == pytest.approx(one.confidence, rel=1e-3)
                    assert output["word_confidences"] == pytest.approx(one.word_confidences, rel=1e-3)
                else:
                    assert (output["confidence"], output["word_confidences"]) == (None, None)
        answer = client.post("/v1/translate", json={"text": "babo"}).json()
        assert answer["translations"][0]["outputs"][0]["confidence"] is None
        refusal = client.post("/v1/translate", json={"text": "babo", "model": "plain", "confidence": True})
        assert refusal.status_code == 400
        assert "transduce calibrate" in refusal.json()["error"]
