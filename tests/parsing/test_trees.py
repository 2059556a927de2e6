"""Trees: reading what treebanks contain, writing, linearization, and messages about malformed trees."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ConfigError, DataError
from transduce.files.pairs import ReadReport
from transduce.files.readers import READERS
from transduce.parsing.trees import (
    Leaf,
    MalformedTreeError,
    Tree,
    bracket_labels,
    bracket_symbols,
    delinearize,
    draw_svg,
    draw_text,
    linearize,
    read_tree,
    read_trees,
    respell,
)

WORDS = st.text(st.characters(blacklist_categories=("Z", "C"), blacklist_characters="()▁"), min_size=1, max_size=6)
LABELS = st.sampled_from(["NP", "VP", "S", "ADJP", "NML", "X"])
LEAVES = st.builds(Leaf, WORDS, st.sampled_from(["NN", "DT", ",", "-LRB-", "XX"]))
TREES = st.recursive(
    st.builds(lambda label, leaves: Tree(label, tuple(leaves)), LABELS, st.lists(LEAVES, min_size=1, max_size=3)),
    lambda inner: st.builds(
        lambda label, children: Tree(label, tuple(children)), LABELS, st.lists(inner | LEAVES, min_size=1, max_size=3)
    ),
    max_leaves=12,
)
CAT = Tree("S", (Tree("NP", (Leaf("The", "DT"), Leaf("cat", "NN"))), Tree("VP", (Leaf("sat", "VBD"),)), Leaf(".", ".")))


@given(TREES)
def test_a_written_tree_reads_as_itself(tree: Tree) -> None:
    assert read_tree(str(tree)) == tree


@given(TREES)
def test_a_linearized_tree_loses_only_its_tags(tree: Tree) -> None:
    again = delinearize(linearize(tree))
    assert again.words == tree.words
    assert list(linearize(again)) == list(linearize(tree))


def test_the_linearization_has_labels_on_both_brackets() -> None:
    assert " ".join(linearize(CAT)) == "(S (NP The cat )NP (VP sat )VP . )S"
    assert str(CAT) == "(TOP (S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .)))"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("( (S (NP-SBJ-1 (NN a)) (VP=2 (VB b))) )", "(TOP (S (NP (NN a)) (VP (VB b))))"),
        ("(ROOT (S (ADVP|PRT (RB a)) (X (-LRB- -LRB-))))", "(TOP (S (ADVP (RB a)) (X (-LRB- -LRB-))))"),
        ("(S (NP (-NONE- *)) (VP (VB go) (SBAR (-NONE- 0) (S (NP (-NONE- *T*-1))))))", "(TOP (S (VP (VB go))))"),
        ("(S1 (NP (NN a)) (. .))", "(TOP (NP (NN a)) (. .))"),
        ("(ROOT (NN Contents))", "(TOP (NN Contents))"),
        ("(TOP (TOP (NP (NN a))))", "(TOP (NP (NN a)))"),
        ("(NP (NN a b))", "(TOP (NP (NN (XX a) (XX b))))"),
    ],
)
def test_function_tags_traces_and_roots_are_removed(text: str, expected: str) -> None:
    assert str(read_tree(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NP (NN a))", "with an unclosed bracket"),
        ("(S (NP (NN a))))", "with a closing bracket that has no opening bracket"),
        ("(S () (NN a))", "with an empty pair of brackets"),
        ("a (S (NN b))", "with words outside the brackets"),
        ("(S (NP (-NONE- *)))", "without words"),
        ("", "without words"),
        ("(S (A\n b) c) d", "with words outside the brackets"),
        ("(S (NN a)) (S (NN b))", "with another tree after it"),
        ("(A " * 500 + "b" + ")" * 500, "deeper than 400 brackets"),
    ],
)
def test_what_is_not_a_tree_is_named(text: str, message: str) -> None:
    with pytest.raises(MalformedTreeError, match=message):
        read_tree(text)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("(S a", "with an unclosed bracket"),
        ("(S a )NP", "closes no bracket"),
        ("(S a )S )S", "closes no bracket"),
        ("(S (NP )NP a )S", "which has no words"),
        ("(S a )S (S b )S", "not exactly one tree"),
        ("a", "not exactly one tree"),
    ],
)
def test_malformed_linearizations_are_named(tokens: str, message: str) -> None:
    with pytest.raises(MalformedTreeError, match=message):
        delinearize(tokens.split())


def test_files_have_a_tree_on_one_line_or_on_several(tmp_path: Path) -> None:
    path = tmp_path / "trees.mrg"
    path.write_text(
        "( (S\n    (NP (NN a))\n    (VP (VB b))))\n\n(ROOT (NP (NN c))) (ROOT (NP (NN d)))\n", encoding="utf-8"
    )
    found = [(line, str(tree)) for line, tree in read_trees(path)]
    assert found == [(1, "(TOP (S (NP (NN a)) (VP (VB b))))"), (5, "(TOP (NP (NN c)))"), (5, "(TOP (NP (NN d)))")]


def test_a_malformed_tree_does_not_affect_those_after_it(tmp_path: Path) -> None:
    path = tmp_path / "trees.txt"
    path.write_bytes(b"(S (NN a)\n(S (NN b))\n\xff\n(S (NN c))))\n(S (NN d))\n(S (NN e)")
    report = ReadReport()
    assert [sentence for sentence, _ in READERS["trees"].read([(str(path),)], report)] == ["b", "d"]
    assert report.lines() == [
        f"left out 2 trees with an unclosed bracket (first: {path}, line 1)",
        f"left out 1 tree not UTF-8 (first: {path}, line 3)",
        f"left out 1 tree with a closing bracket that has no opening bracket (first: {path}, line 4)",
    ]


def test_the_reader_refuses_what_trees_do_not_have(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n", encoding="utf-8")
    read = READERS["trees"].read
    with pytest.raises(ConfigError, match="a file of trees has no sides"):
        list(read([(str(empty),)], ReadReport(), reverse=True))
    with pytest.raises(DataError, match=r"empty\.txt: no usable tree"):
        list(read([(str(empty),)], ReadReport()))
    with pytest.raises(DataError, match="trees are in one file"):
        list(read([("a", "b")], ReadReport()))


def test_brackets_are_found_again_in_a_vocabulary() -> None:
    symbols = bracket_symbols([CAT])
    assert symbols == ["▁(NP", "▁)NP", "▁(S", "▁)S", "▁(VP", "▁)VP"]
    assert bracket_labels(["a", *symbols, "▁(", "▁(x"]) == {"NP": (1, 2), "S": (3, 4), "VP": (5, 6)}


def test_words_are_respelled_with_the_pieces_of_the_source() -> None:
    brackets, starts = {1, 2}, {1, 2, 10, 20}
    assert respell([10, 11, 12, 20], [1, 10, 13, 1, 20, 21, 2, 2], brackets, starts) == [1, 10, 11, 12, 1, 20, 2, 2]


def test_drawings_show_labels_and_words() -> None:
    assert draw_text(CAT).splitlines() == [
        "S",
        "├─ NP",
        "│  ├─ DT The",
        "│  └─ NN cat",
        "├─ VP",
        "│  └─ VBD sat",
        "└─ .",
    ]
    svg = draw_svg(Tree("NP", (Leaf("<a&b>"), Leaf("c", "NN"))))
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>")
    assert "&lt;a&amp;b&gt;" in svg
    assert svg.count("<line ") == 2
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
