"""Training of speech recognition through the command line, and scores of transcripts, counted by hand."""

import json
import random
import re
import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import complaint, copied_until, metrics
from toy_run import as_sets, write_lines

from transduce.errors import DataError
from transduce.speech.sound import read_sound, to_samples
from transduce.speech.task import edits, exact_match, word_error_rate
from transduce.speech.transcriber import Transcriber

pytest.importorskip("soundfile")

PITCHES = {"low": 300, "middle": 900, "high": 2500}
SETTINGS: dict[str, Any] = {
    "tokenizer.vocab_size": 400, "model.encoder_layers": 1, "model.decoder_layers": 1, "model.d_model": 32,
    "model.d_ff": 64, "model.num_heads": 2, "model.dropout": 0.0, "model.mel_bins": 20, "model.max_frames": 200,
    "transcribe.speed": 0.1, "transcribe.gain": 3.0, "train.batch_tokens": 40_000, "train.steps": 40,
    "train.save_every": 20, "train.log_every": 10, "train.warmup": 10, "train.learning_rate": 0.01,
    "train.device": "cpu", "train.average": 1,
}  # fmt: skip


def write_tone(path: Path, hertz: float, seconds: float, rate: int = 8000) -> None:
    moment = np.arange(int(seconds * rate)) / rate
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((8000 * np.sin(2 * np.pi * hertz * moment)).astype("<i2").tobytes())


@pytest.fixture(scope="module")
def folder(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    (folder / "sounds").mkdir()
    chance = np.random.default_rng(0)
    rows = []
    for number in range(45):
        word = list(PITCHES)[number % 3]
        write_tone(
            folder / "sounds" / f"{number}.wav", PITCHES[word] * chance.uniform(0.9, 1.1), chance.uniform(0.2, 0.4)
        )
        rows.append(f"sounds/{number}.wav\t{word} tone")
    write_lines(folder / "train.tsv", [*rows[:36], "sounds/missing.wav\tlow tone"])
    write_lines(folder / "valid.tsv", rows[36:])
    outcome = transduce(*words(), "--out", "run", cwd=folder)
    assert outcome.code == 0, outcome.err
    assert re.search(r"step 40  valid loss .*  exact_match 100.00 .*  \(greedy\)\n", outcome.err)
    assert re.search(r"finished: .*valid exact match 100.00.*; beam 4\);", outcome.err)
    assert re.search(r"step 40/40 .* target tok/s", outcome.err)
    assert "left out 1 recording whose sound cannot be read (first: train.tsv, line 37)" in outcome.err
    return folder


def words() -> list[str]:
    files = ["--train", "train.tsv", "--valid", "valid.tsv"]
    return ["train", "--task", "transcribe", *files, "--style", "whisper", *as_sets(SETTINGS)]


def valid_records(run: Path) -> list[dict[str, Any]]:
    return [record for record in metrics(run) if record["kind"] == "valid"]


def test_training_validates_by_transcripts(folder: Path) -> None:
    last = valid_records(folder / "run")[-1]
    assert last["criterion"] == "exact_match"
    assert last["exact_match"] == 100
    assert last["wer"] == 0
    assert last["samples"][0]["reference"] in {f"{word} tone" for word in PITCHES}
    report = (folder / "run" / "report.html").read_text(encoding="utf-8")
    for text in ("Word error rate on the validation set, greedy", "target tokens/s", "validation set, beam 4"):
        assert text in report
    assert (last["search"], metrics(folder / "run")[-1]["search"]) == ("greedy", "beam 4")
    facts = json.loads((folder / "run" / "model" / "model.json").read_text(encoding="utf-8"))["facts"]
    assert facts["transcribe"] == {"seconds": 2}
    assert facts["data"]["recordings"] == 36


def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(transduce: Any, folder: Path) -> None:
    resumed = copied_until(folder / "run", folder / "resumed", 20)
    outcome = transduce(*words(), "--out", resumed, cwd=folder)
    assert f"resuming from {resumed}/checkpoints/step-20" in outcome.err
    for name in ("model", "optimizer"):
        runs = (folder / "run", resumed)
        first, second = ((run / f"checkpoints/step-40/{name}.safetensors").read_bytes() for run in runs)
        assert first == second


def test_two_processes_train_the_same_model(transduce: Any, folder: Path) -> None:
    outcome = transduce(*words(), "--set", "train.steps=20", "--out", "two", cwd=folder, processes=2)
    assert outcome.code == 0, outcome.err
    first, second = (valid_records(folder / name)[0] for name in ("run", "two"))
    assert first["loss"] == pytest.approx(second["loss"], rel=1e-2)


def test_the_model_transcribes_and_is_evaluated(transduce: Any, folder: Path) -> None:
    outcome = transduce("transcribe", "-m", "run", "sounds/0.wav", "sounds/2.wav", cwd=folder)
    assert outcome.out.splitlines() == ["low tone", "high tone"]
    outcome = transduce("evaluate", "-m", "run", "--test", "valid.tsv", "--json", cwd=folder)
    assert json.loads(outcome.out) == {"wer": 0.0, "exact_match": 100.0, "recordings": 9, "search": "beam 4"}
    outcome = transduce("evaluate", "-m", "run", "--test", "valid.tsv", "--json", "--max-length", "1", cwd=folder)
    assert json.loads(outcome.out)["exact_match"] == 0
    outcome = transduce("evaluate", "-m", "run", "--test", "valid.tsv", "--max-extra", "1", cwd=folder)
    assert complaint(outcome) == "--max-extra has no effect on a model of the task transcribe; leave it out"


def test_other_recordings_with_the_same_names_are_not_taken_from_the_cache(
    transduce: Any, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "sounds").mkdir()
    for number in range(45):  # the recording of another word
        shutil.copy(folder / "sounds" / f"{(number + 1) % 45}.wav", tmp_path / "sounds" / f"{number}.wav")
    for name in ("train.tsv", "valid.tsv"):
        shutil.copy(folder / name, tmp_path)
    outcome = transduce(*words(), "--out", "run", cwd=tmp_path)
    assert "prepared before" not in outcome.err
    outcome = transduce("evaluate", "-m", "run", "--test", "valid.tsv", "--json", cwd=tmp_path)
    assert json.loads(outcome.out)["exact_match"] == 100


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--set", "model.source=text"], "the task transcribe needs a model that reads sound"),
        (["--set", "model.positions=sinusoidal"], "needs model.positions=learned"),
        (["--set", "model.max_frames=20"], "recordings have up to 1 seconds; set model.max_frames=100 or more"),
        (["--valid", "long.tsv", *as_sets(SETTINGS)], "have up to 3 seconds; set model.max_frames=300 or more"),
        (["--train", "valid.txt"], "valid.txt: no such file"),
        (["--train", "empty.tsv"], "empty.tsv: no recording"),
    ],
)
def test_mistakes_are_one_line(transduce: Any, folder: Path, more: list[str], message: str) -> None:
    (folder / "empty.tsv").write_text("")
    write_tone(folder / "long.wav", 300, 3)
    (folder / "long.tsv").write_text("long.wav\tlow tone\n")
    train = [] if "--train" in more else ["--train", "train.tsv"]
    command = ["train", "--task", "transcribe", *train, "--style", "whisper", *more, "--out", "new"]
    assert message in complaint(transduce(*command, cwd=folder))


