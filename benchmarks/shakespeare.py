"""Characters of Shakespeare on a CPU: ours beside a GPT in plain torch, with the settings of nanoGPT's CPU example.

    python benchmarks/shakespeare.py tinyshakespeare.txt [--style llama] [--steps 2000] [--out figures.json]

4 layers and heads, width 128, context 64, 12 windows per batch, AdamW, a cosine from 1e-3 to 1e-4. Ours has the style
of GPT-2, or of Llama, whose gated feed-forward networks then have as many parameters. The plain GPT is a module of this
file: learned positions, pre-norm, exact GELU, fused attention, no biases, tied embeddings, random crops of the training
text. Both train in one process in turns of 50 steps, so that other load on the machine slows both equally; only the
steps are measured. Both are scored on the last tenth of the text, in consecutive windows.
"""

import lzma
import math
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from setting import SEED, make_parser, print_setting, write_results
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.data.batch import Batch
from transduce.data.prepare import prepare
from transduce.data.variation import Variation
from transduce.language_model.task import LanguageModel
from transduce.models.model import Model
from transduce.models.registry import create_model
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training.learner import make_optimizer
from transduce.training.recipe import Recipe, load_recipe
from transduce.training.schedule import scheduled_rate
from transduce.training.steps import Steps

LAYERS, HEADS, WIDTH, CONTEXT, WINDOWS = 4, 4, 128, 64, 12
TURN = 50
"""Steps of each system in turn."""
STYLES: dict[str, dict[str, object]] = {
    "gpt2": {"model.d_ff": 4 * WIDTH, "model.bias": "false", "model.activation": "gelu"},
    "llama": {"model.d_ff": 8 * WIDTH // 3},
}
OURS, PEER = "transduce", "GPT in plain torch"
Ids = npt.NDArray[np.int64]
LogitsOf = Callable[[Tensor], Tensor]
"""Logits (B, T, V) of windows (B, T)."""


def main() -> None:
    """Train both, measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("text", type=Path, nargs="?", help="the plays, e.g. tinyshakespeare.txt or .txt.xz")
    parser.add_argument("--style", choices=STYLES, default="gpt2", help="of ours")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    if not options.smoke and options.text is None:
        parser.error("name the file of the text")
    steps = 2 if options.smoke else options.steps
    text = _smoke_text() if options.smoke else _read(options.text)
    cut = len(text) * 9 // 10
    setting = print_setting(**{
        "characters": len(text), "layers": LAYERS, "width": WIDTH, "context": CONTEXT, "windows": WINDOWS,
        "steps": steps, "style": options.style, "threads": torch.get_num_threads(), "seed": SEED,
    })  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        path.write_text(text[:cut], encoding="utf-8")
        recipe = make_recipe(path, steps, options.style)
        results = train_both(recipe, text[cut:])
    print(f"\n{'':<24}{'seconds':>10}{'tokens/s':>12}{'validation loss':>18}")
    for name, row in results.items():
        print(f"{name:<24}{row['seconds']:>10.1f}{row['tokens_per_second']:>12,.0f}{row['valid_loss']:>18.4f}")
    write_results(options, setting, results)


def make_recipe(path: Path, steps: int, style: str) -> Recipe:
    """The settings of nanoGPT's CPU example, and those of the style."""
    settings = {
        "tokenizer.type": "char", "data.max_length": CONTEXT, "train.batch_tokens": CONTEXT * WINDOWS,
        "model.layers": LAYERS, "model.num_heads": HEADS, "model.d_model": WIDTH, "model.dropout": 0.0,
        "model.max_positions": CONTEXT, **STYLES[style],
        "train.steps": steps, "train.warmup": min(100, max(1, steps // 2)), "train.schedule": "cosine",
        "train.learning_rate": 1e-3, "train.final_learning_rate": 1e-4, "train.beta2": 0.99,
        "train.weight_decay": 0.1, "train.clip_norm": 1.0, "train.seed": SEED, "train.device": "cpu",
    }  # fmt: skip
    flags = {"task": "language_model", "data": {"train": [[str(path)]]}}
    sets = [f"{name}={value}" for name, value in settings.items()]
    return load_recipe(None, "tiny", flags, sets, style=style)


def train_both(recipe: Recipe, valid: str) -> dict[str, dict[str, float]]:
    """Train both systems in turns; returns time, throughput and validation loss of each."""
    config, task = recipe.train, LanguageModel()
    assert isinstance(config.batch_tokens, int)
    prepared = prepare(recipe.data, recipe.tokenizer, lambda _: None, task.reader)
    tokenizer = prepared.tokenizer
    torch.manual_seed(SEED)
    ours = create_model(recipe.model, tokenizer.vocab_size)
    optimizer = make_optimizer(ours, config)
    plan = task.plan(prepared.train, config.batch_tokens, config.seed, growth=1.0, max_length=CONTEXT)
    torch.manual_seed(SEED)
    peer = PlainGpt(tokenizer.vocab_size)
    (document,) = prepared.train.pairs(np.array([0]))[0]
    peer_step = peer_training_step(peer, np.asarray(document, dtype=np.int64), recipe)
    with Steps(recipe, task, plan, Variation(tokenizer), ours, optimizer, print) as own_steps:

        def our_step(step: int) -> None:
            _, labels, _ = own_steps.gradients(step)
            own_steps.learner.update(step + 1, scheduled_rate(step + 1, config, WIDTH), labels)

        systems: dict[str, Callable[[int], object]] = {PEER: peer_step, OURS: our_step}
        seconds = dict.fromkeys(systems, 0.0)
        for turn in (range(first, min(first + TURN, config.steps)) for first in range(0, config.steps, TURN)):
            for name, step in systems.items():
                start = time.perf_counter()
                for number in turn:
                    step(number)
                seconds[name] += time.perf_counter() - start
    ids = encoded(tokenizer, valid)
    losses = {OURS: validation_loss(logits_of(ours), ids), PEER: validation_loss(peer, ids)}
    tokens = config.steps * config.batch_tokens
    return {
        name: {"seconds": seconds[name], "tokens_per_second": tokens / seconds[name], "valid_loss": losses[name]}
        for name in (OURS, PEER)
    }


def encoded(tokenizer: Tokenizer, text: str) -> Tensor:
    """The tokens of a text."""
    return torch.tensor(tokenizer.encode_document(text))


def logits_of(model: Model) -> LogitsOf:
    """Our model as a function of windows."""
    return lambda ids_BT: model.logits(model(Batch.of(text=ids_BT.tolist()))).view(*ids_BT.shape, -1)


@torch.inference_mode()
def validation_loss(logits: LogitsOf, ids: Tensor) -> float:
    """Mean loss of consecutive windows."""
    windows = (len(ids) - 1) // CONTEXT
    inputs, labels = (ids[first : first + windows * CONTEXT].view(windows, CONTEXT) for first in (0, 1))
    losses = [
        F.cross_entropy(logits(some).flatten(0, 1), wanted.flatten(), reduction="sum").item()
        for some, wanted in zip(inputs.split(64), labels.split(64), strict=True)
    ]
    return sum(losses) / inputs.numel()


class PlainBlock(nn.Module):
    """A pre-norm layer: causal attention and a feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.qkv, self.merge = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.inner, self.outer = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        heads = self.qkv(self.norm1(x_BTD)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x_BTD = x_BTD + self.merge(attended.transpose(1, 2).flatten(2))
        return x_BTD + self.outer(F.gelu(self.inner(self.norm2(x_BTD))))


class PlainGpt(nn.Module):
    """A GPT with learned positions and tied embeddings."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(PlainBlock() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                residual = name.endswith(("merge.weight", "outer.weight"))
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * LAYERS) if residual else 1))

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        x_BTD = self.tokens(ids_BT) + self.positions.weight[: ids_BT.shape[1]]
        return F.linear(self.norm(self.blocks(x_BTD)), self.tokens.weight)


def peer_training_step(model: PlainGpt, ids: Ids, recipe: Recipe) -> Callable[[int], None]:
    """A function that makes one update with random crops of the text."""
    config, text = recipe.train, torch.from_numpy(ids)
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    vectors = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True)

    def step(number: int) -> None:
        starts = torch.randint(len(text) - CONTEXT, (WINDOWS,)).tolist()
        inputs, labels = (
            torch.stack([text[start + shift : start + shift + CONTEXT] for start in starts]) for shift in (0, 1)
        )
        F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = scheduled_rate(number + 1, config, WIDTH)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _read(path: Path) -> str:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8").read()
    return path.read_text(encoding="utf-8")


def _smoke_text() -> str:
    draw = random.Random(SEED)
    return "".join(draw.choice("abcdefgh \n") for _ in range(20_000))


if __name__ == "__main__":
    main()
