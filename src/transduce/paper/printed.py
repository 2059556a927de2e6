"""The figures that the paper prints (Vaswani et al., 2017, arXiv 1706.03762v7)."""

from typing import NamedTuple


class Table2Row(NamedTuple):
    """BLEU on newstest2014 and training cost in FLOPs; None if the paper prints nothing."""

    model: str
    bleu_en_de: float | None
    bleu_en_fr: float | None
    flops_en_de: float | None
    flops_en_fr: float | None


TABLE2 = (
    Table2Row("ByteNet", 23.75, None, None, None),
    Table2Row("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    Table2Row("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Table2Row("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Table2Row("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Table2Row("Deep-Att + PosUnk ensemble", None, 40.4, None, 8.0e20),
    Table2Row("GNMT + RL ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Table2Row("ConvS2S ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Table2Row("Transformer base", 27.3, 38.1, 3.3e18, 3.3e18),
    Table2Row("Transformer big", 28.4, 41.8, 2.3e19, 2.3e19),
)


class Table3Row(NamedTuple):
    """One variation of the base model: its settings, and what the paper prints for newstest2013."""

    name: str
    settings: dict[str, object]
    """What differs from the base model."""
    changed: str
    """The same in the paper's words."""
    perplexity: float
    bleu: float
    parameters_millions: int | None
    """None if the paper prints nothing; it then has the parameters of the base model, or nearly."""


def _layers(n: int) -> dict[str, object]:
    return {"model.encoder_layers": n, "model.decoder_layers": n}


def _heads(h: int, width: int) -> dict[str, object]:
    return {"model.num_heads": h, "model.d_k": width, "model.d_v": width}


BIG: dict[str, object] = {
    "model.d_model": 1024, "model.d_ff": 4096, "model.num_heads": 16, "model.dropout": 0.3,
}  # fmt: skip
TABLE3 = (
    Table3Row("base", {}, "base", 4.92, 25.8, 65),
    Table3Row("A1", _heads(1, 512), "h = 1, d_k = d_v = 512", 5.29, 24.9, None),
    Table3Row("A2", _heads(4, 128), "h = 4, d_k = d_v = 128", 5.00, 25.5, None),
    Table3Row("A3", _heads(16, 32), "h = 16, d_k = d_v = 32", 4.91, 25.8, None),
    Table3Row("A4", _heads(32, 16), "h = 32, d_k = d_v = 16", 5.01, 25.4, None),
    Table3Row("B1", {"model.d_k": 16}, "d_k = 16", 5.16, 25.1, 58),
    Table3Row("B2", {"model.d_k": 32}, "d_k = 32", 5.01, 25.4, 60),
    Table3Row("C1", _layers(2), "N = 2", 6.11, 23.7, 36),
    Table3Row("C2", _layers(4), "N = 4", 5.19, 25.3, 50),
    Table3Row("C3", _layers(8), "N = 8", 4.88, 25.5, 80),
    Table3Row("C4", {"model.d_model": 256, **_heads(8, 32)}, "d_model = 256, d_k = d_v = 32", 5.75, 24.5, 28),
    Table3Row("C5", {"model.d_model": 1024, **_heads(8, 128)}, "d_model = 1024, d_k = d_v = 128", 4.66, 26.0, 168),
    Table3Row("C6", {"model.d_ff": 1024}, "d_ff = 1024", 5.12, 25.4, 53),
    Table3Row("C7", {"model.d_ff": 4096}, "d_ff = 4096", 4.75, 26.2, 90),
    Table3Row("D1", {"model.dropout": 0.0}, "P_drop = 0.0", 5.77, 24.6, None),
    Table3Row("D2", {"model.dropout": 0.2}, "P_drop = 0.2", 4.95, 25.5, None),
    Table3Row("D3", {"train.label_smoothing": 0.0}, "ε_ls = 0.0", 4.67, 25.3, None),
    Table3Row("D4", {"train.label_smoothing": 0.2}, "ε_ls = 0.2", 5.47, 25.7, None),
    Table3Row("E", {"model.positions": "learned"}, "learned positions", 4.92, 25.7, None),
    Table3Row("big", BIG, "big", 4.33, 26.4, 213),
)

TABLE4 = (
    ("Vinyals & Kaiser et al. (2014)", "WSJ only, discriminative", 88.3),
    ("Petrov et al. (2006)", "WSJ only, discriminative", 90.4),
    ("Zhu et al. (2013)", "WSJ only, discriminative", 90.4),
    ("Dyer et al. (2016)", "WSJ only, discriminative", 91.7),
    ("Transformer (4 layers)", "WSJ only, discriminative", 91.3),
    ("Zhu et al. (2013)", "semi-supervised", 91.3),
    ("Huang & Harper (2009)", "semi-supervised", 91.3),
    ("McClosky et al. (2006)", "semi-supervised", 92.1),
    ("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    ("Transformer (4 layers)", "semi-supervised", 92.7),
    ("Luong et al. (2015)", "multi-task", 93.0),
    ("Dyer et al. (2016)", "generative", 93.3),
)
"""Parser, training, and F1 on WSJ section 23."""
