"""Parsing from the command line: train from trees, parse text, draw trees, evaluate."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from commands import complaint, metrics
from toy_run import TINY, as_sets, write_lines

from transduce import train
from transduce.errors import ConfigError, DataError, ModelError
from transduce.fast.limits import search_limits
from transduce.models.folder import load_model
from transduce.parsing.parser import Parser
from transduce.parsing.task import score_trees
from transduce.parsing.trees import Tree, read_tree, read_trees
from transduce.search.options import SearchConfig
from transduce.translation.translator import Translator

NOUNS, VERBS = ("cat", "dog", "bird", "tree"), ("saw", "liked", "chased")
SETTINGS = TINY | {
    "train.steps": 80,
    "train.save_every": 40,
    "train.learning_rate_scale": 0.3,
    "model.dropout": 0.0,
    "train.bpe_dropout": 0.05,
    "model.d_model": 48,
    "tokenizer.vocab_size": 470,
}


def random_sentence(chance: random.Random) -> str:
    """A tree with function tags, a trace and the root of a treebank."""

    def noun_phrase(depth: int) -> str:
        simple = f"(NP (DT the) (NN {chance.choice(NOUNS)}))"
        return f"(NP {simple} (PP-LOC (IN near) {noun_phrase(0)}))" if depth and chance.random() < 0.4 else simple

    subject = noun_phrase(1).replace("(NP", "(NP-SBJ-1", 1)
    verb = f"(VP (VBD {chance.choice(VERBS)}) {noun_phrase(1)} (NP (-NONE- *T*-1)))"
    return f"( (S {subject} {verb} (. .)))"


def trees(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [random_sentence(chance) for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, transduce: CommandLine) -> Path:
    folder = tmp_path_factory.mktemp("parse")
    write_lines(folder / "trees.txt", trees(300, 1))
    write_lines(folder / "valid.txt", trees(20, 2))
    write_lines(folder / "test.txt", trees(30, 3))
    words = ["train", "--task", "parse", "trees.txt", "--valid", "valid.txt", "--preset", "tiny", "--out", "run"]
    outcome = transduce(*words, *as_sets(SETTINGS), cwd=folder)
    assert outcome.code == 0, outcome.err
    return folder


def test_training_validates_by_f1(folder: Path) -> None:
    measured = [record for record in metrics(folder / "run") if record["kind"] == "valid"]
    assert [record["step"] for record in measured] == [40, 80]
    assert all(record["well_formed"] == 100 for record in measured)
    assert measured[-1]["f1"] > 10
    assert measured[-1]["criterion"] == "f1"
    card = json.loads((folder / "run/model/model.json").read_text(encoding="utf-8"))
    assert card["facts"]["task"] == "parse"
    assert (card["facts"]["search"]["beam"], card["facts"]["search"]["length_penalty"]) == (21, 0.3)
    assert card["facts"]["scores"]["valid_f1"] > 90


def test_a_text_is_parsed(folder: Path, transduce: CommandLine) -> None:
    outcome = transduce("parse", "-m", "run", "The dog (a cat) didn't.", "--beam", "3", cwd=folder)
    assert outcome.code == 0, outcome.err
    tree = read_tree(outcome.out)
    assert tree.words == ["The", "dog", "-LRB-", "a", "cat", "-RRB-", "did", "n't", "."]
    assert tree.labels() <= {"S", "NP", "VP", "PP"}


def test_every_line_has_a_line_of_output(folder: Path, transduce: CommandLine) -> None:
    text = "the cat saw the dog .\n\nthe bird-like tree\n"
    outcome = transduce("parse", "-m", "run", "--words", cwd=folder, stdin=text)
    first, second, third = outcome.out.splitlines()
    assert read_tree(first).words == ["the", "cat", "saw", "the", "dog", "."]
    assert second == ""
    assert read_tree(third).words == ["the", "bird-like", "tree"]
    assert transduce("parse", "-m", "run", "--words", "-o", "out.txt", cwd=folder, stdin=text).out == ""
    assert (folder / "out.txt").read_text(encoding="utf-8") == outcome.out


def test_trees_are_drawn(folder: Path, transduce: CommandLine) -> None:
    text = transduce("parse", "-m", "run", "the cat saw the dog .", "--format", "text", cwd=folder).out
    assert [line.split("─ ")[-1] for line in text.splitlines() if "cat" in line] == ["cat"]
    svg = transduce("parse", "-m", "run", "the cat saw the dog .", "--format", "svg", cwd=folder).out
    assert svg.startswith("<svg ")
    assert ">cat</text>" in svg
    refused = transduce("parse", "-m", "run", "--format", "svg", cwd=folder, stdin="a\n")
    assert complaint(refused) == "--format svg draws one sentence; give its text as an argument"


def test_a_parser_is_evaluated_by_f1(folder: Path, transduce: CommandLine) -> None:
    outcome = transduce("evaluate", "-m", "run", "--test", "test.txt", "--json", "-o", "parsed.txt", cwd=folder)
    assert outcome.code == 0, outcome.err
    (result,) = json.loads(outcome.out)
    references = [tree for _, tree in read_trees(folder / "test.txt") if isinstance(tree, Tree)]
    parsed = [tree for _, tree in read_trees(folder / "parsed.txt") if isinstance(tree, Tree)]
    assert [tree.words for tree in parsed] == [tree.words for tree in references]
    assert result["f1"] == pytest.approx(score_trees(parsed, references).f1)
    assert (result["well_formed"], result["sentences"]) == (100, 30)
    shown = transduce("evaluate", "-m", "run", "--test", "test.txt", cwd=folder).out.splitlines()
    assert shown[0] == f"F1    {result['f1']:6.2f}"


def test_several_parsers_are_an_ensemble(folder: Path, transduce: CommandLine) -> None:
    members = [word for step in (40, 80) for word in ("-m", f"run/checkpoints/step-{step}")]
    references = [tree for _, tree in read_trees(folder / "test.txt") if isinstance(tree, Tree)]
    write_lines(folder / "words.txt", [" ".join(tree.words) for tree in references])
    parsed = transduce("parse", *members, "--words", "words.txt", cwd=folder).out.splitlines()
    parser = Parser.load([folder / "run/checkpoints" / f"step-{step}" for step in (40, 80)], device="cpu")
    trees = parser.parse([tree.words for tree in references])
    assert parsed == list(map(str, trees))
    assert parser.model.config.architecture == "ensemble"
    outcome = transduce("evaluate", *members, "--ensemble", "--test", "test.txt", "--json", cwd=folder)
    (result,) = json.loads(outcome.out)
    assert result["f1"] == pytest.approx(score_trees(trees, references).f1)
    assert result["model"] == "run/checkpoints/step-40 + run/checkpoints/step-80"


def test_trees_have_minimum_bayes_risk(folder: Path, transduce: CommandLine) -> None:
    references = [tree for _, tree in read_trees(folder / "test.txt") if isinstance(tree, Tree)]
    parser = Parser.load(folder / "run/checkpoints/step-40", device="cpu", mbr=True)
    trees = parser.parse([tree.words for tree in references])
    words = ("-m", "run/checkpoints/step-40", "--mbr", "--test", "test.txt")
    outcome = transduce("evaluate", *words, "--json", "-o", "mbr.txt", cwd=folder)
    assert json.loads(outcome.out)[0]["f1"] == pytest.approx(score_trees(trees, references).f1)
    assert (folder / "mbr.txt").read_text().splitlines() == list(map(str, trees))
    text = " ".join(references[0].words)
    assert transduce("parse", *words[:3], "--words", text, cwd=folder).out == f"{trees[0]}\n"
    refused = transduce("parse", *words[:3], "--beam", "1", text, cwd=folder)
    assert complaint(refused) == "minimum Bayes risk needs several trees; use a beam above 1"


def test_table4_has_parsers_and_ensembles(folder: Path, transduce: CommandLine) -> None:
    members = ("-m", "run/checkpoints/step-40", "-m", "run")
    for options in ((), ("--ensemble", "--mbr")):
        outcome = transduce("paper", "table4", *members, *options, "--test", "test.txt", cwd=folder)
        assert outcome.code == 0, outcome.err
    rows = json.loads((folder / "paper/results.json").read_text())["rows"]["table4"].values()
    names = {row["model"]: row["architecture"] for row in rows}
    both = "step-40 + run, minimum Bayes risk"
    assert names == {"step-40": "encoder_decoder", "run": "encoder_decoder", both: "ensemble"}
    alike = transduce("evaluate", *members, "--ensemble", "--mbr", "--test", "test.txt", "--json", cwd=folder)
    assert [row["f1"] for row in rows][-1] == json.loads(alike.out)[0]["f1"]


def test_parsed_text_is_training_text(folder: Path, transduce: CommandLine) -> None:
    """The semi-supervised recipe: parse text, then train on gold and parsed trees."""
    write_lines(folder / "plain.txt", ["the cat chased the bird near the tree."] * 3)
    assert transduce("parse", "-m", "run", "plain.txt", "-o", "silver.txt", "--beam", "1", cwd=folder).code == 0
    words = ["train", "--task", "parse", "--train", "trees.txt", "--train", "silver.txt", "--out", "semi"]
    outcome = transduce(*words, "--preset", "tiny", *as_sets(SETTINGS | {"train.steps": 2}), cwd=folder)
    assert outcome.code == 0, outcome.err
    assert "data: 303 trees" in outcome.err


def test_python_has_the_same(folder: Path) -> None:
    parser = Parser.load(folder / "run", device="cpu", beam=2)
    tree = parser.parse("the cat saw the dog.")
    assert isinstance(tree, Tree)
    assert tree.words == ["the", "cat", "saw", "the", "dog", "."]
    assert parser.parse([["the", "cat", "saw", "the", "dog", "."], ""]) == [tree, Tree("TOP", ())]
    assert parser.labels == ["NP", "PP", "S", "VP"]
    with pytest.raises(DataError, match=r"^sentence 2 is not a text, but of the type NoneType"):
        parser.parse(["the cat", None])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"^the words of sentence 1\[1\] is not a text, but of the type int"):
        parser.parse([["the", 1]])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"^texts must be a list of texts, not of the type NoneType"):
        parser.parse(None)  # type: ignore[call-overload]


def test_fast_engines_do_not_support_the_grammar(folder: Path) -> None:
    model = load_model(folder / "run/model").model
    reason = search_limits(model.config, SearchConfig(), constrained=True)
    assert reason == "no search that is held to a grammar"
    assert search_limits(model.config, SearchConfig()) is None


def test_a_translator_is_no_parser(trained: Any, transduce: CommandLine) -> None:
    with pytest.raises(ModelError, match="trained for the task translate, not to parse"):
        Parser.load(trained.run)
    refused = transduce("parse", "-m", "run", "a", cwd=trained.folder)
    assert "trained for the task translate, not to parse; train a parser with --task parse" in complaint(refused)
    translator = Translator.load(trained.run, engine="plain", device="cpu")
    with pytest.raises(ModelError, match="no brackets"):
        Parser(translator.model, translator.tokenizer)


def test_a_parser_is_no_translator(transduce: CommandLine, folder: Path) -> None:
    refused = transduce("translate", "-m", "run", "the cat", cwd=folder)
    assert complaint(refused) == "run/model was trained for the task parse; use it with: transduce parse"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["parse", "a b"], "there is no bundled parser; name a model with -m"),
        (["evaluate", "-m", "run", "--src", "test.txt", "--ref", "test.txt"], "a parser is evaluated with trees"),
        (
            ["evaluate", "-m", "run", "--test", "bad.txt"],
            "bad.txt cannot be a test set: left out 1 tree with an unclosed bracket (first: bad.txt, line 1)",
        ),
        (["train", "--task", "parse", "none.txt", "--out", "x"], "none.txt: no such file"),
        (
            ["train", "--task", "parse", "no_tree.txt", "--out", "x"],
            "no_tree.txt: no usable tree; left out 1 tree with",
        ),
        (
            ["train", "--task", "parse", "no_label.txt", "--out", "x"],
            "no_label.txt: no usable tree; left out 2 trees with a constituent that has no label",
        ),
        (["train", "--task", "pars", "trees.txt", "--out", "x"], "no task pars (did you mean parse?)"),
    ],
)
def test_mistakes_are_named(folder: Path, transduce: CommandLine, words: list[str], message: str) -> None:
    write_lines(folder / "bad.txt", ["(S (NN a)", "(S (NN b))"])
    write_lines(folder / "no_tree.txt", ["(S (NN a)"])
    write_lines(folder / "no_label.txt", ["(S ((NP (NN a))) (VP (VB b)))", "(S (=NP (NN a) (NN c)) (VP (VB b)))"])
    assert message in complaint(transduce(*words, cwd=folder))


def test_a_vocabulary_without_the_labels_is_refused(folder: Path, tmp_path: Path) -> None:
    other = write_lines(tmp_path / "other.txt", ["(S (QP (CD 1)) (VP (VB go)))"] * 5)
    with pytest.raises(ConfigError, match=r"has no symbol \(QP, \)QP; leave out"):
        train(tmp_path / "run", task="parse", train=other, start_from=folder / "run", settings={"train.device": "cpu"})
