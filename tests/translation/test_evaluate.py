"""`transduce evaluate`: scores of translations and models, and their comparison."""

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from commands import complaint


def test_evaluate_scores_a_model(transduce: Any, trained: Any, tmp_path: Path) -> None:
    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    words = ("evaluate", "-m", trained.run, "--src", src, "--ref", ref, "--out", "out.txt", "--beam", "2")
    outcome = transduce(*words, "--engine", "native", "--threads", "1", cwd=tmp_path)
    assert outcome.code == 0
    assert re.fullmatch(
        rf"transduce: {re.escape(str(trained.run))}/model: beam \d+, engine native \(8-bit, .*, threads: 1\)\n",
        outcome.err,
    )
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["BLEU", "chrF2", "TER"]
    assert "tok:13a" in outcome.out
    saved = transduce("evaluate", "--hyp", "out.txt", "--ref", ref, cwd=tmp_path)
    assert saved.out == outcome.out
    translated = transduce("translate", "-m", trained.run, "--beam", "2", src, cwd=tmp_path)
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == translated.out


def test_evaluate_scores_one_system_as_sacrebleu_does(transduce: Any, trained: Any, tmp_path: Path) -> None:
    from transduce.translation.scores import score

    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    outcome = transduce("evaluate", "--hyp", src, "--ref", ref, "--json", cwd=tmp_path)
    expected = score(*(path.read_text(encoding="utf-8").splitlines() for path in (src, ref)))
    assert json.loads(outcome.out) == [asdict(one) for one in expected]


def test_evaluate_takes_every_search_option_and_names_the_engine(transduce: Any, trained: Any) -> None:
    words = ("evaluate", "-m", "run", "--src", "valid.src", "--ref", "valid.tgt", "--engine", "native", "--json")
    options = ("--device", "cpu", "--max-length", "1", "--sample")
    scores = json.loads(transduce(*words, *options, cwd=trained.folder).out)
    engine = "plain (cpu, float32), because native has no sampling"
    assert [one["engine"] for one in scores] == [engine] * 3
    assert [score.keys() for score in scores] == [{"metric", "value", "signature", "engine", "search"}] * 3


def test_search_options_without_effect_are_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    outcome = transduce("evaluate", "--hyp", src, "--ref", ref, "--beam", "8", cwd=tmp_path)
    assert complaint(outcome) == "--beam has no effect on translations that are given with --hyp; leave it out"
    for words in (["evaluate", "--src", src, "--ref", ref], ["backtranslate", src, "--out", "new.tsv"]):
        outcome = transduce(*words, "-m", trained.run, "--nbest", "2", cwd=tmp_path)
        assert outcome.code == 2
        assert "No such option: --nbest" in outcome.err


