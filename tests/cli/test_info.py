"""`transduce info`: facts of a model."""

import json
import re
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
