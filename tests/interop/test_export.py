"""`transduce export` and back, through the command line, with the toolkits that read the exports."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from commands import complaint
from toy_run import make_toy_pairs, write_lines

from transduce.interop.export_model import forced_logits
from transduce.models.folder import load_model
from transduce.tokenizers.tokenizer import BOS, EOS


def assert_same_model(original: Path, restored: Path) -> None:
    """Settings, weights, tokenizer and facts are the same, bit for bit."""
    ours, theirs = load_model(original), load_model(restored)
    assert ours.model.config == theirs.model.config
    assert ours.facts == theirs.facts
    assert ours.tokenizer.model == theirs.tokenizer.model
    weights, others = ours.model.state_dict(), theirs.model.state_dict()
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def greedy(transduce: Any, model: Path, folder: Path) -> list[str]:
    """Our greedy translations of at most eight tokens."""
    words = ("--engine", "plain", "--beam", "1", "--max-length", "8", "lines.txt")
    outcome = transduce("translate", "-m", model, *words, cwd=folder)
    assert outcome.code == 0, outcome.err
    return outcome.out.splitlines()


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    texts = [source for source, _ in make_toy_pairs(30, seed=7)]
    write_lines(tmp_path / "lines.txt", texts)
    return texts


def test_hugging_face(transduce: Any, trained: Any, tmp_path: Path, lines: list[str]) -> None:
    transformers = pytest.importorskip("transformers")
    outcome = transduce(
        "export", "-m", trained.run, "--to", "hf", "--sentences", "lines.txt", "--out", "hf", cwd=tmp_path
    )
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("hf: Hugging Face, verified by transformers")
    assert "30 of 30 greedy outputs identical" in outcome.out
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "hf")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf")
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    theirs = tokenizer.batch_decode(model.generate(**batch, num_beams=1, max_new_tokens=8), skip_special_tokens=True)
    assert greedy(transduce, trained.run, tmp_path) == theirs
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "n^a" in card
    assert "n^a" in outcome.err

    outcome = transduce("import", "hf", "--out", "back", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert_same_model(trained.run / "model", tmp_path / "back")


def test_ctranslate2(transduce: Any, trained: Any, tmp_path: Path, lines: list[str]) -> None:
    """Float32 gives our outputs; 8 bits are smaller; float32 comes back bit for bit."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    for name, options in (("float32", ()), ("int8", ("--quantization", "int8"))):
        outcome = transduce("export", "-m", trained.run, "--to", "ctranslate2", *options, "--out", name, cwd=tmp_path)
        assert outcome.code == 0, outcome.err
        assert "100 of 100 greedy outputs identical" in outcome.out
    assert "in 8 bits" in outcome.out
    translator = ctranslate2.Translator(str(tmp_path / "float32"), intra_threads=1)
    spm = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "float32" / "source.spm"))
    results = translator.translate_batch(spm.encode(lines, out_type=str), beam_size=1, max_decoding_length=8)
    assert [spm.decode(result.hypotheses[0]) for result in results] == greedy(transduce, trained.run, tmp_path)
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("int8", "float32")]
    assert sizes[0] < 0.8 * sizes[1]

    outcome = transduce("import", "float32", "--out", "back", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert_same_model(trained.run / "model", tmp_path / "back")


def test_onnx(transduce: Any, trained: Any, tmp_path: Path, lines: list[str]) -> None:
    """The graphs also take padded batches, and a past of several tokens."""
    onnxruntime = pytest.importorskip("onnxruntime")
    words = ("--to", "onnx", "--sentences", "lines.txt", "--out", "onnx")
    outcome = transduce("export", "-m", trained.run, *words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "30 of 30 greedy outputs identical" in outcome.out
    outcome = transduce("import", "onnx", "--out", "back", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert_same_model(trained.run / "model", tmp_path / "back")
    shutil.copytree(tmp_path / "onnx", tmp_path / "foreign")
    (tmp_path / "foreign" / "transduce.json").unlink()
    message = complaint(transduce("import", "foreign", "--out", "again", cwd=tmp_path))
    assert message.startswith("foreign is an ONNX model without transduce.json")
    saved = load_model(trained.run / "model")
    vocabulary = json.loads((tmp_path / "onnx" / "vocab.json").read_text(encoding="utf-8"))
    names = saved.tokenizer.names  # type: ignore[attr-defined]
    theirs = [vocabulary[name] for name in names]
    sources = [[*saved.tokenizer.encode(text), EOS] for text in ("babo debo", "gigo")]
    longest = max(map(len, sources))
    ids = np.array([[*(theirs[token] for token in own), *[theirs[0]] * (longest - len(own))] for own in sources])
    mask = np.array([[1] * len(own) + [0] * (longest - len(own)) for own in sources])
    encoder, decoder, with_past = (
        onnxruntime.InferenceSession(str(tmp_path / "onnx" / f"{name}_model.onnx"))
        for name in ("encoder", "decoder", "decoder_with_past")
    )
    (memory,) = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
    target = [BOS, 300, 310, 320, 330]
    inputs = {"encoder_attention_mask": mask, "input_ids": np.array([[theirs[token] for token in target[:2]]] * 2)}
    results = decoder.run(None, {**inputs, "encoder_hidden_states": memory})
    names = [one.name.replace("present", "past_key_values") for one in decoder.get_outputs()]
    state = dict(zip(names, results, strict=True))
    inputs["input_ids"] = np.array([[theirs[token] for token in target[2:]]] * 2)
    rest = with_past.run(["logits"], {**inputs, **{name: x for name, x in state.items() if name != "logits"}})[0]
    logits = torch.from_numpy(np.concatenate([state["logits"], rest], axis=1))[:, :, theirs]
    for source, own in zip(sources, logits, strict=True):
        torch.testing.assert_close(own, forced_logits(saved.model, source[:-1], target[1:]), atol=1e-5, rtol=0)


def test_argos(transduce: Any, trained: Any, tmp_path: Path, lines: list[str]) -> None:
    """The package installs (it is unpacked to one folder) and gives our outputs as Argos Translate runs it."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    words = ("export", "-m", trained.run, "--to", "argos", "--sentences", "lines.txt", "--out", "argos")
    assert complaint(transduce(*words, cwd=tmp_path)).endswith("name them with --from and --target")
    outcome = transduce(*words, "--from", "en", "--target", "de", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    with zipfile.ZipFile(tmp_path / "argos" / "translate-en_de-1_0.argosmodel") as package:
        package.extractall(tmp_path / "installed")
    root = tmp_path / "installed" / "translate-en_de-1_0"
    metadata = json.loads((root / "metadata.json").read_text())
    assert [metadata[name] for name in ("from_code", "from_name", "to_code", "to_name")] == [
        "en", "English", "de", "German"
    ]  # fmt: skip
    spm = sentencepiece.SentencePieceProcessor(model_file=str(root / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(root / "model"), intra_threads=1)
    results = translator.translate_batch(
        spm.encode(lines, out_type=str), replace_unknowns=True, max_batch_size=32, batch_type="tokens", beam_size=1,
        max_decoding_length=8,
    )  # fmt: skip
    expected = greedy(transduce, trained.run, tmp_path)
    assert [spm.decode_pieces(result.hypotheses[0]) for result in results] == expected

    outcome = transduce("import", "argos", "--out", "back", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert_same_model(trained.run / "model", tmp_path / "back")
    package = "argos/translate-en_de-1_0.argosmodel"
    outcome = transduce("import", package, "--out", "foreign", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert load_model(tmp_path / "foreign").facts["directions"] == [["en", "de"]]
    assert greedy(transduce, tmp_path / "foreign", tmp_path) == expected
    damaged = tmp_path / "damaged.argosmodel"
    damaged.write_bytes((tmp_path / package).read_bytes()[:5000])
    message = complaint(transduce("import", "damaged.argosmodel", "--out", "other", cwd=tmp_path))
    assert message == "damaged.argosmodel: not an Argos package, or damaged"


def test_an_export_that_differs_does_not_appear(transduce: Any, trained: Any, tmp_path: Path, lines: list[str]) -> None:
    """Weights that are damaged on the way are found by the logits, and nothing is left behind."""
    damage = (
        "import transduce.interop.ctranslate2 as module\n"
        "original = module._variables\n"
        "def damaged(model):\n"
        "    variables = original(model)\n"
        "    name = 'decoder/layer_0/ffn/linear_0/bias'\n"
        "    variables[name] = variables[name] + 1\n"
        "    return variables\n"
        "module._variables = damaged\n"
    )
    words = ("export", "-m", trained.run, "--to", "ctranslate2", "--sentences", "lines.txt", "--out", "x")
    outcome = transduce(*words, cwd=tmp_path, before=damage)
    message = complaint(outcome)
    assert f"for the source {lines[0]!r}, logits differ by " in message
    assert message.endswith("more than 1e-04; nothing was written")
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]


def test_unknown_formats_and_precisions_are_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce("export", "-m", trained.run, "--to", "gguf", "--out", "x", cwd=tmp_path)
    assert complaint(outcome).startswith("--to must be one of hf, ")
    outcome = transduce("export", "-m", trained.run, "--to", "hf", "--quantization", "int8", "--out", "x", cwd=tmp_path)
    assert complaint(outcome) == "--quantization of hf must be float32"
    assert list(tmp_path.iterdir()) == []
