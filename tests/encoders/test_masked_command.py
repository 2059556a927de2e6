"""Masked tokens through the command line: train, fill, embed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import complaint, copied_until, inspected_header, metrics, sets
from toy_run import as_sets, write_lines

from transduce.encoders.text_encoder import TextEncoder
from transduce.errors import ConfigError, DataError

ANIMALS = [("cat", "meows"), ("dog", "barks"), ("cow", "moos"), ("pig", "oinks")]
TEXTS = [f"{start} {animal} {sound} {end}." for start in ("The", "A", "Our", "My")
         for animal, sound in ANIMALS for end in ("today", "again", "now", "here", "often")]  # fmt: skip
SETTINGS: dict[str, Any] = {
    "tokenizer.vocab_size": 450, "model.layers": 2, "model.d_model": 32, "model.d_ff": 64, "model.num_heads": 2,
    "model.dropout": 0.0, "train.batch_tokens": 300, "train.steps": 150, "train.save_every": 25, "train.log_every": 25,
    "train.warmup": 20, "train.learning_rate": 0.01, "train.device": "cpu", "train.average": 1, "masked.share": 0.3,
}  # fmt: skip


@dataclass(frozen=True)
class TrainedMasked:
    folder: Path
    words: list[str]
    err: str

    @property
    def run(self) -> Path:
        return self.folder / "run"


@pytest.fixture(scope="module")
def trained_masked(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> TrainedMasked:
    folder = tmp_path_factory.mktemp("masked")
    write_lines(folder / "train.txt", [*TEXTS, ""])
    write_lines(folder / "valid.txt", TEXTS[::3])
    files = ["--text", "train.txt", "--valid", "valid.txt"]
    words = ["train", "--task", "masked", *files, "--style", "bert", *as_sets(SETTINGS)]
    outcome = transduce(*words, "--out", "run", cwd=folder)
    assert outcome.code == 0, outcome.err
    return TrainedMasked(folder, words, outcome.err)


def test_training_measures_accuracy_on_fixed_masks(trained_masked: TrainedMasked) -> None:
    valid = [record for record in metrics(trained_masked.run) if record["kind"] == "valid"]
    assert valid[-1]["loss"] < valid[0]["loss"]
    assert valid[-1]["accuracy"] > valid[0]["accuracy"]
    assert valid[-1]["accuracy"] > 30
    assert valid[0]["criterion"] == "accuracy"
    assert [one["source"] for one in valid[0]["samples"]] == [one["source"] for one in valid[-1]["samples"]]
    assert any("<mask>" in one["source"] for one in valid[0]["samples"])
    report = (trained_masked.run / "report.html").read_text(encoding="utf-8")
    assert "Accuracy on the validation set" in report
    card = json.loads((trained_masked.run / "model" / "model.json").read_text(encoding="utf-8"))
    assert (card["architecture"], card["facts"]["task"]) == ("encoder_only", "masked")
    assert card["facts"]["data"]["texts"] == 80
    assert "left out 1 text with an empty side" in trained_masked.err


def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(transduce: Any, trained_masked: TrainedMasked) -> None:
    resumed = copied_until(trained_masked.run, trained_masked.folder / "resumed", 25)
    outcome = transduce(*trained_masked.words, *sets(steps=50), "--out", resumed, cwd=trained_masked.folder)
    assert outcome.code == 0, outcome.err
    for name in ("model", "optimizer"):
        runs = (trained_masked.run, resumed)
        first, second = ((run / f"checkpoints/step-50/{name}.safetensors").read_bytes() for run in runs)
        assert first == second


def test_two_processes_train_the_same_model(transduce: Any, trained_masked: TrainedMasked) -> None:
    words = [*trained_masked.words, "--set", "train.steps=25"]
    outcome = transduce(*words, "--out", "two", cwd=trained_masked.folder, processes=2)
    assert outcome.code == 0, outcome.err
    first, second = (
        next(record for record in metrics(trained_masked.folder / name) if record["kind"] == "valid")
        for name in ("run", "two")
    )
    assert first["loss"] == pytest.approx(second["loss"], rel=1e-3)
    assert first["accuracy"] == pytest.approx(second["accuracy"], abs=2)


def test_fill_prints_the_most_likely_tokens(transduce: Any, trained_masked: TrainedMasked) -> None:
    words = ["fill", "-m", "run", "--top", "3"]
    outcome = transduce(*words, "The cow <mask> today.", "<mask> dog barks <mask>.", cwd=trained_masked.folder)
    assert (outcome.code, outcome.err) == (0, "")
    blocks = [[line.split("\t") for line in block.splitlines()] for block in outcome.out.split("\n\n")]
    assert [len(block) for block in blocks] == [3, 3, 3]
    assert blocks[0][0][1:] == ["moos", "The cow moos today."]
    for block in blocks:
        probabilities = [float(probability) for probability, _, _ in block]
        assert probabilities == sorted(probabilities, reverse=True)
    assert {token for _, token, _ in blocks[1]} <= {"The", "A", "Our", "My"}
    assert blocks[1][0][2].endswith(" dog barks <mask>.")
    assert {token for _, token, _ in blocks[2]} <= {"today", "again", "now", "here", "often"}


def test_fill_reads_standard_input_and_writes_json(transduce: Any, trained_masked: TrainedMasked) -> None:
    outcome = transduce("fill", "-m", "run", "--json", stdin="A cat <mask> now.\n", cwd=trained_masked.folder)
    (record,) = map(json.loads, outcome.out.splitlines())
    assert record["text"] == "A cat <mask> now."
    assert len(record["masks"][0]) == 5
    assert record["masks"][0][0]["token"] == "meows"
    fillings = TextEncoder.load(trained_masked.run, device="cpu").fill("A cat <mask> now.", top=1000)
    assert sum(one.probability for one in fillings[0]) <= 1 + 1e-5
    assert all(one.text.startswith("A cat ") for one in fillings[0])


def test_every_token_that_fills_a_mask_is_visible(transduce: Any, trained_masked: TrainedMasked) -> None:
    for text in ("A cat <mask> now.", "A ca<mask> meows now."):  # tokens that begin a word, and others
        outcome = transduce("fill", "-m", "run", "--top", "450", text, cwd=trained_masked.folder)
        rows = [line.split("\t") for line in outcome.out.splitlines()]
        before, _, after = text.partition("<mask>")
        assert all(token and filled.startswith(before.strip()) and filled.endswith(after) for _, token, filled in rows)
    tokens = [token for _, token, _ in rows]
    assert {"<0xE2>", "<0x0A>", "<0x09>"} < set(tokens)
    assert len(set(tokens)) == len(tokens)
    assert [filled for _, token, filled in rows if token == "<0x0A>"] == [r"A ca\n meows now."]


def test_embed_writes_vectors_in_the_order_of_the_texts(transduce: Any, trained_masked: TrainedMasked) -> None:
    folder = trained_masked.folder
    write_lines(folder / "mixed.txt", ["My pig oinks here.", "x", TEXTS[0] * 9, "My pig oinks here."])
    assert transduce("embed", "-m", "run", "mixed.txt", "-o", "v.npy", cwd=folder).code == 0
    vectors = np.load(folder / "v.npy")
    assert vectors.shape == (4, 32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    assert (vectors[0] == vectors[3]).all()
    encoder = TextEncoder.load(trained_masked.run, device="cpu")
    assert encoder.embed(["x"])[0] == pytest.approx(vectors[1], abs=1e-5)
    outcome = transduce("embed", "-m", "run", stdin="x\nMy pig oinks here.\n", cwd=folder)
    records = list(map(json.loads, outcome.out.splitlines()))
    assert [record["text"] for record in records] == ["x", "My pig oinks here."]
    assert records[0]["vector"] == pytest.approx(vectors[1].tolist(), abs=1e-5)
    (folder / "rows.jsonl").write_text('{"text": "x"}\n{"text": "My pig oinks here."}\n')
    assert transduce("embed", "-m", "run", "rows.jsonl", cwd=folder).out == outcome.out
    assert transduce("embed", "-m", "run", "x", "-o", "v.jsonl", cwd=folder).code == 0
    assert json.loads((folder / "v.jsonl").read_text())["text"] == "x"
    for words in ([], ["-o", "cut.npy"]):
        outcome = transduce("embed", "-m", "run", "x", "cat " * 300, *words, cwd=folder)
        assert outcome.err == "transduce: warning: 1 text was cut to 256 tokens, the most that the model reads\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fill", "x <mask>"], "name a model with -m"),
        (["fill", "-m", "run", "x"], "'x' has no <mask>"),
        (["fill", "-m", "run", "a\udcff <mask>"], r"'a\udcff <mask>' is not UTF-8"),
        (["embed", "-m", "run", "x", "-o", "v.txt"], "v.txt: end the name in .npy or .jsonl"),
        (["embed", "-m", "run", "rows.jsonl", "-o", "rows.jsonl"], "--out would overwrite rows.jsonl"),
        (["embed", "-m", "run", "x", "-o", "no/v.npy"], "--out no/v.npy: there is no folder no; make it first"),
        (
            ["train", "--task", "masked", "--text", "table.tsv", "--style", "bert", "--out", "new"],
            "table.tsv is a file of pairs or rows; give text of one language",
        ),
        (["embed", "-m", "run", "table.tsv"], "table.tsv has columns; give one of them as text, a text on each line"),
        (["embed", "-m", "nothing", "x"], "nothing: no such folder"),
        (["translate", "-m", "run", "x"], "was trained for the task masked; use it with: transduce fill"),
        (["train", "--task", "masked", "--text", "empty.txt", "--out", "new"], "empty.txt: no text"),
        (
            ["train", "--task", "masked", "--text", "train.txt", "--set", "model.architecture=decoder_only", "-o", "n"],
            "the task masked needs model.architecture=encoder_only",
        ),
    ],
)
def test_mistakes_are_one_line(transduce: Any, trained_masked: TrainedMasked, words: list[str], message: str) -> None:
    (trained_masked.folder / "empty.txt").write_text("\n")
    (trained_masked.folder / "rows.jsonl").write_text('{"text": "x"}\n')
    (trained_masked.folder / "table.tsv").write_text("x\ty\n")
    assert message in complaint(transduce(*words, cwd=trained_masked.folder))


def test_a_model_without_classes_does_not_classify(transduce: Any, trained_masked: TrainedMasked) -> None:
    outcome = transduce("classify", "-m", "run", "x", cwd=trained_masked.folder)
    assert "this is not a classifier" in complaint(outcome)


def test_a_translation_model_does_not_fill(transduce: Any, trained: Any) -> None:
    outcome = transduce("fill", "-m", trained.run, "x <mask>", cwd=trained.folder)
    assert "not a model of the architecture encoder_only" in complaint(outcome)


def test_inspect_shows_the_predictions_at_masks(transduce: Any, trained_masked: TrainedMasked, tmp_path: Path) -> None:
    text = "The cat <mask> today."
    outcome = transduce("inspect", "-m", "run", text, "-o", tmp_path / "look.html", cwd=trained_masked.folder)
    assert (outcome.code, outcome.err) == (0, "")
    header = inspected_header(tmp_path / "look.html")
    assert (header["kind"], header["target"], len(header["lens"])) == ("encoder", [None], 2)
    assert header["tokens"][str(header["source"][header["places"][0]])][0] == "<mask>"
    (fillings,) = TextEncoder.load(trained_masked.run, device="cpu").fill(text, top=1)
    shown = {header["tokens"][str(token)][0].lstrip("▁") for token in header["next"]["token"][0]}
    assert fillings[0].token in shown


def test_score_names_the_task_of_a_model_that_it_does_not_run(transduce: Any, trained_masked: TrainedMasked) -> None:
    message = complaint(transduce("score", "valid.txt", "-m", "run", cwd=trained_masked.folder))
    assert message == "run/model was trained for the task masked; use it with: transduce fill"


def test_texts_of_the_python_interface_are_checked(trained_masked: TrainedMasked) -> None:
    encoder = TextEncoder.load(trained_masked.run, device="cpu")
    with pytest.raises(DataError, match="texts must be a list of texts"):
        encoder.embed("A cat meows.")
    with pytest.raises(DataError, match=r"^texts\[0\] is not a text, but of the type float"):
        encoder.embed([float("nan")])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"^the text to fill is not a text, but of the type list"):
        encoder.fill(["A <mask> meows."])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="top must be an integer of at least 1"):
        encoder.fill("A <mask> meows.", top=0)
