"""Samples in the report: outputs at several steps, with their differences to the reference."""

import difflib
from collections.abc import Sequence
from html import escape

from transduce.training.metrics import Record

_STEPS = 6
"""Number of steps at which the output of a sample is shown."""


def samples_over_time(records: Sequence[Record], title: str, columns: tuple[str, str, str]) -> str:
    """A table of samples: source, the output at several validations, the reference."""
    with_samples = [record for record in records if record.get("samples")]
    if not with_samples:
        return ""
    newest = with_samples[-1]["samples"]
    gap = max(1, -(-(len(with_samples) - 1) // (_STEPS - 1)))
    chosen = [*with_samples[:-1:gap], with_samples[-1]]
    rows = []
    for index, sample in enumerate(newest):
        outputs: dict[str, str] = {}
        for record in chosen:
            same = [one for one in record["samples"][index : index + 1] if one["source"] == sample["source"]]
            for one in same:
                name = "finished model" if record["kind"] == "final" else f"step {record['step']:,}"
                outputs[name] = one["output"]
        lines = "".join(
            f"<div><span class=soft>{name}</span> {marked(text, sample['reference'])}</div>"
            for name, text in outputs.items()
        )
        rows.append(f"<tr><td>{escape(sample['source'])}<td>{lines}<td>{escape(sample['reference'])}")
    head = "<tr>" + "".join(f"<th>{column}" for column in columns)
    note = '<p class="soft">Words that the reference does not have, or has in another place, are underlined.</p>'
    return f'<h2>{title}</h2>{note}<div class="card wide samples"><table>{head}{"".join(rows)}</table></div>'


def worst_samples(records: Sequence[Record], columns: tuple[str, str, str]) -> str:
    """A table of the outputs of the finished model that are least like their references."""
    worst = records[-1].get("worst", []) if records else []
    rows = "".join(
        f"<tr><td>{escape(one['source'])}<td>{marked(one['output'], one['reference'])}<td>{escape(one['reference'])}"
        f"<td>{one['chrf']:.0f}"
        for one in worst
    )
    head = "<tr>" + "".join(f"<th>{column}" for column in (*columns, "chrF"))
    return f'<h2>Worst outputs</h2><div class="card wide samples"><table>{head}{rows}</table></div>' if rows else ""


def marked(output: str, reference: str) -> str:
    """The output as HTML, with <u> around words that differ from the reference."""
    own, other = output.split(), reference.split()
    parts = []
    for kind, start, end, _, _ in difflib.SequenceMatcher(None, own, other, autojunk=False).get_opcodes():
        words = escape(" ".join(own[start:end]))
        if words:
            parts.append(words if kind == "equal" else f"<u>{words}</u>")
    return " ".join(parts)
