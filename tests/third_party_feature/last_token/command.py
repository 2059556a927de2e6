"""`transduce complete`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import DeviceOption


def complete(
    texts: Annotated[list[str], typer.Argument(help="Texts to complete.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="A run or a model folder of the task last_token.")],
    device: DeviceOption = "auto",
) -> None:
    """Print each text with the token that most likely follows."""
    import torch

    from transduce.data.batch import Batch
    from transduce.models.folder import find_model, load_model
    from transduce.nn.device import pick_device
    from transduce.tokenizers.tokenizer import BOS

    saved = load_model(find_model(model), pick_device(device))
    for text in texts:
        ids = saved.tokenizer.encode(text)
        with torch.inference_mode():
            hidden_ND = saved.model(Batch.of(saved.model.device, text=[[BOS, *ids]]))
            following = int(saved.model.logits(hidden_ND[-1:]).argmax())
        print(saved.tokenizer.decode([*ids, following]))
