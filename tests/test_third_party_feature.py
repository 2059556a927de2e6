"""A feature of another package, found by its entry point: model, task, setting, metric and command."""

import json
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from toy_run import SMALL_DEMO, as_sets, write_lines

from transduce import features, train
from transduce.errors import ConfigError, ModelError
from transduce.fast.choose import pick_engine
from transduce.features import FEATURES, GROUP, Feature, Registry, feature_with
from transduce.models.folder import load_model
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine
from transduce.translation.translator import Translator

PACKAGE = Path(__file__).parent / "third_party_feature"
GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "add-a-feature.md"
SETTINGS: dict[str, Any] = {
    "last_token.tokens": 1, "model.architecture": "window", "model.d_model": 24, "model.window": 3,
    "tokenizer.vocab_size": 450, "train.steps": 30, "train.save_every": 10, "train.log_every": 5, "train.warmup": 10,
    "train.batch_tokens": 256, "train.device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what an installer writes about the package."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path_factory.mktemp("site")
    info = folder / "transduce_last_token-1.0.dist-info"
    info.mkdir()
    name, version = project["name"], project["version"]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    points = "".join(f"{name} = {value}\n" for name, value in project["entry-points"][GROUP].items())
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}", encoding="utf-8")
    return folder


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is installed in this process."""
    for folder in (site, PACKAGE):
        monkeypatch.syspath_prepend(folder)
    features.installed.cache_clear()
    yield
    features.installed.cache_clear()


@pytest.fixture(scope="module")
def before(site: Path) -> str:
    """Installs the package in the process of a command."""
    return f"import sys; sys.path[:0] = [{str(site)!r}, {str(PACKAGE)!r}]"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, toy_pairs: Any) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("text")
    names = [("src", 0, 0), ("tgt", 1, 0), ("valid_src", 0, 250), ("valid_tgt", 1, 250)]
    return {name: write_lines(folder / name, [pair[side] for pair in toy_pairs[n:]]) for name, side, n in names}


@pytest.fixture(scope="module")
def outcomes(transduce: Any, before: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The commands of the guide, with few pairs and a small model; by the name of the command."""
    folder = tmp_path_factory.mktemp("guide")
    commands = GUIDE.read_text(encoding="utf-8").split("```")[1].splitlines()[1:]
    assert commands[0] == f"pip install {PACKAGE.relative_to(PACKAGE.parents[1])}"
    outcomes = {"folder": folder}
    for command in commands[1:]:
        words = shlex.split(command)[1:]
        words += as_sets(SETTINGS) if words[0] == "train" else []
        outcomes[words[0]] = transduce(*words, cwd=folder, before=SMALL_DEMO + before)
        assert outcomes[words[0]].code == 0, outcomes[words[0]].err
    return outcomes


@pytest.fixture(scope="module")
def run(outcomes: dict[str, Any]) -> Path:
    return outcomes["folder"] / "runs" / "last"


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_it_trains_validates_and_saves(run: Path) -> None:
    measured = records(run, "valid")
    assert [record["step"] for record in measured] == [10, 20, 30]
    assert measured[-1]["loss"] < measured[0]["loss"]
    assert records(run, "final")[-1]["valid_accuracy"] > 40
    best = max(measured, key=lambda record: record["accuracy"])["step"]
    assert (run / "checkpoints" / "best").readlink().name == f"step-{best}"
    assert "Accuracy of the finished model" in (run / "report.html").read_text(encoding="utf-8")
    assert tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["last_token"] == {"tokens": 1}
    card = json.loads((run / "model" / "model.json").read_text(encoding="utf-8"))
    assert (card["architecture"], card["model"]) == ("window", {"d_model": 24, "window": 3})
    assert card["facts"]["task"] == "last_token"


def test_evaluate_uses_its_metric(transduce: Any, outcomes: dict[str, Any], run: Path, before: str) -> None:
    assert outcomes["evaluate"].out.startswith("Accuracy ")
    words = ("evaluate", "-m", run, "--src", "data/demo/valid.en", "--ref", "data/demo/valid.de", "--device", "cpu")
    done = transduce(*words, "--json", cwd=outcomes["folder"], before=before)
    assert json.loads(done.out)["accuracy"] == pytest.approx(records(run, "final")[-1]["valid_accuracy"])
    refused = transduce(*words, "--beam", "2", cwd=outcomes["folder"], before=before)
    assert (refused.code, refused.out) == (2, "")
    assert "--beam has no effect on a model of the task last_token; leave it out" in refused.err


