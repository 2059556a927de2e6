"""`transduce info`."""

import json
from itertools import chain
from typing import Any

from transduce.cli.messages import wrapped
from transduce.cli.options import JsonOption, ModelOption

_MOST_FILES = 4
"""Number of files of the training data up to which they are named."""


def info(model: ModelOption = None, as_json: JsonOption = False) -> None:
    """Print what is known of a model: notes, scores, data, sizes."""
    from transduce.files.languages import describe_directions, directions_of
    from transduce.files.texts import one_line
    from transduce.models.folder import find_model, read_card, read_notes, weights_path
    from transduce.models.weights_file import count_parameters

    folder = find_model(model)
    card, notes = read_card(folder), read_notes(folder)
    facts = card.get("facts", {})
    about: dict[str, Any] = {
        "folder": str(folder),
        **{name: facts[name] for name in ("task", "directions") if name in facts},
        **{f"score: {name.replace('_', ' ')}": value for name, value in facts.get("scores", {}).items()},
        **_confidence(facts),
        **{f"data: {name.replace('_', ' ')}": value for name, value in facts.get("data", {}).items()},
        "architecture": card["architecture"],
        **({"updates of": card["base"].get("path")} if isinstance(card.get("base"), dict) else {}),
        "parameters": count_parameters(weights_path(folder, card), card["precision"]),
        "stored as": card["precision"],
        "vocabulary": card["vocab_size"],
    }
    settings = card["model"] | {name: value for name, value in facts.items() if not isinstance(value, dict)}
    table = about | settings
    if as_json:
        print(json.dumps(table, indent=1, ensure_ascii=False))
        return
    if directions := directions_of(facts):
        table["directions"] = describe_directions(directions)
    for line in [*notes.strip().splitlines(), ""] if notes else []:
        print(wrapped(one_line(line)))
    for name in table:
        if name.startswith("data: ") and isinstance(table[name], list):
            unique = [list(entry) for entry in dict.fromkeys(map(tuple, table[name]))]
            count = len({*chain.from_iterable(unique)})
            table[name] = unique if count <= _MOST_FILES else f"{count} files (named by --json)"
    width = max(map(len, table))
    for name, value in table.items():
        print(wrapped(one_line(f"{name:<{width}}  {_readable(value)}"), indent=width + 2))


def _confidence(facts: dict[str, Any]) -> dict[str, str]:
    """For which target languages the confidence of translations is calibrated; empty if the model has another task."""
    from transduce.files.languages import directions_of

    if facts.get("task", "translate") != "translate":
        return {}
    calibrated = facts.get("confidence", {})
    if not calibrated or not facts.get("tagged"):
        return {"confidence": "calibrated" if calibrated else "not calibrated"}
    missing = sorted({target for _, target in directions_of(facts)} - calibrated.keys())
    not_for = f", not to {', '.join(missing)}" if missing else ""
    return {"confidence": f"calibrated for translations to {', '.join(sorted(calibrated))}{not_for}"}


def _readable(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(" + ".join(map(str, entry)) if isinstance(entry, list) else str(entry) for entry in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3f}".rstrip("0").rstrip(".") if not value or abs(value) >= 0.001 else f"{value:g}"
