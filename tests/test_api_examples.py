"""The examples of docs/api.md, which use every public name: they run. `.ci/typed.py` checks their types."""

import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_run import write_lines

import transduce
from transduce.errors import ModelError

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
PROGRAM = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
TINY = {"tokenizer.vocab_size": 450, "model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "train.steps": 1}
LINES = ["The dog sleeps.", "A cat eats.", "Once upon a time there was a great film.", "The cat sat."] * 8
TREE = "(S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .))"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, and with a model of each task that has learned nothing."""
    import soundfile

    folder = tmp_path_factory.mktemp("api")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("train.en", "train.de", "text.txt"):
            write_lines(folder / name, LINES)
        write_lines(folder / "labels.tsv", [f"{line}\t{'AB'[number % 2]}" for number, line in enumerate(LINES)])
        write_lines(folder / "trees.txt", [TREE] * 8)
        soundfile.write(folder / "sound.wav", np.sin(np.arange(4000) / 3), 16_000)
        write_lines(folder / "sounds.tsv", ["sound.wav\tThe dog sleeps."] * 8)
        both: dict[str, Any] = {**TINY, "model.encoder_layers": 1, "model.decoder_layers": 1}
        layers = {**TINY, "model.layers": 1}
        transduce.train("runs/lm", text="text.txt", valid="text.txt", style="gpt2", settings=layers)
        masked: dict[str, Any] = {"task": "masked", "text": "text.txt", "valid": "text.txt", "style": "bert"}
        transduce.train("runs/masked", **masked, settings=layers)
        labelled: dict[str, Any] = {"task": "classify", "train": "labels.tsv", "valid": "labels.tsv", "style": "bert"}
        transduce.train("runs/classifier", **labelled, settings=layers)
        transduce.train("runs/parser", task="parse", train="trees.txt", valid="trees.txt", settings=both)
        sounds = {**both, "model.mel_bins": 20, "model.max_frames": 200}
        transduce.train("runs/speech", task="transcribe", train="sounds.tsv", valid="sounds.tsv", settings=sounds)
    return folder


def test_every_public_name_has_an_example() -> None:
    missing = [name for name in transduce.__all__ if not re.search(rf"\b{name}\b", PROGRAM)]
    undescribed = [name for name in transduce.__all__ if f":: transduce.{name}\n" not in PAGE]
    assert (missing, undescribed) == ([], [])


def test_the_examples_run(desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(desk)
    shutil.rmtree("runs/first", ignore_errors=True)
    names: dict[str, Any] = {}
    exec(compile(PROGRAM, "docs/api.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "Guten Morgen" in printed
    assert "this model does not translate to es" in printed
    assert (desk / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert names["page"]._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert "&lt;" in names["run"]._repr_html_()
    shown = {name: repr(names[name]) for name in ("translator", "generator", "classifier", "encoder", "parser")}
    assert re.fullmatch(
        r"<Translator bundled, en to de, de to en, en to fr, fr to en, engine .*, device cpu>", shown["translator"]
    )
    assert re.fullmatch(r"<Generator runs/lm, context \d+, engine auto, device cpu>", shown["generator"])
    assert shown["classifier"] == "<Classifier runs/classifier, 2 classes, device cpu>"
    for name, text in shown.items():
        assert repr(pickle.loads(pickle.dumps(names[name]))) == text
    translator = names["translator"]
    made = transduce.Translator(translator.any_model, translator.tokenizer)
    assert repr(made).startswith("<Translator in memory, languages unknown, ")
    with pytest.raises(ModelError, match=r"call Translator\.load in each process"):
        pickle.dumps(made)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("translate", {"beem": 2}, "translate() got an unexpected keyword argument 'beem' (did you mean beam?)"),
        ("hypotheses", {"beem": 2}, "hypotheses() got an unexpected keyword argument 'beem' (did you mean beam?)"),
        ("explain", {"nonsense": 2}, "explain() got an unexpected keyword argument 'nonsense'"),
        ("load", {"beem": 2}, "load() got an unexpected keyword argument 'beem' (did you mean beam?)"),
        ("translate", {"nbest": 3}, "translate returns the best output only; call hypotheses(texts, nbest=3) for more"),
    ],
)
def test_an_unknown_keyword_names_the_function_that_was_called(method: str, options: Any, message: str) -> None:
    arguments = [] if method == "load" else [["one"]]
    with pytest.raises((TypeError, transduce.ConfigError)) as caught:
        getattr(transduce.Translator.load(), method)(*arguments, **options)
    assert str(caught.value) == message
