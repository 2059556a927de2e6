"""Classification through the command line: texts and images; scores are counted by hand."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import complaint, copied_until, metrics
from toy_run import as_sets, write_lines

from transduce.classification.classifier import Classifier
from transduce.classification.task import ClassScores
from transduce.errors import DataError
from transduce.models.folder import load_model

GOOD, BAD = ("good", "great", "fine", "lovely"), ("bad", "awful", "poor", "dull")
SUBJECTS = ("The film", "A book", "This play", "Our song", "The plot")
ROWS = [(f"{subject} is {extra}{word}", label) for subject in SUBJECTS for extra in ("", "very ", "so ")
        for words, label in ((GOOD, "positive"), (BAD, "negative")) for word in words]  # fmt: skip
SMALL: dict[str, Any] = {
    "model.layers": 1, "model.d_model": 32, "model.d_ff": 64, "model.num_heads": 2, "model.dropout": 0.0,
    "train.steps": 60, "train.save_every": 20, "train.log_every": 10, "train.warmup": 10, "train.learning_rate": 0.01,
    "train.device": "cpu", "train.average": 1,
}  # fmt: skip
TEXT = SMALL | {"tokenizer.vocab_size": 450, "train.batch_tokens": 400}
IMAGE = SMALL | {"model.patch_size": 4, "train.batch_tokens": 5000, "classify.shift": 1}


@dataclass(frozen=True)
class TrainedClassifier:
    folder: Path
    words: list[str]

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def train(self, transduce: Any, out: str, *more: str, **options: Any) -> str:
        outcome = transduce(*self.words, *more, "--out", out, cwd=self.folder, **options)
        assert outcome.code == 0, outcome.err
        return str(outcome.err)


@pytest.fixture(scope="module")
def texts(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> TrainedClassifier:
    folder = tmp_path_factory.mktemp("classify")
    write_lines(folder / "train.tsv", ["sentence\tlabel", *(f"{text} \t{label}" for text, label in ROWS), "no label"])
    write_lines(folder / "valid.tsv", [f"{text}\t{label}" for text, label in ROWS[::4]])
    words = ["train", "--task", "classify", "--train", "train.tsv", "--valid", "valid.tsv", "--style", "bert"]
    trained = TrainedClassifier(folder, [*words, *as_sets(TEXT)])
    trained.train(transduce, "run")
    return trained


def as_idx(path: Path, array: Any) -> Path:
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    content = bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def make_images(count: int, seed: int) -> tuple[Any, Any]:
    """Noisy images of 8 x 12 pixels with a horizontal (0) or a vertical (1) bar."""
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, 2, count)
    images = chance.integers(0, 60, (count, 8, 12))
    for image, label in zip(images, labels, strict=True):
        if label:
            image[:, chance.integers(3, 9)] = 255
        else:
            image[chance.integers(2, 6)] = 255
    return images.astype(np.uint8), labels


@pytest.fixture(scope="module")
def images(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> TrainedClassifier:
    folder = tmp_path_factory.mktemp("images")
    for name, count, seed in (("train", 300, 1), ("valid", 60, 2)):
        pictures, labels = make_images(count, seed)
        as_idx(folder / f"{name}-images.gz", pictures)
        as_idx(folder / f"{name}-labels", labels)
        np.savez(folder / f"{name}.npz", images=pictures, labels=labels)
    files = ["--src", "train-images.gz", "--tgt", "train-labels"]
    files += ["--valid-src", "valid-images.gz", "--valid-tgt", "valid-labels"]
    trained = TrainedClassifier(folder, ["train", "--task", "classify", *files, "--style", "vit", *as_sets(IMAGE)])
    trained.train(transduce, "run")
    return trained


def card(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "model" / "model.json").read_text(encoding="utf-8")))


def valid_records(run: Path) -> list[dict[str, Any]]:
    return [record for record in metrics(run) if record["kind"] == "valid"]


def test_training_counts_the_classes_and_reports_their_confusion(texts: TrainedClassifier) -> None:
    last = valid_records(texts.run)[-1]
    assert last["accuracy"] == 100
    assert last["macro_f1"] == 100
    assert last["confusion"] == {"labels": ["negative", "positive"], "counts": [[15, 0], [0, 15]]}
    assert (card(texts.run)["model"]["classes"], card(texts.run)["facts"]["labels"]) == (2, ["negative", "positive"])
    assert "classes = 2" in (texts.run / "config.toml").read_text(encoding="utf-8")
    report = (texts.run / "report.html").read_text(encoding="utf-8")
    for text in ("Confusion matrix", "Accuracy on the validation set", "Macro F1 of the finished model", "The film is"):
        assert text in report
    assert "denoise" not in report


def test_images_train_without_a_vocabulary_of_text(images: TrainedClassifier) -> None:
    assert valid_records(images.run)[-1]["accuracy"] > 90
    sizes = card(images.run)["model"]
    assert (sizes["classes"], sizes["image_height"], sizes["image_width"], sizes["channels"]) == (2, 8, 12, 1)
    assert card(images.run)["facts"]["data"]["images"] == 300


@pytest.mark.parametrize("kind", ["texts", "images"])
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(
    transduce: Any, kind: str, request: pytest.FixtureRequest
) -> None:
    trained: TrainedClassifier = request.getfixturevalue(kind)
    resumed = copied_until(trained.run, trained.folder / "resumed", 20)
    trained.train(transduce, "resumed")
    for name in ("model", "optimizer"):
        runs = (trained.run, resumed)
        first, second = ((run / f"checkpoints/step-60/{name}.safetensors").read_bytes() for run in runs)
        assert first == second


@pytest.mark.parametrize("kind", ["texts", "images"])
def test_two_processes_train_the_same_model(transduce: Any, kind: str, request: pytest.FixtureRequest) -> None:
    trained: TrainedClassifier = request.getfixturevalue(kind)
    trained.train(transduce, "two", "--set", "train.steps=20", processes=2)
    first, second = (valid_records(trained.folder / name)[0] for name in ("run", "two"))
    assert first["loss"] == pytest.approx(second["loss"], rel=1e-3)
    assert sum(map(sum, second["confusion"]["counts"])) == sum(map(sum, first["confusion"]["counts"]))


def test_classify_prints_labels_and_probabilities(transduce: Any, texts: TrainedClassifier) -> None:
    outcome = transduce("classify", "-m", "run", "The film is great", "Our song is awful", cwd=texts.folder)
    assert (outcome.code, outcome.err) == (0, "")
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert [(label, text) for label, _, text in rows] == [
        ("positive", "The film is great"),
        ("negative", "Our song is awful"),
    ]
    assert all(float(probability) > 0.5 for _, probability, _ in rows)
    lines = "This play is dull\nA book is so fine\n"
    outcome = transduce("classify", "-m", "run", "--json", stdin=lines, cwd=texts.folder)
    records = list(map(json.loads, outcome.out.splitlines()))
    assert [(one["text"], one["label"]) for one in records] == list(
        zip(lines.splitlines(), ["negative", "positive"], strict=True)
    )
    assert sum(records[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert next(iter(records[0]["probabilities"])) == "negative"
    (texts.folder / "rows.jsonl").write_text("".join(f'{{"text": "{line}"}}\n' for line in lines.splitlines()))
    from_rows = transduce("classify", "-m", "run", "--json", "rows.jsonl", cwd=texts.folder)
    assert list(map(json.loads, from_rows.out.splitlines())) == records
    cut = transduce("classify", "-m", "run", "This play " * 300, "dull " * 300, cwd=texts.folder)
    assert cut.err == "transduce: warning: 2 texts were cut to 256 tokens, the most that the model reads\n"
    direct = Classifier.load(texts.run, device="cpu").classify(["This play is dull"])[0]
    assert direct.probability == pytest.approx(records[0]["probability"], abs=1e-6)


def test_classes_are_counted_before_training(transduce: Any, tmp_path: Path) -> None:
    rows = [{"text": f"good {number}", "label": "very\n good"} for number in range(5)] + [{"text": "bad", "label": 0}]
    write_lines(tmp_path / "rows.jsonl", list(map(json.dumps, rows)))
    write_lines(tmp_path / "exchanged.tsv", [f"good\tThis play is number {number}" for number in range(5)])
    words = ["train", "--task", "classify", "--style", "bert", "--preset", "tiny", *as_sets({"train.steps": 1})]
    outcome = transduce(*words, "--train", "rows.jsonl", "--out", "run", cwd=tmp_path)
    assert "data: 2 classes: very good (5), 0 (1)\n" in outcome.err
    assert "a single text" not in outcome.err
    assert "names the columns" not in outcome.err
    write_lines(tmp_path / "named.tsv", ["review\tmood", *(f"play {number}\t{number % 2}" for number in range(6))])
    outcome = transduce(*words, "--train", "named.tsv", "--out", "named", cwd=tmp_path)
    assert "data: the class mood has only the first text; if that line names the columns, name them" in outcome.err
    outcome = transduce(*words, "--train", "exchanged.tsv", "--out", "wrong", cwd=tmp_path)
    assert "data: most classes have a single text; check that the columns of texts and labels" in outcome.err


def test_texts_of_the_python_interface_are_checked(texts: Any) -> None:
    classifier = Classifier.load(texts.run, device="cpu")
    with pytest.raises(DataError, match="inputs must be a list of texts"):
        classifier.classify("This play is dull")
    with pytest.raises(DataError, match=r"^inputs\[1\] is not a text, but of the type NoneType"):
        classifier.classify(["This play is dull", None])  # type: ignore[list-item]


def test_images_of_the_python_interface_are_checked(images: TrainedClassifier) -> None:
    classifier = Classifier.load(images.run, device="cpu")
    config = classifier.model.config
    shape = (config.image_height, config.image_width)
    assert len(classifier.classify([np.zeros(shape, np.uint8)])) == 1
    with pytest.raises(DataError, match=r"must be bytes \(uint8\) from 0 to 255, not float64"):
        classifier.classify([np.zeros(shape)])
    with pytest.raises(DataError, match="inputs must be a list of images"):
        classifier.classify("digit.png")
    with pytest.raises(DataError, match="an image is a path or an array of bytes, not of the type NoneType"):
        classifier.classify([None])  # type: ignore[list-item]


def test_evaluate_scores_texts(transduce: Any, texts: TrainedClassifier) -> None:
    rows = [*ROWS[:6], (ROWS[0][0], "negative"), (ROWS[1][0], "negative")]  # two wrong labels
    lines = [json.dumps({"label": label, "text": text}) for text, label in rows]
    write_lines(texts.folder / "test.jsonl", lines)
    outcome = transduce("evaluate", "-m", "run", "--test", "test.jsonl", "--json", cwd=texts.folder)
    scores = json.loads(outcome.out)
    assert (scores["accuracy"], scores["examples"]) == (75, 8)
    assert scores["confusion"]["counts"] == [[2, 2], [0, 4]]
    assert scores["macro_f1"] == pytest.approx(100 * (2 * 2 / 6 + 2 * 4 / 10) / 2)
    outcome = transduce("evaluate", "-m", "run", "--test", "test.jsonl", cwd=texts.folder)
    assert outcome.out.splitlines()[0] == "Accuracy   75.00   of 8 examples"
    assert [line.split() for line in outcome.out.splitlines()[-2:]] == [["negative", "2", "2"], ["positive", "0", "4"]]


def test_evaluate_scores_images(transduce: Any, images: TrainedClassifier) -> None:
    for words in (["--test", "valid.npz"], ["--src", "valid-images.gz", "--ref", "valid-labels"]):
        outcome = transduce("evaluate", "-m", "run", *words, "--json", cwd=images.folder)
        assert outcome.code == 0, outcome.err
        (final,) = [record for record in metrics(images.run) if record["kind"] == "final"]
        assert json.loads(outcome.out)["accuracy"] == pytest.approx(final["valid_accuracy"])


def test_image_files_are_read_in_folders_of_classes(transduce: Any, images: TrainedClassifier, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pictures, labels = make_images(40, seed=3)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        folder = tmp_path / "bars" / ("vertical" if label else "horizontal")
        folder.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(picture).save(folder / f"{number}.png")
    words = ["train", "--task", "classify", "--train", "bars", "--style", "vit", *as_sets(IMAGE)]
    assert transduce(*words, "--out", "run", cwd=tmp_path).code == 0
    assert card(tmp_path / "run")["facts"]["labels"] == ["horizontal", "vertical"]
    file = next((tmp_path / "bars" / "vertical").iterdir())
    outcome = transduce("classify", "-m", images.run, file, cwd=tmp_path)
    assert outcome.out.split("\t")[0] == "1"
    outcome = transduce("classify", "-m", images.run, stdin=f"{file}\n\n", cwd=tmp_path)
    assert complaint(outcome) == "an empty line or argument names no image file; remove it"


def test_a_classifier_starts_from_a_model_of_masked_tokens(
    transduce: Any, texts: TrainedClassifier, tmp_path: Path
) -> None:
    write_lines(tmp_path / "lines.txt", [text for text, _ in ROWS])
    masked = ["train", "--task", "masked", "--text", "lines.txt", "--style", "bert", *as_sets(TEXT)]
    assert transduce(*masked, "--set", "train.steps=20", "--out", "masked", cwd=tmp_path).code == 0
    words = ["train", "--task", "classify", "--train", texts.folder / "train.tsv", "--start-from", "masked"]
    words += ["--set", "train.device=cpu", "--set", "train.warmup=1", "--set", "train.batch_tokens=400"]
    outcome = transduce(*words, *as_sets({"train.steps": 1, "train.learning_rate": 1e-9}), "-o", "new", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    before, after = (load_model(tmp_path / run / "model").model.state_dict() for run in ("masked", "new"))
    body = [name for name in before if not name.startswith(("head.", "output."))]
    assert len(body) > 10
    for name in body:
        assert torch.allclose(after[name], before[name], atol=1e-6), name
    assert after["head.weight_CD"].shape == (2, 32)


def test_a_classifier_keeps_its_head_if_the_classes_are_the_same(
    transduce: Any, texts: TrainedClassifier, tmp_path: Path
) -> None:
    write_lines(tmp_path / "other.tsv", [f"{text}\t{number % 3}" for number, (text, _) in enumerate(ROWS)])
    for name, file in (("same", texts.folder / "train.tsv"), ("other", tmp_path / "other.tsv")):
        words = ["train", "--task", "classify", "--train", file, "--start-from", texts.run]
        values = {"train.steps": 1, "train.learning_rate": 1e-9, "train.batch_tokens": 400, "train.device": "cpu"}
        outcome = transduce(*words, *as_sets(values), "--out", name, cwd=tmp_path)
        assert outcome.code == 0, outcome.err
    old, same, other = (load_model(run / "model").model.state_dict()["head.weight_CD"]
                        for run in (texts.run, tmp_path / "same", tmp_path / "other"))  # fmt: skip
    assert torch.allclose(same, old, atol=1e-6)
    assert other.shape == (3, 32)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["classify", "x"], "name a model with -m"),
        (
            ["classify", "-m", "run", "valid.tsv"],
            "valid.tsv has labels beside the texts; score them with: transduce eval",
        ),
        (["translate", "-m", "run", "x"], "was trained for the task classify; use it with: transduce classify"),
        (["fill", "-m", "run", "x <mask>"], "the model is a classifier"),
        (["evaluate", "-m", "run", "--test", "unknown.tsv"], "unknown.tsv: the label mixed is not a class of run"),
        (
            ["evaluate", "-m", "run", "--test", "valid.tsv", "--beam", "2"],
            "--beam has no effect on a model of the task classify",
        ),
        (
            ["evaluate", "-m", "run", "--test", "valid.tsv", "--to", "de"],
            "--to has no effect on a model of the task classify",
        ),
        (["evaluate", "-m", "run", "--src", "valid.tsv"], "a classifier is evaluated by itself"),
        (["train", "--task", "classify", "--train", "one.tsv", "-o", "n"], "all examples have the label a"),
        (["train", "--task", "classify", "--train", "x.txt", "-o", "n"], "x.txt: labelled texts are .tsv"),
        (
            ["train", "--task", "classify", "--train", "train.tsv", "--valid", "unknown.tsv", "-o", "n"],
            "validation data has the label mixed, which no training example has",
        ),
        (
            ["train", "--task", "classify", "--train", "train.tsv", "--set", "classify.shift=1", "-o", "n"],
            "classify.shift is for images",
        ),
    ],
)
def test_mistakes_are_one_line(transduce: Any, texts: TrainedClassifier, words: list[str], message: str) -> None:
    write_lines(texts.folder / "unknown.tsv", ["The plot is fine\tmixed"])
    write_lines(texts.folder / "one.tsv", ["x\ta", "y\ta"])
    write_lines(texts.folder / "x.txt", ["x"])
    assert message in complaint(transduce(*words, cwd=texts.folder))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["--src", "train-images.gz", "--tgt", "valid-labels"], "300 images, but 60 labels"),
        (["--src", "train-labels", "--tgt", "valid-labels"], "train-labels: images must be bytes"),
        (["--src", "train.npz", "--tgt", "train-labels"], "train.npz: not an IDX file"),
        (["--train", "train-labels"], "images are a folder with a subfolder for each class"),
        (["--train", "other.npz"], "other.npz: it needs the arrays images and labels"),
        (["--train", "train.npz", "--set", "model.patch_size=5"], "patch_size must divide"),
        (["--train", "train.npz", "--valid", "wide.npz"], "validation images have the shape (8, 16, 1)"),
    ],
)
def test_mistakes_with_images_are_one_line(
    transduce: Any, images: TrainedClassifier, files: list[str], message: str
) -> None:
    np.savez(images.folder / "other.npz", x=np.zeros((2, 4, 4), np.uint8))
    np.savez(images.folder / "wide.npz", x=np.zeros((2, 8, 16), np.uint8), y=[0, 1])
    words = ["train", "--task", "classify", "--style", "vit", *files, "--out", "new"]
    assert message in complaint(transduce(*words, cwd=images.folder))


def test_class_scores() -> None:
    scores = ClassScores.of([0, 0, 1, 1, 1], [0, 1, 1, 1, 0], ["a", "b", "never"])
    assert scores.accuracy == 60
    assert scores.to_table()["counts"] == [[1, 1, 0], [1, 2, 0], [0, 0, 0]]
    assert scores.macro_f1 == pytest.approx(100 * (1 / 2 + 2 / 3) / 2)
