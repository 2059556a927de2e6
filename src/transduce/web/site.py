"""The folder of `transduce export --to web`: a page, the engine in WebAssembly, and a model in pieces with digests.

Any web server can hold it: no file needs a program on the server. What the page loads of a model is listed in
`model/manifest.json` with the SHA-256 of each piece, and checked before it is used. If there are several models, each
has a folder of its name with this folder in it.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from transduce.cli.shrink import shrink_model
from transduce.disk import atomic_folder
from transduce.errors import ConfigError, ModelError
from transduce.fast.native.engine import NativeEngine
from transduce.files.languages import base_language, describe_directions, language_name
from transduce.inspect.page import static_file
from transduce.interop.imported_tokenizers import LibraryTokenizer
from transduce.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transduce.models.folder import CARD, NOTES, WEIGHTS, ModelFolder, read_card, read_model, read_notes
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import Tokenizer, normalizes
from transduce.translation.detection import detected_code, detection_line
from transduce.translation.rules import common, pattern, rules_of
from transduce.translation.stages.glossary import Glossary
from transduce.translation.translator import require_translation_model
from transduce.version import __version__
from transduce.web.byte_level import BYTE_LEVEL, byte_level_vocabulary
from transduce.web.patterns import to_javascript

MANIFEST = "manifest.json"
PIECE = 1 << 22
"""Maximum number of bytes of a piece: browsers keep small files in their cache, and a broken download costs little."""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'"
)
"""The page loads nothing from other servers and runs no code that is not in its files."""
_ENGINES = ("engine-simd.wasm", "engine-signed.wasm", "engine-unsigned.wasm")
_STATIC = ("worker.js", "icon.svg")
_LISTS = ("never", "sometimes", "numbered", "starters")


@dataclass(frozen=True)
class Site:
    """What was written."""

    purpose: str
    """What the page does, such as "translates en to de"."""
    files: int
    bytes: int
    download: int
    """Bytes that a browser loads before it translates: the page, one engine and the first model."""


def export_site(models: Sequence[tuple[str, Path]], out: Path, glossary: tuple[str, Path] | None = None) -> Site:
    """Write the page of models, by the names that it shows, atomically as a new folder.

    `glossary` is a target language and a file of terms for it.
    """
    if out.exists():
        raise ModelError(f"{out} exists already; name a folder that does not")
    if duplicates := {name for name, _ in models if [other for other, _ in models].count(name) > 1}:
        raise ConfigError(f"two models are named {duplicates.pop()}; rename the folder of one")
    stored = [(name, _read(folder)) for name, folder in models]
    terms = _terms(glossary, [model for _, model in stored]) if glossary else {}
    pairs = [(a, b) for _, model in stored for a, b in model.facts.get("directions", [])]
    sources = list(dict.fromkeys(source for source, _ in pairs))
    with tempfile.TemporaryDirectory() as scratch, atomic_folder(out) as work:
        folders = [""] if len(stored) == 1 else [f"models/{number}/" for number in range(len(stored))]
        for (name, model), folder in zip(stored, folders, strict=True):
            source = model.path
            if model.weights.precision != "int8":
                source = Path(scratch) / str(len(list(Path(scratch).iterdir())))
                shrink_model(model.path, source)
            _write_model(source, model, work / folder / "model", name, sources, terms)
        title = stored[0][0] if len(stored) == 1 else "transduce"
        _write_page(work, [model for _, model in stored], title, folders)
        files = {path.relative_to(work).as_posix(): path.stat().st_size for path in work.rglob("*") if path.is_file()}
    unused = sum(_engine_sizes()) - max(_engine_sizes())
    tasks = [model.facts.get("task", "translate") for _, model in stored]
    first = folders[tasks.index("translate") if "translate" in tasks else 0]
    others = ("LICENSE", NOTES, *(folder for folder in folders if folder != first))
    loaded = sum(size for path, size in files.items() if not path.startswith(others)) - unused
    purposes = [f"translates {describe_directions(pairs)}".rstrip()] if "translate" in tasks else []
    purposes += ["continues texts"] if "language_model" in tasks else []
    return Site(" and ".join(purposes), len(files), sum(files.values()), loaded)


def _read(folder: Path) -> ModelFolder:
    """A model that the page can run."""
    if (task := read_card(folder)["facts"].get("task", "translate")) not in ("translate", "language_model"):
        raise ModelError(f"{folder} was trained for the task {task}; a page translates or generates text")
    model = read_model(folder)
    _require_support(model)
    return model


def _terms(glossary: tuple[str, Path], models: Sequence[ModelFolder]) -> dict[str, dict[str, str]]:
    """The terms of a glossary by their target language; a ConfigError if no model can use them."""
    target, path = glossary
    able = [model for model in models if model.facts.get("augment", {}).get("spans", 0) > 0]
    targets = {pair[1] for model in able for pair in model.facts.get("directions", [])}
    if target not in targets:
        known = ", ".join(sorted(targets)) or "none: a model must be trained with augment.spans"
        if targets and not target:
            raise ConfigError(f"name the target language of the glossary with --target ({known})")
        raise ConfigError(
            f"no model of the page uses a glossary for {target or 'an unnamed language'}; languages: {known}"
        )
    return {target: Glossary.load(path).terms}


def _require_support(model: ModelFolder) -> None:
    """Raise a ModelError if the page could not run the model."""
    if isinstance(model.config, DecoderOnlyConfig):
        from transduce.fast.native.language_model import language_model_limits  # needs torch

        reason = language_model_limits(model.config)
        if not reason and model.config.rotary_scaling != "none":
            reason = "no scaling of rotary positions (model.rotary_scaling)"
    else:
        require_translation_model(model.facts, model.path)
        reason = NativeEngine.supports(model, SearchConfig())
    if reason:
        raise ModelError(f"{model.path}: the engine of the page has {reason}; use transduce serve instead")
    if isinstance(model.config, EncoderDecoderConfig) and model.config.decoder_tag:
        raise ModelError(f"{model.path}: the engine of the page has no models with model.decoder_tag = true")
    _vocabulary(model)


def _vocabulary(model: ModelFolder) -> tuple[str, bytes]:
    """The name and the content of the page's file for a vocabulary; a ModelError if it has none."""
    tokenizer, instead = model.tokenizer, "use transduce serve instead"
    if isinstance(tokenizer, Tokenizer):
        if normalizes(tokenizer.model):
            path = model.path / Tokenizer.file_name
            raise ModelError(f"{path}: this vocabulary normalizes text, which the page does not; {instead}")
        return Tokenizer.file_name, tokenizer.model
    if isinstance(tokenizer, LibraryTokenizer) and isinstance(model.config, DecoderOnlyConfig):
        try:
            return BYTE_LEVEL, byte_level_vocabulary(tokenizer)
        except ModelError as error:
            raise ModelError(f"{model.path / tokenizer.file_name}: {error}; {instead}") from None
    readable = "one SentencePiece vocabulary, or byte-level BPE of a language model"
    raise ModelError(f"{model.path}: the page reads {readable}, not {tokenizer.file_name}; {instead}")


