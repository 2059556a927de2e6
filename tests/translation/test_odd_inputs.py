"""A hundred odd inputs, translated to German by the bundled model: what must hold for each of them.

docs/odd-inputs.md shows the outputs. They are not compared literally, because they may differ between processors.
"""

import re
from pathlib import Path

import pytest

from transduce.translation.locale import localized
from transduce.translation.stages.protect import Protection
from transduce.translation.translator import Translator

INPUTS = (Path(__file__).parents[1] / "data" / "odd_inputs.txt").read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    return dict(zip(INPUTS, Translator.load(engine="native", threads=2).translate(INPUTS, to="de"), strict=True))


def test_there_are_a_hundred_different_inputs() -> None:
    assert len(INPUTS) == len(set(INPUTS)) == 100


@pytest.mark.parametrize("text", INPUTS)
def test_an_odd_input_gives_a_sound_output(outputs: dict[str, str], text: str) -> None:
    output = outputs[text]
    for span in Protection().spans(text):
        protected = text[span.start : span.end]
        kept = localized(protected, text[: span.start], ["en"], "de")
        assert output.count(kept) == text.count(protected), output
    assert not re.search("[\ue000-\uf8ff\ufffd]", output)
    assert bool(output.strip()) == bool(text.strip())
    assert output.isupper() or not text.isupper()
    assert 0.15 * len(text.strip()) <= len(output) <= 3.5 * len(text)
