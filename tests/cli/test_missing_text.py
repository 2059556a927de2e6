"""What `transduce evaluate` says if there is no text for a model."""

from typing import Any

import pytest
from commands import complaint


@pytest.mark.parametrize(
    ("words", "alternative"),
    [
        ([], "give translations to score with --hyp"),
        (["--hyp", "valid.tgt"], "leave out -m to score only those of --hyp"),
    ],
)
def test_a_model_without_text_is_told_apart_from_missing_translations(
    transduce: Any, trained: Any, words: list[str], alternative: str
) -> None:
    outcome = transduce("evaluate", "-m", "run", *words, "--ref", "valid.tgt", cwd=trained.folder)
    assert complaint(outcome) == (
        f"there is no text for the model to translate; give --src (--test has both sides), or {alternative}"
    )