def _write_model(
    source: Path,
    model: ModelFolder,
    folder: Path,
    name: str,
    sources: Sequence[str],
    terms: Mapping[str, Mapping[str, str]],
) -> None:
    """Write the files of a model, the engines and the rules in pieces, and the manifest."""
    folder.mkdir(parents=True)
    contents = {file: (source / file).read_bytes() for file in (CARD, WEIGHTS)} | dict([_vocabulary(model)])
    contents["rules.json"] = json.dumps(
        _rules(model, sources) | {"glossary": terms}, ensure_ascii=False, sort_keys=True
    ).encode()
    contents |= {engine: _static(engine) for engine in _ENGINES}
    codes = dict.fromkeys(code for pair in model.facts.get("directions", []) for code in pair)
    manifest = {
        "format": 1,
        "transduce": __version__,
        "name": name,
        "directions": model.facts.get("directions", []),
        "tagged": bool(model.facts.get("tagged")),
        "task": model.facts.get("task", "translate"),
        "inspect": getattr(model.config, "decoder_cell", "") == "attention",
        "sources": sources,
        "languages": {code: language_name(code) for code in codes},
        "files": {file: _write_pieces(content, folder) for file, content in contents.items()},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_pieces(content: bytes, folder: Path) -> dict[str, Any]:
    """Write a file in pieces that are named after their content, so that a browser may keep them for ever."""
    pieces = []
    for start in range(0, len(content), PIECE):
        piece = content[start : start + PIECE]
        digest = hashlib.sha256(piece).hexdigest()
        name = f"{digest[:20]}.bin"
        (folder / name).write_bytes(piece)
        pieces.append({"name": name, "size": len(piece), "sha256": digest})
    return {"size": len(content), "pieces": pieces}


def _rules(model: ModelFolder, sources: Sequence[str]) -> dict[str, Any]:
    """The rules of the model's languages: abbreviations, what tells the site's languages apart, what is protected."""
    languages = {code for source, _ in model.facts.get("directions", []) if (code := base_language(source))}
    tables = {code: rules_of(code).get("sentences", {}) for code in sorted(languages)}
    abbreviations = {
        code: {name: table.get(name, "") for name in _LISTS} | {"ordinals": bool(table.get("ordinals"))}
        for code, table in tables.items()
    }
    detection = {base_language(source): detection_line(detected_code(source)) for source in sources}
    # Kinds with numbers are left to the model: to write them as the target language does, more rules are needed.
    protect = [to_javascript(pattern(rule["pattern"])) for rule in common()["protect"] if "numbers" not in rule]
    return {
        "abbreviations": abbreviations,
        "detection": {code: line for code, line in detection.items() if line},
        "protect": protect,
    }


def _write_page(work: Path, models: Sequence[ModelFolder], name: str, folders: Sequence[str]) -> None:
    """Write the page, its service worker, and what describes the site."""
    (work / "static").mkdir()
    for file in ("page.css", "page.js"):
        (work / "static" / file).write_bytes(static_file(file))
    for file in _STATIC:
        (work / "static" / file).write_bytes(_static(file))
    addresses = "".join(
        f'<meta name="transduce-model" content="./{folder}" data-task="{model.facts.get("task", "translate")}">\n'
        for folder, model in zip(folders, models, strict=True)
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'{addresses}<link rel="manifest" href="site.webmanifest">\n</head>'
    )
    page = static_file("index.html").decode().replace("</head>", head)
    (work / "index.html").write_text(page, encoding="utf-8")
    icon = {"src": "static/icon.svg", "sizes": "any", "type": "image/svg+xml"}
    described = {"name": name, "short_name": name[:12], "start_url": "./", "display": "standalone", "icons": [icon]}
    (work / "site.webmanifest").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    (work / "LICENSE").write_bytes(_static("LICENSE"))
    notes = [read_notes(model.path) for model in models]
    if any(notes):
        (work / NOTES).write_text("\n\n".join(filter(None, notes)), encoding="utf-8")
    shell = ["./", "site.webmanifest", *(f"static/{path.name}" for path in sorted((work / "static").iterdir()))]
    shell += [f"{folder}model/{MANIFEST}" for folder in folders]
    digest = hashlib.sha256()
    for path in sorted(path for path in work.rglob("*") if path.is_file()):
        digest.update(path.relative_to(work).as_posix().encode() + b"\0" + path.read_bytes())
    code = _static("service-worker.js").decode()
    code = f"const VERSION = {json.dumps(digest.hexdigest()[:20])};\nconst SHELL = {json.dumps(shell)};\n{code}"
    (work / "service-worker.js").write_text(code, encoding="utf-8")


def _static(name: str) -> bytes:
    return (resources.files("transduce.web") / "static" / name).read_bytes()


def _engine_sizes() -> list[int]:
    return [len(_static(engine)) for engine in _ENGINES]