def test_samples_of_the_python_interface_are_checked(folder: Path) -> None:
    transcriber = Transcriber.load(folder / "run", device="cpu")
    samples = read_sound(folder / "sounds/0.wav")
    assert transcriber.transcript(samples).text == "low tone"
    wave_N = ((samples - 2**15) / 2**15).astype(np.float32)
    for others in (wave_N, samples - 2**15, samples[None], str(folder / "sounds/0.wav")):
        with pytest.raises(DataError, match=r"^samples must be the array that read_sound\(path\) returns"):
            transcriber.transcript(others)  # type: ignore[arg-type]
    assert transcriber.transcript(to_samples(wave_N)).text == "low tone"
    assert transcriber.transcribe_samples([samples]) == ["low tone"]
    with pytest.raises(DataError, match=r"^sounds\[1\] has 2.5 seconds, more than the 2 that the model reads at once"):
        transcriber.transcribe_samples([samples, np.resize(samples, 40_000)])
    for other in (None, samples, [samples]):
        with pytest.raises(DataError, match=r"^sounds must be the path of a sound file, or a list of paths"):
            transcriber.transcribe(other)  # type: ignore[call-overload]


def test_a_speech_model_does_not_translate(transduce: Any, folder: Path) -> None:
    outcome = transduce("translate", "-m", "run", "x", cwd=folder)
    assert "was trained for the task transcribe; use it with: transduce transcribe" in complaint(outcome)


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [("", "", 0), ("a b", "", 2), ("", "a", 1), ("a b c", "a c", 1), ("a b c", "a x c", 1), ("b a", "a b", 2)],
)
def test_edits(first: str, second: str, count: int) -> None:
    assert edits(first.split(), second.split()) == edits(second.split(), first.split()) == count


def test_edits_follow_the_recurrence() -> None:
    def defined(a: str, b: str) -> int:
        if not a or not b:
            return len(a) + len(b)
        replaced = defined(a[1:], b[1:]) + (a[0] != b[0])
        return min(replaced, defined(a[1:], b) + 1, defined(a, b[1:]) + 1)

    chance = random.Random(0)
    for _ in range(60):
        a, b = ("".join(chance.choices("xyz", k=chance.randint(0, 6))) for _ in range(2))
        assert edits(list(a), list(b)) == defined(a, b)


def test_word_error_rate_counts_the_words_of_all_references() -> None:
    assert word_error_rate(["a b", "c"], ["a x", "c d"]) == 50
    assert exact_match(["a  b", "c"], ["a b", "c d"]) == 50
