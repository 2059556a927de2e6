"""User errors: one line with the problem and its place, and exit code 2."""

import bz2
import json
import os
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import complaint, sets
from serving import serve_in_thread

from transduce.errors import ConfigError
from transduce.translation.translator import Translator


@pytest.mark.parametrize(
    ("words", "words_of_message"),
    [
        (["--src", "nothing.src", "--tgt", "valid.tgt"], ["nothing.src", "o such file"]),
        (["--src", "train.src", "--tgt", "valid.tgt"], ["train.src has 300 lines", "valid.tgt has 20"]),
        (["--src", "train.src"], ["1 source files but 0 target files"]),
        (["--train", "valid.src"], ["valid.src: cannot tell its format", ".tsv"]),
        ([], ["no training text", "--src"]),
        (["--src", "valid.src", "--tgt", "valid.tgt", "--preset", "tinny"], ["no preset tinny", "did you mean tiny?"]),
        (["--set", "train.stepz=5"], ["unknown key stepz", "did you mean steps?", "; nearest keys: steps, "]),
        (["--set", "steps=5"], ["unknown key steps (did you mean train.steps?)"]),
        (["--set", "encoder_layers=5"], ["unknown key encoder_layers (did you mean model.encoder_layers?)"]),
        (
            ["--src", "valid.src", "--tgt", "valid.tgt", "--valid", "nothing.tsv", "--set", "tokenizer.vocab_size=401"],
            ["nothing.tsv: no such file"],
        ),
        (["--set", "train.steps=many"], ["steps must be a whole number, not 'many'"]),
        (["--set", "train.batch_tokens=Auto"], ["batch_tokens must be a whole number or auto, not 'Auto'"]),
        (["--set", "train.steps=true"], ["steps must be a whole number, not true"]),
        (["--set", "train.steps=[1, 2]"], ["steps must be a whole number, not [1, 2]"]),
        (["--set", "train.steps=2026-11-17"], ["steps must be a whole number, not 2026-11-17"]),
        (["--set", "data.train.x=1"], ["train must be a list, not a section"]),
        (["--set", 'train.steps=["a", 2026-11-17]'], ["steps must be a whole number, not"]),
        (["--set", "train.steps=0"], ["steps must be at least 1"]),
        (["--set", 'tokenizer.symbols=["<s>"]'], ["tokenizer.symbols: <s> is a special token of every vocabulary"]),
        (["--set", 'tokenizer.symbols=["a b"]'], ["tokenizer.symbols: 'a b' has a space or a reserved character"]),
        (["--set", 'tokenizer.symbols=["<a>", "<a>"]'], ["tokenizer.symbols: <a> is given twice"]),
        (["--set", "train.steps"], ["--set train.steps: write it as section.key=value"]),
        (["--src", "valid.src", "--tgt", "valid.tgt", "--set", "train.device=quantum"], ["device quantum"]),
        (["nothing.toml"], ["nothing.toml: no such file"]),
        (["valid.src"], ["valid.src: not valid TOML"]),
        (["pairs.tsv.gz"], ["pairs.tsv.gz is not a recipe (.toml); give pairs with --train"]),
    ],
)
def test_a_mistake_in_training_is_one_line(
    transduce: Any, trained: Any, tmp_path: Path, words: list[str], words_of_message: list[str]
) -> None:
    message = complaint(transduce("train", *words, "--out", tmp_path / "run", cwd=trained.folder))
    for part in words_of_message:
        assert part in message
    assert not (tmp_path / "run").exists()


def test_training_without_an_output_folder_is_refused(transduce: Any, trained: Any) -> None:
    words = ("train", "--src", "valid.src", "--tgt", "valid.tgt")
    assert "--out" in complaint(transduce(*words, cwd=trained.folder))


