"""Random settings of decoder-only models."""

import random
from typing import Any


def draw_settings(draw: random.Random) -> dict[str, Any]:
    """Settings of any style: odd widths, groups of heads, every norm, activation and kind of positions."""
    kv_heads, positions = draw.choice([1, 2, 3]), draw.choice(["learned", "sinusoidal", "rotary"])
    kinds = ["plain", "scaled", *(["normalized"] if positions != "rotary" else [])]
    return {
        "layers": draw.randint(1, 3),
        "d_model": draw.choice([1, 7, 16, 24, 33]),
        "d_ff": draw.choice([1, 3, 16, 50]),
        "num_heads": kv_heads * draw.choice([1, 1, 2, 3]),
        "kv_heads": kv_heads,
        "d_k": 2 * draw.randint(1, 5) if positions == "rotary" else draw.randint(1, 9),
        "d_v": draw.choice([1, 4, 8, 11]),
        "positions": positions,
        "max_positions": draw.choice([1, 5, 40, 400]),
        "norm": draw.choice(["pre", "pre", "post"]),
        "norm_type": draw.choice(["layer", "rms"]),
        "activation": draw.choice(["relu", "gelu", "gelu_tanh", "swish", "geglu", "swiglu"]),
        "bias": draw.random() < 0.5,
        "embedding": draw.choice(kinds),
        "tie_output": draw.random() < 0.5,
        "output_bias": draw.random() < 0.3,
    }
