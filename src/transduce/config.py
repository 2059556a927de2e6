"""Settings: strict conversion of TOML tables to frozen dataclasses, and back.

The dataclasses are defined next to the code that uses them.
"""

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from transduce.errors import ConfigError

MAX_THREADS = 1024
"""Limit for the number of CPU threads: more than a machine has cores."""

T = TypeVar("T")
Table = dict[str, Any]

_TOML_BYTES = 1 << 22


def read_toml(path: Path) -> Table:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a device might never end
            raise ConfigError(f"{path}: not a plain file")
        if path.is_file() and (size := path.stat().st_size) > _TOML_BYTES:
            raise ConfigError(f"{path}: {size:,} bytes are more than the {_TOML_BYTES:,} that are read")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name a .toml file") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def build(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """Make an instance of the dataclass `cls` from a table; `where` names the file and section in error messages.

    A field with the metadata "sections", a mapping of names to dataclasses, becomes a dictionary of those that the
    table has.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    holder = next((name for name, field in fields.items() if "sections" in field.metadata), "")
    sections: Mapping[str, Any] = fields.pop(holder).metadata["sections"] if holder else {}
    values: dict[str, Any] = {}

    def dataclass_of(name: str, value: object) -> Any:
        variant = fields[name].metadata.get("variant")  # chooses the dataclass of a section by its content
        return variant(value) if variant and isinstance(value, Mapping) else hints[name]

    for key, value in table.items():
        if key not in fields and key in sections:
            values.setdefault(holder, {})[key] = _convert(sections[key], value, where, key)
            continue
        if key not in fields:
            known = {name: dataclass_of(name, table.get(name, {})) for name in fields} | dict(sections)
            inner = [
                f"{name}.{key}" for name, hint in known.items() if key in getattr(hint, "__dataclass_fields__", ())
            ]
            raise ConfigError(_unknown_key(key, list(known), where, inner))
        values[key] = _convert(dataclass_of(key, value), value, where, key)
    try:
        return cls(**values)
    except ConfigError as error:  # from __post_init__, which does not know the file
        raise ConfigError(f"{where}: {error}") from None


def apply_sets(table: Table, assignments: list[str], option: str = "--set") -> Table:
    """A copy of the table with `section.key=value` assignments from this option of the command line applied."""
    result = merge(table, {})
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            example = "section.key=value, e.g. train.steps=2000" if option == "--set" else "NAME=VALUE"
            raise ConfigError(f"{option} {assignment}: write it as {example}")
        *sections, key = path.strip().split(".")
        inner = result
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{option} {assignment}: {section} is a value, not a section")
        inner[key] = _parse_value(text)
    return result


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """A new table: `base` updated with `over`, section by section."""
    result = {key: merge(value, {}) if isinstance(value, Mapping) else value for key, value in base.items()}
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result


def to_table(config: Any) -> Table:
    """Convert a dataclass to tables; settings that are None are left out, as TOML has no null."""
    table: Table = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if "sections" in field.metadata:
            table |= {name: to_table(section) for name, section in value.items()}
        elif dataclasses.is_dataclass(value):
            table[field.name] = to_table(value)
        elif isinstance(value, dict):
            if value:
                table[field.name] = {name: to_table(item) for name, item in value.items()}
        elif value is not None:
            table[field.name] = value
    return table


def to_toml(config: Any) -> str:
    """Convert a dataclass to TOML text, from which `build` makes an equal one."""
    return "\n".join(_toml_lines(to_table(config))).lstrip("\n") + "\n"


def require(condition: bool, message: str) -> None:
    """Raise a `ConfigError` unless the condition holds; for the checks of settings."""
    if not condition:
        raise ConfigError(message)


def require_count(number: object, name: str) -> None:
    """Raise a `ConfigError` unless this is an integer of at least 1; `name` is that of the argument."""
    require(isinstance(number, int) and number >= 1, f"{name} must be an integer of at least 1, not {number!r:.40}")


def suggestion(word: str, valid: list[str]) -> str:
    """ " (did you mean ...?)" with the nearest valid word, or nothing if none is near."""
    nearest = difflib.get_close_matches(word, valid, n=1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""


def _unknown_key(key: str, valid: list[str], where: str, inner: list[str]) -> str:
    hint = f" (did you mean {' or '.join(inner)}?)" if inner else suggestion(key, valid)
    nearest = difflib.get_close_matches(key, sorted(valid), n=3, cutoff=0)
    return f"{where}: unknown key {key}{hint}; nearest keys: {', '.join(nearest)}"


def _parse_value(text: str) -> Any:
    """A TOML value, or the text itself: `--set model.norm=pre` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _convert(hint: Any, value: Any, where: str, key: str, words: Sequence[str] = ()) -> Any:
    def wrong(wanted: str) -> ConfigError:
        shown = repr(value) if value is None or isinstance(value, str) else as_set(value)
        return ConfigError(f"{where}: {key} must be {' or '.join([wanted, *words])}, not {shown}")

    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise wrong("a section")
        return build(typing.cast(type, hint), value, f"{where} [{key}]")
    origin = get_origin(hint)
    if origin in (types.UnionType, typing.Union):  # `X | None`, or `X | Literal[...]`
        words = [word for arg in get_args(hint) if get_origin(arg) is Literal for word in get_args(arg)]
        if value in words:
            return value
        (inner,) = (arg for arg in get_args(hint) if arg is not types.NoneType and get_origin(arg) is not Literal)
        return _convert(inner, value, where, key, words)
    if origin is dict:  # sections with names that the user chooses
        if not isinstance(value, Mapping):
            raise wrong("a section")
        return {name: _convert(get_args(hint)[1], item, f"{where} [{key}]", name) for name, item in value.items()}
    if origin is Literal:
        if value not in get_args(hint):
            raise wrong("one of " + ", ".join(map(str, get_args(hint))))
        return value
    if origin is tuple:  # a string stands for a list of one
        if not isinstance(value, str | list | tuple):
            raise wrong("a list")
        items = [value] if isinstance(value, str) else value
        return tuple(_convert(get_args(hint)[0], item, where, key) for item in items)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise wrong("a number below 1e308") from None
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise wrong(names[hint])
    return value


def _toml_lines(table: Table, path: str = "") -> list[str]:
    """The values of a table, then its sections, whose names begin with `path`."""
    lines = [f"{key} = {toml_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for name, section in table.items():
        if isinstance(section, dict):
            inner = _toml_lines(section, f"{path}{name}.")
            lines += inner if inner and not inner[0] else ["", f"[{path}{name}]", *inner]
    return lines


def toml_value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML escapes DEL, JSON does not


def as_set(value: Any) -> str:
    """A value as a user writes it for `--set`, for messages: TOML, but text without quotes."""
    if value is None:
        return "not set"
    if isinstance(value, Mapping):
        return "a section"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) if isinstance(item, str) else as_set(item) for item in value) + "]"
    return toml_value(value) if isinstance(value, bool) else str(value)
