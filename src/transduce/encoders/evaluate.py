"""`transduce evaluate` for masked models."""

import json
import math

import torch

from transduce.cli.evaluate import Evaluation
from transduce.cli.messages import log, warn_of_cut_texts
from transduce.data.batch import in_batches, to_device
from transduce.encoders.pretraining import Masked
from transduce.encoders.text_encoder import TextEncoder
from transduce.files.pairs import ReadReport, count_pairs
from transduce.files.readers import read_texts


@torch.inference_mode()
def evaluate_masked(request: Evaluation) -> None:
    """Print loss, perplexity and accuracy of tokens of a file, masked as in training with fixed random numbers."""
    test = request.only_test("a masked model is evaluated by itself, on a text in each line (.txt, .jsonl)")
    encoder = TextEncoder.load(request.folders[0], device=request.device, threads=request.threads)
    model, task, longest = encoder.model, Masked(), encoder.max_length
    task.set_tokenizer(encoder.tokenizer)
    report = ReadReport()
    encoded = encoder.tokenizer.encode_all([text for (text,) in read_texts([(str(test),)], report)])
    for line in report.lines():  # as in training
        log(line)
    warn_of_cut_texts(sum(len(ids) > longest for ids in encoded), longest)
    texts = [ids[:longest] for ids in encoded]
    nll, right, tokens = 0.0, 0, 0
    for seed, batch in enumerate(in_batches(texts, map(len, texts))):
        packed = to_device(task.pack([(ids,) for ids in batch], seed), model.device)
        log_probs_LV = model.logits(model(packed)).log_softmax(dim=-1)
        nll -= log_probs_LV.gather(1, packed.labels_L[:, None]).sum().item()
        right += int((log_probs_LV.argmax(-1) == packed.labels_L).sum())
        tokens += packed.count
    figures = {"loss": nll / tokens, "perplexity": math.exp(min(nll / tokens, 700)), "accuracy": 100 * right / tokens}
    if request.as_json:
        counts = {"masked_tokens": tokens, "texts": len(texts), "share": task.settings.share}
        print(json.dumps(figures | counts, indent=1))
        return
    print(f"Loss        {figures['loss']:8.4f}   nats per masked token")
    print(f"Perplexity  {figures['perplexity']:8.2f}")
    print(f"Accuracy    {figures['accuracy']:8.2f}")
    share = f"{task.settings.share:.0%} of the tokens of {count_pairs(len(texts), 'text')}"
    print(f"{count_pairs(tokens, 'masked token')}: {share}, chosen as in training with fixed random numbers")
