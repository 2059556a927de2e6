"""Random and hostile HTML pages with hostile translations: every tag comes out once, and text never becomes a tag."""

import random
import re

import pytest
from fault_injection import repetitions

from transduce.documents.html_text import HtmlText
from transduce.translation.projection import project

PAGES = repetitions(300, 100_000)
NAMES = ["b", "i", "a", "span", "font", "x-y", "B", "p", "div", "li", "td", "h1", "pre", "code", "var", "kbd"]
WORDS = [
    "one", "two", "Haus", "über", "你好", "\N{GRINNING FACE}", "1 < 2", "a&b", "&lt;b&gt;", "&amp;", "&#0;", "&nbsp;",
    "&#x110000;", "x;y", "'", '"', "`", "\u202e", "\0", "<", "< b", ">", "]]>", "--",
]  # fmt: skip
SPACES = ["", " ", "  ", "\n", "\t", "&nbsp;", "\xa0", "\u3000"]
OTHERS = [
    "<!-- <b n=0> -->", "<img n={}>", "<br n={}>", "<hr n={}/>", "<script n={}>if (a<b) x</script>", "</b>", "</p>",
    "<style n={}>b</style>", "<svg n={}><b></svg>", "<wbr n={}>", '<img n={} alt="a > b">', "<b n={}",
    "<!doctype n={}>", "<a n={} href='x' title='<i>'>", '<input n={} value=">">', "<b n={} translate=no>",
    "<i n={} class='notranslate'>",
]  # fmt: skip
HOSTILE = ["<script>alert(1)</script>", "<img src=x onerror=x>", "</b>", "&lt;i&gt;", "\">'", "<!--", "-->", "<b n=1>"]
TAG = re.compile(r"<[a-zA-Z/!?]")
NUMBER = re.compile(r"<[^<>]*? n=(\d+)")


def random_page(draw: random.Random) -> str:
    """Text and tags, most of them nested; opening tags are numbered."""
    parts: list[str] = []
    open_names: list[str] = []
    for n in range(draw.randint(1, 25)):
        kind = draw.random()
        if kind < 0.4:
            parts.append(draw.choice(WORDS) + draw.choice(SPACES))
        elif kind < 0.6:
            open_names.append(draw.choice(NAMES))
            parts.append(f"<{open_names[-1]} n={n}>")
        elif kind < 0.8 and open_names:
            parts.append(f"</{open_names.pop(draw.choice([-1, -1, -1, 0]))}>")
        elif kind < 0.9:
            parts.append(draw.choice(OTHERS).replace("{}", str(n)))
        else:
            parts.append(draw.choice(SPACES))
    if draw.random() < 0.7:
        parts += (f"</{name}>" for name in reversed(open_names))
    page = "".join(parts)
    return page[: draw.randint(0, len(page))] if draw.random() < 0.1 else page


def random_translation(draw: random.Random, text: str) -> str:
    words = text.split()
    draw.shuffle(words)
    words = words[: draw.randint(0, len(words))] + draw.choices(HOSTILE, k=draw.randint(0, 2))
    draw.shuffle(words)
    return draw.choice([" ", " ", ""]).join(words)


def random_span(draw: random.Random, text: str) -> tuple[int, int]:
    start, end = sorted(draw.randint(0, len(text)) for _ in range(2))
    return start, end


@pytest.mark.parametrize("seed", range(4))
def test_tags_come_out_once_and_text_never_becomes_a_tag(seed: int) -> None:
    for number in range(PAGES // 4):
        draw = random.Random(f"{seed} {number}")
        page = random_page(draw)
        document = HtmlText(page)
        filled = []
        for text in document.texts:
            translation = random_translation(draw, text.text)
            links = [(random_span(draw, text.text), random_span(draw, translation)) for _ in range(draw.randint(0, 9))]
            filled.append(project(text, translation, links))
        output = document.fill(filled)
        assert sorted(NUMBER.findall(output)) == sorted(NUMBER.findall(page)), (seed, number)
        assert len(TAG.findall(output)) == len(TAG.findall(page)), (seed, number)
