"""Public weights against transformers. TRANSDUCE_WEIGHTS names a folder with them; without it, these tests are skipped.

It holds `minilm/` (all-MiniLM-L6-v2: config.json, model.safetensors, tokenizer.json, vocab.txt),
`smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`, `whisper/` (Whisper base of CTranslate2: config.json, model.bin,
tokenizer.json), `jfk.flac` of openai/whisper and `wikitext2.test.txt`.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mixed_text import MIXED
from torch import Tensor
from torch.nn import functional as F

from transduce.data.batch import Batch, Stream
from transduce.interop.import_model import import_model
from transduce.interop.imported_tokenizers import ImportedTokenizer, TokenOrder
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.folder import SavedModel, load_model
from transduce.nn.device import pick_device
from transduce.nn.segments import Segments
from transduce.speech.sound import RATE, SILENCE, read_sound
from transduce.speech.transcriber import Transcriber
from transduce.tokenizers.tokenizer import BOS, EOS

WEIGHTS = Path(os.environ.get("TRANSDUCE_WEIGHTS", ""))
if "TRANSDUCE_WEIGHTS" not in os.environ:
    pytest.skip("TRANSDUCE_WEIGHTS is not set", allow_module_level=True)
transformers: Any = pytest.importorskip("transformers")

GGUF = WEIGHTS / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
JFK = "And so my fellow Americans ask not what your country can do for you ask what you can do for your country"
CONTEXT = 1024
"""Tokens of wikitext that are read at once."""


def imported(path: Path, folder: Path) -> tuple[SavedModel, TokenOrder]:
    import_model(path, folder)
    saved = load_model(folder)
    assert isinstance(saved.tokenizer, ImportedTokenizer)
    return saved, saved.tokenizer.order


def difference(ours: Tensor, theirs: Tensor, what: str) -> float:
    """The largest difference relative to the largest number of the original."""
    absolute, largest = float((ours - theirs).abs().max()), float(theirs.abs().max())
    print(f"{what}: difference {absolute:.2e}, largest {largest:.1f}, relative {absolute / largest:.2e}")
    return absolute / largest


def assert_same_tokenizer(saved: SavedModel, order: TokenOrder, theirs: Any) -> None:
    for text in MIXED:
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert saved.tokenizer.encode(text) == [order.ids[token] for token in ids], text
        assert saved.tokenizer.decode(saved.tokenizer.encode(text)) == theirs.decode(ids, skip_special_tokens=True)


@torch.inference_mode()
def test_minilm(tmp_path: Path) -> None:
    saved, order = imported(WEIGHTS / "minilm", tmp_path / "ours")
    tokenizer = transformers.AutoTokenizer.from_pretrained(WEIGHTS / "minilm")
    theirs = transformers.AutoModel.from_pretrained(WEIGHTS / "minilm").eval()
    assert_same_tokenizer(saved, order, tokenizer)
    ours, expected = [], []
    for text in MIXED:
        ids = tokenizer(text, truncation=False)["input_ids"]
        own = [BOS, *saved.tokenizer.encode(text), EOS]
        assert own == [order.ids[token] for token in ids]
        ours.append(saved.model(Batch.of(text=[own])))
        expected.append(theirs(input_ids=torch.tensor([ids])).last_hidden_state[0])
    assert difference(torch.cat(ours), torch.cat(expected), "MiniLM, hidden vectors") <= 1e-5


def transformers_smollm2() -> Any:
    """By transformers' own reader of GGUF."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = transformers.LlamaConfig(**load_gguf_checkpoint(str(GGUF))["config"])
    model = transformers.LlamaForCausalLM(config).eval()
    tensors = load_gguf_checkpoint(str(GGUF), return_tensors=True, model_to_load=model)["tensors"]
    assert model.load_state_dict(tensors, strict=False).missing_keys == ["lm_head.weight"]
    model.tie_weights()
    return model