@pytest.mark.parametrize("command", ["translate", "info"])
@pytest.mark.parametrize(
    ("damage", "words_of_message"),
    [
        ("no folder", "run: no such folder"),
        ("empty folder", "no model here yet"),
        ("truncated weights", "model.safetensors"),
        ("empty weights", "model.safetensors"),
        ("no weights", "model.safetensors"),
        ("card of garbage", "model.json"),
        ("card of bytes", "model.json"),
        ("card of a list", "model.json"),
        ("card without sizes", "model.json"),
        ("card with a number for sizes", "model.json"),
        ("card of the future", "newer transduce"),
    ],
)
def test_a_damaged_model_is_one_line(
    transduce: Any, trained: Any, tmp_path: Path, command: str, damage: str, words_of_message: str
) -> None:
    model = tmp_path / "run" / "model"
    if damage != "no folder":
        model.mkdir(parents=True)
    if damage not in ("no folder", "empty folder"):
        shutil.copytree(trained.run / "model", model, dirs_exist_ok=True)
        card, weights = model / "model.json", model / "model.safetensors"
        whole = weights.read_bytes()
        {
            "truncated weights": lambda: weights.write_bytes(whole[: len(whole) // 2]),
            "empty weights": lambda: weights.write_bytes(b""),
            "no weights": weights.unlink,
            "card of garbage": lambda: card.write_text("garbage"),
            "card of bytes": lambda: card.write_bytes(b"\xff\x00"),
            "card of a list": lambda: card.write_text("[1]"),
            "card without sizes": lambda: card.write_text('{"format": 1}'),
            "card with a number for sizes": lambda: card.write_text(
                '{"format": 1, "architecture": "encoder_decoder", "vocab_size": 450, "model": 5}'
            ),
            "card of the future": lambda: card.write_text('{"format": 99}'),
        }[damage]()
    assert words_of_message in complaint(transduce(command, "-m", "run", stdin="ba\n", cwd=tmp_path))


def test_what_is_no_folder_of_a_model_is_named(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_text("")
    (tmp_path / "opus").mkdir()
    (tmp_path / "opus" / "config.json").write_text("{}")
    message = complaint(transduce("translate", "-m", "weights.bin", "babo", cwd=tmp_path))
    assert message == "weights.bin is a file; name the folder of a run or of a model"
    message = complaint(transduce("translate", "-m", "opus", "babo", cwd=tmp_path))
    assert message == "opus is a model of another toolkit; import it first: transduce import opus --out DIR"


@pytest.mark.parametrize(
    ("change", "words_of_message"),
    [
        ({"d_model": 64}, "model.safetensors: does not fit model.json"),
        ({"d_model": "wide"}, "d_model must be a whole number"),
        ({"width": 64}, "unknown key width"),
    ],
)
def test_weights_that_do_not_fit_the_card_are_one_line(
    transduce: Any, trained: Any, tmp_path: Path, change: dict[str, Any], words_of_message: str
) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    card = json.loads((model / "model.json").read_text())
    card["model"] |= change
    (model / "model.json").write_text(json.dumps(card))
    assert words_of_message in complaint(transduce("translate", "-m", "model", stdin="ba\n", cwd=tmp_path))


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_vocabulary_is_one_line(transduce: Any, trained: Any, tmp_path: Path, damage: bytes | None) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    if damage is None:
        (model / "tokenizer.model").unlink()
    else:
        (model / "tokenizer.model").write_bytes(damage)
    assert "tokenizer.model" in complaint(transduce("translate", "-m", "model", stdin="ba\n", cwd=tmp_path))


def test_a_bad_device_for_translating_is_one_line(transduce: Any, trained: Any) -> None:
    outcome = transduce("translate", "-m", "run", "--device", "quantum", stdin="ba\n", cwd=trained.folder)
    assert "device quantum cannot be used" in complaint(outcome)


@pytest.mark.parametrize("words", [["--beam", "0"], ["--sample", "--temperature", "-1"], ["--max-extra", "-1"]])
def test_search_options_out_of_range_are_one_line(transduce: Any, trained: Any, words: list[str]) -> None:
    outcome = transduce("translate", "-m", "run", *words, stdin="ba\n", cwd=trained.folder)
    assert "must be" in complaint(outcome)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("beam", 0, "beam must be between 1 and 1024"),
        ("max_length", 0, "max_length must be between 1 and 65536"),
        ("top_p", 0.0, "top_p must be above 0 and at most 1"),
        ("seed", 2**31, "seed must be between 0 and 2147483647"),
        ("nbest", 9, "nbest must be at most beam unless sample is set, but nbest is 9 and beam is 2"),
        ("temperature", 0.5, "temperature needs sampling; set sample too"),
        ("seed", 1, "seed needs sampling; set sample too"),
    ],
)
def test_an_option_out_of_bounds_has_one_message_everywhere(
    transduce: Any, trained: Any, option: str, value: float, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Translator.load(trained.run, **{"beam": 2, option: value})
    assert str(error.value) == message
    given = {"beam": 2, option: value}
    words = [word for name, of in given.items() for word in (f"--{name.replace('_', '-')}", str(of))]
    refused = complaint(transduce("translate", "-m", "run", "--jsonl", *words, stdin="ba\n", cwd=trained.folder))
    flag = f"--{option.replace('_', '-')} "
    assert refused.startswith(flag)
    assert refused.replace("--", "").replace("-", "_") == message
    with serve_in_thread([("toy", Translator.load(trained.run))]) as (address, _):
        answer = httpx.post(f"{address}/v1/translate", json={"text": "ba", "beam": 2, option: value})
        assert (answer.status_code, answer.json()) == (400, {"error": message})
        tokens = httpx.post(f"{address}/v1/translate", json={"text": "ba be bi", "max_length": 1}).json()
        assert len(tokens["translations"][0]["outputs"][0]["tokens"]) <= 1


def test_a_model_that_is_8_bit_already_is_not_shrunk(transduce: Any, trained: Any, tmp_path: Path) -> None:
    assert transduce("shrink", "-m", trained.run, "-o", "small", cwd=tmp_path).code == 0
    message = complaint(transduce("shrink", "-m", "small", "-o", "smaller", cwd=tmp_path))
    assert message == "small: the weights are 8-bit already; name a run or model with float32 weights (-m)"
    assert not (tmp_path / "smaller").exists()


@pytest.mark.parametrize(
    "arguments", [("train", "--src", "fifo", "--tgt", "valid.tgt"), ("train", "--train", "zero.tsv")]
)
def test_training_text_that_is_not_a_plain_file_is_refused(
    transduce: Any, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "valid.tgt").write_text("babo\n")
    (tmp_path / "zero.tsv").symlink_to("/dev/zero")
    message = complaint(transduce(*arguments, "--out", "run", cwd=tmp_path))
    assert message == f"{arguments[2]}: not a plain file"


@pytest.mark.parametrize(
    "arguments", [("translate", "valid.src"), ("evaluate", "--src", "valid.src", "--ref", "valid.tgt")]
)
def test_an_output_whose_name_promises_compression_is_refused(
    transduce: Any, trained: Any, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    out = tmp_path / "out.txt.gz"
    outcome = transduce(*arguments, "-m", trained.run, "--out", out, cwd=trained.folder)
    assert "the output is written without compression; name it out.txt" in complaint(outcome)
    assert not out.exists()


@pytest.mark.parametrize("name", ["out.jsonl", "out.tsv", "out.parquet", "out.html"])
def test_evaluate_does_not_write_lines_under_the_name_of_another_format(
    transduce: Any, trained: Any, tmp_path: Path, name: str
) -> None:
    words = ("--src", "valid.src", "--ref", "valid.tgt", "--out", tmp_path / name)
    message = complaint(transduce("evaluate", "-m", trained.run, *words, cwd=trained.folder))
    assert message == f"--out {tmp_path / name}: the output is lines of text; end its name in .txt"


def test_text_in_another_compression_is_one_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    path = tmp_path / "text.en.bz2"
    path.write_bytes(bz2.compress(b"babo\n"))
    message = complaint(transduce("translate", "-m", trained.run, path, cwd=trained.folder))
    assert f"{path}: compressed text must be .gz, .xz or .zst" in message


def test_a_file_of_api_keys_must_be_a_plain_file(transduce: Any, tmp_path: Path) -> None:
    assert complaint(transduce("serve", "--keys", "/dev/zero", cwd=tmp_path)) == "/dev/zero: not a plain file"


def test_training_warns_of_validation_text_with_exchanged_sides(transduce: Any, tmp_path: Path) -> None:
    pairs = [(f"the cat sees {n} dogs and a house", f"die Katze sieht {n} Hunde und ein Haus") for n in range(60)]
    (tmp_path / "train.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    (tmp_path / "valid.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs[:9]))
    (tmp_path / "wrong.tsv").write_text("".join(f"{other}\t{one}\n" for one, other in pairs[:9]))
    words = ["train", "--train", "train.tsv", "--preset", "tiny", *sets(steps=1), "--set", "tokenizer.vocab_size=420"]
    words += ["--set", 'data.valid=["valid.tsv", "wrong.tsv"]', "--out", "run"]
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "warning: the sources of wrong.tsv look like the targets of the training text" in outcome.err
    assert "the sources of valid.tsv" not in outcome.err
