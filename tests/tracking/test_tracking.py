"""TensorBoard and Weights & Biases receive the numbers of metrics.jsonl; both are read back from their files."""

import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import complaint, copied, metrics, sets

OFFLINE = "import os; os.environ |= {'WANDB_MODE': 'offline', 'WANDB_DIR': ''}"
SINKS = ("torch.utils.tensorboard", "wandb")
"""What the commands would otherwise import one by one, which takes a second or two each time."""
Curves = dict[str, dict[int, float]]


def expected(run: Path) -> Curves:
    """The numbers of metrics.jsonl by name and step."""
    curves: Curves = defaultdict(dict)
    for record in (record for record in metrics(run) if record["kind"] != "start"):
        for name, value in record.items():
            if name != "step" and isinstance(value, int | float):
                curves[f"{record['kind']}/{name}"][record["step"]] = value
    return dict(curves)


def of_tensorboard(run: Path) -> Curves:
    """The numbers that TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {tag: {one.step: one.value for one in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def records_of(path: Path) -> Iterator[Any]:
    """The records of a file of Weights & Biases: LevelDB's log format, after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    data, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 2**15 - place % 2**15 < 7:  # the rest of a block is too small for a header
            place += 2**15 - place % 2**15
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        record = (b"" if kind in (1, 2) else record) + data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            parsed = Record()
            parsed.ParseFromString(record)
            yield parsed


def of_wandb(run: Path) -> tuple[Curves, list[str], str]:
    """The numbers that were logged offline, the id of every attempt, and everything that was written, as text."""
    curves: Curves = defaultdict(dict)
    ids, everything = [], ""
    for path in sorted(run.glob("wandb/offline-run-*/*.wandb")):
        for record in records_of(path):
            everything += str(record)
            if record.HasField("run"):
                ids.append(record.run.run_id)
            if record.HasField("history"):
                row = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
                for name, value in row.items():
                    if not name.startswith("_") and name != "step":
                        curves[name][row["step"]] = value
    return dict(curves), ids, everything


def approximately(curves: Curves) -> dict[str, Any]:
    """Curves for a comparison: TensorBoard has numbers in single precision."""
    return {name: pytest.approx(curve, rel=1e-6) for name, curve in curves.items()}


def test_both_show_the_metrics_of_a_run_that_was_resumed(transduce: Any, trained: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    tracked = [*trained.words, "--out", tmp_path / "run", *sets(tensorboard="true", wandb="toy")]
    first = transduce(*tracked, *sets(steps=6, save_every=3), cwd=tmp_path, before=OFFLINE, preload=SINKS)
    assert first.code == 0, first.err
    resumed = transduce(*tracked, *sets(steps=9, save_every=3), cwd=tmp_path, before=OFFLINE, preload=SINKS)
    assert resumed.code == 0, resumed.err
    run = tmp_path / "run"
    curves = expected(run)
    assert sorted(curves["train/loss"]) == list(range(1, 10))
    assert {"valid/loss", "valid/bleu", "final/valid_bleu", "train/learning_rate"} <= curves.keys()
    assert of_tensorboard(run) == approximately(curves)
    logged, ids, everything = of_wandb(run)
    assert logged == approximately(curves)
    assert len(set(ids)) == 1
    assert "d_model" in everything  # the settings
    for sample in (sample for record in metrics(run) for sample in record.get("samples", [])):
        assert sample["source"] not in everything


def test_every_key_of_the_metrics_is_documented(trained: Any) -> None:
    page = (Path(__file__).parents[2] / "docs/guides/long-runs.md").read_text(encoding="utf-8")
    for record in metrics(trained.run):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{record['kind']}` |"))
        for key in record.keys() - {"kind", "step"}:
            assert f"`{key}`" in row or key.startswith("valid_"), key


def test_a_sink_that_fails_does_not_end_the_run(transduce: Any, trained: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    fail = "import torch.utils.tensorboard as t\ndef fail(*_): raise OSError('no space')\nt.SummaryWriter.flush = fail"
    words = [*trained.words, "--out", tmp_path / "run", *sets(tensorboard="true", steps=2)]
    outcome = transduce(*words, cwd=tmp_path, before=fail, preload=SINKS)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("warning: train.tensorboard is not used any more: no space. Training continues") == 1
    assert len([record for record in metrics(tmp_path / "run") if record["kind"] == "train"]) == 2


@pytest.mark.parametrize(("setting", "package"), [("tensorboard=true", "tensorboard"), ("wandb=toy", "wandb")])
def test_a_missing_package_is_named_before_anything_is_computed(
    transduce: Any, trained: Any, tmp_path: Path, setting: str, package: str
) -> None:
    hide = f"import sys; sys.modules[{package!r}] = None"
    words = [*trained.words, "--out", "run", "--set", f"train.{setting}"]
    message = complaint(transduce(*words, cwd=tmp_path, before=hide))
    assert message == f"train.{package} needs the package {package}: pip install 'transduce[tracking]'"
    assert not (tmp_path / "run").exists()


def test_weights_and_biases_without_a_key_is_an_error_at_the_start(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    nowhere = "import os; os.environ |= {'WANDB_BASE_URL': 'http://127.0.0.1:9', 'HOME': '/nonexistent'}"
    run = copied(trained, tmp_path)
    before = (run / "metrics.jsonl").read_bytes()
    outcome = transduce(
        *trained.words, "--out", run, *sets(wandb="toy", steps=70), cwd=tmp_path, before=nowhere, preload=SINKS
    )
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("transduce: train.wandb: Weights & Biases cannot be used: ")
    assert (run / "metrics.jsonl").read_bytes() == before
