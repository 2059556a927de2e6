"""Models of Firefox Translations (Marian with an SSRU decoder, stored in 8 bits), against their definition."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import complaint
from engines import assert_same, native_engine
from helpers import small_model
from marian_shortlists import marian_shortlist
from torch import Tensor
from torch.nn import functional as F

from transduce.data.batch import Batch
from transduce.errors import ModelError
from transduce.interop.export_model import forced_logits
from transduce.interop.import_model import import_model
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.folder import load_model
from transduce.nn.segments import Segments
from transduce.predecessors.variants import SSRU
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine
from transduce.tokenizers.any_tokenizer import load_tokenizer
from transduce.tokenizers.tokenizer import EOS

D, H, INNER = 16, 2, 24
SETTINGS = """dec-cell: ssru
dec-depth: 1
dim-emb: 16
dim-vocabs:
  - 450
  - 450
enc-depth: 2
tied-embeddings-all: true
transformer-decoder-autoreg: rnn
transformer-ffn-activation: relu
transformer-ffn-depth: 2
transformer-heads: 2
transformer-postprocess: dan
transformer-postprocess-emb: d
transformer-postprocess-top: ""
transformer-preprocess: ""
transformer-tied-layers: []
type: transformer
"""
Arrays = dict[str, Any]


def marian_arrays(vocab_size: int) -> Arrays:
    """Random weights under Marian's names."""
    random = np.random.default_rng(1)
    arrays: Arrays = {"Wemb": random.normal(size=(vocab_size, D)) * D**-0.5}
    arrays["decoder_ff_logit_out_b"] = random.normal(size=(1, vocab_size))

    def linear(name: str, letter: str, width_in: int, width_out: int) -> None:
        arrays[f"{name}_W{letter}"] = random.normal(size=(width_in, width_out)) * 0.3
        arrays[f"{name}_b{letter}"] = random.normal(size=(1, width_out)) * 0.3

    def norm(name: str) -> None:
        arrays[f"{name}_ln_scale"] = 1 + 0.2 * random.normal(size=(1, D))
        arrays[f"{name}_ln_bias"] = 0.2 * random.normal(size=(1, D))

    for layer, attention in (("encoder_l1", "self"), ("encoder_l2", "self"), ("decoder_l1", "context")):
        for letter in "qkvo":
            linear(f"{layer}_{attention}", letter, D, D)
        norm(f"{layer}_{attention}_Wo")
        linear(f"{layer}_ffn", "1", D, INNER)
        linear(f"{layer}_ffn", "2", INNER, D)
        norm(f"{layer}_ffn_ffn")
    linear("decoder_l1_rnn", "f", D, D)
    arrays["decoder_l1_rnn_W"] = random.normal(size=(D, D))
    norm("decoder_l1_rnn_ffn")
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def binary(arrays: Arrays) -> bytes:
    """A `.bin` file, in which matrices are 8-bit integers, and the arrays that it stands for, in `arrays`."""
    items = []
    for name, array in [*arrays.items()]:
        if ("_W" in name and "_ln_" not in name) or name == "Wemb":
            one = np.float32(127 / np.abs(array).max())
            integers = np.rint(array * one).astype(np.int8)
            arrays[name] = integers.astype(np.float32) / one
            stored = (integers if name == "Wemb" else integers.T).tobytes() + one.tobytes()
            items.append((name, 0x4101, array.shape, stored + bytes(252)))
        else:
            items.append((name, 0x404, array.shape, array.tobytes()))
    settings = SETTINGS.encode() + b"\0"
    items.append(("special:model.yml", 0x101, (len(settings),), settings))
    content = struct.pack("<QQ", 1, len(items))
    content += b"".join(struct.pack("<QQQQ", len(n) + 1, k, len(s), len(c)) for n, k, s, c in items)
    content += b"".join(name.encode() + b"\0" for name, *_ in items)
    content += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    return content + struct.pack("<Q", 5) + bytes(5) + b"".join(stored for *_, stored in items)


