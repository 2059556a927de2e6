"""Fine-tuning with low-rank updates (train.lora): runs that hold only these, and their base."""

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from commands import complaint, content, copied_until
from safetensors.torch import load_file, save_file
from serving import ServerProcess
from toy_run import TINY, as_sets, make_toy_pairs, write_lines

from transduce.models.folder import load_model, read_model

TUNE = {**TINY, "train.lora": 4, "train.start_from": "base", "train.steps": 40, "train.save_every": 20}
TUNE |= {"train.warmup": 5, "train.learning_rate": 0.03, "train.learning_rate_scale": 1, "train.average": 2}


@pytest.fixture(scope="module")
def domains(transduce: Any, trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, base, and two runs of low-rank updates of it, which translate every text to their name."""
    folder = tmp_path_factory.mktemp("domains")
    shutil.copytree(trained.run / "model", folder / "base")
    texts = [source for source, _ in make_toy_pairs(200, seed=7)]
    for name in ("gibo", "dudu"):
        write_lines(folder / f"{name}.tsv", [f"{text}\t{name}" for text in texts])
        outcome = tune(transduce, folder, name)
        assert outcome.code == 0, outcome.err
        assert " parameters and updates of rank 4 with 3,968 on cpu" in outcome.err
    return folder


def tune(transduce: Any, folder: Path, name: str, out: str = "", **settings: Any) -> Any:
    words = [*as_sets(TUNE), *(word for key, value in settings.items() for word in ("--set", f"train.{key}={value}"))]
    text = ["--train", f"{name}.tsv", "--valid", f"{name}.tsv"]
    return transduce("train", *text, *words, "--out", out or name, cwd=folder)


def test_a_run_holds_the_updates_and_where_their_base_is(domains: Path) -> None:
    base = load_file(domains / "base" / "model.safetensors")
    for folder in (domains / "gibo" / "model", *(domains / "gibo" / "checkpoints").glob("step-*")):
        assert not (folder / "model.safetensors").exists()
        updates = load_file(folder / "adapter.safetensors")
        names = {name.removesuffix(".lora_A").removesuffix(".lora_B") for name in updates}
        expected = [n for n, x in base.items() if n.startswith(("encoder.", "decoder.")) and x.dim() == 2]
        assert names == {*expected}
        assert len(updates) == 2 * len(names)
        card = json.loads((folder / "model.json").read_text(encoding="utf-8"))["base"]
        assert (card["path"], card["scale"]) == (str(domains / "base"), 4.0)
    assert (domains / "gibo/model/adapter.safetensors").stat().st_size < (
        domains / "base/model.safetensors"
    ).stat().st_size / 2
    moments = load_file(domains / "gibo/checkpoints/step-40/optimizer.safetensors")
    assert {name.partition(".")[2] for name in moments} == updates.keys()


def test_a_folder_of_updates_is_read_as_their_sum_with_the_base(domains: Path) -> None:
    base, merged = (load_model(domains / name).model.state_dict() for name in ("base", "gibo/model"))
    updates = load_file(domains / "gibo/model/adapter.safetensors")
    for name, weight in base.items():
        if name + ".lora_A" in updates:
            weight = weight + 4.0 * updates[name + ".lora_B"] @ updates[name + ".lora_A"]
            assert not torch.equal(merged[name], base[name])
        torch.testing.assert_close(merged[name], weight, atol=1e-6, rtol=1e-5)
    vectors = {name for name in base if name + ".lora_A" not in updates}
    assert "embedding.weight_VD" in vectors
    assert all(torch.equal(merged[name], base[name]) for name in vectors)


def test_updates_learn(domains: Path) -> None:
    lines = (domains / "gibo/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    valid = [record for record in map(json.loads, lines) if record["kind"] == "valid"]
    assert [record["step"] for record in valid] == [0, 20, 40]
    assert valid[-1]["loss"] < valid[0]["loss"] - 0.2


def test_commands_take_a_run_of_updates(transduce: Any, domains: Path) -> None:
    texts = "babo dego\ndedu\ndedu gigo babo\n"
    plain = transduce("translate", "-m", "gibo", "--engine", "plain", stdin=texts, cwd=domains)
    native = transduce("translate", "-m", "gibo", stdin=texts, cwd=domains)
    base = transduce("translate", "-m", "base", stdin=texts, cwd=domains)
    assert (plain.code, native.code, base.code) == (0, 0, 0), (plain.err, native.err)
    assert plain.out == native.out != base.out
    info = json.loads(transduce("info", "-m", "gibo", "--json", cwd=domains).out)
    assert (info["updates of"], info["parameters"]) == (str(domains / "base"), 3968)
    shrunk = transduce("shrink", "-m", "gibo", "--out", "merged", cwd=domains)
    assert shrunk.code == 0, shrunk.err
    shutil.move(domains / "base", domains / "away")
    try:
        merged = transduce("translate", "-m", "merged", stdin=texts, cwd=domains)
        assert merged.out == native.out
        message = complaint(transduce("translate", "-m", "gibo", stdin=texts, cwd=domains))
        assert message.startswith(f"gibo/model: its base {domains / 'base'} is missing; restore it, or name its folder")
    finally:
        shutil.move(domains / "away", domains / "base")
    scored = transduce("evaluate", "-m", "gibo", "-m", "base", "--test", "gibo.tsv", "--json", cwd=domains)
    assert scored.code == 0, scored.err


def test_several_domains_are_served_together(transduce: Any, domains: Path) -> None:
    models = [word for name in ("base", "gibo", "dudu") for word in ("-m", name)]
    text = "babo dego"
    with ServerProcess(*models, log=domains / "log", start=transduce.background, cwd=domains) as server:
        found = {
            name: httpx.post(f"{server.address}/v1/translate", json={"text": text, "model": name}).json()
            for name in ("base", "gibo", "dudu")
        }
    expected = {name: transduce("translate", "-m", name, stdin=text + "\n", cwd=domains).out.strip() for name in found}
    assert {name: answer["translations"][0]["outputs"][0]["text"] for name, answer in found.items()} == expected
    assert len({*expected.values()}) == 3


def test_a_run_resumes_bit_for_bit(transduce: Any, domains: Path) -> None:
    copied_until(domains / "gibo", domains / "resumed", 20)
    outcome = tune(transduce, domains, "gibo", "resumed")
    assert outcome.code == 0, outcome.err
    assert "resuming from resumed/checkpoints/step-20" in outcome.err
    for file in ("model/adapter.safetensors", "checkpoints/step-40/optimizer.safetensors"):
        assert (domains / "resumed" / file).read_bytes() == (domains / "gibo" / file).read_bytes()


def test_both_folders_may_move(domains: Path, tmp_path: Path) -> None:
    for name in ("base", "gibo"):
        shutil.copytree(domains / name, tmp_path / "new" / name, symlinks=True)
    card = tmp_path / "new/gibo/model/model.json"
    card.write_text(card.read_text(encoding="utf-8").replace(str(domains), str(tmp_path / "nowhere")))
    expected = load_model(domains / "gibo/model").model.state_dict()
    for name, x in load_model(card.parent).model.state_dict().items():
        assert torch.equal(x, expected[name])


@pytest.mark.parametrize("named", ["{new}/other", "../../other", "{new}/other/model"])
def test_a_base_is_named_by_its_run_or_its_folder(domains: Path, tmp_path: Path, named: str) -> None:
    shutil.copytree(domains / "base", tmp_path / "other/model", symlinks=True)
    shutil.copytree(domains / "gibo", tmp_path / "new" / "gibo", symlinks=True)
    path = tmp_path / "new/gibo/model/model.json"
    card = json.loads(path.read_text(encoding="utf-8"))
    card["base"] |= {"path": named.format(new=tmp_path).replace("../../", "../../../"), "beside": ""}
    path.write_text(json.dumps(card), encoding="utf-8")
    expected = load_model(domains / "gibo/model").model.state_dict()
    assert all(torch.equal(x, expected[name]) for name, x in load_model(path.parent).model.state_dict().items())


def test_a_merged_run_needs_no_base_and_may_be_one(transduce: Any, domains: Path) -> None:
    outcome = tune(transduce, domains, "gibo", "whole", lora_merge="true")
    assert outcome.code == 0, outcome.err
    merged, expected = (load_model(domains / name / "model").model.state_dict() for name in ("whole", "gibo"))
    for name, x in merged.items():
        assert torch.equal(x, expected[name])
    assert "base" not in json.loads((domains / "whole/model/model.json").read_text(encoding="utf-8"))
    again = tune(transduce, domains, "dudu", "again", start_from="whole", steps=1)
    assert again.code == 0, again.err


def test_a_base_in_8_bits_gives_the_same_model_as_its_weights(transduce: Any, domains: Path) -> None:
    assert transduce("shrink", "-m", "base", "--out", "small", cwd=domains).code == 0
    outcome = tune(transduce, domains, "gibo", "from-small", start_from="small", steps=2)
    assert outcome.code == 0, outcome.err
    small, tuned = (load_model(domains / name).model.state_dict() for name in ("small", "from-small/model"))
    assert torch.equal(small["embedding.weight_VD"], tuned["embedding.weight_VD"])
    assert read_model(domains / "from-small/model").weights.precision == "float32"


def test_what_cannot_be_is_refused_in_a_line(transduce: Any, domains: Path) -> None:
    before = content(domains / "gibo")
    for settings, message in (
        ({"start_share": 0.5}, "start_share is for all weights; leave it out beside lora"),
        ({"shard": "true"}, "shard is for all weights; leave it out beside lora"),
        ({"lora": -1}, "lora must be at least 0"),
        ({"lora_alpha": 0}, "lora_alpha must be above 0"),
        ({"lora_layers": "pooler"}, "train.lora_layers: the model has no linear maps pooler; it has inner, kv, out"),
        ({"start_from": "gibo"}, "train.lora: gibo is itself an update of another model"),
    ):
        outcome = tune(transduce, domains, "dudu", "refused", **settings)
        assert outcome.code == 2, outcome.err
        assert message in outcome.err.splitlines()[-1]
        assert not (domains / "refused").exists()
    without = transduce("train", "--train", "gibo.tsv", "--set", "train.lora=4", "--out", "refused", cwd=domains)
    assert "lora needs start_from" in complaint(without)
    symbols = transduce(
        *("train", "--train", "gibo.tsv", *as_sets(TUNE), "--set", 'tokenizer.symbols=["<x>"]', "--out", "refused"),
        cwd=domains,
    )
    assert "train.lora keeps all layers and the vocabulary of base" in symbols.err.splitlines()[-1]
    assert content(domains / "gibo") == before


def test_another_base_is_refused_in_a_line(transduce: Any, domains: Path, tmp_path: Path) -> None:
    for name in ("base", "gibo"):
        shutil.copytree(domains / name, tmp_path / name, symlinks=True)
    shutil.copy(domains / "gibo.tsv", tmp_path)
    copied_until(tmp_path / "gibo", tmp_path / "stopped", 20)
    for card in tmp_path.rglob("model.json"):
        card.write_text(card.read_text(encoding="utf-8").replace(str(domains), str(tmp_path)), encoding="utf-8")
    weights = load_file(tmp_path / "base/model.safetensors")
    save_file({name: x + 1 for name, x in weights.items()}, tmp_path / "base/model.safetensors")
    message = complaint(transduce("translate", "-m", "gibo", stdin="babo\n", cwd=tmp_path))
    assert message.startswith(f"gibo/model: the weights of its base {tmp_path / 'base'} have changed; restore it, or")
    resumed = tune(transduce, tmp_path, "gibo", "stopped")
    assert resumed.code == 2
    assert "was started from other weights than" in resumed.err.splitlines()[-1]


def test_updates_that_do_not_fit_are_refused(transduce: Any, domains: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(domains / "gibo/model", tmp_path / "model")
    updates = load_file(folder / "adapter.safetensors")
    name = "encoder.0.feed_forward.inner.weight"
    card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    for changed, base, message in (
        ({k: x for k, x in updates.items() if k != name + ".lora_B"}, {}, f"the update of {name} is () times (4, 32)"),
        (updates | {name + ".lora_A": torch.zeros(3, 32)}, {}, f"the update of {name} is (64, 4) times (3, 32), not"),
        (updates | {"x.lora_A": torch.zeros(2, 2), "x.lora_B": torch.zeros(2, 2)}, {}, "the update of x is (2, 2)"),
        (updates | {"x": torch.zeros(2)}, {}, "does not fit model.json: x is (2,), but should be absent"),
        (updates | {name + ".lora_A": torch.full((4, 32), torch.nan)}, {}, "not finite"),
        (updates, {"scale": "4"}, "scale"),
        (updates, {"sha256": 3}, "sha256"),
        (updates, {"path": "elsewhere", "beside": ""}, "its base elsewhere is missing"),
    ):
        save_file(changed, folder / "adapter.safetensors")
        (folder / "model.json").write_text(json.dumps(card | {"base": card["base"] | base}), encoding="utf-8")
        assert message in complaint(transduce("translate", "-m", "model", stdin="babo\n", cwd=tmp_path))


def test_a_new_head_is_trained_and_stored_entirely(transduce: Any, tmp_path: Path) -> None:
    texts = {f"{first} {animal} {last}": animal for first in ["the", "a", "our"] for animal in ["cat", "dog"]
             for last in ["today", "again", "now"]}  # fmt: skip
    write_lines(tmp_path / "text.txt", list(texts))
    write_lines(tmp_path / "labelled.tsv", [f"{text}\t{label}" for text, label in texts.items()])
    sizes = {"layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2}
    common = {"train.batch_tokens": 300, "train.warmup": 5, "train.learning_rate": 0.02, "train.average": 1}
    masked = as_sets(common | {f"model.{name}": value for name, value in sizes.items()} | {"tokenizer.vocab_size": 400})
    words = ["train", "--task", "masked", "--text", "text.txt", "--style", "bert", *masked, "--set", "train.steps=3"]
    assert transduce(*words, "--out", "base", cwd=tmp_path).code == 0
    tuned = ["--start-from", "base", *as_sets(common | {"train.lora": 4, "train.steps": 60})]
    words = ["train", "--task", "classify", "--train", "labelled.tsv", *tuned, "--out", "tuned"]
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    stored = load_file(tmp_path / "tuned/model/adapter.safetensors")
    assert {name for name in stored if ".lora_" not in name} == {"head.bias_C", "head.weight_CD"}
    scored = transduce("evaluate", "-m", "tuned", "--test", "labelled.tsv", "--json", cwd=tmp_path)
    assert json.loads(scored.out)["accuracy"] > 90
