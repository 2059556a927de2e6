"""Argos Translate packages: a zip file with a CTranslate2 model, its vocabulary and metadata."""

import json
import re
import tempfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.files.languages import is_language_code, language_name
from transduce.interop import ctranslate2
from transduce.interop.exchange import Consumer, Exported, Original
from transduce.interop.vocabulary import read_json
from transduce.models.weights_file import physical_memory

_VERSION = "1.0"
_MADE_IN = (1980, 1, 1, 0, 0, 0)
"""Time of every file of the package, so that the same model gives the same bytes."""
_MODEL, _SPM, _METADATA, _README = "model", "sentencepiece.model", "metadata.json", "README.md"
_SUFFIX = ".argosmodel"
_WANTED = re.compile(r"[^/]+/(model/[^/]+|sentencepiece\.model|metadata\.json)")
"""The files of a package that are read."""


def write(exported: Exported, folder: Path) -> None:
    if exported.vocabulary.tags:
        raise ModelError(
            "Argos Translate cannot put the tag of a target language before a source: export a model that was trained "
            "for one direction, or use --to ctranslate2"
        )
    if exported.vocabulary.source_spm != exported.vocabulary.target_spm:
        raise ModelError("Argos Translate has one SentencePiece model for both languages, but this model has two")
    assert exported.direction, "see `Exporter.one_direction`"
    source, target = exported.direction
    name = f"translate-{source}_{target}-{_VERSION.replace('.', '_')}"
    metadata = {
        "package_version": _VERSION, "argos_version": "1.9", "from_code": source, "to_code": target,
        "from_name": language_name(source), "to_name": language_name(target),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        ctranslate2.write_model(exported, work)
        files = {f"{_MODEL}/{path.name}": path.read_bytes() for path in sorted(work.iterdir())}
    files[_SPM] = exported.vocabulary.source_spm
    files[_METADATA] = (json.dumps(metadata, indent=1, ensure_ascii=False) + "\n").encode()
    files[_README] = "\n".join(f"- {limit}" for limit in ARGOS.describe(exported)).encode() + b"\n"
    with zipfile.ZipFile(folder / f"{name}{_SUFFIX}", "w", zipfile.ZIP_DEFLATED) as package:
        for path, content in files.items():
            package.writestr(zipfile.ZipInfo(f"{name}/{path}", _MADE_IN), content, zipfile.ZIP_DEFLATED)


def consumer(exported: Exported, folder: Path) -> Consumer | None:
    """CTranslate2 with the files of the package, as Argos Translate runs it."""
    library, package = ctranslate2.library(), find_argos(folder)
    if not library or not package:
        return None
    with tempfile.TemporaryDirectory() as temporary:
        model = _unpack(package, Path(temporary))[0]
        return ctranslate2.CTranslate2(library, model, (model / _SPM).read_bytes(), exported.vocabulary.pieces)


ARGOS = replace(ctranslate2.CTRANSLATE2, format="argos", write=write, consumer=consumer, one_direction=True)


def find_argos(path: Path) -> Path | None:
    """The package at a path, or the only one in a folder."""
    found = [path] if path.suffix == _SUFFIX else sorted(path.glob(f"*{_SUFFIX}"))
    return found[0] if len(found) == 1 and found[0].exists() else None


def read_argos(package: Path) -> Original:
    with tempfile.TemporaryDirectory() as temporary:
        model, metadata = _unpack(package, Path(temporary))
        options = read_json(model / "config.json", {})
        if not options.get("add_source_eos"):
            raise ModelError(
                f"{package}: its sources have no end marker (add_source_eos is not true), which models need here"
            )
        try:
            original = ctranslate2.read_ctranslate2(model, options)
        except ModelError as error:
            message = str(error).replace(str(model), str(package / _MODEL))
            raise ModelError(message if message.startswith(str(package)) else f"{package}: {message}") from None
    languages = [str(metadata.get(f"{side}_code")) for side in ("from", "to")]
    direction = (languages[0], languages[1]) if all(map(is_language_code, languages)) else None
    return replace(original, format="Argos Translate", direction=direction)


def _unpack(package: Path, work: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of the CTranslate2 model with its SentencePiece model, unpacked to a folder, and the metadata."""
    require_file(package, physical_memory() // 4, "this machine has memory for")
    try:
        with zipfile.ZipFile(package) as archive:
            wanted = [entry for entry in archive.infolist() if _WANTED.fullmatch(entry.filename)]
            if sum(entry.file_size for entry in wanted) > physical_memory() // 4:
                raise ModelError(f"{package}: its files do not fit in the memory of this machine")
            for entry in wanted:
                (work / Path(entry.filename).name).write_bytes(archive.read(entry))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError):
        raise ModelError(f"{package}: not an Argos package, or damaged") from None
    if missing := [name for name in ("model.bin", _SPM) if not (work / name).exists()]:
        raise ModelError(f"{package}: the package has no {missing[0]}, so it cannot be imported")
    return work, read_json(work / _METADATA, {})
