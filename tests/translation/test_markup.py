"""Inline tags: extracted from a text, and projected onto its translation."""

import html
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.documents.html_text import HtmlText
from transduce.translation.markup import TaggedText, TaggedTextBuilder
from transduce.translation.projection import project
from transduce.translation.token_ranges import Span


def tagged(source: str) -> TaggedText:
    (text,) = HtmlText(source).texts
    return text


def words(text: str) -> list[Span]:
    return [word.span() for word in re.finditer(r"\w+|[^\w\s]", text)]


def projected(source: str, translation: str, links: str | None = None) -> str:
    """Project with an alignment of words, "source-target" by index; without links, the n-th with the n-th word."""
    text = tagged(source)
    one, other = words(text.text), words(translation)
    pairs = zip(range(len(one)), range(len(other)), strict=False)
    if links is not None:
        pairs = (tuple(map(int, link.split("-"))) for link in links.split())  # type: ignore[assignment]
    return project(text, translation, [(one[i], other[j]) for i, j in pairs])


# Extraction


def test_tags_have_offsets_in_the_text() -> None:
    text = tagged('Click  <b>Save</b> to <a href="x">go\n <i>on</i></a> &amp; on.')
    assert text.text == "Click Save to go on & on."
    bold, link = text.tags
    assert text.text[bold.start : bold.end] == "Save"
    assert (bold.opening, bold.closing) == ("<b>", "</b>")
    assert text.text[link.start : link.end] == "go on"
    assert link.opening == '<a href="x">'
    assert [text.text[tag.start : tag.end] for tag in link.children] == ["on"]


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("a<b> b </b>c", ["b"]),
        ("<b> a b </b>", ["a b"]),
        ("a <b> </b> b", [""]),
        ("a<b>b</b>c", ["b"]),
        ("a <b>b <i>c</b> d</i>", ["b c", ""]),
        ("a <b>b", [""]),
        ("a</b> b", [""]),
    ],
)
def test_white_space_and_unpaired_tags(source: str, texts: list[str]) -> None:
    text = tagged(source)
    assert [text.text[tag.start : tag.end] for tag in text.tags] == texts


def test_elements_without_text_that_nothing_separates_are_one() -> None:
    builder = TaggedTextBuilder()
    builder.add_text("A house ")
    builder.add_empty("{1}")
    builder.add_empty("{2}")
    builder.add_text(" is small ")
    builder.add_empty("{3}")
    text = builder.finish()
    assert [tag.opening.strip() for tag in text.tags] == ["{1}{2}", "{3}"]


def test_protected_elements_keep_their_text_and_html() -> None:
    text = tagged('Run <code>make <b>x</b></code> in <span class="a notranslate">Big &amp; <span>Ben</span></span>.')
    assert text.text == "Run `make x` in `Big & Ben`."  # by the backticks, the translator knows what to keep
    assert [(text.text[start:end], source) for start, end, source in text.protected] == [
        ("`make x`", "<code>make <b>x</b></code>"),
        ("`Big & Ben`", '<span class="a notranslate">Big &amp; <span>Ben</span></span>'),
    ]
    assert tagged('See <i translate="no">x</i> <b translate=yes>y</b>').protected == [(4, 7, '<i translate="no">x</i>')]
    assert tagged("See<code> a  b </code>or <kbd>`</kbd><kbd> </kbd>").text == "See `a b` or `"


def test_raised_marks_without_letters_are_no_words() -> None:
    text = tagged('The house<sup><a href="#1">[1]</a></sup> is x<sup>2</sup>, the 1<sup>st</sup>.')
    assert text.text == "The house is x, the 1st."
    assert [tag.opening for tag in text.tags] == ['<sup><a href="#1">[1]</a></sup>', "<sup>2</sup>", "<sup>"]


def test_buttons_and_labels_are_texts_of_their_own() -> None:
    texts = HtmlText("<button>Save</button> <label>Name: <input name=n></label> <b>and</b> more").texts
    assert [text.text for text in texts] == ["Save", "Name:", "and more"]


def test_links_of_a_navigation_are_texts_of_their_own() -> None:
    page = HtmlText("<nav><a href=x>Home</a> <a>About <b>us</b></a></nav> See <a>this</a> page")
    assert [text.text for text in page.texts] == ["Home", "About us", "See this page"]
    assert page.fill(["1", "2", "3"]) == "<nav><a href=x>1</a> <a>2</a></nav> 3"


