"""Translation of many files with Ray Data: one model per GPU, or per n cores, on one machine or on a cluster."""

import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from transduce.cli.inputs import STANDARD_INPUT, Input, count_lines, rows_of
from transduce.cli.messages import log
from transduce.cli.outputs import refuse_overwriting
from transduce.cli.progress import ProgressBar
from transduce.cli.request_record import RequestRecord, request
from transduce.errors import ConfigError, DataError, RunError, TransduceError
from transduce.files.languages import ModelLanguages
from transduce.files.parquet import is_table, schema_of, table_writer, with_text_column
from transduce.files.rows import TARGET_COLUMN, read_source_rows, row_writer
from transduce.files.texts import one_line
from transduce.models.folder import find_model, read_card
from transduce.translation.commands.direction import detected_source, sampled, target_language

if TYPE_CHECKING:
    from transduce.translation.formality import Formality
    from transduce.translation.wording import Terms, TranslateOptions

_BLOCK_BYTES = 1 << 14
"""Size of the blocks of rows that workers get, one at a time: some 100 to 300 sentences, which take as much processor
time in one batch as in a long stream, and are few enough that all workers end at about the same time."""
_GPU_BLOCK_BYTES = 1 << 16
"""The same for workers with a GPU, which needs larger batches."""
_ROWS = 32
"""Number of rows that are read at once; a block consists of several such parts."""


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
    force: bool,
    **workers: Any,
) -> None:
    """Translate files into a folder with the model that `loading` describes, and report the progress."""

    files = [path for path in inputs if isinstance(path, Path) and path != STANDARD_INPUT]
    if out is None or len(files) < len(inputs):
        raise ConfigError("--ray needs files to read, and a folder to write to: --out")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; --ray writes to a folder")
    for path in (path for path in files if not path.exists()):
        raise DataError(f"{path}: no such file")
    # A worker may run in another folder than this process.
    models = [find_model(Path(path)).resolve() for path in loading["model"] or []] or None
    folders = models or [find_model(None)]
    languages = ModelLanguages.of_facts(read_card(folders[0])["facts"])

    def detect() -> str | None:
        return detected_source(languages, sampled(rows_of(inputs, column))[0], target)

    to = target_language(languages, inputs, source, target, detect)
    others = {name: loading[name] for name in ("prefix", "protect")}
    wording = {name: loading[name] for name in ("glossary", "formality", "locale")}
    record = request(folders, to, search, wording, column=column, **others)
    outputs = [out / path.name for path in files]
    for path in outputs:
        refuse_overwriting(path, files, force=force, resume=resume, resumable=True)
    with (
        _recorded(RequestRecord(out.resolve(), record), outputs, resume=resume),
        ProgressBar(lambda: count_lines(inputs), 0, hidden=False) as progress,
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


class TranslateBatch:
    """Translates batches of rows: a callable class for `map_batches` of a `ray.data.Dataset`.

    Each worker loads the model once. A batch is a dictionary of arrays, a pandas DataFrame or a pyarrow Table; the
    translation of `column` becomes the column `output`. With `num_gpus=1`, a worker uses the GPU that Ray gives it;
    with `num_cpus`, give the same number of `threads`.
    """

    def __init__(
        self,
        model: str | Path | Sequence[str | Path] | None = None,
        *,
        column: str = "src",
        output: str = TARGET_COLUMN,
        to: str | None = None,
        prefix: str = "",
        glossary: "Terms | None" = None,
        formality: "Formality | None" = None,
        locale: bool = True,
        **options: Any,
    ) -> None:
        """Load a model; `options` are those of `Translator.load`, such as threads, engine and beam."""
        from transduce.translation.translator import Translator

        self.translator = Translator.load(model, **options)
        self._to, self._prefix = self.translator.target(to), prefix
        self._wording: TranslateOptions = {"glossary": glossary, "formality": formality, "locale": locale}
        self._column, self._output = column, output

    def __call__(self, batch: Any) -> Any:
        """The batch with the translations."""
        texts = [str(text) for text in _as_list(batch[self._column])]
        prefixes = [self._prefix] * len(texts)
        best = self.translator.hypotheses(texts, to=self._to, prefixes=prefixes, **self._wording)
        outputs = [translations[0].text for translations in best]
        if hasattr(batch, "append_column"):  # pyarrow
            import pyarrow

            kept = batch.drop_columns([self._output]) if self._output in batch.column_names else batch
            return kept.append_column(self._output, pyarrow.array(outputs, pyarrow.string()))
        if hasattr(batch, "assign"):  # pandas
            return batch.assign(**{self._output: outputs})
        return {**batch, self._output: np.array(outputs, dtype=object)}


def _as_list(column: Any) -> list[Any]:
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def translate_files(
    inputs: Sequence[Path],
    out: Path,
    *,
    column: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    resume: bool = False,
    on_row: Callable[[], object] = lambda: None,
    log: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> None:
    """Translate each file into a file of the same name in the folder `out`, with the options of `TranslateBatch`.

    A file appears when it is complete; with `resume`, files that are there are left as they are. There is one worker
    per GPU, or per `threads` (1) cores, unless `workers` gives their number. Workers that die are replaced, and what
    they were translating is translated again. The cluster is that of $RAY_ADDRESS, otherwise processes on this machine.
    """
    names = [path.name for path in inputs]
    if double := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"two inputs are called {min(double)}; their outputs would have the same name")
    out.mkdir(parents=True, exist_ok=True)
    todo = [path for path in inputs if not (resume and (out / path.name).exists())]
    if len(todo) < len(inputs):
        log(f"{len(inputs) - len(todo):,} of {len(inputs):,} files are in {out} already")
    if same := [path for path in todo if (out / path.name).exists() and path.samefile(out / path.name)]:
        raise ConfigError(f"{same[0]} would be overwritten; name another --out")
    if not todo:
        return
    with _cluster() as ray, _errors(ray):
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if options.get("device") in (None, "auto", "cuda") else 0
        each = {"num_gpus": 1} if gpus else {"num_cpus": threads or 1}
        count = workers or gpus or max(1, int(resources.get("CPU", 1)) // (threads or 1))
        on = "GPU" if gpus else f"{threads or 1} cores"
        log(f"{count} workers of Ray, one model on each {on}")
        arguments = {"column": "text", "output": "text", "threads": threads or 1, **options}
        # Closed before Ray is shut down, even after an error.
        block = _GPU_BLOCK_BYTES if gpus else _BLOCK_BYTES
        with closing(_translated_rows(ray, todo, column, count, block, each, arguments)) as outputs:
            for file, path in enumerate(todo):
                _write(path, out / path.name, column, outputs, file, on_row)
                log(f"{out / path.name} is complete")
            if next(outputs, None):
                raise RunError(f"{todo[-1]} has become longer meanwhile; remove its output and translate it again")


def _translated_rows(
    ray: Any,
    inputs: Sequence[Path],
    column: str | None,
    workers: int,
    block: int,
    each: dict[str, int],
    arguments: dict[str, Any],
) -> Generator[tuple[int, int, str]]:
    """The number of the file, the number of the row and its translation, for every row in order."""
    context = ray.data.DataContext.get_current()
    context.target_max_block_size = block
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    rows = ray.data.read_datasource(
        _source(ray, inputs, column),
        override_num_blocks=len(inputs),
        num_cpus=0,  # the workers have all cores
    ).map_batches(
        TranslateBatch,
        fn_constructor_kwargs=arguments,
        batch_size=None,  # a block
        compute=ray.data.ActorPoolStrategy(size=workers),
        **each,  # Ray Data replaces workers that die, and repeats their batches, without a limit
    )
    for batch in rows.iter_batches(batch_size=None, batch_format="pyarrow"):
        columns = (batch.column(name).to_pylist() for name in ("file", "row", "text"))
        yield from zip(*columns, strict=True)


def _source(ray: Any, inputs: Sequence[Path], column: str | None) -> Any:
    """The texts of files, with the numbers of file and row."""
    import pyarrow
    from ray.data.block import BlockMetadata

    schema = pyarrow.schema([("file", pyarrow.int64()), ("row", pyarrow.int64()), ("text", pyarrow.string())])

    def read(file: int, path: Path) -> Iterator[Any]:
        rows = ((file, number, text) for number, (text, _) in enumerate(read_source_rows(path, column)))
        while part := list(islice(rows, _ROWS)):
            yield pyarrow.table([list(values) for values in zip(*part, strict=True)], schema=schema)

    class Source(ray.data.Datasource):  # type: ignore[misc]
        def get_read_tasks(self, *_: Any, **__: Any) -> list[Any]:
            metadata = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None)
            return [
                ray.data.ReadTask(partial(read, file, path), metadata, schema=schema)
                for file, path in enumerate(inputs)
            ]

        def estimate_inmemory_data_size(self) -> int | None:
            return None

    return Source()


def _write(
    path: Path,
    out: Path,
    column: str | None,
    outputs: Iterator[tuple[int, int, str]],
    file: int,
    on_row: Callable[[], object],
) -> None:
    """Write the rows of a file with their translations, of which none may be missing or come twice."""
    schema = with_text_column(schema_of(path), TARGET_COLUMN) if is_table(path) else None
    with (table_writer if path.is_dir() else row_writer)(out, schema) as add:
        for number, (_, row) in enumerate(read_source_rows(path, column)):
            *place, text = next(outputs, (None, None, ""))
            if place != [file, number]:
                raise RunError(f"{path}, row {number + 1}: its translation did not arrive; the file may have changed")
            add({**row, TARGET_COLUMN: text})
            on_row()


@contextmanager
def _cluster() -> Iterator[Any]:
    """Ray, connected to the cluster of $RAY_ADDRESS, or started on this machine until the block ends."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise ConfigError("--ray needs the package ray: pip install 'transduce[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    local: dict[str, Any] = {} if address else {"include_dashboard": False}
    for name in ("ray", "ray.data"):  # errors are reported as our own
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
    except Exception as error:  # Ray raises this very class if its processes do not start in time
        raise RunError(f"Ray cannot be started: {one_line(str(error))}; check RAY_ADDRESS, memory and /tmp") from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _errors(ray: Any) -> Iterator[None]:
    """Raise the error of a worker as if it had occurred here."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, TransduceError):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if cause is not None:
            raise cause from None
        raise RunError(f"a worker of Ray failed: {one_line(str(error).strip().splitlines()[-1])}") from error
