"""`transduce evaluate` for language models."""

import json
import math

from transduce.cli.evaluate import Evaluation, read_test_set
from transduce.files.pairs import count_pairs
from transduce.language_model.documents import read_documents
from transduce.language_model.generator import Generator


def evaluate_language_model(request: Evaluation) -> None:
    """Print loss, perplexity and bits per byte of the documents of a file, and how they are read."""
    test = request.only_test("a language model is evaluated by itself, on running text (.txt, .jsonl)")
    generator = Generator.load(request.folders[0], device=request.device, threads=request.threads)
    texts = [text for (text,) in read_test_set(read_documents, str(test))]
    stride = max(1, generator.context // 2)
    scores = generator.score(texts, stride=stride)
    tokens, size = sum(len(score.tokens) for score in scores), sum(len(text.encode()) for text in texts)
    nll = -sum(score.log_prob for score in scores)
    figures = {"loss": nll / tokens, "perplexity": math.exp(min(nll / tokens, 700))}
    figures["bits_per_byte"] = nll / math.log(2) / size
    counts = {"tokens": tokens, "bytes": size, "documents": len(texts), "context": generator.context, "stride": stride}
    if request.as_json:
        print(json.dumps(figures | counts, indent=1))
        return
    print(f"Loss           {figures['loss']:8.4f}   nats per token")
    print(f"Perplexity     {figures['perplexity']:8.2f}")
    print(f"Bits per byte  {figures['bits_per_byte']:8.4f}")
    counted = (count_pairs(tokens, "token"), count_pairs(size, "byte"), count_pairs(len(texts), "document"))
    print(f"{', '.join(counted)}; windows of {generator.context:,} tokens begin every {stride:,}")
