"""What becomes of texts on their way in and out: lines, pieces, HTML, names, keys."""

import html.parser
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ConfigError
from transduce.serve.catalogue import Catalogue, languages_of, split_name
from transduce.serve.keys import Keys
from transduce.serve.limits import Limits
from transduce.serve.markup import Markup
from transduce.serve.passages import Passages
from transduce.serve.refusals import Refusal
from transduce.translator import Translation, Translator


@pytest.fixture(scope="module")
def translator(untrained_model: Any, toy_tokenizer: Any) -> Translator:
    return Translator(untrained_model, toy_tokenizer, max_source_length=12)


def filled(passages: Passages, ranks: int = 2) -> Passages:
    """Every job said back in capitals; the second best has a mark."""
    tokenizer = passages._translator.tokenizer
    for number, job in enumerate(passages.jobs):
        text = tokenizer.decode(job.tokens).upper()
        passages.put(
            number,
            [
                Translation(text + "!" * rank, -1.0 - rank, -2.0, ["x"], alignment=[len(job.tokens) - 1])
                for rank in range(ranks)
            ],
        )
    return passages


def test_lines_stay_lines_and_empty_ones_stay_empty(translator: Translator) -> None:
    passages = filled(Passages(translator, ["babo degi\n\n  \ngigo", "", "dedu"]))
    best = [[output.text for output in passages.outputs(lines)] for lines in passages.texts]
    assert best == [["BABO DEGI\n\n\nGIGO", "BABO DEGI!\n\n\nGIGO!"], [""], ["DEDU", "DEDU!"]]


def test_a_line_too_long_for_the_model_comes_back_whole(translator: Translator) -> None:
    text = " ".join(["babo"] * 40)
    passages = filled(Passages(translator, [text]))
    assert len(passages.jobs) > 1
    (output, _) = passages.outputs(passages.texts[0])
    assert output.text == text.upper()
    assert output.score == -len(passages.jobs)


def test_alignments_point_into_the_tokens_of_the_whole_text(translator: Translator) -> None:
    passages = filled(Passages(translator, ["babo\ngigo " + "dedu " * 20]))
    tokens = passages.source_tokens(passages.texts[0])
    ends = [sum(len(job.tokens) for job in passages.jobs[: n + 1]) - 1 for n in range(len(passages.jobs))]
    assert passages.outputs(passages.texts[0])[0].alignment == ends
    assert ends[-1] == len(tokens) - 1


def test_a_sentence_is_done_when_its_last_piece_is(translator: Translator) -> None:
    passages = Passages(translator, ["babo", " ".join(["dedu"] * 30)])
    output = [Translation("x", 0.0, 0.0, [])]
    first, *middle, last = range(len(passages.jobs))
    assert passages.put(last, output) is None
    assert passages.put(first, output) is passages.sentences[0]
    *others, end = middle
    assert [passages.put(job, output) for job in others] == [None] * len(others)
    assert passages.put(end, output) is passages.sentences[1]


def test_a_prefix_begins_a_text_and_no_other_line(translator: Translator) -> None:
    passages = Passages(translator, ["\nbabo\ngigo", "dedu"], prefix="ba")
    assert [bool(job.prefix) for job in passages.jobs] == [True, False, True]


# HTML


def test_tags_stay_and_text_between_them_is_translated() -> None:
    page = Markup("<p>One &amp; <b>two</b>\n three</p><!-- <i>four --><SCRIPT>five < 6</script > <br/>")
    assert page.texts == ["One &", "two", "three"]
    assert page.filled(["A < B", "C", "D"]) == (
        "<p>A &lt; B <b>C</b>\n D</p><!-- <i>four --><SCRIPT>five < 6</script > <br/>"
    )


