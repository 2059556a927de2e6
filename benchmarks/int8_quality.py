"""What 8 bits change: the next-token distributions of a language model with engine native beside those in float32.

    python benchmarks/int8_quality.py smollm2 wikitext2.test.txt [--texts 20] [--tokens 32] [--out figures.json]

The first argument is a language model folder (`transduce import`), the second a text file, of which paragraphs at equal
distances are read. Every prefix of at least 8 tokens counts: whether the most likely next token is that of float32, and
the Kullback-Leibler divergence of the distribution from that of float32, in nats.
"""

import argparse
import sys
from pathlib import Path

import torch
from setting import SEED, make_parser, print_setting, write_results
from torch import Tensor

from transduce.data.batch import Batch, Stream
from transduce.fast.choose import pick_decoder
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.folder import load_model
from transduce.nn.segments import pack_tokens
from transduce.search.decoder import Decoder
from transduce.tokenizers.tokenizer import BOS

SHORTEST = 8
"""Tokens of the shortest prefix."""
SMOKE = DecoderOnlyConfig(layers=1, d_model=16, d_ff=32, num_heads=2, norm="pre", positions="rotary", dropout=0.0)


@torch.inference_mode()
def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("model", type=Path, nargs="?", help="a language model folder")
    parser.add_argument("text", type=Path, nargs="?", help="a text file with one paragraph a line")
    parser.add_argument("--texts", type=int, default=20, help="paragraphs")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of each")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, texts = read(options)
    setting = print_setting(model=options.model, text=options.text, texts=len(texts), tokens=options.tokens, seed=SEED)
    expected = model.logits(model(Batch.of(torch.device("cpu"), text=texts))).view(len(texts), options.tokens, -1)
    actual = step_logits(pick_decoder("native", model, options.threads), texts)
    expected, actual = (logits[:, SHORTEST - 1 :].log_softmax(-1).flatten(0, 1) for logits in (expected, actual))
    divergence = (expected.exp() * (expected - actual)).sum(-1).mean().item()
    same = (expected.argmax(-1) == actual.argmax(-1)).float().mean().item()
    agreement = f"same next token {same:.1%} (of 80: {80 * same:.1f})"
    print(f"\n{len(expected)} prefixes: {agreement}, mean divergence {divergence:.4f}")
    results = {"native": {"% same next token": 100 * same, "mean divergence": divergence, "prefixes": len(expected)}}
    write_results(options, setting, results)


def read(options: argparse.Namespace) -> tuple[DecoderOnly, list[list[int]]]:
    """The model, and the tokens of the texts, which have one length."""
    if options.smoke:
        torch.manual_seed(SEED)
        return DecoderOnly(SMOKE, 450).eval(), torch.randint(4, 450, (2, options.tokens)).tolist()
    if not (options.model and options.text):
        sys.exit("name a language model folder and a text file")
    saved = load_model(options.model, "cpu")
    assert isinstance(saved.model, DecoderOnly), f"{options.model} is no language model"
    lines = [line.strip() for line in options.text.read_text(encoding="utf-8").splitlines()]
    encoded = [[BOS, *saved.tokenizer.encode(line)] for line in lines if len(line.split()) > options.tokens]
    long = [tokens[: options.tokens] for tokens in encoded if len(tokens) >= options.tokens]
    return saved.model.eval(), long[:: max(len(long) // options.texts, 1)][: options.texts]


def step_logits(decoder: Decoder, texts: list[list[int]]) -> Tensor:
    """The logits (texts, tokens, V) after every token, one step at a time."""
    state = decoder.start(Stream(*pack_tokens([[] for _ in texts], torch.device("cpu"))))
    logits = []
    for token_R in torch.tensor(texts).T:
        logits_RV, state = decoder.step(token_R, state)
        logits.append(logits_RV)
    return torch.stack(logits, dim=1)


if __name__ == "__main__":
    main()
