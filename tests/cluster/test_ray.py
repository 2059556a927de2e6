"""`transduce translate --ray`: the outputs of one process, none lost or doubled when workers are killed."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import complaint
from fault_injection import FULL, repetitions
from toy_run import make_toy_pairs, write_lines

from transduce.cluster.ray import TranslateBatch, translate_with_ray
from transduce.files.parquet import read_table, table_writer

pytest.importorskip("ray")
pyarrow: Any = pytest.importorskip("pyarrow")

NAME = "ray::MapWorker(MapBatches(TranslateBatch"
SLOW = """
import os
os.environ["TRANSDUCE_TEST_TOKEN"] = {token!r}
import transduce.cluster.ray as r
r._ROWS, r._BLOCK_BYTES = 4, 256
import time, types
import ray._private.node as node
node.time = types.SimpleNamespace(**vars(time) | {{"monotonic": lambda: 0.0}})  # otherwise it waits 30 s for its start
"""


def workers(token: str) -> list[int]:
    """The processes of Ray's workers that translate for the command with this token."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_worker = (folder / "cmdline").read_bytes().decode("utf-8", "replace").startswith(NAME)
            if is_worker and f"TRANSDUCE_TEST_TOKEN={token}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended
    return found


def kill_workers(token: str, count: int, done: threading.Event, killed: list[int]) -> None:
    """Kill this many workers, one after another, each soon after it appears."""
    while len(killed) < count and not done.wait(0.05):
        if new := [pid for pid in workers(token) if pid not in killed]:
            os.kill(new[0], signal.SIGKILL)
            killed.append(new[0])


@pytest.mark.parametrize(
    ("text", "target"),
    [("Le chat dort sur la table de la cuisine.", "en"), ("The cat is sleeping on the kitchen table.", "de")],
)
def test_the_language_of_the_files_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, target: str
) -> None:
    calls: list[str] = []
    monkeypatch.setattr("transduce.cluster.ray.translate_files", lambda *_, to, **more: calls.append(to))
    write_lines(tmp_path / "text.txt", [text] * 3)
    loading = dict.fromkeys(("model", "prefix", "protect", "glossary", "formality", "locale"))
    options: dict[str, Any] = {"column": None, "resume": False, "force": False}
    translate_with_ray([tmp_path / "text.txt"], tmp_path / "out", loading, {}, None, None, **options)
    assert calls == [target]


def test_files_in_another_language_are_refused(transduce: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "text.txt", ["Il gatto dorme sul tavolo della cucina e non vuole mangiare."] * 3)
    outcome = transduce("translate", "--ray", "--out", "out", "text.txt", cwd=tmp_path)
    assert complaint(outcome).startswith("the text seems to be in Italian (it), which this model does not translate")


