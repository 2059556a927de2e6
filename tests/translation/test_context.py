"""data.context=1: a pronoun that only the sentence before decides, through the command line, HTTP and Python."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import complaint
from serving import TIMEOUT, serve_in_thread
from toy_run import TINY, as_sets, write_lines

from transduce.files.pairs import ReadReport, read_pairs
from transduce.tokenizers.symbols import SEPARATOR, mark
from transduce.translation.augment import augment
from transduce.translation.translator import Translator

NOUNS = {"dog": ("Der Hund", "Er"), "cat": ("Die Katze", "Sie"), "horse": ("Das Pferd", "Es")}
VERBS = {"sleeps": "schläft", "eats": "frisst", "runs": "rennt"}
FIRST = {f"The {noun} {verb}.": f"{NOUNS[noun][0]} {VERBS[verb]}." for noun, verb in product(NOUNS, VERBS)}
SETTINGS = {**TINY, "tokenizer.vocab_size": 420, "train.steps": 300, "train.save_every": 300}


def documents() -> list[list[tuple[str, str]]]:
    """All documents of two sentences, the second of which begins with the pronoun of the first."""
    return [
        [
            (f"The {noun} {verb}.", f"{NOUNS[noun][0]} {VERBS[verb]}."),
            (f"It {then}.", f"{NOUNS[noun][1]} {VERBS[then]}."),
        ]
        for noun, verb, then in product(NOUNS, VERBS, VERBS)
    ]


@pytest.fixture(scope="module")
def folder(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and its training text, in which an empty line is between two documents."""
    folder = tmp_path_factory.mktemp("context")
    lines = [line for document in documents() * 8 for line in [*document, ("", "")]]
    for side, texts in zip(("src", "tgt"), zip(*lines, strict=True), strict=True):
        write_lines(folder / f"train.{side}", texts)
        write_lines(folder / f"test.{side}", texts[: 3 * len(documents())])
    files = ["--src", "train.src", "--tgt", "train.tgt", "--valid-src", "test.src", "--valid-tgt", "test.tgt"]
    sets = as_sets({**SETTINGS, "data.context": 1, "data.by_sentence": "true"})
    outcome = transduce("train", *files, "--preset", "tiny", *sets, "--out", "run", cwd=folder)
    assert outcome.code == 0, outcome.err
    return folder


def test_lines_of_a_document_have_the_line_before_as_context(transduce: Any, folder: Path) -> None:
    outcome = transduce("translate", "-m", "run", "test.src", cwd=folder)
    assert outcome.out == (folder / "test.tgt").read_text(encoding="utf-8")
    whole = (folder / "test.src").read_text(encoding="utf-8").splitlines()
    write_lines(folder / "rest.src", whole[1:])  # now nothing tells what the first "It" is
    outcome = transduce("translate", "-m", "run", "rest.src", cwd=folder)
    assert outcome.out.splitlines()[1:] == (folder / "test.tgt").read_text(encoding="utf-8").splitlines()[2:]


def test_shards_and_resumed_outputs_are_the_same(transduce: Any, folder: Path) -> None:
    expected = (folder / "test.tgt").read_text(encoding="utf-8")
    parts = [transduce("translate", "-m", "run", "test.src", "--shard", f"{n}/4", cwd=folder).out for n in range(1, 5)]
    assert "".join(parts) == expected


def test_sentences_of_a_text_have_the_sentence_before_as_context(transduce: Any, folder: Path) -> None:
    texts = [" ".join(source for source, _ in document) for document in documents()]
    outcome = transduce("translate", "-m", "run", *texts, cwd=folder)
    assert outcome.out.splitlines() == [" ".join(target for _, target in document) for document in documents()]