# Projection


@pytest.mark.parametrize(
    ("source", "translation", "links", "expected"),
    [
        ("no tags", 'a < b & "c"', None, "a &lt; b &amp; &quot;c&quot;"),
        ("Click <b>Save</b> now.", "Klicke Speichern jetzt.", None, "Klicke <b>Speichern</b> jetzt."),
        # another order
        ("I <b>saw</b> a <i>dog</i>", "Ich habe Hund gesehen", "0-0 1-1 1-3 3-2", None),
        ("<b>a</b> <i>b</i>", "B A", "0-1 1-0", "<i>B</i> <b>A</b>"),
        # the words between two aligned words are covered, a distant word is not
        ("<b>a b</b> c", "A x B C", "0-0 1-2 2-3", "<b>A x B</b> C"),
        ("<b>a b</b> c d e", "A B C D E A", "0-0 1-1 2-2 3-3 4-4 0-5", "<b>A B</b> C D E A"),
        # punctuation belongs to an element only as in the source
        ("<b>a</b>, b", "A, B", "0-0 0-1 2-2", "<b>A</b>, B"),
        ("<b>Oh!</b> b", "Ah! B", "0-0 1-1 2-2", "<b>Ah!</b> B"),
        # one word of the translation for several words of the source
        ("the <b>garden</b> door", "die Gartentür", "0-0 1-1 2-1", "die <b>Gartentür</b>"),
        # nesting
        ("<a><b>x</b> y</a> z", "Z Y X", "0-2 1-1 2-0", "Z <a>Y <b>X</b></a>"),
        ("<a><b><i>x y</i></b></a>", "X Y.", "0-0 1-1", "<a><b><i>X Y.</i></b></a>"),
        ("<b>a b</b>.", "A B!", None, "<b>A B</b>!"),
        # nothing is aligned
        ("a b <b>c</b> d", "A B C D", "", "A B <b>C</b> D"),
        ("a <b>b</b> c", "A C", "0-0 2-1", "A <b>C</b>"),
        ("<b>a</b> <i>b</i>", "X", "0-0 1-0", "<b>X</b><i></i>"),
        ("a <b>b</b>", "", "", "<b></b>"),
        # something without text
        ("a <img> b c", "A B C", None, "A <img> B C"),
        ("a <img>!", "A!", "0-0 1-1", "A <img>!"),
        ("a <img> b c", "C B A", "0-2 1-1 2-0", "C B A <img> "),
        ("a<img> b", "A B", None, "A<img> B"),
        ("a <img>b", "A B", None, "A <img>B"),
        ("a, <img> b", "A, B", None, "A, <img> B"),
        ("<img> a", "A", None, "<img> A"),
        ("a <img>", "A", None, "A <img>"),
        ("a <b>b <img> c</b>", "C B A", "0-2 1-1 2-0", "<b>C B <img> </b> A"),
        ("a <i></i> <b>b c</b>", "B A C", "0-1 1-0 2-2", None),
        ("a <!-- x --> b", "A B", None, "A <!-- x --> B"),
        ("<a><img></a> a b", "A B", None, "<a><img></a> A B"),
        # unpaired tags
        ("a <b>b", "A B", None, "A <b>B"),
        ("a</b> b", "A B", None, "A</b> B"),
        # protected elements
        ("use <code>ls</code> now", "nutze `ls` jetzt", None, "nutze <code>ls</code> jetzt"),
        ("use <code>ls</code> now", "jetzt ls nutzen", "", "jetzt <code>ls</code> nutzen"),
        ("use <code>make</code> now", "nutze machen jetzt", "0-0 2-1 4-2", "nutze <code>make</code> jetzt"),
        ("use <code>make</code> now", "nutze jetzt", "0-0 4-1", "nutze <code>make</code> jetzt"),
        ("<b>use <code>a&lt;b</code></b> x", "X nutze `a<b`", "0-1 6-0", "X <b>nutze <code>a&lt;b</code></b>"),
        ("<kbd>x</kbd> and <kbd>x</kbd>", "`x` und `x`", "", "<kbd>x</kbd> und <kbd>x</kbd>"),
        ("two <code>foo</code>s", "zwei `foo`s", None, "zwei <code>foo</code>s"),
        ("an <code>a</code> here", "eine Nase", "0-0 4-1", "eine <code>a</code> Nase"),
        ("un<b>believ</b>able x", "unglaublich X", "", None),
        # a script without spaces
        ("He is <b>in Beijing</b>.", "他在北京。", "0-0 1-0 2-0 3-0 4-1", None),
    ],
)
def test_tags_surround_the_words_that_are_aligned(
    source: str, translation: str, links: str | None, expected: str | None
) -> None:
    result = projected(source, translation, links)
    if expected is not None:
        assert result == expected
    check(source, translation, result)