@pytest.fixture
def patient(transduce: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray starts a dozen processes, and each worker imports torch: on a busy machine, that takes minutes."""
    monkeypatch.setitem(type(transduce)._answer.__globals__, "PATIENCE", 900)


def test_files_are_translated_as_by_one_process_while_workers_are_killed(
    transduce: Any, trained: Any, tmp_path: Path, patient: None
) -> None:
    pairs, token = make_toy_pairs(150, seed=8), str(tmp_path)
    inputs = tmp_path / "in"
    inputs.mkdir()
    rows = [{"id": number, "text": source} for number, (source, _) in enumerate(pairs[:90])]
    (inputs / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with table_writer(inputs / "b.parquet") as add:
        for number, (source, _) in enumerate(pairs[90:140]):
            add({"src": source, "place": number / 2})
    write_lines(inputs / "c.txt", [source for source, _ in pairs[140:]])
    plain = write_lines(tmp_path / "plain.txt", [source for source, _ in pairs])
    expected = transduce("translate", "-m", trained.run, plain, cwd=tmp_path).out.splitlines()

    kills, killed, done = repetitions(1, 10), list[int](), threading.Event()
    killer = threading.Thread(target=kill_workers, args=(token, kills, done, killed))
    killer.start()
    words = ["translate", "-m", trained.run, "--ray", "--workers", "2", *sorted(inputs.iterdir()), "--out", "out"]
    outcome = transduce(*words, cwd=tmp_path, before=SLOW.format(token=token))
    done.set()
    killer.join()
    assert outcome.code == 0, outcome.err
    assert len(killed) == kills
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["a.jsonl", "b.parquet", "c.txt"]
    written = list(map(json.loads, (out / "a.jsonl").read_text().splitlines()))
    assert written == [row | {"tgt": text} for row, text in zip(rows, expected, strict=False)]
    table = list(read_table(out / "b.parquet"))
    assert [row["tgt"] for row in table] == expected[90:140]
    assert [row["place"] for row in table] == [number / 2 for number in range(50)]
    assert (out / "c.txt").read_text().splitlines() == expected[140:]

    before = (out / "a.jsonl").stat().st_mtime_ns
    resumed = transduce(*words, "--resume", cwd=tmp_path)  # without starting Ray
    assert (resumed.code, resumed.err) == (0, "transduce: 3 of 3 files are in out already\n")
    assert (out / "a.jsonl").stat().st_mtime_ns == before


@pytest.mark.skipif(not FULL, reason="starts Ray again; run by `make faults`")
def test_an_error_of_a_worker_is_one_line_and_no_file_appears(
    transduce: Any, trained: Any, tmp_path: Path, patient: None
) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "babo"}\n{"id": 1}\n')
    outcome = transduce("translate", "-m", trained.run, "--ray", "in.jsonl", "--out", "out", cwd=tmp_path)
    assert outcome.code == 2
    assert "in.jsonl, row 2: there is no column src (it has id)" in outcome.err.splitlines()[-1]
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["in.txt"], "--ray needs files to read, and a folder to write to: --out"),
        (["--out", "out"], "--ray needs files to read"),
        (["in.txt", "--out", "file.txt"], "--out file.txt is a file; --ray writes to a folder"),
        (["in.txt", "--out", "."], "--out would overwrite in.txt, which is being read; name another file"),
        (["in.txt", "--out", "out", "--jsonl", "--shard", "1/2"], "--ray does not support --jsonl, --shard"),
    ],
)
def test_what_ray_cannot_do_is_refused(
    transduce: Any, trained: Any, tmp_path: Path, words: list[str], message: str
) -> None:
    for name in ("in.txt", "file.txt"):
        write_lines(tmp_path / name, ["babo"])
    assert message in complaint(transduce("translate", "-m", trained.run, "--ray", *words, cwd=tmp_path))


@pytest.mark.parametrize(
    ("words", "target"),
    [(["a.fr"], "en"), (["a.en", "--to", "fr"], "fr"), (["a.txt", "--from", "de"], "en"), (["a.en"], "de")],
)
def test_the_names_of_files_and_the_option_from_tell_the_target_language(
    transduce: Any, tmp_path: Path, words: list[str], target: str
) -> None:
    write_lines(tmp_path / words[0], ["babo"])
    show = "import transduce.cluster.ray as r; r.translate_files = lambda *_, to, **__: print(to)"
    outcome = transduce("translate", "--ray", *words, "--out", "out", cwd=tmp_path, before=show)
    assert outcome.out == f"{target}\n", outcome.err


def test_an_unfinished_translation_is_not_resumed_in_another_language(transduce: Any, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        write_lines(tmp_path / name, ["babo"])
    words = ("translate", "--ray", "a.txt", "b.txt", "--out", "out", "--resume", "--to")
    translate = """
import transduce.cluster.ray as r
def translate(_, out, to, **__):
    out.mkdir(exist_ok=True)
    (out / "{name}.txt").write_text(to)
r.translate_files = translate
"""
    only_first, only_second = (translate.format(name=name) for name in ("a", "b"))
    assert transduce(*words, "de", cwd=tmp_path, before=only_first).code == 0
    message = complaint(transduce(*words, "fr", cwd=tmp_path, before=only_second))
    assert message.endswith("out was begun with another target language; resume it the same way, or name another --out")
    assert transduce(*words, "de", cwd=tmp_path, before=only_second).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "out"]


def test_a_direction_that_the_model_does_not_translate_in_is_refused_before_ray_starts(
    transduce: Any, tmp_path: Path
) -> None:
    write_lines(tmp_path / "in.txt", ["babo"])
    words = ("translate", "--ray", "in.txt", "--out", "out", "--from", "de", "--to", "fr")
    assert "does not translate from de to fr" in complaint(transduce(*words, cwd=tmp_path))


def test_a_start_of_ray_that_fails_is_one_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.txt", ["babo"])
    before = "import ray\ndef fail(*_, **__): raise Exception('the node timed out')\nray.init = fail"
    words = ("translate", "-m", trained.run, "--ray", "in.txt", "--out", "out")
    message = complaint(transduce(*words, cwd=tmp_path, before=before))
    assert message.startswith("Ray cannot be started: the node timed out; check ")


def test_a_batch_of_any_kind_gets_a_column(trained: Any) -> None:
    pandas = pytest.importorskip("pandas")
    translate = TranslateBatch(trained.run, threads=1, beam=1)
    texts = ["babo dego", "gigo"]
    expected = translate.translator.translate(texts)
    columns = {"src": texts, "id": [1, 2], "tgt": ["old", "old"]}
    arrays = translate({name: np.array(values, dtype=object) for name, values in columns.items()})
    assert (list(arrays["tgt"]), list(arrays["id"])) == (expected, [1, 2])
    table = translate(pyarrow.table(columns))
    assert table.to_pydict() == columns | {"tgt": expected}
    frame = translate(pandas.DataFrame(columns))
    assert frame.to_dict("list") == columns | {"tgt": expected}