@given(st.text(alphabet=st.sampled_from("ab <>&;!-/=\n\0'\"scriptSTYLE"), max_size=60))
def test_any_html_comes_back_with_its_tags(source: str) -> None:
    page = Markup(source)
    back = Markup(page.filled(page.texts))
    assert back.texts == page.texts
    assert re.findall(r"<\w+[^<>]*>", page.filled(page.texts)) == re.findall(r"<\w+[^<>]*>", source)


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("<p class='a>b'>one</p>", ["one"]),
        ('<img alt="a > b &quot; onerror=alert(1) y=&quot;" src=x> one', ["one"]),
        ("<a title = \"it's >\" href='\"'>one</a> two", ["one", "two"]),
        ("<a href=/?q='x>one</a> it's <b title='>'>two</b>", ["one", "it's", "two"]),
        ("<p don't>one</p> <b>it's</b>", ["one", "it's"]),
        ("<br x=>one<p y= >two", ["one", "two"]),
        ("one <a title='never closed>two</a> <b>three</b>", ["one"]),
        ("one <b", ["one"]),
    ],
)
def test_a_tag_ends_where_its_attributes_do(source: str, texts: list[str]) -> None:
    assert Markup(source).texts == texts


def test_the_value_of_an_attribute_cannot_become_another_attribute() -> None:
    source = '<img alt="a > b &quot; onerror=alert(1) y=&quot;" src=x>'
    page = Markup(source)
    assert page.filled(page.texts) == source
    assert '"' not in Markup("<p>hello</p>").filled(['" onerror=alert(1)']).replace("&quot;", "")


@pytest.mark.parametrize("run", ["<a x='", '<a x="y', "<a =", "=' ", "<"])
def test_html_that_is_never_closed_takes_no_quadratic_time(run: str) -> None:
    """It would take minutes."""
    assert Markup("<a " + run * 200_000).texts == []


def test_what_a_translation_says_can_not_become_a_tag() -> None:
    seen: list[str] = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            seen.append(tag)

    Reader().feed(Markup("<p>hello</p>").filled(["<script>alert(1)</script>"]))
    assert seen == ["p"]


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
def test_a_name_tells_languages_where_it_ends_in_their_codes(name: str, languages: Any) -> None:
    assert languages_of(name) == languages


def test_models_are_named_by_the_user_or_by_their_folder(tmp_path: Path) -> None:
    assert split_name("de=runs/x") == ("de", Path("runs/x"))
    assert split_name("runs/x") == ("x", Path("runs/x"))
    assert split_name("runs/a=b") == ("a=b", Path("runs/a=b"))
    assert split_name("./") == (Path.cwd().name, Path())


def test_models_are_found_by_name_and_by_languages(translator: Translator) -> None:
    catalogue = Catalogue([(name, translator) for name in ("en-de", "fr", "x")])
    assert catalogue.by_name(None).name == "en-de"
    assert catalogue.by_name("x").name == "x"
    assert [catalogue.by_languages("en", target).name for target in ("de", "fr", "x", "nl")] == [
        "en-de",
        "fr",
        "x",
        "x",
    ]
    assert catalogue.by_languages("auto", "de").name == "en-de"
    assert catalogue.by_languages("es", "de").name == "x"
    with pytest.raises(Refusal, match="no such model; there are: en-de, fr, x"):
        catalogue.by_name("nothing")
    with pytest.raises(Refusal, match="there are: en to de"):
        Catalogue([("en-de", translator)]).by_languages("de", "en")


def test_two_models_of_one_name_are_refused(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="two models are named x"):
        Catalogue([("x", translator), ("x", translator)])


# Keys and limits


def test_keys_open_and_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRANSDUCE_API_KEYS", raising=False)
    assert not Keys.read(None)
    Keys.read(None).check(None)  # open to all
    (tmp_path / "keys").write_text("first\nsécond\n", encoding="utf-8")
    monkeypatch.setenv("TRANSDUCE_API_KEYS", "third fourth")
    for keys, good, bad in [
        (Keys.read(tmp_path / "keys"), ["first", "sécond"], ["third", "firs", "first ", "", None, "\ud800"]),
        (Keys.read(None), ["third", "fourth"], ["first", "third fourth"]),
    ]:
        for key in good:
            keys.check(key)
            keys.check(None, key)
        for other in bad:
            with pytest.raises(Refusal, match="API key"):
                keys.check(other, None)


def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n")
    with pytest.raises(ConfigError, match="holds no key"):
        Keys.read(tmp_path / "keys")
    (tmp_path / "keys").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not a text file"):
        Keys.read(tmp_path / "keys")


def test_limits_are_above_nothing() -> None:
    with pytest.raises(ConfigError, match="queue must be above 0"):
        Limits(queue=0)