def test_words_of_a_script_without_spaces() -> None:
    text = tagged("He is <b>in Beijing</b> now.")
    pairs = [((0, 2), (0, 1)), ((6, 8), (3, 4)), ((9, 16), (4, 6)), ((17, 20), (1, 3)), ((20, 21), (6, 7))]
    assert project(text, "他现在在北京。", pairs) == "他现在<b>在北京</b>。"


class Reader(HTMLParser):
    """Collects tags and text, and checks that tags are properly nested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(self.get_starttag_text() or "")
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.tags.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.text += data


def check(source: str, translation: str, result: str) -> None:
    """Every tag occurs once, and the text is the translation, apart from white space and protected elements."""
    pattern = r"<!--.*?-->|</?\w+[^<>]*>"
    assert sorted(re.findall(pattern, result)) == sorted(re.findall(pattern, source))
    if not any(name in source for name in ("<code", "<kbd")):
        plain = html.unescape(re.sub(pattern, "", result))
        assert "".join(plain.split()) == "".join(translation.split())


@st.composite
def trees(draw: st.DrawFn, depth: int = 0) -> str:
    """HTML with properly nested elements; each tag has a number."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["text", "space", "img", "element", "code"]))
        number = draw(st.integers(0, 99))
        if kind == "text":
            parts.append(draw(st.sampled_from(["one ", "two", ", ", "x &amp; y ", "汉字", "."])))
        elif kind == "space":
            parts.append(" ")
        elif kind == "img":
            parts.append(f"<img id={number}>")
        elif kind == "code":
            parts.append(f"<code id={number}>one</code>")
        elif depth < 4:
            parts.append(f"<b id={number}>{draw(trees(depth + 1))}</b>")
    return "".join(parts)


@given(st.data())
def test_any_alignment_keeps_every_tag_once_and_properly_nested(data: st.DataObject) -> None:
    source = "a " + data.draw(trees())
    translation = data.draw(st.text(alphabet=st.sampled_from(list("ab <>&.,汉one")), max_size=30))
    text = tagged(source)
    spans = st.tuples(st.integers(0, len(text.text)), st.integers(0, len(text.text)))
    others = st.tuples(st.integers(0, len(translation)), st.integers(0, len(translation)))
    alignment = data.draw(st.lists(st.tuples(spans, others), max_size=12))
    result = project(text, translation, alignment)
    reader = Reader()
    reader.feed(result)
    reader.close()
    assert not reader.open
    original = Reader()
    original.feed(source)
    assert sorted(reader.tags) == sorted(original.tags)
    if "<code" not in source:
        assert "".join(reader.text.split()) == "".join(translation.split())


@pytest.mark.parametrize(
    "source",
    [
        "<b>a " * 2000,
        "<b>a " * 2000 + "</b>" * 2000,
        "<b>a</b> " * 4000,
        "<b>" * 20_000 + "a" + "</b>" * 20_000,
        "<b><img>" * 4000 + "a" + "</b>" * 4000,
        "a <img> " * 4000,
        "</b>a " * 4000,
        "a <code>a</code> " * 1500,
        "<i><b></i>a " * 4000,
        "<b>a <i>" * 2000 + "</b>" * 2000,
    ],
)
@pytest.mark.parametrize("aligned", [True, False])
def test_many_tags_do_not_take_quadratic_time(source: str, aligned: bool) -> None:
    """Quadratic time would take about a minute."""
    text = tagged(source)
    pairs = [(span, span) for span in words(text.text)] if aligned else []
    assert project(text, text.text, pairs).count("<") == source.count("<")


def test_many_tags_side_by_side_do_not_take_quadratic_time() -> None:
    """Quadratic time would take half an hour."""
    builder, tags = TaggedTextBuilder(), "<img>" * 40
    builder.add_text("x ")
    for _ in range(200_000):
        builder.add_empty(tags)
    (tag,) = builder.finish().tags
    assert len(tag.opening.strip()) == 200_000 * len(tags)
