"""Export as an Argos Translate package: a zip file with a CTranslate2 model, its vocabulary and metadata."""

import json
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

from transduce.errors import ModelError
from transduce.files.languages import language_name
from transduce.interop.export import ctranslate2
from transduce.interop.export.exporter import Consumer, Exported
from transduce.interop.export.verify import OwnReader

_VERSION = "1.0"
_MADE_IN = (1980, 1, 1, 0, 0, 0)
"""Time of every file of the package, so that the same model gives the same bytes."""
_MODEL, _SPM, _METADATA, _README = "model", "sentencepiece.model", "metadata.json", "README.md"


def write(exported: Exported, folder: Path) -> None:
    if exported.vocabulary.tags:
        raise ModelError(
            "Argos Translate cannot put the tag of a target language before a source: export a model that was trained "
            "for one direction, or use --to ctranslate2"
        )
    if exported.vocabulary.source_spm != exported.vocabulary.target_spm:
        raise ModelError("Argos Translate has one SentencePiece model for both languages, but this model has two")
    name = package_name(exported)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        ctranslate2.write_model(exported, work)
        files = {f"{_MODEL}/{path.name}": path.read_bytes() for path in sorted(work.iterdir())}
    files[_SPM] = exported.vocabulary.source_spm
    files[_METADATA] = (json.dumps(_metadata(exported), indent=1, ensure_ascii=False) + "\n").encode()
    files[_README] = "\n".join(f"- {limit}" for limit in limits(exported)).encode() + b"\n"
    with zipfile.ZipFile(folder / f"{name}.argosmodel", "w", zipfile.ZIP_DEFLATED) as package:
        for path, content in files.items():
            package.writestr(zipfile.ZipInfo(f"{name}/{path}", _MADE_IN), content, zipfile.ZIP_DEFLATED)


def package_name(exported: Exported) -> str:
    source, target = _languages(exported)
    return f"translate-{source}_{target}-{_VERSION.replace('.', '_')}"


def _metadata(exported: Exported) -> dict[str, object]:
    source, target = _languages(exported)
    return {
        "package_version": _VERSION,
        "argos_version": "1.9",
        "from_code": source,
        "from_name": language_name(source),
        "to_code": target,
        "to_name": language_name(target),
    }


def _languages(exported: Exported) -> tuple[str, str]:
    assert exported.direction, "see `Exporter.one_direction`"
    return exported.direction


def limits(exported: Exported) -> list[str]:
    return [
        "Argos Translate always uses beam search with at least 4 hypotheses, and divides log-probabilities by n^0.2, "
        "not by ((5 + n) / 6)^a, so some outputs differ.",
        "Argos Translate splits texts into sentences itself, with a model that it downloads at first use; with "
        "ARGOS_CHUNK_TYPE=SPACY, it needs no network.",
        "Argos Translate replaces every underscore in an output by a space.",
    ]


def usage(exported: Exported, name: str) -> str:
    source, target = _languages(exported)
    return f"""import argostranslate.package
import argostranslate.translate

argostranslate.package.install_from_path("{name}/{package_name(exported)}.argosmodel")
print(argostranslate.translate.translate("Hello!", "{source}", "{target}"))
"""


def consumer(exported: Exported, folder: Path) -> Consumer:
    """CTranslate2 with the files of the package, as Argos Translate runs it."""
    with tempfile.TemporaryDirectory() as temporary:
        with zipfile.ZipFile(folder / f"{package_name(exported)}.argosmodel") as package:
            package.extractall(temporary)
        root = Path(temporary) / package_name(exported)
        spm = (root / _SPM).read_bytes()
        try:
            import ctranslate2 as library
        except ImportError:
            (root / _MODEL / _SPM).write_bytes(spm)
            return OwnReader(root / _MODEL)
        return ctranslate2.CTranslate2(library, root / _MODEL, spm, exported.vocabulary.pieces)


ARGOS = replace(
    ctranslate2.CTRANSLATE2, title="Argos Translate", write=write, consumer=consumer, limits=limits,
    usage=usage, one_direction=True,
)  # fmt: skip
