"""Splitting of texts, HTML, model names, API keys and limits."""

import html.parser
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from transduce.documents.html_text import HtmlText
from transduce.errors import ConfigError
from transduce.serve.api_keys import ApiKeys
from transduce.serve.limits import HttpError, Limits
from transduce.serve.served_models import ServedModels, parse_languages, parse_model_option
from transduce.serve.translation_service import SplitTexts, split_texts
from transduce.translation.projection import project
from transduce.translation.translation import Translation
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(untrained_model: Any, toy_tokenizer: Any) -> Translator:
    return Translator(untrained_model, toy_tokenizer, max_source_length=12)


def translated(split: SplitTexts, ranks: int = 2) -> SplitTexts:
    """The output of every job is its source in capitals; the second best ends with an exclamation mark."""
    tokenizer = split._translator.tokenizer
    for index, job in enumerate(split.jobs):
        text = tokenizer.decode(job.tokens).upper()
        split.add_outputs(
            index,
            [
                Translation(text + "!" * rank, -1.0 - rank, -2.0, ["x"], alignment=[len(job.tokens) - 1])
                for rank in range(ranks)
            ],
        )
    return split


def test_lines_are_kept_and_blank_lines_stay_as_they_are(translator: Translator) -> None:
    split = translated(split_texts(translator, ["babo degi\n\r\n  \ngigo", "", "dedu"]))
    best = [[output.text for output in split.outputs(lines)] for lines in split.texts]
    assert best == [["BABO DEGI\n\r\n  \nGIGO", "BABO DEGI!\n\r\n  \nGIGO!"], [""], ["DEDU", "DEDU!"]]


def test_a_line_with_fewer_outputs_has_its_last_one_in_further_ranks(translator: Translator) -> None:
    split = split_texts(translator, ["babo\ndedu"])
    for job, texts in enumerate((["one"], ["two", "three"])):
        split.add_outputs(job, [Translation(text, -1.0, -1.0, [text]) for text in texts])
    outputs = split.outputs(split.texts[0])
    assert [(output.text, output.tokens) for output in outputs] == [
        ("one\ntwo", ["one", "two"]),
        ("one\nthree", ["one", "three"]),
    ]


def test_a_line_too_long_for_the_model_is_joined_again(translator: Translator) -> None:
    text = " ".join(["babo"] * 40)
    split = translated(split_texts(translator, [text]))
    assert len(split.jobs) > 1
    (output, _) = split.outputs(split.texts[0])
    assert output.text == text.upper()
    assert output.score == -len(split.jobs)


def test_alignments_index_the_tokens_of_the_entire_text(translator: Translator) -> None:
    split = translated(split_texts(translator, ["babo\ngigo " + "dedu " * 20]))
    tokens = split.source_tokens(split.texts[0])
    ends = [sum(len(job.tokens) for job in split.jobs[: n + 1]) - 1 for n in range(len(split.jobs))]
    assert split.outputs(split.texts[0])[0].alignment == ends
    assert ends[-1] == len(tokens) - 1


def test_a_line_is_done_when_its_last_job_is(translator: Translator) -> None:
    split = split_texts(translator, ["babo", " ".join(["dedu"] * 30)])
    output = [Translation("x", 0.0, 0.0, [])]
    first, *middle, last = range(len(split.jobs))
    assert split.add_outputs(last, output) is None
    assert split.add_outputs(first, output) is split.lines[0]
    *others, end = middle
    assert [split.add_outputs(job, output) for job in others] == [None] * len(others)
    assert split.add_outputs(end, output) is split.lines[1]


def test_a_prefix_applies_to_every_line_that_is_not_empty(translator: Translator) -> None:
    split = split_texts(translator, ["\nbabo\ngigo", "dedu"], prefix="ba")
    assert [bool(job.prefix) for job in split.jobs] == [True, True, True]


# HTML


def texts_of(source: str) -> list[str]:
    return [text.text for text in HtmlText(source).texts]


def unchanged(source: str) -> str:
    """The HTML if the translation of every text is the text itself."""
    document, filled = HtmlText(source), []
    for text in document.texts:
        words = [word.span() for word in re.finditer(r"\S+", text.text)]
        filled.append(project(text, text.text, [(word, word) for word in words]))
    return document.fill(filled)


