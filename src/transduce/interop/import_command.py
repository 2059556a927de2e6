"""`transduce import`."""

from pathlib import Path
from typing import Annotated

import typer


def import_model(
    path: Annotated[
        Path,
        typer.Argument(
            help="A Hugging Face folder (config.json, model.safetensors), a .gguf file, a folder of CTranslate2 or "
            "Marian, or what transduce export wrote.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model folder to write; it must not exist.")],
) -> None:
    """Import public weights as a model folder.

    GPT-2, Llama, BERT, RoBERTa, T5, BART, Marian, ViT and Whisper can be imported. Files of pickles are refused.
    """
    from transduce.interop.import_model import import_model as write_imported
    from transduce.models.folder import SHORTLIST, WEIGHTS, read_card
    from transduce.models.weights_file import count_parameters

    write_imported(path, out)
    card = read_card(out)
    facts = card["facts"]
    parameters = count_parameters(out / WEIGHTS, card["precision"])
    origin, task = facts.get("imported", "an export of transduce"), facts.get("task", "translate")
    print(f"{out}: {origin}, {parameters / 1e6:.1f} million parameters, task {task}")
    if (out / SHORTLIST).exists():
        use = "--shortlist of translate, evaluate and serve uses it (engine native)"
        print(f"{out / SHORTLIST}: the model's lexical shortlist; {use}")
