"""Greedy generation of language models by the gpu engine, against the definition: the most likely token each time.

Without a GPU, its kernels run in Triton's interpreter.
"""

import pytest
import torch
from torch import Tensor

from transduce.data.batch import Batch
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.search.decoder import NEVER_GENERATED
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, EOS

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
V, NEW = 31, 4
STYLES = {
    "gpt2": {"positions": "learned", "max_positions": 20, "activation": "gelu_tanh"},
    "llama": {"positions": "rotary", "norm_type": "rms", "activation": "swiglu", "bias": False, "kv_heads": 2},
    "one head of keys": {"positions": "sinusoidal", "kv_heads": 1, "d_v": 5},
}


def make_model(style: str) -> DecoderOnly:
    torch.manual_seed(3)
    config = DecoderOnlyConfig(
        layers=2, d_model=24, d_ff=32, num_heads=4, dropout=0.0, norm="pre", embedding="plain", **STYLES[style]  # type: ignore[arg-type]
    )  # fmt: skip
    model = DecoderOnly(config, V).eval().to(DEVICE)
    for weight in model.parameters():
        weight.data = torch.randn_like(weight) * 0.4
    return model


def greedy(model: DecoderOnly, prompt: list[int]) -> list[int]:
    ids = [BOS, *prompt]
    for _ in range(NEW):
        logits_V: Tensor = model.logits(model(Batch.of(DEVICE, text=[ids])))[-1]
        logits_V[NEVER_GENERATED] = -torch.inf
        token = int(logits_V.argmax())
        if token == EOS:
            break
        ids.append(token)
    return ids[1:]


@pytest.mark.parametrize("fused", [False] if DEVICE == "cuda" else [False, True])
@pytest.mark.parametrize("style", STYLES)
def test_greedy_generation(style: str, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.fast.gpu.engine import GpuEngine

    if fused:  # as in half precision on a GPU
        monkeypatch.setattr("transduce.fast.gpu.engine.fits", lambda model: True)
    model = make_model(style)
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(4, V, (length,), generator=generator).tolist() for length in (3, 1, 6, 0)]
    options = SearchConfig(beam=1, length_penalty=0.0, min_length=0, max_extra=NEW)
    assert GpuEngine.supports(model, options) is None
    with torch.inference_mode():
        wanted = [greedy(model, prompt) for prompt in prompts]
    found = search_all(GpuEngine(model, torch.float32), [Job(prompt, prompt) for prompt in prompts], options)
    assert [best.tokens for best, *_ in found] == wanted
    assert any(len(tokens) == len(prompt) + NEW for tokens, prompt in zip(wanted, prompts, strict=True))


def test_learned_positions_end_an_output() -> None:
    from transduce.fast.gpu.engine import GpuEngine

    model, prompt = make_model("gpt2"), [7] * 15
    options = SearchConfig(beam=1, length_penalty=0.0, min_length=100, max_extra=50)
    ((best, *_),) = search_all(GpuEngine(model, torch.float32), [Job(prompt, prompt)], options)
    assert len(best.tokens) == 19  # and BOS
