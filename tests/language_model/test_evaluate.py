"""`transduce evaluate` of language models and masked models, against transformers with the same weights."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import complaint
from toy_run import write_lines
from transformers_family import ours_of
from transformers_models import transformers

from transduce.encoders.pretraining import Masked
from transduce.models.folder import save_model
from transduce.models.model import Model
from transduce.tokenizers.tokenizer import BOS, Tokenizer

CONTEXT = 12
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXTS = ["babo dego\ngibo dedu gigo bädu " * 3, "gibo", "dedu babo\n"]


def saved(folder: Path, theirs: Any, tokenizer: Tokenizer, task: str) -> Model:
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    model = ours_of(theirs.eval(), folder / "theirs")
    save_model(folder / "model", model, tokenizer, {"task": task, "max_length": CONTEXT})
    return model


def test_the_loss_of_a_language_model_is_that_of_transformers(
    transduce: Any, toy_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=toy_tokenizer.vocab_size, num_key_value_heads=2, **SIZES)
    )
    saved(tmp_path, theirs, toy_tokenizer, "language_model")
    write_lines(tmp_path / "text.jsonl", [json.dumps({"text": text}) for text in TEXTS])
    nll, tokens = 0.0, 0
    for text in TEXTS:
        ids = [BOS, *toy_tokenizer.encode_document(text)]
        scored = 1
        for first in range(0, len(ids), CONTEXT // 2):
            window = torch.tensor([ids[first : first + CONTEXT + 1]])
            with torch.inference_mode():
                log_probs = theirs(window[:, :-1]).logits[0].log_softmax(dim=1)
            new = range(scored, first + window.shape[1])
            nll -= sum(log_probs[place - first - 1, ids[place]].item() for place in new)
            scored = max(scored, first + window.shape[1])
        tokens += len(ids) - 1
    words = ["evaluate", "-m", "model", "--test", "text.jsonl"]
    found = json.loads(transduce(*words, "--json", cwd=tmp_path).out)
    size = len("".join(TEXTS).encode())
    assert found == {
        "loss": pytest.approx(nll / tokens, rel=1e-5), "perplexity": pytest.approx(math.exp(nll / tokens), rel=1e-4),
        "bits_per_byte": pytest.approx(nll / math.log(2) / size, rel=1e-5),
        "tokens": tokens, "bytes": size, "documents": 3, "context": CONTEXT, "stride": CONTEXT // 2,
    }  # fmt: skip
    printed = transduce(*words, cwd=tmp_path).out
    assert f"Loss           {nll / tokens:8.4f}   nats per token\n" in printed
    assert printed.endswith(f"{tokens} tokens, {size} bytes, 3 documents; windows of 12 tokens begin every 6\n")
    for more, message in (
        (["--beam", "2"], "--beam has no effect on a model of the task language_model; leave it out"),
        (
            ["--ref", "text.jsonl"],
            "a language model is evaluated by itself, on running text (.txt, .jsonl) or pairs (.tsv): give one",
        ),
        (["-m", "theirs/.."], "a language model is evaluated by itself"),
    ):
        assert message in complaint(transduce(*words, *more, cwd=tmp_path)), more


def test_the_loss_of_a_masked_model_is_that_of_transformers(
    transduce: Any, toy_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=toy_tokenizer.vocab_size, max_position_embeddings=16, **SIZES)
    saved(tmp_path, theirs := transformers.BertForMaskedLM(config), toy_tokenizer, "masked")
    texts = ["babo dego gibo dedu gigo", "gibo", "dedu babo " * 20]
    write_lines(tmp_path / "text.txt", texts)
    task = Masked()
    task.set_tokenizer(toy_tokenizer)
    packed = task.pack([(ids[:CONTEXT],) for ids in toy_tokenizer.encode_all(texts)], seed=0)
    assert packed.positions_L is not None
    ids, offsets = packed["text"].ids_N, packed["text"].offsets_B1
    with torch.inference_mode():
        logits = torch.cat([theirs(torch.from_numpy(ids[None, a:b])).logits[0] for a, b in pairwise(offsets)])
    log_probs = logits.log_softmax(dim=1)[packed.positions_L]
    labels = torch.from_numpy(packed.labels_L)
    outcome = transduce("evaluate", "-m", "model", "--test", "text.txt", "--json", cwd=tmp_path)
    assert "1 text was cut to 12 tokens" in outcome.err
    found = json.loads(outcome.out)
    loss = -log_probs.gather(1, labels[:, None]).mean().item()
    assert found["loss"] == pytest.approx(loss, rel=1e-4)
    assert found["perplexity"] == pytest.approx(math.exp(loss), rel=1e-3)
    assert found["accuracy"] == pytest.approx(100 * (log_probs.argmax(1) == labels).float().mean().item())
    assert (found["masked_tokens"], found["texts"], found["share"]) == (len(labels), 3, 0.15)
    again = transduce("evaluate", "-m", "model", "--test", "text.txt", cwd=tmp_path)
    assert f"Loss        {loss:8.4f}   nats per masked token\n" in again.out
