"""`transduce info`: facts of a model."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file


def test_info_prints_facts_of_a_model(transduce: Any, trained: Any) -> None:
    outcome = transduce("info", "-m", "run", cwd=trained.folder)
    assert (outcome.code, outcome.err) == (0, "")
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in outcome.out.splitlines())
    assert rows["folder"] == "run/model"
    assert (rows["d_model"], rows["steps"], rows["data: pairs"]) == ("32", "60", "300")
    assert rows["confidence"] == "not calibrated"


def test_info_prints_the_same_as_json(transduce: Any, trained: Any) -> None:
    facts = json.loads(transduce("info", "-m", "run/model", "--json", cwd=trained.folder).out)
    weights = load_file(trained.run / "model/model.safetensors")
    assert facts["parameters"] == sum(x.size for x in weights.values())
    assert facts["data: pairs"] == 300
    assert facts["score: valid bleu"] >= 0


def test_info_counts_files_if_there_are_many(transduce: Any, trained: Any, tmp_path: Path) -> None:
    shutil.copytree(trained.run / "model", tmp_path / "model")
    card = json.loads((tmp_path / "model/model.json").read_text())
    card["facts"]["data"] |= {"train": [["a.en", "a.de"], ["b.tsv"]] * 3, "replay": [[f"{i}.tsv"] for i in range(9)]}
    (tmp_path / "model/model.json").write_text(json.dumps(card))
    out = transduce("info", "-m", "model", cwd=tmp_path).out
    assert re.findall(r"data: (?:train|replay) +(.*)", out) == ["a.en + a.de, b.tsv", "9 files (named by --json)"]
    facts = json.loads(transduce("info", "-m", "model", "--json", cwd=tmp_path).out)
    assert (len(facts["data: train"]), len(facts["data: replay"])) == (6, 9)
