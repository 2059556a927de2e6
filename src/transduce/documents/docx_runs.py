"""The runs and fields of Word's paragraphs."""

from collections.abc import Iterator, Sequence

from transduce.files.xml_source import Element, Text

CONTAINERS = frozenset({"hyperlink", "ins", "moveTo", "smartTag", "customXml", "sdt", "sdtContent", "bdo", "dir"})
"""Elements of a paragraph that contain runs."""


def runs(content: Sequence[Element | Text]) -> Iterator[Element]:
    """The runs of a paragraph, including those in containers."""
    for child in content:
        if isinstance(child, Element):
            if child.name == "r":
                yield child
            elif child.name in CONTAINERS:
                yield from runs(child.children)


def children_of_runs(content: Sequence[Element | Text], name: str) -> list[Element]:
    """The children of runs with this name."""
    return [child for run in content if isinstance(run, Element) for child in run.elements if child.name == name]


def field_marks(run: Element) -> list[str]:
    """The begin, separate and end marks of fields in a run."""
    marks = [child.attributes for child in run.elements if child.name == "fldChar"]
    return [value for mark in marks for key, value in mark.items() if key.endswith("fldCharType")]


def field(content: Sequence[Element | Text], start: int) -> tuple[int, int]:
    """The indices of the runs with the separator and the end of the field that starts here.

    Both are the start itself if the field has no separator or does not end among its siblings.
    """
    depth, separator = 0, start
    for index, run in enumerate(content[start:], start):
        for mark in field_marks(run) if isinstance(run, Element) and run.name == "r" else ():
            depth += {"begin": 1, "end": -1}.get(mark, 0)
            if mark == "separate" and depth == 1:
                separator = index
            if depth <= 0:
                return separator, index
    return start, start
