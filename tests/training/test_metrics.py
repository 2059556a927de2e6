"""`metrics.jsonl`: one line per measurement, truncated when a run resumes, tolerant of an incomplete line."""

import json
from pathlib import Path

import pytest

from transduce.training.metrics import Metrics


def written(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def started(path: Path, steps: int) -> Metrics:
    metrics = Metrics(path, pytest.fail)
    metrics.start_at(0)
    for step in range(1, steps + 1):
        metrics.add("train", step=step, loss=step / 10)
    return metrics


def test_each_measurement_is_written_at_once(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", pytest.fail)
    record = metrics.add("train", step=1, loss=0.5)
    assert record == {"kind": "train", "step": 1, "loss": 0.5}
    assert written(metrics.path) == [record]


def test_measurements_of_a_kind_are_in_order(tmp_path: Path) -> None:
    metrics = started(tmp_path / "metrics.jsonl", steps=2)
    metrics.add("valid", step=2, loss=0.9)
    metrics.add("train", step=3, loss=0.1)
    assert [record["step"] for record in metrics.of("train")] == [1, 2, 3]
    assert [record["loss"] for record in metrics.of("valid")] == [0.9]
    assert metrics.of("final") == []


@pytest.mark.parametrize("step", [0, 1, 3, 5, 9])
def test_measurements_after_the_resumed_step_are_deleted(tmp_path: Path, step: int) -> None:
    path = tmp_path / "metrics.jsonl"
    started(path, steps=5)
    metrics = Metrics(path, pytest.fail)
    metrics.start_at(step)
    expected = list(range(1, min(step, 5) + 1))
    assert [record["step"] for record in metrics.records] == expected
    assert [record["step"] for record in written(path)] == expected


def test_measurements_are_appended_after_the_resumed_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    started(path, steps=5)
    metrics = Metrics(path, pytest.fail)
    metrics.start_at(3)
    metrics.add("train", step=4, loss=7.0)
    assert [(record["step"], record["loss"]) for record in written(path)] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 7.0)]
    assert metrics.records == written(path)


@pytest.mark.parametrize("text", ["plain", "Füße 汉字", "<b>&\"'", "a\u2028b\u0085c\x1ed", "line\nbreak"])
def test_samples_of_any_text_are_restored(tmp_path: Path, text: str) -> None:
    path = tmp_path / "metrics.jsonl"
    record = Metrics(path, pytest.fail).add("valid", step=1, samples=[{"source": text}])
    metrics = Metrics(path, pytest.fail)
    metrics.start_at(1)
    assert metrics.records == [record]


def test_an_incomplete_last_line_is_deleted_and_the_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    started(path, steps=2)
    complete = path.read_bytes()
    last = json.dumps({"kind": "valid", "step": 2, "text": "Füße"}, ensure_ascii=False).encode()
    for cut in range(1, len(last)):
        path.write_bytes(complete + last[:cut])
        metrics = Metrics(path, pytest.fail)
        metrics.start_at(2)
        assert [record["step"] for record in metrics.records] == [1, 2]
        assert path.read_bytes() == complete


def test_infinities_are_restored(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    Metrics(path, pytest.fail).add("train", step=1, loss=float("inf"))
    metrics = Metrics(path, pytest.fail)
    metrics.start_at(1)
    assert metrics.records[0]["loss"] == float("inf")


def test_a_run_without_measurements_starts_an_empty_file(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", pytest.fail)
    metrics.start_at(5)
    assert metrics.records == []
    assert metrics.path.read_bytes() == b""


def test_measurements_that_failed_on_a_full_disk_are_written_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    metrics = Metrics(tmp_path / "metrics.jsonl", logged.append)
    metrics.add("train", step=1, loss=0.5)

    def full(*_: object, **__: object) -> None:
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write('{"kind": "tr')  # a partial write
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", full)
        for step in (2, 3):
            assert metrics.add("train", step=step, loss=0.5)["step"] == step
    assert len(logged) == 2
    assert all("No space left on device" in line for line in logged)
    metrics.add("train", step=4, loss=0.5)
    assert [record["step"] for record in written(metrics.path)] == [1, 2, 3, 4]
