"""Bar charts of measured figures as SVG, in colours that are readable on light and dark backgrounds."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

FIGURES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "benchmarks" / "figures.json").read_text("utf-8"))
WIDTH, LEFT, BAR, GAP, TOP, LINE = 560, 8, 17, 9, 33, 17
"""Sizes of a chart that is readable on a phone, where it is drawn at 0.6 of this size."""
CHARACTER = 7.6
"""Width of a character of a label."""
LABEL = 64
"""Largest number of characters of a label."""
TEXT = "#7d7d7d"
COLOURS = ("#2f81c7", "#c98a1b", "#8a8f98", "#3d9970", "#b65fa6")


@dataclass(frozen=True)
class Chart:
    """Horizontal bars in groups: a group for each label, a bar for each series."""

    title: str
    unit: str
    series: tuple[str, ...]
    groups: dict[str, tuple[str, ...]]
    """The label of a group, and for each series the path of its figure: ENTRY > ROW > COLUMN."""

    def draw(self, look_up: Callable[[str], Any]) -> str:
        """The chart as SVG; `look_up` finds the figure of a path."""
        groups = {label: [_number(look_up(path)) for path in paths] for label, paths in self.groups.items()}
        scale = (WIDTH - LEFT - 70) / max(value for values in groups.values() for value in values)
        facts = (f"{label}: {', '.join(map(_text, values))}" for label, values in groups.items())
        described = f"{self.title}, {self.unit}; {', '.join(self.series)}. {'; '.join(facts)}"
        lines = [
            f'<text x="{LEFT}" y="18" font-size="15" font-weight="bold">{escape(self.title)}</text>',
            f'<text x="{LEFT}" y="38">{escape(self.unit)}</text>',
        ]
        x, y = float(LEFT), 50
        for name, colour in zip(self.series, COLOURS, strict=False):
            width = 34 + CHARACTER * len(name)
            if x > LEFT and x + width > WIDTH:
                x, y = float(LEFT), y + LINE + 3
            lines.append(f'<rect x="{x:.0f}" y="{y}" width="12" height="12" fill="{colour}"/>')
            lines.append(f'<text x="{x + 17:.0f}" y="{y + 11}">{escape(name)}</text>')
            x += width
        y += TOP
        for label, values in groups.items():
            lines.append(f'<text x="{LEFT}" y="{y + 8}">{escape(label.replace("`", ""))}</text>')
            y += LINE - 2
            for value, colour in zip(values, COLOURS, strict=False):
                width = max(value * scale, 1)
                lines.append(
                    f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 3}" fill="{colour}"/>'
                    f'<text x="{LEFT + width + 5:.1f}" y="{y + BAR - 5}" font-size="13">{_text(value)}</text>'
                )
                y += BAR
            y += GAP
        size = f'viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(described)}" '
        return "\n".join([f'{head}font-family="sans-serif" font-size="14" fill="{TEXT}">', *lines, "</svg>"]) + "\n"


def _number(value: Any) -> float:
    """A figure, or the mean of several."""
    return sum(value) / len(value) if isinstance(value, list) else value


def _text(value: float) -> str:
    digits = 4 if value >= 1000 else 3
    return f"{float(f'{value:.{digits}g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def table(entry: str, rows: tuple[str, ...], columns: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Groups for rows of an entry, with a bar for each column."""
    return {row: tuple(f"{entry} > {row} > {column}" for column in columns) for row in rows}


def whole(entry: str, *columns: str) -> dict[str, tuple[str, ...]]:
    """Groups for the rows of an entry that have all these columns; long labels are cut."""
    rows = [row for row, values in FIGURES[entry]["results"].items() if all(column in values for column in columns)]
    groups = table(entry, tuple(rows), columns)
    plain = {row: row.replace("`", "") for row in groups}
    return {
        label if len(label) <= LABEL else f"{label[: LABEL - 1].rstrip()}…": groups[row] for row, label in plain.items()
    }