def test_block_elements_separate_texts_and_inline_tags_belong_to_them() -> None:
    source = "<p>One &amp; <b>two</b>\n three</p><!-- <i>four --><SCRIPT>five < 6</script > <br/> 1 < 2<hr>"
    document = HtmlText(source)
    assert [text.text for text in document.texts] == ["One & two three", "1 < 2"]
    assert [tag.opening for tag in document.texts[0].tags] == ["<b>"]
    assert unchanged(source) == (
        "<p>One &amp; <b>two</b> three</p><!-- <i>four --><SCRIPT>five < 6</script > <br/> 1 &lt; 2<hr>"
    )
    assert document.fill(["A", "B"]) == "<p>A</p><!-- <i>four --><SCRIPT>five < 6</script > <br/> B<hr>"


@pytest.mark.parametrize(
    "source",
    [
        "<b>&nbsp;</b>",
        "<p><b>&nbsp;</b>one</p>",
        "<p>one<b>&nbsp;</b></p>",
        "<p>one <b>&nbsp;</b> two</p>",
        "<p>one <b>&nbsp;</b>two</p>",
        "<p>one <b><i>&nbsp;&nbsp;</i></b> two</p>",
        "<p>one <b> </b>two</p>",
        "<p>&nbsp;one two&nbsp; </p>",
        "<td>&nbsp;</td><td>&nbsp; one</td>",
        "one<b>&nbsp;</b>two",
        "one<b> </b>two",
        "one<b><i>&nbsp;</i></b>two",
        "one<i></i><b>&nbsp;</b><u></u>two",
        "<b>one<i>&nbsp;</i>two</b> three",
        "<i>one</i><b>&nbsp;&nbsp;</b><i>two</i>",
        "one<b> <img></b>two<u>&nbsp;</u>three",
    ],
)
def test_spaces_in_elements_and_around_texts_are_kept(source: str) -> None:
    assert unchanged(source) == source


def test_the_space_of_an_element_follows_its_word_and_is_neither_doubled_nor_invented() -> None:
    (text,) = HtmlText("one<b>&nbsp;</b>two three").texts
    words = [((0, 3), (4, 8)), ((4, 7), (0, 3)), ((8, 13), (9, 13))]
    assert project(text, "zwo eins drei", words) == "zwo eins<b>&nbsp;</b>drei"
    assert project(text, "drei zwo eins", [((0, 3), (9, 13))]) == "drei zwo eins<b></b>"
    assert project(text, "你好世界", [((0, 3), (0, 2)), ((4, 7), (2, 4))]) == "你好<b></b>世界"
    (two,) = HtmlText("one<b>&nbsp;</b>two<i>&nbsp;</i>three").texts
    both = [((0, 3), (0, 4)), ((4, 7), (0, 4)), ((8, 13), (5, 9))]
    assert project(two, "eins drei", both) == "eins<b>&nbsp;</b><i></i>drei"


def test_what_is_not_translated_is_unchanged() -> None:
    for source in (
        "<p><code>x &amp; y</code></p>",
        "<pre>a <b>b</b>\n c</pre>",
        "<div translate='no'><div>a</div> b</div>",
        "<p class='x notranslate'>a</p> <style>b</style><svg><text>c</text></svg>",
        "<textarea translate=no>a</textarea>",
        "<code>never closed <p>a</p>",
    ):
        assert texts_of(source) == []
        assert unchanged(source) == source


def test_tags_in_and_around_a_text() -> None:
    for source in (
        "<td><a href='x'><b>one</b></a></td><td>two <img src=x> three</td>",
        "<ul><li>one<li>two <i>three</i></ul>",
        "<p>one <code>two</code>, <kbd>two</kbd>.</p>",
        "<a href=x><p>one</p></a>",
        "<p>one <b>two<p>three</b> four",
        "<h1> one <!-- two --> three </h1>",
        "<my-tag>one <other/> two</my-tag>",
    ):
        assert unchanged(source) == source


@given(st.text(alphabet=st.sampled_from("ab <>&;!-/=\n\0'\"scriptSTYLE"), max_size=60))
def test_any_html_keeps_its_tags(source: str) -> None:
    again = unchanged(source)
    assert texts_of(again) == texts_of(source)
    assert sorted(re.findall(r"<\w+[^<>]*>", again)) == sorted(re.findall(r"<\w+[^<>]*>", source))


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("<p class='a>b'>one</p>", ["one"]),
        ('<img alt="a > b &quot; onerror=alert(1) y=&quot;" src=x> one', ["one"]),
        ("<a title = \"it's >\" href='\"'>one</a> two", ["one two"]),
        ("<a href=/?q='x>one</a> it's <b title='>'>two</b>", ["one it's two"]),
        ("<p don't>one</p> <b>it's</b>", ["one", "it's"]),
        ("<br x=>one<p y= >two", ["one", "two"]),
        ("one <a title='never closed>two</a> <b>three</b>", ["one"]),
        ("one <b", ["one"]),
    ],
)
def test_a_tag_ends_where_its_attributes_do(source: str, texts: list[str]) -> None:
    assert texts_of(source) == texts


