"""Tables of rows with named columns: Parquet and Arrow files, and Hugging Face datasets on disk (with pyarrow)."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transduce.disk import atomic_file, atomic_folder
from transduce.errors import DataError

Row = dict[str, Any]

PARQUET, ARROW = ".parquet", ".arrow"
TABLE_SUFFIXES = (PARQUET, ARROW)
_STATE, _SPLITS, _INFO = "state.json", "dataset_dict.json", "dataset_info.json"
"""Files of a Hugging Face dataset that `save_to_disk` wrote: the names of its Arrow files, and of its splits."""
_ROWS = 1024
"""Number of rows that are read or written together."""


def is_table(path: Path) -> bool:
    """Whether this is a Parquet or Arrow file by its name, or a folder, which can only be a dataset."""
    return path.suffix.lower() in TABLE_SUFFIXES or path.is_dir()


def read_table(path: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Yield every row; with `columns`, only those of them that the table has."""
    for batch in _batches(path, columns):
        yield from batch.to_pylist()


def count_rows(path: Path) -> int:
    if path.suffix.lower() == PARQUET:
        pyarrow = _pyarrow(path)
        with _reading(path, pyarrow):
            return int(pyarrow.parquet.ParquetFile(path).metadata.num_rows)
    return sum(batch.num_rows for batch in _batches(path, []))


def schema_of(path: Path) -> Any:
    """The names and types of the columns, as pyarrow has them."""
    file, pyarrow = _files(path)[0], _pyarrow(path)
    with _reading(file, pyarrow):
        if file.suffix.lower() == PARQUET:
            return pyarrow.parquet.read_schema(file)
        with pyarrow.memory_map(str(file)) as source, _arrow_reader(pyarrow, source) as reader:
            return reader.schema


def with_text_column(schema: Any, name: str) -> Any:
    """A schema with a column of texts, which replaces one of the same name."""
    import pyarrow

    column = pyarrow.field(name, pyarrow.string())
    number = schema.get_field_index(name)
    return schema.append(column) if number < 0 else schema.set(number, column)


@contextmanager
def table_writer(path: Path, schema: Any = None) -> Iterator[Callable[[Row], None]]:
    """Give a function that writes one row; without a schema, the types are those of the first rows.

    A name without a suffix is a dataset, otherwise the suffix tells the format. The table appears, complete, when the
    block ends without an error.
    """
    pyarrow = _pyarrow(path)
    try:
        if path.suffix.lower() in TABLE_SUFFIXES:
            with atomic_file(path) as work, _writer(work, path, schema, pyarrow) as add:
                yield add
        else:
            with atomic_folder(path) as work:
                name = "data-00000-of-00001.arrow"
                with _writer(work / name, work / name, schema, pyarrow) as add:
                    yield add
                state: dict[str, Any] = {"_data_files": [{"filename": name}], "_fingerprint": uuid.uuid4().hex[:16]}
                state |= {"_format_columns": None, "_format_kwargs": {}, "_format_type": None}
                state |= {"_output_all_columns": False, "_split": None}
                (work / _STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")
                (work / _INFO).write_text(json.dumps({"citation": "", "description": ""}), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _writer(file: Path, name: Path, schema: Any, pyarrow: Any) -> Iterator[Callable[[Row], None]]:
    rows: list[Row] = []
    writer: Any = None
    written = 0

    def flush() -> None:
        nonlocal writer, written, schema
        try:
            if schema is None:
                schema = pyarrow.Table.from_pylist(rows).schema
            if unknown := {column for row in rows for column in row} - set(schema.names):
                raise DataError(f"{name}: the column {min(unknown)} is not in the first rows; write .jsonl instead")
            table = pyarrow.Table.from_pylist(rows, schema=schema)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            raise DataError(
                f"{name}: rows {written + 1:,} to {written + len(rows):,} have values of another type than the rows "
                f"before; write .jsonl instead: {error}"
            ) from None
        if writer is None:
            parquet = name.suffix.lower() == PARQUET
            open_writer = pyarrow.parquet.ParquetWriter if parquet else pyarrow.ipc.new_stream
            writer = open_writer(str(file), schema)
        writer.write_table(table)
        written += len(rows)
        rows.clear()

    def add(row: Row) -> None:
        rows.append(row)
        if len(rows) == _ROWS:
            flush()

    try:
        yield add
        if rows or writer is None:
            flush()
    finally:
        if writer is not None:
            writer.close()


def _batches(path: Path, columns: Sequence[str] | None) -> Iterator[Any]:
    files, pyarrow = _files(path), _pyarrow(path)
    for file in files:
        with _reading(file, pyarrow):
            if file.suffix.lower() == PARQUET:
                table = pyarrow.parquet.ParquetFile(file)
                names = None if columns is None else [name for name in columns if name in table.schema_arrow.names]
                yield from table.iter_batches(_ROWS, columns=names)
                continue
            with pyarrow.memory_map(str(file)) as source, _arrow_reader(pyarrow, source) as reader:
                names = None if columns is None else [name for name in columns if name in reader.schema.names]
                of_file = getattr(reader, "get_batch", None)  # the file format has its batches by number
                batches = map(of_file, range(reader.num_record_batches)) if of_file else iter(reader)
                for batch in batches:
                    selected = batch if names is None else batch.select(names)
                    for start in range(0, selected.num_rows, _ROWS):  # a batch may be as large as its file
                        yield selected.slice(start, _ROWS)


def _arrow_reader(pyarrow: Any, source: Any) -> Any:
    """A reader of Arrow's file format, or of its stream format, which datasets have."""
    try:
        return pyarrow.ipc.open_file(source)
    except pyarrow.ArrowInvalid:
        source.seek(0)
        return pyarrow.ipc.open_stream(source)


def _files(path: Path) -> list[Path]:
    """The files of a table: one file, or those of a dataset."""
    if not path.is_dir():
        if not path.exists():
            raise DataError(f"{path}: no such file")
        return [path]
    if (path / _SPLITS).is_file():
        splits = _json(path / _SPLITS).get("splits", [])
        raise DataError(
            f"{path}: a dataset with the splits {', '.join(splits)}; name one: {path / (splits or [''])[0]}"
        )
    if not (path / _STATE).is_file():
        raise DataError(
            f"{path} is a folder; name its files, e.g. {path / '*'} (a Hugging Face dataset would have {_STATE})"
        )
    state = _json(path / _STATE)
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise DataError(f"{path}: a dataset with an indices mapping; call flatten_indices() and save it again")
    names = [str(file["filename"]) for file in state.get("_data_files", [])]
    if not names:
        raise DataError(f"{path / _STATE}: names no data files")
    if outside := [name for name in names if Path(name).name != name]:
        raise DataError(f"{path / _STATE}: {outside[0]} is not a file of the folder")
    return [path / name for name in names]


def _json(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise DataError(f"{path}: not a JSON object; the dataset is damaged")
    return content


@contextmanager
def _reading(path: Path, pyarrow: Any) -> Iterator[None]:
    try:
        yield
    except (pyarrow.ArrowException, EOFError) as error:
        raise DataError(f"{path}: damaged, or not in the format that its name tells: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: a table needs the pyarrow package: pip install 'transduce[parquet]'") from None
    return pyarrow