def test_evaluate_compares_two_systems(transduce: Any, trained: Any, tmp_path: Path) -> None:
    ref = trained.folder / "valid.tgt"
    (tmp_path / "bad.txt").write_text("nonsense all the way\n" * 20)
    shutil.copy(ref, tmp_path / "good.txt")
    outcome = transduce("evaluate", "--hyp", "bad.txt", "--hyp", "good.txt", "--ref", ref, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    lines = [line for line in outcome.out.splitlines() if re.match(r"(BLEU|chrF2|TER) ", line)]
    assert [("baseline" in line, "better, significantly" in line) for line in lines] == [
        (True, False),
        (False, True),
    ] * 3
    compared = json.loads(
        transduce("evaluate", "--hyp", "good.txt", "--hyp", "bad.txt", "--ref", ref, "--json", cwd=tmp_path).out
    )
    assert [one["p_value"] is None for one in compared["comparisons"]] == [True, False] * 3
    assert len(compared["signatures"]) == 3


def test_evaluate_compares_two_models(transduce: Any, trained: Any) -> None:
    models = [trained.run / "checkpoints" / f"step-{step}" for step in (20, 60)]
    words = [word for model in models for word in ("-m", model)]
    text = ["--src", trained.folder / "valid.src", "--ref", trained.folder / "valid.tgt"]
    result = json.loads(transduce("evaluate", *words, *text, "--json", "--engine", "plain", cwd=trained.folder).out)
    assert result["engines"] == {str(model): "plain (cpu, float32)" for model in models}
    compared = result["comparisons"]
    assert [one["system"] for one in compared if one["metric"] == "BLEU"] == [str(model) for model in models]
    twice = transduce("evaluate", *words[:2], *words[:2], *text, cwd=trained.folder)
    assert "given twice" in complaint(twice)
    saved = transduce("evaluate", *words, *text, "--out", "out.txt", cwd=trained.folder)
    assert "--out is for the translations of one model, not of 2" in complaint(saved)


def test_evaluate_takes_a_test_set_in_one_file(transduce: Any, trained: Any, tmp_path: Path) -> None:
    sides = [(trained.folder / f"valid.{side}").read_text().splitlines() for side in ("src", "tgt")]
    (tmp_path / "test.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in zip(*sides, strict=True)))
    (tmp_path / "hyp.txt").write_text("".join(f"{tgt}\n" for tgt in sides[1]))
    outcome = transduce("evaluate", "--test", "test.tsv", "--hyp", "hyp.txt", cwd=tmp_path)
    assert outcome.out.startswith("BLEU  100.00")
    (tmp_path / "named.tsv").write_text("source\ttarget\n" + (tmp_path / "test.tsv").read_text())
    named = transduce("evaluate", "--test", "named.tsv", "--hyp", "hyp.txt", cwd=tmp_path)
    assert named.out == outcome.out
    assert "left out 1 pair with names of columns in place of texts (first: named.tsv, line 1)" in named.err


def test_evaluate_never_overwrites_a_file_that_it_reads(transduce: Any, trained: Any, tmp_path: Path) -> None:
    for side in ("src", "tgt"):
        shutil.copy(trained.folder / f"valid.{side}", tmp_path / side)
    words = ("evaluate", "-m", trained.run, "--src", "src", "--ref", "tgt", "--out")
    for name in ("src", "tgt"):
        before = (tmp_path / name).read_bytes()
        message = complaint(transduce(*words, tmp_path / name, cwd=tmp_path))
        assert message == f"--out would overwrite {tmp_path / name}, which is being read; name another file"
        assert (tmp_path / name).read_bytes() == before
    # Before the text is translated, which may take long.
    assert complaint(transduce(*words, "no/out", cwd=tmp_path)) == "--out no/out: there is no folder no; make it first"
    assert complaint(transduce(*words, tmp_path, cwd=tmp_path)) == f"--out {tmp_path} is a folder; name a file"


def test_evaluate_refuses_files_that_do_not_match(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("one\ntwo\n")
    src, ref = trained.folder / "valid.src", trained.folder / "valid.tgt"
    by_output = complaint(transduce("evaluate", "--hyp", "short.txt", "--ref", ref, cwd=tmp_path))
    assert "short.txt has 2 lines, the reference 20" in by_output
    by_source = complaint(transduce("evaluate", "-m", trained.run, "--src", src, "--ref", "short.txt", cwd=tmp_path))
    assert "valid.src has 20 lines" in by_source
    assert "short.txt 2" in by_source
    (tmp_path / "blank.txt").write_text("\n\n")
    by_reference = complaint(transduce("evaluate", "--hyp", "short.txt", "--ref", "blank.txt", cwd=tmp_path))
    assert by_reference == "the reference is empty"


def test_evaluate_reports_missing_options(transduce: Any, trained: Any) -> None:
    assert "--ref" in complaint(transduce("evaluate", "--hyp", "valid.src", cwd=trained.folder))
    assert "--hyp" in complaint(transduce("evaluate", "--ref", "valid.src", cwd=trained.folder))
    assert "--src" in complaint(transduce("evaluate", "-m", "run", "--ref", "valid.tgt", cwd=trained.folder))