def defined_logits(arrays: Arrays, source: list[int], output: list[int], end: int) -> Tensor:
    """The logits at each token of an output and at its end, one token after the other."""
    weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
    rate = torch.exp(-torch.arange(D // 2) * math.log(10000) / (D // 2 - 1))

    def place(t: int) -> Tensor:
        return torch.cat([(t * rate).sin(), (t * rate).cos()])

    def linear(name: str, letter: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}_W{letter}"] + weights[f"{name}_b{letter}"][0]

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (D,), weights[f"{name}_ln_scale"][0], weights[f"{name}_ln_bias"][0], 1e-6)

    def attend(name: str, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = (
            linear(name, letter, y).view(-1, H, D // H).transpose(0, 1)
            for letter, y in (("q", x), ("k", memory), ("v", memory))
        )
        o = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(D // H), -1) @ v
        return norm(f"{name}_Wo", x + linear(name, "o", o.transpose(0, 1).reshape(-1, D)))

    def feed_forward(name: str, x: Tensor) -> Tensor:
        return norm(f"{name}_ffn", x + linear(name, "2", linear(name, "1", x).relu()))

    ids = [*source, end]
    memory = weights["Wemb"][ids] * math.sqrt(D) + torch.stack([place(t) for t in range(len(ids))])
    for layer in ("encoder_l1", "encoder_l2"):
        memory = feed_forward(f"{layer}_ffn", attend(f"{layer}_self", memory, memory))
    state, rows = torch.zeros(D), []
    for t, token in enumerate([None, *output]):
        x = (torch.zeros(D) if token is None else weights["Wemb"][token] * math.sqrt(D)) + place(t)
        keep = linear("decoder_l1_rnn", "f", x).sigmoid()
        state = keep * state + (1 - keep) * (x @ weights["decoder_l1_rnn_W"])
        x = norm("decoder_l1_rnn_ffn", x + state.relu())
        x = feed_forward("decoder_l1_ffn", attend("decoder_l1_context", x[None], memory))[0]
        rows.append(weights["Wemb"] @ x + weights["decoder_ff_logit_out_b"][0])
    return torch.stack(rows)


@pytest.mark.parametrize("form", ["npz", "bin"])
def test_an_imported_model_computes_the_definition(
    form: str, transduce: Any, toy_tokenizer: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "firefox"
    folder.mkdir()
    arrays = marian_arrays(toy_tokenizer.vocab_size)
    if form == "bin":
        (folder / "model.bin").write_bytes(binary(arrays))
    else:
        settings = np.frombuffer(SETTINGS.encode() + b"\0", np.int8)
        np.savez(folder / "model.npz", **arrays, **{"special:model.yml": settings})
    toy_tokenizer.save(folder / "vocab.spm")
    outcome = transduce("import", "firefox", "--out", "ours", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    saved = load_model(tmp_path / "ours")
    source, output = toy_tokenizer.encode("babo debo gidu"), toy_tokenizer.encode("gidu debo")
    expected = defined_logits(arrays, source, output, EOS)
    torch.testing.assert_close(
        forced_logits(saved.model, source, output)[:, EOS:], expected[:, EOS:], atol=1e-5, rtol=0
    )
    if form == "bin":  # integers that native keeps
        words = ("--beam", "3", "--max-length", "9", "--jsonl", "babo debo", "gidu", "debo gidu babo lo lo")
        outcomes = [
            transduce("translate", "-m", "ours", "--engine", engine, *words, cwd=tmp_path)
            for engine in ("native", "plain")
        ]
        assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
        lines = [[json.loads(line)["translations"][0] for line in outcome.out.splitlines()] for outcome in outcomes]
        for ours, theirs in zip(*lines, strict=True):
            assert (ours["tokens"], ours["alignment"]) == (theirs["tokens"], theirs["alignment"])
            assert ours["score"] == pytest.approx(theirs["score"], abs=1e-3)
    outcome = transduce("inspect", "-m", "ours", "babo", cwd=tmp_path)
    assert complaint(outcome) == "models with model.decoder_cell = ssru cannot be inspected"


def test_an_imported_shortlist_is_used_on_request(transduce: Any, toy_tokenizer: Any, tmp_path: Path) -> None:
    folder, size = tmp_path / "firefox", toy_tokenizer.vocab_size
    folder.mkdir()
    (folder / "model.bin").write_bytes(binary(marian_arrays(size)))
    toy_tokenizer.save(folder / "vocab.spm")
    lists = [[7 * n % size, (7 * n + 1) % size] for n in range(size)]
    content = marian_shortlist(lists, 10)
    (folder / "lex.10.2.enpt.s2t.bin").write_bytes(content)
    outcome = transduce("import", "firefox", "--out", "ours", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    message = "the model's lexical shortlist; --shortlist of translate, evaluate and serve uses it (engine native)"
    assert outcome.out.splitlines()[1] == f"ours/shortlist.safetensors: {message}"
    texts = ["babo debo", "gidu", "debo gidu babo lo lo"]
    words = ("translate", "-m", "ours", "--engine", "native", "--beam", "2", "--max-length", "9", "--jsonl", *texts)
    outside, pieces = [], load_tokenizer(tmp_path / "ours").pieces
    for option in ((), ("--shortlist",)):
        outcome = transduce(*words, *option, cwd=tmp_path)
        assert outcome.code == 0, outcome.err
        lines = [json.loads(line)["translations"][0]["tokens"] for line in outcome.out.splitlines()]
        assert all(lines)
        outside.append(0)
        for text, tokens in zip(texts, lines, strict=True):
            source = [*toy_tokenizer.encode(text), EOS]
            allowed = {*range(10), *source, *(token for n in source for token in lists[n])}
            outside[-1] += len({*tokens} - {*pieces(sorted(allowed))})
    assert (outside[0] > 0, outside[1]) == (True, 0)
    (folder / "lex.10.2.enpt.s2t.bin").write_bytes(content[:-4])
    message = complaint(transduce("import", "firefox", "--out", "other", cwd=tmp_path))
    assert message.startswith("firefox/lex.10.2.enpt.s2t.bin: not a binary shortlist of Marian for this model: it has ")
    assert not (tmp_path / "other").exists()


def test_steps_compute_the_same_as_a_forward_pass() -> None:
    """With rows that are reordered in between, as beam search does; and packed segments do not mix."""
    torch.manual_seed(1)
    config = EncoderDecoderConfig(
        encoder_layers=1, decoder_layers=2, d_model=16, d_ff=24, num_heads=2, decoder_cell="ssru"
    )
    model = EncoderDecoder(config, 50).eval()
    sources, outputs = [[5, 6, 7], [8, 9]], [[2, 10, 11, 12], [2, 20, 21, 22]]
    with torch.inference_mode():
        together = model.logits(model(Batch.of(src=sources, tgt=outputs))).view(2, 4, -1)
        for n in range(2):
            alone = model.logits(model(Batch.of(src=[sources[n]], tgt=[outputs[n]])))
            torch.testing.assert_close(together[n], alone)
        state = model.start(Batch.of(src=[sources[0]])["src"])
        for t, token in enumerate(outputs[0]):
            state = model.reorder(state, torch.tensor([[0, 0]]))
            logits_RV, state = model.step(torch.tensor([40, token]), state)
            torch.testing.assert_close(logits_RV[1], together[0, t])
            state = model.reorder(state, torch.tensor([[1]]))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_native_engine_finds_the_same_alone_and_in_a_batch(threads: int) -> None:
    """To the last bit, although hypotheses of several sentences are reordered at the same time."""
    model = small_model(decoder_cell="ssru", decoder_layers=3)
    engine, search = native_engine(model, threads), SearchConfig(beam=5, nbest=5, max_extra=12)
    jobs = [Job([4 + n, 5, 6 + n][: 1 + n % 3], [7] * (n % 2)) for n in range(9)]
    assert search_all(engine, jobs, search) == [search_all(engine, [job], search)[0] for job in jobs]


def test_activations_of_the_native_engine_are_as_good_as_float32() -> None:
    """If the weights are integers times one number, which the engine keeps, as in the models of Firefox."""
    model = small_model(1, 60, decoder_cell="ssru", d_model=32, d_ff=48)
    for name, x in model.state_dict().items():
        if x.ndim == 2 and "positions" not in name:
            one = x.abs().max() / 127
            x.copy_((x / one).round() * one)
    jobs = [Job([4 + n, 30 + n, 9], []) for n in range(8)]
    search = SearchConfig(beam=4, nbest=4, max_extra=6)
    assert_same(search_all(native_engine(model), jobs, search), search_all(PlainEngine(model.eval()), jobs, search))


def test_gradients_reach_earlier_tokens_of_the_same_segment_only() -> None:
    torch.manual_seed(1)
    unit, x_ND = SSRU(4), torch.randn(5, 4, requires_grad=True)
    unit(x_ND, Segments.of_lengths([2, 3]))[3].sum().backward()
    assert x_ND.grad is not None
    assert x_ND.grad.abs().sum(1).bool().tolist() == [False, False, True, True, False]


@pytest.mark.parametrize("cut", [3, 40, 200, 5000, -3])
def test_damaged_files_are_refused(cut: int, toy_tokenizer: Any, tmp_path: Path) -> None:
    content = binary(marian_arrays(toy_tokenizer.vocab_size))
    (tmp_path / "model.bin").write_bytes(content[:cut])
    toy_tokenizer.save(tmp_path / "vocab.spm")
    with pytest.raises(ModelError, match=r"model\.bin: not a binary model of Marian, or damaged"):
        import_model(tmp_path, tmp_path / "ours")
