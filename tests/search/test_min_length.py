"""The minimum length of an output: a model that would rather say nothing says something."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import small_model

from transduce.models.folder import save_model
from transduce.tokenizers.tokenizer import EOS, Tokenizer


@pytest.fixture(scope="module")
def silent(toy_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for which the end marker is almost certain everywhere."""
    model = small_model(0, toy_tokenizer.vocab_size, norm="pre")
    end_D = model.output_weight_VD.data[EOS]
    model.decoder_norm.bias.data += 20 * end_D / end_D.square().sum()
    folder = tmp_path_factory.mktemp("silent") / "model"
    save_model(folder, model, toy_tokenizer, {"search": {"beam": 4}})  # as models stored before the option existed
    return folder


@pytest.mark.parametrize("engine", ["plain", "native"])
@pytest.mark.parametrize("search", [["--beam", "1"], [], ["--sample"]], ids=["greedy", "beam", "sampling"])
def test_empty_outputs_are_only_given_on_request(
    transduce: Any, silent: Path, tmp_path: Path, engine: str, search: list[str]
) -> None:
    def lengths(*words: str) -> list[int]:
        words = ("translate", "-m", str(silent), "--engine", engine, "--jsonl", *search, *words)
        outcome = transduce(*words, stdin="babo\n\ndedu gigo babo\n", cwd=tmp_path)
        if "needs an encoder-decoder on the CPU" in outcome.err:
            pytest.skip("no C compiler")
        assert outcome.code == 0, outcome.err
        return [len(json.loads(line)["translations"][0]["tokens"]) for line in outcome.out.splitlines()]

    assert lengths() == [1, 0, 1]  # an empty line stays empty
    assert lengths("--min-length", "0") == [0, 0, 0]
    assert lengths("--min-length", "3") == [3, 0, 3]
    assert lengths("--min-length", "3", "--max-length", "2") == [2, 0, 2]
    forced = lengths("--min-length", "5", "--prefix", "babo dedu")
    assert (min(forced[::2]), forced[1]) == (5, 0)
