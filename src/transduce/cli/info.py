"""`transduce info`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def info(
    model: Annotated[Path, typer.Option("--model", "-m", help="A run, or a model folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a model is: sizes, parameters, data, scores."""
    from transduce.models.card import count_parameters, find_model, read_card

    folder = find_model(model)
    card = read_card(folder)
    facts = card.get("facts", {})
    table: dict[str, Any] = {
        "folder": str(folder),
        "architecture": card["architecture"],
        "parameters": count_parameters(folder),
        "vocabulary": card["vocab_size"],
        **card["model"],
        **{name: value for name, value in facts.items() if not isinstance(value, dict)},
        **{f"data: {name.replace('_', ' ')}": value for name, value in facts.get("data", {}).items()},
        **{f"score: {name.replace('_', ' ')}": value for name, value in facts.get("scores", {}).items()},
    }
    if as_json:
        print(json.dumps(table, indent=1, ensure_ascii=False))
        return
    width = max(map(len, table))
    for name, value in table.items():
        print(f"{name:<{width}}  {_readable(value)}")


def _readable(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(" + ".join(entry) if isinstance(entry, list) else str(entry) for entry in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
