"""Importing Whisper from transformers and from CTranslate2, against transformers."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import complaint
from torch import Tensor
from transformers_models import assert_close, gpt2, imported, transformers, whisper

from transduce.data.batch import Batch, Stream
from transduce.errors import ModelError
from transduce.interop.import_model import import_model
from transduce.interop.imported_tokenizers import ImportedTokenizer
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.segments import Segments
from transduce.speech.sound import RATE, SILENCE
from transduce.speech.transcriber import Transcriber
from transduce.tokenizers.tokenizer import BOS


def ctranslate2_folder(folder: Path, model: Any, tokenizer: Any, *, quantized: bool) -> None:
    """`model.bin` as CTranslate2 writes it: queries, keys and values in one matrix, perhaps in 8 bits."""
    state = {name: x.detach() for name, x in model.model.state_dict().items()}
    variables: dict[str, Tensor] = {}

    def put(name: str, theirs: list[str]) -> None:
        for parameter in ("weight", "bias"):
            parts = [state.get(f"{one}.{parameter}") for one in theirs]
            rows = [len(state[f"{one}.weight"]) for one in theirs]
            x = torch.cat([torch.zeros(n) if part is None else part for part, n in zip(parts, rows, strict=True)])
            norm = "norm" in name
            own = {"weight": "gamma", "bias": "beta"}[parameter] if norm else parameter
            if quantized and x.dim() == 2:
                scale = 127 / x.abs().amax(dim=1)
                variables[f"{name}/weight_scale"] = scale
                x = (x * scale[:, None]).round().to(torch.int8)
                for one, part in zip(theirs, (x / scale[:, None]).split(rows), strict=True):
                    state[f"{one}.weight"].copy_(part)
            variables[f"{name}/{own}"] = x

    for side, layers in (("encoder", 2), ("decoder", 2)):
        variables[f"{side}/num_heads"] = torch.tensor(4, dtype=torch.int16)
        put(f"{side}/layer_norm", [f"{side}.layer_norm"])
        variables[f"{side}/position_encodings/encodings"] = state[f"{side}.embed_positions.weight"]
        for n in range(layers):
            ours, theirs = f"{side}/layer_{n}", f"{side}.layers.{n}"
            put(f"{ours}/self_attention/linear_0", [f"{theirs}.self_attn.{x}_proj" for x in "qkv"])
            put(f"{ours}/self_attention/linear_1", [f"{theirs}.self_attn.out_proj"])
            put(f"{ours}/self_attention/layer_norm", [f"{theirs}.self_attn_layer_norm"])
            if side == "decoder":
                put(f"{ours}/attention/linear_0", [f"{theirs}.encoder_attn.q_proj"])
                put(f"{ours}/attention/linear_1", [f"{theirs}.encoder_attn.{x}_proj" for x in "kv"])
                put(f"{ours}/attention/linear_2", [f"{theirs}.encoder_attn.out_proj"])
                put(f"{ours}/attention/layer_norm", [f"{theirs}.encoder_attn_layer_norm"])
            put(f"{ours}/ffn/linear_0", [f"{theirs}.fc1"])
            put(f"{ours}/ffn/linear_1", [f"{theirs}.fc2"])
            put(f"{ours}/ffn/layer_norm", [f"{theirs}.final_layer_norm"])
    for name in ("conv1", "conv2"):
        for parameter in ("weight", "bias"):
            variables[f"encoder/{name}/{parameter}"] = state[f"encoder.{name}.{parameter}"]
    variables["decoder/embeddings/weight"] = state["decoder.embed_tokens.weight"]
    kinds = {torch.float32: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.float16: 4}

    def string(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    content = struct.pack("<I", 6) + string("WhisperSpec") + struct.pack("<II", 3, len(variables))
    for name, x in variables.items():
        data = x.contiguous().numpy().tobytes()
        shape = struct.pack(f"<B{x.dim()}I", x.dim(), *x.shape)
        content += string(name) + shape + struct.pack("<BI", kinds[x.dtype], len(data)) + data
    content += struct.pack("<I", 1) + string("decoder/projection/weight") + string("decoder/embeddings/weight")
    folder.mkdir()
    (folder / "model.bin").write_bytes(content)
    (folder / "config.json").write_text(json.dumps({"suppress_ids": [1, 2], "lang_ids": [7]}))
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("form", ["transformers", "ctranslate2", "ctranslate2 int8"])
def test_whisper(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.interop.import_model._MULTILINGUAL", 100)
    theirs, tokenizer = whisper()
    if form == "transformers":
        theirs.save_pretrained(tmp_path / "original")
        tokenizer.save(str(tmp_path / "original" / "tokenizer.json"))
    else:
        ctranslate2_folder(tmp_path / "original", theirs, tokenizer, quantized=form.endswith("int8"))
    saved = imported(tmp_path / "original", tmp_path / "ours")
    model = saved.model
    assert isinstance(model, EncoderDecoder)
    assert isinstance(saved.tokenizer, ImportedTokenizer)
    order = saved.tokenizer.order
    noise = torch.Generator().manual_seed(1)
    samples = torch.randint(-3000, 3000, (2 * RATE,), generator=noise) + SILENCE
    wave = (samples - SILENCE).numpy() / 2**15
    features = transformers.WhisperFeatureExtractor(chunk_length=2)(wave, sampling_rate=RATE, return_tensors="pt")
    targets = [theirs.config.decoder_start_token_id, 5, 7, 30]
    with torch.inference_mode():
        expected = theirs(features.input_features, decoder_input_ids=torch.tensor([targets])).logits[0]
        src = Stream(samples, Segments.of_lengths([len(samples)]))
        tgt = Batch.of(tgt=[[BOS, *(order.ids[token] for token in targets[1:])]])["tgt"]
        logits = model.logits(model(Batch({"src": src, "tgt": tgt}, torch.empty(0), 0)))
    assert_close(logits[:, order.ids], expected, 1e-4)

    speech = saved.facts["transcribe"]
    names = ["<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    assert [order.originals[token] for token in speech["prefix"]] == [tokenizer.token_to_id(name) for name in names]
    assert (speech["languages"], speech["seconds"], speech["pad"]) == (["en", "de"], 2, True)
    last = tokenizer.token_to_id("<|notimestamps|>")
    suppressed = {order.originals[token] for token in speech["suppressed"]}
    assert suppressed == {1, 2}
    assert order.originals[speech["first_time"]] == last + 1
    transcriber = Transcriber.load(tmp_path / "ours")
    part = transcriber.transcript(np.asarray(samples)).parts[0]
    assert (part.start, part.end) == (0.0, 2.0)
    assert part.log_prob > -1000
    english, german = (transcriber.transcript(np.asarray(samples), language=code).parts[0] for code in ("en", "de"))
    assert english.log_prob != german.log_prob
    assert part in (english, german)  # the language is detected


def test_transcribe_from_the_command_line(transduce: Any, tmp_path: Path) -> None:
    soundfile: Any = pytest.importorskip("soundfile")
    theirs, tokenizer = whisper()
    theirs.save_pretrained(tmp_path / "original")
    tokenizer.save(str(tmp_path / "original" / "tokenizer.json"))
    assert transduce("import", "original", "--out", "ours", cwd=tmp_path).code == 0
    noise = np.random.default_rng(0).normal(0, 0.1, 5 * 44_100)
    soundfile.write(tmp_path / "long.flac", noise, 44_100)
    soundfile.write(tmp_path / "short.wav", noise[:20_000], 16_000)
    soundfile.write(tmp_path / "empty.wav", noise[:0], 16_000)
    sounds = ("long.flac", "short.wav", "empty.wav")
    outcome = transduce("transcribe", "-m", "ours", "--json", *sounds, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    long, short, empty = map(json.loads, outcome.out.splitlines())
    assert [long["file"], short["file"], empty["file"]] == [*sounds]
    assert len(long["parts"]) >= 3
    assert [long["parts"][0]["start"], long["parts"][-1]["end"]] == [0.0, 5.0]
    assert all(part["end"] - part["start"] <= 2 for part in long["parts"])
    assert long["text"] == " ".join(part["text"] for part in long["parts"] if part["text"])
    assert (empty["text"], empty["parts"]) == ("", [])
    plain = transduce("transcribe", "-m", "ours", "short.wav", "--beam", "3", cwd=tmp_path)
    assert len(plain.out.splitlines()) == 1

    outcome = transduce("transcribe", "-m", "ours", "short.wav", "--language", "xx", cwd=tmp_path)
    assert complaint(outcome) == "the model has no language 'xx'; it has only one"
    assert complaint(transduce("transcribe", "-m", "ours", "no.wav", cwd=tmp_path)) == "no.wav: no such file"
    outcome = transduce("translate", "-m", "ours", "text", cwd=tmp_path)
    assert complaint(outcome) == "ours was trained for the task transcribe; use it with: transduce transcribe"
    gpt2(tmp_path / "gpt2")
    assert transduce("import", "gpt2", "--out", "language", cwd=tmp_path).code == 0
    outcome = transduce("transcribe", "-m", "language", "short.wav", cwd=tmp_path)
    assert complaint(outcome).startswith("language does not read sound")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x06\0\0\0", b"\x07\0\0\0" + bytes(100), b"\x06\0\0\0\x02\0a\0\x03\0\0\0\xff\xff\xff\xff" + bytes(50)],
)
def test_damaged_ctranslate2(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"model\.bin: "):
        import_model(tmp_path, tmp_path / "ours")


def test_other_ctranslate2_models_are_refused(tmp_path: Path) -> None:
    content = b"\x06\0\0\0\x0d\0Wav2Vec2Spec\0\x07\0\0\0" + bytes(8)
    (tmp_path / "model.bin").write_bytes(content)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="'Wav2Vec2Spec' cannot be imported; only TransformerSpec and WhisperSpec can"):
        import_model(tmp_path, tmp_path / "ours")
