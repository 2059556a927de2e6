"""The report: one self-contained file in which all text is escaped."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from transduce.data.prepare import DataConfig
from transduce.report.charts import Series, line_chart
from transduce.report.report import write_report
from transduce.report.run import Run
from transduce.training.metrics import Metrics
from transduce.training.recipe import Recipe

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
    assert Page(html).text.count("<b>run") == 4  # title, heading, and twice in the command of the verdict


def test_charts_and_last_values_are_shown(tmp_path: Path) -> None:
    text = Page(report(tmp_path, measured(tmp_path))).text
    for words in ("Loss", "BLEU", "Learning rate", "Speed", "150", "1.667", "4.50", "d_model"):
        assert words in text
    assert "step 150  train 1.667  valid 2.000" in text  # the crosshair
    assert Page(report(tmp_path, measured(tmp_path))).tags.count("polyline") == 8  # three of them on a log scale


def test_the_score_of_the_finished_model_and_its_samples_take_precedence(tmp_path: Path) -> None:
    metrics = measured(tmp_path, [{"source": "old source", "output": "o", "reference": "r"}])
    new = [{"source": "new source", "output": "o", "reference": "r"}]
    metrics.add("final", step=150, valid_bleu=33.3, valid_perplexity=7.5, samples=new)
    text = Page(report(tmp_path, metrics)).text
    assert "33.30BLEU of the finished model" in text
    assert "7.50perplexity of the finished model" in text
    assert "4.50best BLEU of a checkpoint" in text
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
    assert report(tmp_path, measured(tmp_path), PICTURE).count('<rect class="cell"') == 6
    assert '<rect class="cell"' not in report(tmp_path, measured(tmp_path))


def test_a_run_without_measurements_has_a_report(tmp_path: Path) -> None:
    page = Page(report(tmp_path, Metrics(tmp_path / "metrics.jsonl", pytest.fail)))
    assert "polyline" not in page.tags
    assert "Settings" in page.text


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-12, 1e12])
def test_a_single_point_of_any_size_can_be_drawn(tmp_path: Path, value: float) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", pytest.fail)
    metrics.add("train", step=1, loss=value, learning_rate=value, tokens_per_second=value)
    assert Page(report(tmp_path, metrics)).tags.count("polyline") == (5 if value > 0 else 3)  # two have a log scale


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_does_not_prevent_the_report(tmp_path: Path, value: float) -> None:
    metrics = measured(tmp_path)
    metrics.add("valid", step=200, loss=value, perplexity=value, bleu=0.0)
    assert "Settings" in Page(report(tmp_path, metrics)).text


def test_every_tag_that_must_be_closed_is_closed(tmp_path: Path) -> None:
    html = report(tmp_path, measured(tmp_path, [{"source": "s", "output": "o", "reference": "r"}]), PICTURE)
    for tag in ("html", "head", "body", "style", "div", "svg", "figure", "table", "text", "h2"):
        assert len(re.findall(rf"<{tag}[\s>]", html)) == html.count(f"</{tag}>"), tag


START = {
    "time": "2024-01-02 03:04 UTC", "command": "transduce train --out 'a b'", "device": "CPU, 4 threads",
    "parameters": 1234567, "data": {"train": [["a.src", "a.tgt"]], "pairs": 300}, "versions": {"transduce": "0.1"},
}  # fmt: skip


def test_the_top_tells_how_the_run_was_made(tmp_path: Path) -> None:
    metrics = measured(tmp_path)
    metrics.add("start", step=0, **START | {"command": f"transduce train {EVIL}"})
    metrics.add("train", step=200, loss=1.0, learning_rate=1e-3, tokens_per_second=1.0, seconds=3723.4)
    html = report(tmp_path, metrics)
    text = Page(html).text
    for words in ("1:02:03training time", "CPU, 4 threads", "1,234,567", "a.src + a.tgt", "transduce 0.1", EVIL):
        assert words in text
    assert "<script" not in html
    assert text.index("CPU, 4 threads") < text.index("Learning rate")


def test_settings_have_no_python_syntax_and_defaults_are_folded(tmp_path: Path) -> None:
    html = report(tmp_path, measured(tmp_path))
    settings = html[html.index("<h2>Settings") :]
    shown, folded = settings.split("<details>")
    assert "a.src + a.tgt" in shown
    assert "d_model" in folded
    assert "d_model" not in shown
    assert not re.search(r"\(\(|\['|None|True|False", Page(settings).text)


def test_the_label_at_the_right_edge_is_not_cut_off() -> None:
    chart = line_chart("t", [Series("a", [(0, 1.0), (100_000, 123_456_789.0)], "a")], "{:,.0f}".format)
    labels = re.findall(r'<text class="tick" x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)">([^<]+)<', chart)
    assert {anchor for _, anchor, _ in labels} == {"end", "middle"}
    for x, anchor, label in labels:
        width = 6.7 * len(label)
        start = float(x) - (width if anchor == "end" else width / 2)
        assert start >= 0, label
        assert start + width <= 460, label


def test_a_short_interval_is_no_spike_of_the_speed(tmp_path: Path) -> None:
    metrics = measured(tmp_path)
    metrics.add("train", step=151, loss=1.0, learning_rate=1e-3, tokens_per_second=999_999.0)
    assert "999,999" not in Page(report(tmp_path, metrics)).text
    run = Run("run", tmp_path, Recipe(data=DataConfig(train=(("a.src", "a.tgt"),))), metrics.records)
    assert run.speeds == [(50, 1234.5), (100, 1234.5), (150, 1234.5)]


def test_the_best_checkpoint_the_gradient_norm_and_the_memory_are_drawn(tmp_path: Path) -> None:
    metrics = measured(tmp_path)
    common = {"loss": 1, "learning_rate": 1, "tokens_per_second": 9, "memory_gb": 2.5}
    for step, norm in ((200, 0.5), (250, 0.5), (300, None)):
        metrics.add("train", step=step, grad_norm=norm, **common)
    metrics.add("valid", step=300, loss=1.0, perplexity=3.0, bleu=9.0, criterion="bleu", best_step=150)
    html = report(tmp_path, metrics)
    assert html.count('class="best"') == 3  # both scales of the loss, and BLEU
    for words in ("best checkpoint, step 150", "Gradient norm", "norm 0.5", "Peak memory", "GB 2.5"):
        assert words in Page(html).text


def test_samples_are_shown_over_time_with_their_differences(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", pytest.fail)
    for step, output in ((50, "the the <b>"), (100, "the red house"), (150, "a red house")):
        sample = {"source": "das rote Haus", "output": output, "reference": "the red house"}
        metrics.add("valid", step=step, loss=1.0, perplexity=3.0, bleu=9.0, samples=[sample])
    html = report(tmp_path, metrics)
    rows = re.findall(r'<div class="(s\d)"><span class=soft>(.*?) </span>(.*?)</div>', html)
    assert rows == [
        ("s1", "step 50", "the <u>the &lt;b&gt;</u>"),
        ("s2", "step 100", "the red house"),
        ("s3", "step 150", "<u>a</u> red house"),
    ]
    stops = re.findall(r'<input type="radio" name="stop" class="(s\d)"( checked)?><span>(\d+)</span>', html)
    assert stops == [("s1", "", "50"), ("s2", "", "100"), ("s3", " checked", "150")]
    for name, _, _ in stops:
        assert f"input.{name}:checked) td > .{name} {{ display: block; }}" in html


def test_many_validations_show_a_few_outputs(tmp_path: Path) -> None:
    metrics = measured(tmp_path, [{"source": "s", "output": "o", "reference": "r"}], steps=40)
    html = report(tmp_path, metrics)
    assert 4 <= html.count("<span class=soft>step ") == html.count('type="radio"') <= 13
    last = max(map(int, re.findall(r'<input type="radio" name="stop" class="s(\d+)"', html)))
    assert f"input.s{last}:checked" in html  # the style sheet has a rule for each stop


def test_the_worst_outputs_of_the_finished_model_are_shown(tmp_path: Path) -> None:
    metrics = measured(tmp_path)
    worst = [{"source": "s", "output": "bad words", "reference": "good words", "chrf": 12.3}]
    metrics.add("final", step=150, valid_bleu=33.3, valid_perplexity=7.5, samples=[], worst=worst)
    html = report(tmp_path, metrics)
    assert "Worst outputs" in html
    assert "<u>bad</u> words" in html


def test_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    style = "".join(re.findall(r"<style>(.*?)</style>", report(tmp_path, measured(tmp_path)), re.DOTALL))
    assert not re.search(r"minmax\(\d+px", style)  # a column of a fixed width would overflow


def test_a_command_is_broken_at_spaces_only(tmp_path: Path) -> None:
    metrics = measured(tmp_path)
    metrics.add("start", step=0, **START)
    html = report(tmp_path, metrics)
    assert "<span>transduce</span> <span>train</span> <span>--out</span> <span>&#x27;a</span>" in html


def test_negative_numbers_have_a_minus_sign() -> None:
    chart = line_chart("t", [Series("a", [(0, -1.5), (100, 1e-5)], "a")], "{:.3g}".format)
    assert "step 100  a 1e−05" in chart
    assert ">−1.5<" in chart
    assert not re.search(r">[^<]*-[^<]*<", chart)


def test_the_verdict_is_on_top(tmp_path: Path) -> None:
    html = report(tmp_path, measured(tmp_path, steps=6))
    text = Page(html).text
    assert "Not finished: 300 of 100,000 steps; the loss is still falling; resume with:transduce train" in text
    assert html.index("Not finished") < html.index("Learning rate")
