"""Draw a layer of every style as docs/family/STYLE.svg, from the styles of the package: `python docs/family.py`."""

import html
from pathlib import Path
from typing import Any

from transduce.config import build
from transduce.models.registry import config_class
from transduce.training.recipe import read_style

FOLDER = Path(__file__).parent / "family"
STYLES = (
    "paper", "gpt2", "llama", "mistral", "qwen3", "gemma2", "gemma", "bert", "t5", "bart", "marian", "m2m", "vit",
    "whisper",
)  # fmt: skip
WIDTH, BOX, GAP = 250, 26, 14
COLOURS = {"norm": "#f2f0c8", "attention": "#fbe0c4", "feed": "#c9e4f3", "embedding": "#f6d3d8", "add": "#ffffff"}
NORMS = {"layer": "layer norm", "rms": "RMSNorm"}
ACTIVATIONS = {
    "relu": "ReLU", "gelu": "GELU", "gelu_tanh": "GELU (tanh)", "swish": "Swish", "geglu": "gated GELU",
    "swiglu": "SwiGLU",
}  # fmt: skip


def blocks(config: Any) -> list[tuple[str, str]]:
    """The parts of the model from the input upwards: kind and label; of a stack, one layer."""
    norm, biases = NORMS[config.norm_type], "" if config.bias else ", no biases"
    inputs = {"audio": "sound, 2 convolutions", "image": "patches, class token", "text": "embedding"}
    reads = inputs[getattr(config, "source", "text")]
    if reads == "embedding" and config.embedding == "scaled":
        reads = "embedding × √d"
    sinusoids = dict.fromkeys(("sinusoidal", "fairseq"), " + sinusoids")
    added = {**sinusoids, "learned": " + learned positions"}.get(config.positions, "")
    found = [("embedding", reads + (" + positions" if reads.startswith(("patches", "sound")) else added))]
    if config.embedding == "normalized":
        found.append(("norm", norm))
    causal = config.architecture == "decoder_only"
    how = {"rotary": ", rotary", "relative": ", relative bias"}.get(config.positions, "")
    window = ", window" if getattr(config, "window", None) else ""
    window += ", bounded" if getattr(config, "score_cap", None) else ""
    attention = ("causal " if causal else "") + "self-attention" + how + window + biases
    sublayers = [("attention", attention)]
    if config.architecture == "encoder_decoder":
        sublayers.append(("attention", "cross-attention (decoder)" + biases))
    sublayers.append(("feed", f"feed-forward, {ACTIVATIONS[config.activation]}" + biases))
    for sublayer in sublayers:
        orders = {
            "post": [sublayer, ("add", "add"), ("norm", norm)],
            "pre": [("norm", norm), sublayer, ("add", "add")],
            "both": [("norm", norm), sublayer, ("norm", norm), ("add", "add")],
        }
        found += orders[config.norm]
    return found + ([("norm", f"{norm} (after the last layer)")] if config.norm != "post" else [])


def draw(style: str) -> str:
    """An SVG with the parts as boxes, the input at the bottom."""
    settings = {**read_style(style)["model"], **({"classes": 2} if style == "vit" else {})}
    config: Any = build(config_class(settings), settings, style)
    parts, span = blocks(config), {"post": 2, "pre": 3, "both": 4}[config.norm]
    height = len(parts) * (BOX + GAP) + GAP
    described = html.escape(", ".join(label for _, label in parts))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="A layer of the style {style}, from the input upwards: {described}">'
    ]
    for number, (kind, label) in enumerate(parts):
        top = height - (number + 1) * (BOX + GAP)
        lines.append(
            f'<rect x="10" y="{top}" width="{WIDTH - 20}" height="{BOX}" rx="5" fill="{COLOURS[kind]}" stroke="#555"/>'
            f'<text x="{WIDTH // 2}" y="{top + 17}" font-family="sans-serif" font-size="11" fill="#111" '
            f'text-anchor="middle">{html.escape(label)}</text>'
        )
        if kind == "add":  # the residual connection begins below the sub-layer, or below its norm if that comes first
            below = top + span * (BOX + GAP) - GAP // 2
            lines.append(
                f'<path d="M{WIDTH // 2} {below} H{WIDTH - 4} V{top + BOX // 2} h-6" fill="none" stroke="#555"/>'
            )
        if number:
            lines.append(f'<path d="M{WIDTH // 2} {top + BOX + GAP} v-{GAP}" stroke="#555"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for style in STYLES:
        (FOLDER / f"{style}.svg").write_text(draw(style), encoding="utf-8")


if __name__ == "__main__":
    main()
