"""The report: one self-contained file in which all text is escaped."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from transduce.data.prepare import DataConfig
from transduce.runs.metrics import Metrics
from transduce.runs.recipe import Recipe
from transduce.runs.report import write_report

EVIL = "<script>alert('x')</script> & \"quotes\" <img src=http://evil.example/x.png>"
PICTURE = {"source": ["▁ba", "<b>", "</s>"], "output": [EVIL, "</s>"], "weights": [[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]]}


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def measured(folder: Path, samples: list[dict[str, str]] | None = None, steps: int = 3) -> Metrics:
    metrics = Metrics(folder / "metrics.jsonl", pytest.fail)
    for step in range(1, steps + 1):
        metrics.add("train", step=step * 50, loss=5 / step, learning_rate=1e-3 * step, tokens_per_second=1234.5)
        values: dict[str, Any] = {"samples": samples} if samples else {}
        metrics.add("valid", step=step * 50, loss=6 / step, perplexity=40.0 / step, bleu=step * 1.5, **values)
    return metrics


def report(folder: Path, metrics: Metrics, picture: dict[str, Any] | None = None, recipe: Recipe | None = None) -> str:
    path = folder / "report.html"
    write_report(path, recipe or Recipe(data=DataConfig(train=(("a.src", "a.tgt"),))), metrics, picture)
    return path.read_text(encoding="utf-8")


def test_the_report_is_one_file_without_external_references(tmp_path: Path) -> None:
    samples = [{"source": EVIL, "output": EVIL, "reference": EVIL}]
    html = report(tmp_path, measured(tmp_path, samples), PICTURE)
    page = Page(html)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "report.html"]
    assert not {"script", "link", "iframe", "img", "object", "embed"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href", "xlink:href", "action", "onload")]
    style = "".join(re.findall(r"<style>(.*?)</style>", html, re.DOTALL))
    assert style
    assert "url(" not in style
    assert "@import" not in style


def test_text_of_samples_corpus_and_attention_is_escaped(tmp_path: Path) -> None:
    samples = [{"source": EVIL, "output": "out " + EVIL, "reference": "ref " + EVIL}]
    recipe = Recipe(data=DataConfig(train=(("<i>corpus</i>.tsv",),)))
    html = report(tmp_path, measured(tmp_path, samples), PICTURE, recipe)
    assert "<script" not in html
    assert "<i>" not in html
    assert "<img" not in html
    page = Page(html)
    for text in (EVIL, "out " + EVIL, "ref " + EVIL, "<i>corpus</i>.tsv"):
        assert text in page.text


def test_the_name_of_the_run_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "<b>run"
    folder.mkdir()
    html = report(folder, measured(folder))
    assert "<b>run" not in html
    assert Page(html).text.count("<b>run") == 2


def test_charts_and_last_values_are_shown(tmp_path: Path) -> None:
    text = Page(report(tmp_path, measured(tmp_path))).text
    for words in ("Loss", "BLEU", "Learning rate", "Speed", "150", "1.667", "13.33", "train at step 150", "d_model"):
        assert words in text
    assert Page(report(tmp_path, measured(tmp_path))).tags.count("polyline") == 5


def test_the_score_of_the_finished_model_and_its_samples_take_precedence(tmp_path: Path) -> None:
    metrics = measured(tmp_path, [{"source": "old source", "output": "o", "reference": "r"}])
    new = [{"source": "new source", "output": "o", "reference": "r"}]
    metrics.add("final", step=150, valid_bleu=33.3, valid_perplexity=7.5, samples=new)
    text = Page(report(tmp_path, metrics)).text
    assert "33.3" in text
    assert "7.50" in text
    assert "13.33" not in text  # the last checkpoint's perplexity
    assert "new source" in text
    assert "old source" not in text


def test_a_finished_run_that_is_trained_further_shows_the_new_values(tmp_path: Path) -> None:
    metrics = measured(tmp_path, [{"source": "first source", "output": "o", "reference": "r"}])
    metrics.add("final", step=150, valid_bleu=33.3, valid_perplexity=7.5, samples=[])
    metrics.add("train", step=200, learning_rate=1e-3, tokens_per_second=1.0)  # a skipped step has no loss
    text = Page(report(tmp_path, metrics)).text
    assert "33.3" not in text
    assert "first source" in text
    assert "1.667training loss" in text


def test_the_attention_picture_has_a_cell_for_every_weight(tmp_path: Path) -> None:
    assert Page(report(tmp_path, measured(tmp_path), PICTURE)).tags.count("rect") == 6
    assert "rect" not in Page(report(tmp_path, measured(tmp_path))).tags


def test_a_run_without_measurements_has_a_report(tmp_path: Path) -> None:
    page = Page(report(tmp_path, Metrics(tmp_path / "metrics.jsonl", pytest.fail)))
    assert "polyline" not in page.tags
    assert "Settings" in page.text


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-12, 1e12])
def test_a_single_point_of_any_size_can_be_drawn(tmp_path: Path, value: float) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", pytest.fail)
    metrics.add("train", step=1, loss=value, learning_rate=value, tokens_per_second=value)
    assert Page(report(tmp_path, metrics)).tags.count("polyline") == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_does_not_prevent_the_report(tmp_path: Path, value: float) -> None:
    metrics = measured(tmp_path)
    metrics.add("valid", step=200, loss=value, perplexity=value, bleu=0.0)
    assert "Settings" in Page(report(tmp_path, metrics)).text


def test_every_tag_that_must_be_closed_is_closed(tmp_path: Path) -> None:
    html = report(tmp_path, measured(tmp_path, [{"source": "s", "output": "o", "reference": "r"}]), PICTURE)
    for tag in ("html", "head", "body", "style", "div", "svg", "figure", "table", "text", "h2"):
        assert len(re.findall(rf"<{tag}[\s>]", html)) == html.count(f"</{tag}>"), tag
