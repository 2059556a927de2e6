"""The model card of an export: how it is used, how it was verified, and what differs in the other toolkit."""

from transduce.files.languages import describe_directions
from transduce.interop.export.exporter import Exported, Exporter
from transduce.interop.export.verify import Verification

ORIGINAL_NOTES = "## The original model"
"""Heading of the notes of the model that was exported."""


def common_limits(exported: Exported) -> list[str]:
    """What differs in every other toolkit, as sentences."""
    facts, tags = exported.facts, exported.vocabulary.tags
    limits = []
    if tags and exported.direction is None:
        written = ", ".join(f"`{tag}`" for tag in tags.values())
        limits.append(f"A tag and a space before every source select the target language: {written}.")
    if facts.get("by_sentence"):
        limits.append("The model translates single sentences: split texts into sentences before they are translated.")
    limits.append(
        f"Sources above {exported.max_source_length} tokens are neither split nor refused; the model was not trained "
        "with them."
    )
    limits.append(
        "Text is passed as it is: addresses, placeholders and numbers are not protected, and there is no glossary. "
        "The characters U+2581, U+FFFD and U+E100 to U+E111, which `transduce translate` escapes, are read as spaces "
        "or symbols."
    )
    return limits


def readme(exported: Exported, exporter: Exporter, name: str, verified: Verification, notes: str) -> str:
    """The content of README.md; `notes` is that of the original."""
    directions = [(a, b) for a, b in exported.facts.get("directions", [])]
    if exported.direction:
        directions = [exported.direction]
    languages = sorted({code for pair in directions for code in pair})
    header = ["---", *(["language:", *(f"- {code}" for code in languages)] if languages else [])]
    header += ["pipeline_tag: translation", "---"]
    parts = [
        "\n".join(header),
        f"# {name}",
        f"A translation model that was trained with transduce, exported for {exporter.title}.",
        f"It translates {describe_directions(directions)}." if directions else "",
        f"```python\n{exporter.usage(exported, name)}```",
        "## Verification",
        f"Verified by {verified}.",
        "## Differences from `transduce translate`",
        "\n".join(f"- {limit}" for limit in [*common_limits(exported), *exporter.limits(exported)]),
        f"{ORIGINAL_NOTES}\n\n{notes.strip()}" if notes.strip() else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
