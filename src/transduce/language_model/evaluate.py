"""`transduce evaluate` for language models."""

import json
import math

import torch

from transduce.cli.evaluate import Evaluation, read_test_set
from transduce.data.batch import in_batches, to_device
from transduce.errors import DataError
from transduce.files.pair_formats import has_pairs
from transduce.files.pairs import count_pairs
from transduce.files.readers import READERS
from transduce.language_model.documents import read_documents
from transduce.language_model.generator import Generator
from transduce.language_model.task import LanguageModel, LanguageModelConfig
from transduce.tokenizers.any_tokenizer import encode_prompt_and_answer
from transduce.tokenizers.tokenizer import PAD


def evaluate_language_model(request: Evaluation) -> None:
    """Print loss, perplexity and bits per byte of the documents of a file, or of the answers of its pairs."""
    test = request.only_test("a language model is evaluated by itself, on running text (.txt, .jsonl) or pairs (.tsv)")
    generator = Generator.load(request.folders[0], device=request.device, threads=request.threads)
    if has_pairs(test):
        pairs = read_test_set(READERS["prompts"].read, str(test))
        nll, tokens = _score_answers(generator, pairs)
        size, noun, counted = sum(len(answer.encode()) for _, answer in pairs), "answer", len(pairs)
        how, more = "after their prompts", {}
    else:
        texts = [text for (text,) in read_test_set(read_documents, str(test))]
        stride = max(1, generator.context // 2)
        scores = generator.score(texts, stride=stride)
        nll, tokens = -sum(score.log_prob for score in scores), sum(len(score.tokens) for score in scores)
        size, noun, counted = sum(len(text.encode()) for text in texts), "document", len(texts)
        how, more = f"windows of {generator.context:,} tokens begin every {stride:,}", {"stride": stride}
    figures = {"loss": nll / tokens, "perplexity": math.exp(min(nll / tokens, 700))}
    figures["bits_per_byte"] = nll / math.log(2) / size
    if request.as_json:
        counts = {"tokens": tokens, "bytes": size, f"{noun}s": counted, "context": generator.context}
        print(json.dumps(figures | counts | more, indent=1))
        return
    print(f"Loss           {figures['loss']:8.4f}   nats per token")
    print(f"Perplexity     {figures['perplexity']:8.2f}")
    print(f"Bits per byte  {figures['bits_per_byte']:8.4f}")
    print(f"{count_pairs(tokens, 'token')}, {count_pairs(size, 'byte')}, {count_pairs(counted, noun)}; {how}")


@torch.inference_mode()
def _score_answers(generator: Generator, pairs: list[tuple[str, str]]) -> tuple[float, int]:
    """The negative log-likelihood of all answers, each after its prompt, as training computes it, and their tokens."""
    model, task = generator.model, LanguageModel(LanguageModelConfig(answers_only=True))
    encoded = [encode_prompt_and_answer(generator.tokenizer, *pair) for pair in pairs]
    for number, ids in enumerate(encoded, 1):
        if len(ids) > generator.context:
            raise DataError(
                f"pair {number:,} has {len(ids):,} tokens, more than the context of the model ({generator.context:,})"
            )
    nll, tokens = 0.0, 0
    for batch in in_batches(encoded, map(len, encoded)):
        packed = to_device(task.pack([(ids,) for ids in batch]), model.device)
        log_probs_LV = model.logits(model(packed)).log_softmax(dim=-1)
        of_labels_L = log_probs_LV.gather(1, packed.labels_L[:, None])[:, 0]
        nll -= of_labels_L[packed.labels_L != PAD].sum().item()
        tokens += packed.count
    return nll, tokens
