"""Protected spans and glossaries through the command line and over HTTP, with the bundled model."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import complaint, copied_until, sets
from serving import TIMEOUT, serve_in_thread

from transduce.translation.locale import localized
from transduce.translation.translator import Translator

TEMPLATES = [
    "Please look at {} again.",
    "I think that {} is right.",
    "We found {} yesterday in the old house.",
    "Do you know {}?",
    "Tom wrote {} on the wall, and nobody saw it.",
    "{} is what I need.",
    "She sent me {}.",
    "There is a problem with {} today.",
]
SPANS = {
    "mails": ["anna@example.org", "t.miller@mail.example.co.uk", "x_1@test.io", "info@bahn.de", "a+b@c.fr"],
    "URLs": ["https://example.com/a?b=1&c=2", "www.example.org", "http://localhost:8000/x", "ftp://a.b/c", "heise.de"],
    "placeholders": ["{name}", "{0}", "%s", "${total}", "{{ user }}"],
    "file names": ["report_final.pdf", "main.py", "/etc/hosts", "C:\\temp\\a.txt", "photo-2.jpeg"],
    "numbers": ["3.5 kg", "1,234.56", "20 °C", "$99.99", "10:45"],
}


def test_a_term_is_not_the_beginning_of_another_word(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("house\tBude\ngood morning\tMoin\n", encoding="utf-8")
    texts = "The house is big.\nGood morning, Anna.\nHouse of cards\n"
    outcome = transduce("translate", "--to", "de", "--glossary", "terms.tsv", stdin=texts, cwd=tmp_path)
    for term, line in zip(("Bude", "Moin", "Bude"), outcome.out.splitlines(), strict=True):
        assert re.search(rf"\b{term}\w{{0,3}}\b", line), line
        assert len(line) < 60


def test_a_term_is_not_beside_the_words_that_it_replaces(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("red house\tRothaus\nsettings\tOptionen\nhouse\tGebäude\n", encoding="utf-8")
    texts = "The red house is big.\nUsers can change the settings.\nhouse\n"
    outcome = transduce("translate", "--to", "de", "--glossary", "terms.tsv", stdin=texts, cwd=tmp_path)
    red_house, settings, house = outcome.out.splitlines()
    assert "Rothaus" in red_house
    assert "rote" not in red_house
    assert "Optionen" in settings
    assert "Einstellungen" not in settings
    assert house == "Gebäude"


def test_a_term_that_begins_a_sentence_has_a_capital_letter(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("swim\tschwimmen\n", encoding="utf-8")
    texts = "Swim every day!\nswim every day\n"
    outcome = transduce("translate", "--to", "de", "--glossary", "terms.tsv", stdin=texts, cwd=tmp_path)
    sentence, words = outcome.out.splitlines()
    assert sentence.startswith("Schwimmen ")
    assert "schwimmen" in words


def test_a_tag_opens_before_it_closes(transduce: Any, tmp_path: Path) -> None:
    texts = 'Click <a href="x">here</a> now.\nThe <b>red <i>car</i></b> is <u>fast</u>.\n'
    link, car = transduce("translate", "--to", "de", stdin=texts, cwd=tmp_path).out.splitlines()
    assert re.fullmatch(r'[^<>]+<a href="x">[^<>]+</a>[^<>]+', link)
    assert car.index("<b>") < car.index("<i>") < car.index("</i>") < car.index("</b>")


def test_tags_change_no_word(transduce: Any, tmp_path: Path) -> None:
    texts = [
        "& <em>two</em> dogs",
        'Please <a href="x">read the manual</a> before you <b>start</b> the machine.',
        "The <i>very old</i> house is <b>not</b> for sale.",
        "<p>This is a paragraph. It has <b>two sentences. They</b> are short.</p>",
        "The file <b>readme.txt</b> is old.",
    ]
    tag = re.compile("<[^>]*>")
    lines = [*texts, *(tag.sub("", text) for text in texts)]
    outcome = transduce("translate", "--to", "de", stdin="\n".join(lines) + "\n", cwd=tmp_path)
    outputs = outcome.out.splitlines()
    tagged, plain = outputs[: len(texts)], outputs[len(texts) :]
    assert [tag.sub("", output) for output in tagged] == plain
    assert [sorted(tag.findall(output)) for output in tagged] == [sorted(tag.findall(text)) for text in texts]
    assert tagged[0] == "& <em>zwei</em> Hunde"
    assert tagged[3].startswith("<p>")
    assert tagged[3].endswith(".</p>")
    assert "<b>readme.txt</b>" in tagged[4]


def test_emphasis_of_markdown_in_text_changes_no_word(transduce: Any, tmp_path: Path) -> None:
    text = "The **red** house is *old*.\n**Note:** The dog sleeps.\n"
    outcome = transduce("translate", "--to", "de", cwd=tmp_path, stdin=text)
    assert outcome.out == "Das **rote** Haus ist *alt*.\n**Hinweis:** Der Hund schläft.\n"


def test_texts_between_line_breaks_are_translated_separately(transduce: Any, tmp_path: Path) -> None:
    texts = "The house is big.\nTwo dogs\nThe house is big.<br>Two dogs\n"
    house, dogs, both = transduce("translate", "--to", "de", stdin=texts, cwd=tmp_path).out.splitlines()
    assert both == f"{house}<br>{dogs}"


def test_the_names_of_the_columns_are_no_term(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("source\ttarget\nhouse\tBude\n", encoding="utf-8")
    texts = "The source is the house.\n"
    outcome = transduce("translate", "--to", "de", "--glossary", "terms.tsv", stdin=texts, cwd=tmp_path)
    assert "Bude" in outcome.out
    assert "target" not in outcome.out


def test_an_escaped_percent_sign_is_not_divided(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("translate", "--to", "de", stdin="Progress: 100%%\nUsed %d%% of the disk.\n", cwd=tmp_path)
    progress, used = outcome.out.splitlines()
    assert progress.endswith(" 100%%")
    assert "%d%%" in used


def test_the_sign_of_a_number_is_kept(transduce: Any, tmp_path: Path) -> None:
    texts = "The temperature is -5 degrees.\nHe lost -$40.\n"
    outcome = transduce("translate", "--to", "de", stdin=texts, cwd=tmp_path)
    temperature, loss = outcome.out.splitlines()
    assert "-5" in temperature
    assert "-40\xa0$" in loss


@pytest.mark.parametrize("kind", SPANS)
def test_every_span_comes_back_exactly_once(kind: str, transduce: Any, tmp_path: Path) -> None:
    chosen = [(template, span) for template in TEMPLATES for span in SPANS[kind]]
    assert len(chosen) == 40
    sources = [template.replace("{}", span) for template, span in chosen]
    outcome = transduce("translate", "--to", "de", "--beam", "1", stdin="\n".join(sources) + "\n", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    outputs = outcome.out.splitlines()
    assert [(source, output) for (_, span), source, output in zip(chosen, sources, outputs, strict=True)
            if output.count(localized(span, source.partition(span)[0], ["en"], "de")) != 1] == []  # fmt: skip


@pytest.mark.parametrize("language", ["de", "fr"])
def test_numbers_side_by_side_and_formulas_are_kept(transduce: Any, tmp_path: Path, language: str) -> None:
    kept = ["7 8 9", "4 8 15 16 23 42", "3 2", "E = mc^2", "f(x) = x^2", "2 x 4 = 8", "1920x1080"]
    text = "".join(f"The result is {part}.\n{part}\n" for part in kept)
    lines = transduce("translate", "--to", language, cwd=tmp_path, stdin=text).out.splitlines()
    assert lines[1::2] == kept
    assert all(part in line for part, line in zip(kept, lines[::2], strict=True)), lines


@pytest.mark.parametrize(("language", "time"), [("de", "17:30"), ("fr", "17:30"), ("en", "5:30 pm")])
def test_the_half_of_the_day_is_kept(transduce: Any, tmp_path: Path, language: str, time: str) -> None:
    text = "Das Treffen ist um 5:30 pm." if language == "en" else "We meet at 5:30 pm tomorrow."
    assert time in transduce("translate", "--to", language, text, cwd=tmp_path).out


def test_the_size_of_an_amount_is_kept(transduce: Any, tmp_path: Path) -> None:
    amounts = ["$5bn", "$20K", "20k", "$3M", "10 lbs"]
    text = "".join(f"It cost {amount}.\n" for amount in amounts)
    for language in ("de", "fr"):
        lines = transduce("translate", "--to", language, cwd=tmp_path, stdin=text).out.splitlines()
        assert all(amount in line for amount, line in zip(amounts, lines, strict=True)), lines
    assert "3.2 billion" in transduce("translate", "--to", "en", "Das kostet 3,2 Mrd. Euro.", cwd=tmp_path).out


def test_what_programs_read_is_kept(transduce: Any, tmp_path: Path) -> None:
    texts = [r"First line.\nSecond line.", "Press Ctrl+Alt+Del.", "<!-- comment -->", r"Open \\server\share\a.txt."]
    outcome = transduce("translate", "--to", "de", cwd=tmp_path, stdin="\n".join(texts) + "\n")
    lines, keys, comment, path = outcome.out.splitlines()
    assert r"\\server\share\a.txt" in path
    assert re.fullmatch(r"[\w ]+\.\\n[\w ]+\.", lines)
    assert re.fullmatch(r"Drück\w+( Sie)? Ctrl\+Alt\+Del\.", keys)
    assert comment == "<!-- comment -->"


def test_codes_of_letters_and_digits_are_kept(transduce: Any, tmp_path: Path) -> None:
    texts = {
        "Press F5.": "F5",
        "PRESS F5 NOW": "F5",
        "H2O": "H2O",
        "Flight LH400 is late.": "LH400",
        "Take bus M41.": "M41",
    }
    for language in ("de", "fr"):
        outcome = transduce("translate", "--to", language, cwd=tmp_path, stdin="\n".join(texts) + "\n")
        for code, line in zip(texts.values(), outcome.out.splitlines(), strict=True):
            assert re.search(rf"\b{code}\b", line), line


def test_every_span_of_a_long_list_comes_back_exactly_once(transduce: Any, tmp_path: Path) -> None:
    texts = [
        f"The temperatures were {', '.join(f'{n} °C' for n in range(12))} and it was cold.",
        f"Prices: {'; '.join(f'${n * 3}' for n in range(8, 22))} each.",
        "He paid 5%, 5%, 6%, 7%, 8%, 9%, 10%, 11%, 12%, 14%, 15% and 13% of it.",
        f"In the years {', '.join(map(str, range(1990, 2004)))} there was a party.",
        f"We know that {', and that '.join(f'the box {n}.5 kg is old' for n in range(12))}.",
    ]
    outcome = transduce("translate", "--to", "de", stdin="\n".join(texts) + "\n", cwd=tmp_path)
    numbers = [sorted(re.findall(r"\d+", text)) for text in texts]
    assert [sorted(re.findall(r"\d+", output)) for output in outcome.out.splitlines()] == numbers


def test_options_of_protection_and_glossary(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("house\tGebäude\n", encoding="utf-8")

    def translate(text: str, *words: str) -> str:
        outcome = transduce("translate", text, "--to", "de", *words, cwd=tmp_path)
        assert (outcome.code, outcome.err) == (0, "")
        return str(outcome.out)

    assert "Gebäude" in translate("The house is big.", "--glossary", "terms.tsv")
    assert "green tea" in translate("I drink green tea.", "--protect-pattern", "green t.a")
    assert "green" not in translate("I drink green tea.")
    assert "`good morning`" not in translate("Say `good morning` to him.", "--no-protect")
    assert "`good morning`" in translate("Say `good morning` to him.")
    words = ["translate", "a", "--to", "de"]
    assert "--no-protect is given" in complaint(
        transduce(*words, "--no-protect", "--protect-pattern", "x", cwd=tmp_path)
    )
    assert "not a regular expression" in complaint(transduce(*words, "--protect-pattern", "(", cwd=tmp_path))
    (tmp_path / "terms.tsv").write_text("house\n", encoding="utf-8")
    assert "terms.tsv, line 1" in complaint(transduce(*words, "--glossary", "terms.tsv", cwd=tmp_path))


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        serve_in_thread([("bundled", Translator.load())], characters=200, terms=3) as (address, _),
        httpx.Client(base_url=address, timeout=TIMEOUT) as client,
    ):
        yield client


def ask(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/v1/translate", json={"to": "de", **body})


def test_glossary_and_protection_over_http(client: httpx.Client) -> None:
    def text(**body: Any) -> str:
        return str(ask(client, **body).json()["translations"][0]["outputs"][0]["text"])

    assert "Gebäude" in text(text="The house is big.", glossary={"house": "Gebäude"})
    assert "`good morning`" in text(text="Say `good morning` to him.")
    assert "`good morning`" not in text(text="Say `good morning` to him.", protect=False)
    body = {"q": "Say `good morning` to him.", "source": "en", "target": "de"}
    assert "`good morning`" in client.post("/translate", json=body).json()["translatedText"]


@pytest.mark.parametrize(
    ("glossary", "status", "message"),
    [
        ({str(n): "x" for n in range(4)}, 413, "at most 3 terms, not 4"),
        ({"a": "x" * 200}, 413, "characters are more than the 200 allowed"),
        ({"a": " "}, 400, "no translation for 'a'"),
        ({"a": 1}, 400, "glossary.a"),
        (["a"], 400, "glossary"),
    ],
)
def test_glossaries_that_are_refused(client: httpx.Client, glossary: Any, status: int, message: str) -> None:
    response = ask(client, text="A house.", glossary=glossary)
    assert response.status_code == status
    assert message in response.json()["error"]


def test_a_run_with_augmentation_resumes_bit_for_bit(transduce: Any, trained: Any, tmp_path: Path) -> None:
    shares = {"upper": 0.2, "title": 0.1, "typos": 0.2, "punctuation": 0.2, "emoji": 0.1, "spans": 0.3}
    words = [*trained.words, *(word for name, share in shares.items() for word in ("--set", f"augment.{name}={share}"))]
    words += sets(steps=12, save_every=6, log_every=1)
    whole = transduce(*words, "--out", "whole", cwd=tmp_path)
    assert whole.code == 0, whole.err
    copied_until(tmp_path / "whole", tmp_path / "resumed", 6)
    resumed = transduce(*words, "--out", "resumed", cwd=tmp_path)
    assert "resuming from resumed/checkpoints/step-6" in resumed.err
    plain = transduce(*trained.words, *sets(steps=12, save_every=6, log_every=1), "--out", "plain", cwd=tmp_path)
    assert plain.code == 0, plain.err
    weights = {
        name: (tmp_path / name / "checkpoints" / "step-12" / "model.safetensors").read_bytes()
        for name in ("whole", "resumed", "plain")
    }
    assert weights["resumed"] == weights["whole"]
    assert weights["plain"] != weights["whole"]
    card = json.loads((tmp_path / "whole" / "model" / "model.json").read_text(encoding="utf-8"))
    assert card["facts"]["augment"]["spans"] == 0.3
    output = transduce("translate", "-m", "whole", "ba a@b.de bo", cwd=tmp_path)
    assert output.out.count("a@b.de") == 1


def test_validation_translates_with_slots_as_translate_does(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "valid.src").write_text("babo a@b.de dedu\ngigo\n", encoding="utf-8")
    (tmp_path / "valid.tgt").write_text("dedu a@b.de babo\ngigo\n", encoding="utf-8")
    own = {str(trained.folder / f"valid.{side}"): f"valid.{side}" for side in ("src", "tgt")}
    words = [own.get(word, word) for word in trained.words]
    outcome = transduce(*words, "--set", "augment.spans=0.3", *sets(steps=2), "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    records = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    outputs = [sample["output"] for record in records for sample in record.get("samples", [])]
    assert [output.count("a@b.de") for output in outputs] == [1, 0] * (len(outputs) // 2)
    assert outputs


def test_the_score_of_a_translation_is_that_of_the_search(transduce: Any, tmp_path: Path) -> None:
    source = "Please write to anna@example.org today."
    options = ("--to", "de", "--beam", "1")
    found = transduce("translate", *options, "--engine", "plain", "--jsonl", source, cwd=tmp_path)
    (best,) = json.loads(found.out)["translations"]
    (tmp_path / "pair.tsv").write_text(f"{source}\t{best['text']}\n", encoding="utf-8")
    scored = transduce("score", "--to", "de", "--from", "en", "--test", "pair.tsv", "--jsonl", cwd=tmp_path)
    record = json.loads(scored.out)
    assert record["tokens"] == [*best["tokens"], "</s>"]
    assert record["log_prob"] == pytest.approx(best["log_prob"], abs=1e-3)


def test_times_stay_as_they_are_without_the_locale(transduce: Any, tmp_path: Path) -> None:
    words = ("translate", "--to", "de", "It starts at 5:30 pm and costs $1,299.99.")
    assert "5:30 pm" in transduce(*words, "--no-locale", cwd=tmp_path).out
    assert "$1,299.99" in transduce(*words, "--no-locale", cwd=tmp_path).out
    assert "12:30am" in transduce(*words[:3], "The gate opens at 12:30 am.", "--no-locale", cwd=tmp_path).out
    assert "17:30 Uhr" in transduce(*words, cwd=tmp_path).out


def test_numbers_by_themselves_are_written_as_in_sentences(transduce: Any, tmp_path: Path) -> None:
    texts = ["1,200", "8.5%", "-$4.99", "12:30 am", "2024", "1, 2", "–"]
    expected = ["1.200", "8,5\xa0%", "-4,99\xa0$", "0:30 Uhr", "2024", "1, 2", "–"]
    assert Translator.load(None, threads=1).translate(texts, to="de") == expected
    cells = "".join(f"<td>{text}</td>" for text in texts)
    words = ("translate", "--to", "de", "--format", "html")
    outcome = transduce(*words, cwd=tmp_path, stdin=cells)
    assert outcome.out == "".join(f"<td>{text}</td>" for text in expected)
    assert "transduce: 5 texts in" in outcome.err
    kept = cells.replace("<td>12:30 am</td>", "")
    assert transduce(*words, "--no-locale", cwd=tmp_path, stdin=kept).out == kept


def test_a_word_is_not_joined_to_a_placeholder_of_a_number() -> None:
    texts = ["%d files", "Deleted %d items.", "%(count)d files were copied.", "A %d-bit number", "The %s file"]
    outputs = Translator.load(None, threads=1).translate(texts, to="de")
    assert [text.count("%d-") + text.count("%(count)d-") for text in outputs] == [0, 0, 0, 1, 0]
    assert outputs[4] == "Die %s-Datei"


@pytest.mark.parametrize(
    "text",
    ["The meeting is on 03/04/2021 at 5:30 pm.", "The meeting is on 12/05/2021 at 10:00 am.", "Come at 7:15 pm."],
)
def test_the_unit_of_a_protected_number_is_not_written_twice(text: str) -> None:
    output = Translator.load(None, threads=1).translate(text, to="de")
    assert output.count("Uhr") == 1, output


@pytest.mark.parametrize(
    ("to", "text", "street"),
    [
        ("en", "Schicken Sie es an Schillerplatz 5a, 50667 Köln.", "Schillerplatz 5a"),
        ("en", "Nous habitons au 12 rue de la Paix.", "12 rue de la Paix"),
        ("fr", "Our office is at 221B Baker Street, London.", "221B Baker Street"),
    ],
)
def test_the_names_of_streets_are_kept(to: str, text: str, street: str) -> None:
    assert street in Translator.load(None, threads=1).translate(text, to=to)