def test_its_command_runs_and_is_listed(transduce: Any, outcomes: dict[str, Any], before: str, tmp_path: Path) -> None:
    assert outcomes["complete"].err == ""
    assert outcomes["complete"].out.startswith("Jeden Tag backen wir einen Kuchen")
    assert "\n  complete " in transduce("--help", cwd=tmp_path, before=before).out
    assert transduce("complete", "--help", cwd=tmp_path).code == 2


def test_a_wrong_use_names_the_command(transduce: Any, run: Path, before: str, tmp_path: Path) -> None:
    done = transduce("translate", "-m", run, "babo", cwd=tmp_path, before=before)
    assert done.code == 2
    assert "was trained for the task last_token; use it with: transduce complete" in done.err


@pytest.mark.usefixtures("installed")
def test_bfloat16_too(files: dict[str, Path], tmp_path: Path) -> None:
    outcome = train(tmp_path / "run", task="last_token", **files, settings=SETTINGS | {"train.precision": "bfloat16"})
    assert outcome.scores.keys() == {"valid_loss", "valid_perplexity", "valid_accuracy"}
    assert outcome.scores["valid_accuracy"] > 40


@pytest.mark.usefixtures("installed")
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(files: dict[str, Path], tmp_path: Path) -> None:
    for name, steps in (("whole", 30), ("resumed", 10), ("resumed", 30)):
        train(tmp_path / name, task="last_token", **files, settings=SETTINGS | {"train.steps": steps})
    for name in ("model", "optimizer"):
        first, second = (tmp_path / run / f"checkpoints/step-30/{name}.safetensors" for run in ("whole", "resumed"))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.usefixtures("installed")
def test_engines_say_that_they_do_not_support_the_model(run: Path) -> None:
    model = load_model(run / "model").model
    assert PlainEngine.supports(model, SearchConfig()) == "window models do not generate text"
    assert isinstance(pick_engine("auto", model), PlainEngine)
    with pytest.raises(ModelError, match="was trained for the task last_token; use it with: transduce complete"):
        Translator.load(run)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("model.architecture=encoder_decodr", "did you mean encoder_decoder"),
        ("model.architecture=windw", "did you mean window.*convolutional, window"),
        ("task=translat", "no task translat .did you mean translate.*transcribe, last_token"),
        ("task=translate", r"\[last_token\] has no effect on the task translate"),
        ("model.windw=2", "unknown key windw .did you mean window"),
        ("model.encoder_layers=2", "unknown key encoder_layers"),
        ("tokens=2", "unknown key tokens .did you mean last_token.tokens"),
        ("last_token.tokens=4", "tokens must be between 1 and 3"),
        ("classify.shift=1", r"\[classify\] has no effect on the task last_token; leave it out"),
    ],
)
def test_mistakes_are_named(files: dict[str, Path], tmp_path: Path, assignment: str, message: str) -> None:
    settings = SETTINGS | {"last_token.tokens": 2}
    with pytest.raises(ConfigError, match=message):
        train(tmp_path / "run", task="last_token", **files, settings=settings, sets=[assignment])


def test_a_name_of_the_table_needs_no_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "installed", lambda: pytest.fail("entry points were read"))
    for feature in FEATURES.values():
        for column in ("models", "tasks", "readers", "commands", "exporters", "hooks"):
            for name in getattr(feature, column):
                assert feature_with(column, name) is feature
                assert name in Registry[Any](column)


def test_every_name_of_the_table_can_be_imported() -> None:
    for column in (
        "models",
        "model_settings",
        "tasks",
        "task_settings",
        "evaluations",
        "readers",
        "commands",
        "exporters",
        "hooks",
    ):
        registry: Registry[Any] = Registry(column)
        assert all(registry[name] for name in registry)
        assert len(set(registry)) == len(registry)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_package:FEATURE", "the feature odd .no_such_package:FEATURE. cannot be loaded: ModuleNotFoundError"),
        ("transduce.features:GROUP", "is not a transduce.features.Feature"),
        ("odd:CLASH", "has the name parse among its commands, which another feature has already"),
    ],
)
def test_a_feature_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    module = ModuleType("odd")
    module.CLASH = Feature(commands={"parse": "odd:parse"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "odd", module)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [EntryPoint("odd", value, group)])
    features.installed.cache_clear()
    with pytest.raises(ConfigError, match=message):
        list(Registry[Any]("tasks"))
    features.installed.cache_clear()
