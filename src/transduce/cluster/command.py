"""`transduce translate --ray`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transduce.cli.inputs import STANDARD_INPUT, Input, count_lines
from transduce.cli.messages import log
from transduce.cli.request_record import RequestRecord, request
from transduce.errors import ConfigError, DataError
from transduce.files.languages import ModelLanguages
from transduce.models.folder import find_model, read_card
from transduce.translation.commands.translate_direction import target_language
from transduce.translation.commands.translate_progress import Progress


def translate_with_ray(
    inputs: Sequence[Input],
    out: Path | None,
    loading: dict[str, Any],
    search: Mapping[str, Any],
    source: str | None,
    target: str | None,
    *,
    column: str | None,
    resume: bool,
    **workers: Any,
) -> None:
    """Translate files into a folder with the model that `loading` describes, and report the progress."""
    from transduce.cluster.ray import translate_files

    files = [one for one in inputs if isinstance(one, Path) and one != STANDARD_INPUT]
    if out is None or len(files) < len(inputs):
        raise ConfigError("--ray needs files to read, and a folder to write to: --out")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; --ray writes to a folder")
    for path in (path for path in files if not path.exists()):
        raise DataError(f"{path}: no such file")
    # A worker may run in another folder than this process.
    models = [find_model(Path(path)).resolve() for path in loading["model"] or []] or None
    folders = models or [find_model(None)]
    to = target_language(ModelLanguages.of_facts(read_card(folders[0])["facts"]), inputs, source, target)
    others = {name: loading[name] for name in ("prefix", "protect")}
    asked = request(folders, to, search, loading["glossary"], column=column, **others)
    outputs = [out / path.name for path in files]
    with (
        _recorded(RequestRecord(out.resolve(), asked), outputs, resume=resume),
        Progress(lambda: count_lines(inputs), 0, hidden=False) as progress,
    ):
        translate_files(
            [path.resolve() for path in files],
            out,
            column=column,
            resume=resume,
            on_row=progress.advance,
            log=log,
            **{**loading, **search, "model": models, "to": to},
            **workers,
        )


@contextmanager
def _recorded(record: RequestRecord, outputs: Sequence[Path], *, resume: bool) -> Iterator[None]:
    """Keep the record while only some of the outputs are there; to resume, the request must be the same."""
    if resume and any(path.exists() for path in outputs):
        record.require_same()
    record.write()
    try:
        yield
    finally:
        if len({path.exists() for path in outputs}) == 1:
            record.remove()
