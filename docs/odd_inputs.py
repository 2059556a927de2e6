"""Writes odd-inputs.md: python docs/odd_inputs.py"""

from pathlib import Path

from transduce.translation.translator import Translator

ROOT = Path(__file__).parents[1]
TITLE = """# A hundred odd inputs

English inputs of many kinds, and what [the bundled model](guides/bundled-model.md) makes of them in German (engine
`native`, as `python docs/odd_inputs.py` wrote it). Good and bad outputs alike are shown. Tests check what must hold for
each: protected text comes back unchanged, nothing is empty, capitals stay capitals.

| input | output |
|---|---|
"""


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return f"`` {text} ``".replace("|", "\\|") if text.strip() else "(a space)" if text else "(nothing)"


def main() -> None:
    """Translate the inputs and write the page."""
    inputs = (ROOT / "tests" / "data" / "odd_inputs.txt").read_text(encoding="utf-8").split("\n")[:-1]
    outputs = Translator.load(engine="native", threads=2).translate(inputs, to="de")
    rows = [f"| {cell(text)} | {cell(output)} |\n" for text, output in zip(inputs, outputs, strict=True)]
    (ROOT / "docs" / "odd-inputs.md").write_text(TITLE + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