@torch.inference_mode()
def test_smollm2(tmp_path: Path) -> None:
    saved, order = imported(GGUF, tmp_path / "ours")
    theirs = transformers_smollm2()
    tokenizer = transformers.AutoTokenizer.from_pretrained(GGUF.parent, gguf_file=GGUF.name)
    assert_same_tokenizer(saved, order, tokenizer)
    ours, expected = [], []
    for text in MIXED[:40]:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        hidden_ND = saved.model(Batch.of(text=[[order.ids[token] for token in ids]]))
        ours.append(saved.model.logits(hidden_ND)[:, order.ids])
        expected.append(theirs(input_ids=torch.tensor([ids])).logits[0])
    assert difference(torch.cat(ours), torch.cat(expected), "SmolLM2, logits") <= 1e-4

    # The loss on text, in windows, of which TRANSDUCE_WINDOWS limits the number; on a GPU if there is one.
    device = pick_device("auto")
    saved.model.to(device), theirs.to(device)
    text = (WEIGHTS / "wikitext2.test.txt").read_text(encoding="utf-8")
    # transformers' reader of GGUF does not separate digits, as SmolLM2's own tokenizer does: ½ differs, once.
    ids = [order.originals[token] for token in saved.tokenizer.encode(text)]
    starts = range(0, len(ids) - 1, CONTEXT)[: int(os.environ.get("TRANSDUCE_WINDOWS", "4"))]
    sums, count = [0.0, 0.0], 0
    for start in starts:
        window, labels = ids[start : start + CONTEXT], ids[start + 1 : start + CONTEXT + 1]
        window = window[: len(labels)]
        original = theirs(input_ids=torch.tensor([window], device=device)).logits[0]
        own = saved.model.logits(saved.model(Batch.of(device, text=[[order.ids[token] for token in window]])))
        own_labels = torch.tensor([order.ids[token] for token in labels], device=device)
        sums[0] += float(F.cross_entropy(own, own_labels, reduction="sum"))
        sums[1] += float(F.cross_entropy(original, torch.tensor(labels, device=device), reduction="sum"))
        count += len(labels)
    losses = [one / count for one in sums]
    print(f"SmolLM2, loss on {count:,} tokens of wikitext2.test: {losses[0]:.6f}; transformers: {losses[1]:.6f}")
    assert abs(losses[0] - losses[1]) <= 1e-3


def transformers_whisper(settings: dict[str, Any], weights: dict[str, Tensor]) -> Any:
    config = transformers.WhisperConfig(
        **{name: value for name, value in settings.items() if name != "model_type"}
        | {"decoder_attention_heads": settings["encoder_attention_heads"]}
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    result = model.load_state_dict(weights, strict=False)
    assert result.unexpected_keys == [name for name in result.unexpected_keys if name.endswith("k_proj.bias")]
    assert set(result.missing_keys) <= {"proj_out.weight", "model.encoder.embed_positions.weight"}
    for name in result.unexpected_keys:
        assert not weights[name].any()
    model.tie_weights()
    return model


@torch.inference_mode()
def test_whisper(tmp_path: Path) -> None:
    from transduce.interop.ctranslate2 import read_ctranslate2

    original = read_ctranslate2(WEIGHTS / "whisper", {})
    saved, order = imported(WEIGHTS / "whisper", tmp_path / "ours")
    model = saved.model
    assert isinstance(model, EncoderDecoder)
    assert_same_tokenizer(
        saved, order, transformers.PreTrainedTokenizerFast(tokenizer_file=str(WEIGHTS / "whisper" / "tokenizer.json"))
    )
    theirs = transformers_whisper(original.settings, original.weights)
    samples = torch.from_numpy(read_sound(WEIGHTS / "jfk.flac"))
    samples = F.pad(samples, (0, 30 * RATE - len(samples)), value=SILENCE)
    wave = (samples - SILENCE).numpy() / 2**15
    features = transformers.WhisperFeatureExtractor()(wave, sampling_rate=RATE, return_tensors="pt").input_features
    stream = Stream(samples, Segments.of_lengths([len(samples)]))
    hidden_ND, _ = model.encode(stream)
    encoded = theirs.model.encoder(features)
    assert difference(hidden_ND, encoded.last_hidden_state[0], "Whisper, encoder") <= 1e-3

    # The logits along transformers' own greedy transcription.
    prefix = [BOS, *saved.facts["transcribe"]["prefix"]]
    start = torch.tensor([[order.originals[token] for token in prefix]])
    output = start
    while output.shape[1] < 60 and output[0, -1] != order.markers[EOS]:
        logits = theirs(encoder_outputs=encoded, decoder_input_ids=output).logits[:, -1]
        output = torch.cat([output, logits.argmax(-1, keepdim=True)], dim=1)
    expected = theirs(encoder_outputs=encoded, decoder_input_ids=output).logits[0]
    own = [BOS, *(order.ids[token] for token in output[0, 1:].tolist())]
    logits = model.logits(model(Batch({"src": stream, **Batch.of(tgt=[own]).streams}, torch.empty(0), 0)))
    assert difference(logits[:, order.ids], expected, "Whisper, logits") <= 1e-3

    for beam in (1, 4):
        text = Transcriber.load(tmp_path / "ours").transcribe(WEIGHTS / "jfk.flac", beam=beam)
        print(f"beam {beam}: {text}")
        assert text.replace(",", "").removesuffix(".") == JFK


def test_whisper_tells_the_times_of_a_long_recording(tmp_path: Path) -> None:
    imported(WEIGHTS / "whisper", tmp_path / "ours")
    sound = read_sound(WEIGHTS / "jfk.flac")
    transcript = Transcriber.load(tmp_path / "ours").transcript(np.concatenate([sound] * 4))
    assert transcript.language == "en"
    assert [(part.start, part.end) for part in transcript.parts] == [(n * 11.0, n * 11.0 + 11) for n in range(4)]
    assert {part.text.replace(",", "").removesuffix(".") for part in transcript.parts} == {JFK}
