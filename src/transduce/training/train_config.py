"""The section [train] of a recipe. Commands import it without torch."""

import math
from dataclasses import dataclass
from typing import Literal

from transduce.config import MAX_THREADS, require
from transduce.nn.kinds import LINEAR_MAPS

BleuTokenizer = Literal["auto", "13a", "char", "flores101", "flores200", "intl", "ja-mecab", "ko-mecab", "none", "zh"]
"""Names of sacreBLEU's tokenizers; `auto` selects one by the language of the references."""
DEFAULT_BLEU_TOKENIZER = "13a"
ADAPTABLE = ("warmup", "cooldown", "save_every", "valid_sentences")
"""Settings that may be adapted to `train.minutes`."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Training (section 5): schedule, optimizer, regularisation, checkpoints."""

    steps: int = 100_000
    """Number of updates of the weights."""
    minutes: float | None = None
    """End the run after this much time, if that is before `steps`: preparation, validation and saving included."""
    adapts: tuple[str, ...] = ()
    """Settings that are adapted to `minutes` when the speed is known: by default, those of warmup, cooldown, save_every
    and valid_sentences that are not set."""
    patience: int | None = None
    """End the run after this many validations in a row without a better score, and after a cooldown."""
    batch_tokens: int | Literal["auto"] = 25_000
    """Upper bound on the source tokens and the target tokens of a batch; auto is the most that fits in GPU memory. Of
    images, pixels are counted, and of recordings samples."""
    accumulate: int = 1
    """Gradient accumulation: number of batches per update."""
    warmup: int = 4000
    """Number of steps in which the learning rate rises (warmup_steps)."""
    learning_rate: float | None = None
    """Highest learning rate, reached after warmup; if not given, it follows from width and warmup as in the paper."""
    learning_rate_scale: float = 1.0
    """Factor on the learning rate of the paper's schedule, which depends on step and width."""
    schedule: Literal["paper", "cosine"] = "paper"
    """Learning rate after warmup: falls with the inverse root of the step, as in the paper, or as half a cosine until
    the last step (train.steps)."""
    final_learning_rate: float = 0.0
    """Learning rate of the last step, with the schedule cosine."""
    weight_decay: float = 0.0
    """Weight decay of all matrices, decoupled from the gradients (AdamW); 0 is the paper's Adam."""
    cooldown: int = 0
    """Number of last steps in which the learning rate decays linearly to zero; 0 keeps the paper's schedule."""
    beta1: float = 0.9
    """Adam's beta1: decay of the first moment."""
    beta2: float = 0.98
    """Adam's beta2: decay of the second moment."""
    epsilon: float = 1e-9
    """Adam's epsilon, added to the root of the second moment."""
    label_smoothing: float = 0.1
    """epsilon_ls: probability mass spread evenly over the vocabulary."""
    clip_norm: float = 0.0
    """Gradient clipping: largest norm of the gradients; 0 disables it, as in the paper."""
    r_drop: float = 0.0
    """Weight of the R-Drop loss between two passes with different dropout; 0 disables it (its paper: 5)."""
    bpe_dropout: float = 0.0
    """BPE-dropout: probability that a merge of the tokenizer is skipped, drawn anew in every epoch."""
    seed: int = 1
    """Random seed of initial weights, dropout and the order of batches."""
    start_from: str | None = None
    """Fine-tuning: run or model folder, or "bundled", whose weights, sizes and vocabulary training starts from; the
    model may have fewer layers, or more, which at first pass on what they read."""
    lora: int = 0
    """Fine-tuning: rank of low-rank updates (LoRA) that are trained instead of the weights, which stay those of
    `start_from`; 0 trains the weights."""
    lora_alpha: float = 16.0
    """LoRA: the updates are scaled by this, divided by the rank."""
    lora_layers: tuple[str, ...] = LINEAR_MAPS
    """LoRA: the linear maps that are updated; by default, all of attention and feed-forward. Queries, keys and values
    of self-attention are one map (qkv)."""
    lora_merge: bool = False
    """LoRA: write the finished model with all its weights, so that it no longer needs the model of `start_from`."""
    start_share: float = 0.0
    """Fine-tuning: share of the weights before training in the finished model; with 0.5, the mean of before and after,
    it forgets little."""
    log_every: int = 50
    """Number of steps between lines of metrics."""
    valid_sentences: int = 500
    """Number of pairs of each validation file, from the first on, that are translated for BLEU; the loss uses all."""
    criterion: Literal["bleu", "chrf", "loss"] = "bleu"
    """What selects the best checkpoint: the highest BLEU or chrF, or the lowest loss; without a score, the loss."""
    bleu_tokenizer: BleuTokenizer = "auto"
    """Tokenizer of BLEU, one of sacreBLEU's; auto selects it by data.tgt_lang or by the script of the references."""
    samples: int = 5
    """Number of those translations that the report shows; 0 keeps validation text out of the run's folder."""
    save_every: int = 1000
    """Number of steps between checkpoints, each of which is validated; there is one every 10 minutes at least."""
    keep: int = 5
    """Number of last checkpoints to keep; the best one is kept as well."""
    average: int = 5
    """Checkpoint averaging: the finished model is the mean of this many last checkpoints (section 6.1)."""
    tensorboard: bool = False
    """Write all metrics for TensorBoard too, to the folder tensorboard of the run."""
    wandb: str | None = None
    """Project of Weights & Biases that receives all metrics too; WANDB_MODE=offline keeps them in the run's folder."""
    shard: bool = False
    """Shard the model over the processes of torchrun (FSDP2), if it does not fit on one GPU."""
    device: str = "auto"
    """Device: auto (a GPU if there is one), cpu, cuda, cuda:1 ..."""
    threads: int | None = None
    """Number of CPU threads (default: OMP_NUM_THREADS or the number of cores). It affects the last digits of sums."""
    precision: Literal["auto", "float32", "bfloat16", "fp8"] = "auto"
    """Precision of matrix products; auto is bfloat16 on GPUs that support it, and on a CPU the faster one, which is
    measured when the run starts. fp8 computes large products in 8 bits, which recent NVIDIA GPUs do at twice the speed,
    and the others in bfloat16. Weights and Adam's moments are always float32."""

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "warmup", "log_every", "save_every"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.batch_tokens == "auto" or self.batch_tokens >= 1, "batch_tokens must be at least 1, or auto")
        require(self.keep >= 1, "keep must be at least 1")
        require(1 <= self.average <= self.keep, "average must be at least 1 and at most keep")
        for name in ("patience", "threads"):
            require(getattr(self, name) is None or getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.threads is None or self.threads <= MAX_THREADS, f"threads must be at most {MAX_THREADS}")
        require(self.device != "meta", "the device meta computes nothing; use auto, cpu, cuda, cuda:1 ...")
        require(self.wandb != "", "wandb must be the name of a project")
        require(self.minutes is None or self.minutes > 0, "minutes must be above 0")
        unknown = [name for name in self.adapts if name not in ADAPTABLE]
        require(not unknown, f"adapts: {', '.join(unknown)} cannot be adapted; use {', '.join(ADAPTABLE)}")
        for name in ("cooldown", "valid_sentences", "samples"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0")
        for name in ("label_smoothing", "bpe_dropout", "beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1")
        for name in ("learning_rate_scale", "epsilon"):
            require(getattr(self, name) > 0, f"{name} must be above 0")
        require(self.learning_rate is None or self.learning_rate > 0, "learning_rate must be above 0")
        require(0 <= self.start_share < 1, "start_share must be at least 0 and below 1")
        for name in ("start_share", "lora"):
            require(not getattr(self, name) or self.start_from is not None, f"{name} needs start_from")
        require(self.lora >= 0, "lora must be at least 0")
        require(self.lora_alpha > 0 and math.isfinite(self.lora_alpha), "lora_alpha must be above 0")
        require(bool(self.lora_layers), "lora_layers must name at least one linear map")
        for name in ("start_share", "shard"):
            require(not self.lora or not getattr(self, name), f"{name} is for all weights; leave it out beside lora")
        require(
            self.learning_rate is None or self.learning_rate_scale == 1.0,
            "learning_rate and learning_rate_scale exclude each other; give one of them",
        )
        for name in ("clip_norm", "r_drop", "final_learning_rate", "weight_decay"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0")
        for name in ("epsilon", "r_drop", "final_learning_rate", "weight_decay"):
            require(math.isfinite(getattr(self, name)), f"{name} must be finite")
        cosine = self.schedule == "cosine"
        require(cosine or not self.final_learning_rate, "final_learning_rate needs schedule = cosine")
        require(not cosine or not self.cooldown, "cooldown needs schedule = paper; a cosine falls by itself")
        require(0 <= self.seed < 2**31, "seed must be at least 0 and below 2^31")
