"""The page protects the spans that the rules protect, by the same patterns in JavaScript."""

import json
import random
import re
import subprocess
from pathlib import Path

import pytest
from helpers import needs_node

from transduce.translation.rules import common, pattern
from transduce.translation.stages.protect import Protection
from transduce.web.patterns import to_javascript

TEXT = Path(__file__).parents[2] / "web/package/src/text.js"


def texts() -> list[str]:
    """The examples of the rules, and random parts of them in other orders."""
    examples = [
        example.replace("⟦", "").replace("⟧", "") for rule in common()["protect"] for example in rule["examples"]
    ]
    draw, parts = random.Random(1), [part for example in examples for part in re.split(r"(\W)", example) if part]
    return examples + ["".join(draw.choices(parts, k=draw.randint(1, 25))) for _ in range(2000)]


@needs_node
def test_protected_spans_are_those_of_python(tmp_path: Path) -> None:
    protect = [to_javascript(pattern(rule["pattern"])) for rule in common()["protect"] if "numbers" not in rule]
    (tmp_path / "input.json").write_text(
        json.dumps({"rules": {"protect": protect}, "texts": texts()}), encoding="utf-8"
    )
    script = f"""
        import {{ readFileSync }} from "node:fs";
        import {{ protectedSpans, readRules }} from {json.dumps(str(TEXT))};
        const {{ rules, texts }} = JSON.parse(readFileSync({json.dumps(str(tmp_path / "input.json"))}, "utf8"));
        const known = readRules(rules);
        const spans = (text) => protectedSpans(text, known).map((span) => text.slice(...span));
        console.log(JSON.stringify(texts.map(spans)));
    """
    command = ["node", "--input-type=module", "-e", script]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    protection, protected = Protection(), 0
    for text, spans in zip(texts(), found, strict=True):
        expected = [text[slice(*span)] for span in protection.spans(text, numbers=False)]
        assert spans == expected, text
        protected += len(expected)
    assert protected > 500


@pytest.mark.parametrize("unknown", [r"(a)\1", r"(?P<x>a)(?(x)b|c)"])
def test_a_construct_that_is_not_known_is_an_error(unknown: str) -> None:
    with pytest.raises(LookupError):
        to_javascript(unknown)