def test_the_first_line_of_a_file_has_no_context(transduce: Any, folder: Path) -> None:
    paths = [write_lines(folder / f"{n}.txt", [source for source, _ in documents()[n]]) for n in (0, 9, 18)]
    outcome = transduce("translate", "-m", "run", *paths, cwd=folder)
    assert outcome.out.splitlines() == [target for n in (0, 9, 18) for _, target in documents()[n]]


def test_evaluate_reads_contexts_of_both_kinds_of_test_sets(transduce: Any, folder: Path) -> None:
    words = ("evaluate", "-m", "run", "--json")
    outcome = transduce(*words, "--src", "test.src", "--ref", "test.tgt", cwd=folder)
    assert json.loads(outcome.out)[1]["value"] == 100
    pairs = zip(
        *((folder / f"test.{side}").read_text(encoding="utf-8").splitlines() for side in ("src", "tgt")), strict=True
    )
    write_lines(folder / "test.tsv", ["\t".join(pair) for pair in pairs])
    outcome = transduce(*words, "--test", "test.tsv", cwd=folder)
    assert json.loads(outcome.out)[1]["value"] == 100, outcome.err


def test_the_server_has_contexts_within_a_text(folder: Path) -> None:
    translator = Translator.load(folder / "run")
    texts = ["\n".join(source for source, _ in document) for document in documents()]
    with serve_in_thread([("toy", translator)]) as (address, _):
        answer = httpx.post(f"{address}/v1/translate", json={"text": texts}, timeout=TIMEOUT).json()
    outputs = [translation["outputs"][0]["text"] for translation in answer["translations"]]
    assert outputs == ["\n".join(target for _, target in document) for document in documents()]


def test_validation_reads_contexts(folder: Path) -> None:
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line["bleu"] for line in metrics if "bleu" in line) == pytest.approx(100)


def test_a_context_that_does_not_fit_is_left_out(folder: Path) -> None:
    translator = Translator.load(folder / "run")
    translator.pipeline.max_source_length = len(translator.segments("It runs.")[0].tokens)
    (segment,) = translator.segments("It runs.", before="The dog sleeps.")
    assert SEPARATOR not in segment.source.characters
    translator.pipeline.max_source_length = 200
    (segment,) = translator.segments("It runs.", before="A cat eats. The dog sleeps.")
    assert segment.source.characters == f"The dog sleeps. {SEPARATOR} It runs."
    assert segment.source.characters[segment.context_end :] == " It runs."


def test_a_mark_of_a_list_is_copied_without_its_context(folder: Path) -> None:
    assert Translator.load(folder / "run").translate("The dog sleeps.\n1. It runs.").split("\n")[1].startswith("1. ")


def test_pairs_are_read_with_the_source_before(tmp_path: Path) -> None:
    rows = ["a\tA", "b\tB", "\t", "c\tC", "x", "d\tD"]
    path = write_lines(tmp_path / "pairs.tsv", rows)
    corpus = [(str(path),), (str(path),)]
    expected = [("a", "A"), ("a\nb", "B"), ("c", "C"), ("d", "D")]
    assert list(read_pairs(corpus, ReadReport(), context=True)) == expected * 2
    assert next(iter(read_pairs(corpus, ReadReport(), reverse=True, context=True))) == ("A", "a")


def test_augmentation_leaves_the_context_as_it_is() -> None:
    source = mark("One two.\nThree four.", "de", context=True)
    changed, _ = augment((source, "Drei vier."), ["upper"], 1)
    assert changed == source.replace("Three four.", "THREE FOUR.")


def test_wrong_settings_are_refused(transduce: Any, folder: Path) -> None:
    outcome = transduce(
        "train",
        "--text",
        "train.src",
        "--set",
        "task=language_model",
        "--set",
        "data.context=1",
        "--out",
        "x",
        cwd=folder,
    )
    assert "data.context" in complaint(outcome)
    outcome = transduce("train", "--train", "test.tsv", "--set", "data.context=2", "--out", "x", cwd=folder)
    assert "context must be 0 or 1" in complaint(outcome)