SEARCHES = ("one by one, greedy", "one by one, beam 4", "32 sentences, greedy", "32 sentences, beam 4")
BATCHES = ("64 sentences, beam 4", "256 sentences, beam 4", "1,024 sentences, beam 4", "64 sentences, greedy")
DIRECTIONS = ("English to German", "German to English", "English to French", "French to English")
ERRORS = (
    "the target of another pair", "the last two thirds of the target removed", "sides swapped",
    "target is a copy of the source", "source in German, of another pair", "target in English, of another pair",
    "French source, unrelated", "French target, the right translation",
)  # fmt: skip
TABLE_3 = (
    "base, three seeds", "A1, one head of width 512", "A2, 4 heads of width 128", "A3, 16 heads of width 32",
    "A4, 32 heads of width 16", "B1, d_k = 16", "B2, d_k = 32", "C1, 2 layers", "C2, 4 layers", "C3, 8 layers",
    "C4, d_model = 256", "C5, d_model = 1024, d_k = d_v = 128", "C6, d_ff = 1024", "C7, d_ff = 4096", "D1, no dropout",
    "D2, dropout 0.2", "D3, no label smoothing", "D4, label smoothing 0.2", "E, learned positions", "big",
)  # fmt: skip
ONE_LANGUAGE = {
    "100,000 pairs, English to German": "100,000 pairs of Europarl, English to German (`baseline`)",
    "with 400,000 German lines": "and 400,000 German lines, translated back and tagged (`tagged`)",
    "English to German, 560,779 pairs": "English to German, 560,779 pairs, 3,500 steps",
    "in one model with English to French": "both in one model, 7,000 steps, English to German",
    "English to French, 562,576 pairs": "English to French, 562,576 pairs, 3,500 steps",
    "in one model with English to German": "both in one model, 7,000 steps, English to French",
}
RECIPES = {
    "Multi30k En-De, test2016": ("multi30k-en-de, test2016, three seeds", "multi30k-en-de, test2016, plain settings"),
    "Multi30k En-Fr, test2016": ("multi30k-en-fr, test2016, three seeds", "multi30k-en-fr, test2016, plain settings"),
    "Tatoeba En-De": ("tatoeba-en-de, Tatoeba test", "tatoeba-en-de, Tatoeba test, plain settings"),
    **{
        f"Europarl En-{language.title()}, newstest2014": (
            f"europarl-en-{language}-base, newstest2014",
            f"europarl-en-{language}-base, newstest2014, plain settings",
        )
        for language in ("de", "fr")
    },
}
"""What is compared, and its rows with the settings of the recipe and with plain ones."""
CHARTS = {
    "translation": Chart(
        "Scores of the recipes", "BLEU", ("recipe", "plain settings"),
        {label: tuple(f"translation > {row} > BLEU" for row in rows) for label, rows in RECIPES.items()},
    ),
    "train-h200": Chart(
        "Training on one H200", "target tokens/s", ("transduce", "Hugging Face Marian, compiled (another machine)"),
        {
            size: (f"train-h200 > {size} > transduce", f"marian-h200 > {size} > Hugging Face Marian, compiled")
            for size in ("base", "big")
        },
    ),
    "decode-h200": Chart(
        "Translation on one H200", "output tokens/s",
        ("transduce", "CTranslate2 float16", "Hugging Face generate"),
        table("decode-h200", BATCHES, ("transduce gpu", "CTranslate2 float16", "Hugging Face generate")),
    ),
    "decode-cpu": Chart(
        "Translation on 2 CPU threads", "times the speed of CTranslate2 int8",
        ("Neoverse-N1", "Intel Xeon (AVX-512 VNNI, AMX)"),
        {
            search: tuple(f"decode-{machine} > {search} > ours / CTranslate2 int8" for machine in ("n1", "xeon"))
            for search in SEARCHES
        },
    ),
    "train-n1": Chart(
        "Training on 2 cores of a Neoverse-N1", "target tokens/s",
        ("transduce", "torch.nn.Transformer", "Hugging Face Marian"),
        {
            f"batches of {order}": tuple(
                f"train-n1 > {system}, float32 > {order}"
                for system in ("transduce", "torch.nn.Transformer", "Hugging Face Marian")
            )
            for order in ("similar lengths", "mixed lengths")
        },
    ),
    "gpt2": Chart(
        "GPT-2 (124M) on one H200", "tokens/s", ("transduce", "transformers"),
        {
            label: (f"{row} > transduce", f"{row} > transformers")
            for label, row in {
                "training": "language-model-h200 > 32 windows of 1,024 tokens",
                "generation, 64 prompts": "generate-h200 > 64 prompts",
                "generation, 256 prompts": "generate-h200 > 256 prompts",
            }.items()
        },
    ),
    "imported-n1": Chart(
        "A model of the size of OPUS-MT on 2 cores of a Neoverse-N1", "output tokens/s",
        ("transduce native", "CTranslate2 int8", "CTranslate2 float32", "Hugging Face generate"),
        table(
            "imported-n1", SEARCHES,
            ("transduce native", "CTranslate2 int8", "CTranslate2 float32", "Hugging Face generate"),
        ),
    ),
    "check-errors": Chart(
        "Errors that data check removes", "% of the pairs with the error", ("Multi30k", "Tatoeba", "Europarl"),
        table("check-errors", ERRORS, ("Multi30k", "Tatoeba", "Europarl")),
    ),
    "bundled": Chart("The bundled model", "BLEU", ("higher is better",), whole("bundled", "BLEU")),
    "everyday": Chart(
        "Everyday sentences", "chrF2", ("English to German", "English to French"),
        whole("everyday", "English to German", "English to French"),
    ),
    "judged": Chart(
        "Everyday sentences, judged by a language model", "outputs",
        ("correct", "minor flaw", "wrong", "lost or invented"),
        table("judged", DIRECTIONS, ("correct", "minor flaw", "wrong", "lost or invented")),
    ),
    "start": Chart("From the command to the first translation", "s", ("lower is better",), whole("start", "median, s")),
    "generate-n1": Chart(
        "SmolLM2-135M on one thread of a Neoverse-N1", "new tokens/s", ("higher is better",),
        whole("generate-n1", "new tokens/s"),
    ),
    "opus-mt": Chart(
        "OPUS-MT on one core of a Neoverse-N1", "lines per CPU second", ("greedy", "beam 4"),
        whole("opus-mt", "lines per CPU second, greedy", "lines per CPU second, beam 4"),
    ),
    "glossary": Chart(
        "Terms of a glossary", "% of terms used", ("used", "used as a whole word"),
        whole("glossary", "% of terms used", "% of terms used as a whole word"),
    ),
    "installed": Chart("Size of an installation", "MB", ("smaller is better",), whole("installed", "MB")),
    "engine-quality": Chart(
        "The fast engines and the reference", "BLEU", ("engine", "plain, float32"),
        whole("engine-quality", "BLEU", "plain (float32)"),
    ),
    "parsing": Chart(
        "Constituency parsing", "F1", ("CRAFT test", "GUM test"), whole("parsing", "CRAFT test", "GUM test")
    ),
    "table2": Chart(
        "Table 2, trained alike", "BLEU", ("English-German", "English-French"), whole("table2", "BLEU", "BLEU, En-Fr")
    ),
    "exported": Chart(
        "Exported models in other toolkits", "BLEU", ("greedy", "beam 4"),
        whole("exported", "BLEU, greedy", "BLEU, beam 4"),
    ),
    "firefox-identical": Chart(
        "Models of Firefox", "sentences of 500 that are identical", ("higher is better",),
        whole("firefox-identical", "identical of 500"),
    ),
    "serve-base": Chart(
        "The server and the translator by itself", "output tokens/s", ("higher is better",),
        whole("serve-base", "output tokens/s"),
    ),
    "serve-fairness": Chart(
        "A short request beside other clients", "ms", ("median", "slowest"),
        whole("serve-fairness", "median, ms", "slowest, ms"),
    ),
    "robustness": Chart("Untidy text", "BLEU", ("higher is better",), whole("robustness", "BLEU")),
    "replay": Chart(
        "Fine-tuning with replay", "BLEU", ("before", "fine-tuned", "mean of both"),
        whole("replay", "before", "fine-tuned", "mean of both"),
    ),
    "one-language": Chart(
        "Few pairs, text of one language, two directions", "BLEU", ("Europarl", "newstest2014"),
        {
            label: tuple(f"one-language > {row} > {column}" for column in ("Europarl valid", "newstest2014"))
            for label, row in ONE_LANGUAGE.items()
        },
    ),
    "table3": Chart(
        "Rows of table 3 after 2,500 steps", "perplexity on newstest2013", ("lower is better",),
        table("table3", TABLE_3, ("perplexity",)),
    ),
}  # fmt: skip
"""Charts by the name of their file."""


def draw_all(look_up: Callable[[str], Any]) -> dict[str, str]:
    """All charts as SVG, by name."""
    return {name: chart.draw(look_up) for name, chart in CHARTS.items()}