def test_the_value_of_an_attribute_cannot_become_another_attribute() -> None:
    source = '<img alt="a > b &quot; onerror=alert(1) y=&quot;" src=x>'
    assert unchanged(source) == source
    (text,) = HtmlText("<p>hello</p>").texts
    assert '"' not in project(text, '" onerror=alert(1)', [])


@pytest.mark.parametrize("run", ["<a x='", '<a x="y', "<a =", "=' ", "<"])
def test_unclosed_html_does_not_take_quadratic_time(run: str) -> None:
    """Quadratic time would be minutes."""
    assert HtmlText("<a " + run * 200_000).texts == []


def test_a_translation_cannot_contain_a_tag() -> None:
    tags: list[str] = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            tags.append(tag)

    document = HtmlText("<p>hello <b>you</b></p>")
    Reader().feed(document.fill([project(document.texts[0], "<script>alert(1)</script>", [])]))
    assert tags == ["p", "b"]


# Names


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("de", (None, "de")),
        ("en-de", ("en", "de")),
        ("multi30k-en-de", ("en", "de")),
        ("my-run", (None, None)),
        ("x", (None, None)),
        ("first", (None, None)),
    ],
)
def test_languages_are_parsed_from_the_end_of_a_model_name(name: str, languages: Any) -> None:
    assert parse_languages(name) == languages


def test_a_model_is_named_by_the_user_or_after_its_folder(tmp_path: Path) -> None:
    assert parse_model_option("de=runs/x") == ("de", Path("runs/x"))
    assert parse_model_option("runs/x") == ("x", Path("runs/x"))
    assert parse_model_option("runs/a=b") == ("a=b", Path("runs/a=b"))
    assert parse_model_option("./") == (Path.cwd().name, Path())


def test_models_are_found_by_name_and_by_languages(translator: Translator) -> None:
    models = ServedModels([(name, translator) for name in ("en-de", "fr", "x")])
    assert models.by_name(None).name == "en-de"
    assert models.by_name("x").name == "x"
    assert [models.by_languages("en", target).name for target in ("de", "fr", "x", "nl")] == ["en-de", "fr", "x", "x"]
    assert models.by_languages("auto", "de").name == "en-de"
    assert models.by_languages("es", "de").name == "x"
    with pytest.raises(HttpError, match="no such model; available: en-de, fr, x"):
        models.by_name("nothing")
    with pytest.raises(HttpError, match="available: en to de"):
        ServedModels([("en-de", translator)]).by_languages("de", "en")


def test_two_models_with_the_same_name_are_rejected(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="two models are named x"):
        ServedModels([("x", translator), ("x", translator)])


# API keys and limits


def test_only_the_given_keys_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRANSDUCE_API_KEYS", raising=False)
    assert not ApiKeys.read(None)
    ApiKeys.read(None).check(request_with(None))  # no key is required
    (tmp_path / "keys").write_text("first\nsécond\n", encoding="utf-8")
    monkeypatch.setenv("TRANSDUCE_API_KEYS", "third fourth")
    for keys, good, bad in [
        (ApiKeys.read(tmp_path / "keys"), ["first", "sécond"], ["third", "firs", "first ", "", None, "\ud800"]),
        (ApiKeys.read(None), ["third", "fourth"], ["first", "third fourth"]),
    ]:
        for key in good:
            keys.check(request_with(None), key)
            keys.check(request_with(f"Bearer {key}"))
        for other in bad:
            with pytest.raises(HttpError, match="API key"):
                keys.check(request_with(None), other)
        for header in ("Bearer other", "Bearer", f"Basic {good[0]}"):
            with pytest.raises(HttpError, match="API key"):
                keys.check(request_with(header))


def request_with(authorization: str | None) -> Request:
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    return Request({"type": "http", "headers": headers})


def test_a_file_without_keys_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n")
    with pytest.raises(ConfigError, match="contains no API key"):
        ApiKeys.read(tmp_path / "keys")
    (tmp_path / "keys").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not a UTF-8 text file"):
        ApiKeys.read(tmp_path / "keys")


def test_limits_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="queue must be above 0"):
        Limits(queue=0)
