"""The folder of `transduce export --to web`: a page, the engine in WebAssembly, and a model in pieces with digests.

Any web server can hold it: no file needs a program on the server. What the page loads of the model is listed in
`model/manifest.json` with the SHA-256 of each piece, and checked before it is used.
"""

import hashlib
import json
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from transduce.cli.shrink import shrink_model
from transduce.disk import atomic_folder
from transduce.errors import ModelError
from transduce.fast.native.engine import NativeEngine
from transduce.files.languages import base_language, describe_directions, language_name
from transduce.inspect.page import static_file
from transduce.models.folder import CARD, NOTES, WEIGHTS, ModelFolder, read_card, read_model, read_notes
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import Tokenizer, normalizes
from transduce.translation.detection import detected_code, detection_line
from transduce.translation.rules import common, pattern, rules_of
from transduce.translation.translator import require_translation_model
from transduce.version import __version__
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

    directions: str
    files: int
    bytes: int
    download: int
    """Bytes that a browser loads before it translates: the page, one engine and the model."""


def export_site(folder: Path, out: Path, name: str | None = None) -> Site:
    """Write the page of a model, atomically as a new folder; `name` is shown on it, by default that of the folder."""
    if out.exists():
        raise ModelError(f"{out} exists already; name a folder that does not")
    if (task := read_card(folder)["facts"].get("task", "translate")) != "translate":
        raise ModelError(
            f"{folder} was trained for the task {task}; a page translates, so it needs a translation model"
        )
    model = read_model(folder)
    _require_support(model)
    with tempfile.TemporaryDirectory() as scratch, atomic_folder(out) as work:
        source = folder
        if model.weights.precision != "int8":
            source = Path(scratch) / "model"
            shrink_model(folder, source)
        _write_model(source, model, work / "model", name or folder.resolve().name)
        _write_page(work, read_notes(folder), name or folder.resolve().name)
        files = {path.relative_to(work).as_posix(): path.stat().st_size for path in work.rglob("*") if path.is_file()}
    unused = sum(_engine_sizes()) - max(_engine_sizes())
    not_loaded = sum(files[path] for path in ("LICENSE", NOTES) if path in files)
    directions = describe_directions([(a, b) for a, b in model.facts.get("directions", [])])
    return Site(directions, len(files), sum(files.values()), sum(files.values()) - unused - not_loaded)


def _require_support(model: ModelFolder) -> None:
    """Raise a ModelError if the page could not run the model."""
    require_translation_model(model.facts, model.path)
    if reason := NativeEngine.supports(model, SearchConfig()):
        raise ModelError(f"{model.path}: the engine of the page has {reason}; use transduce serve instead")
    if not isinstance(model.tokenizer, Tokenizer):
        raise ModelError(f"{model.path}: the page reads one SentencePiece vocabulary, not {model.tokenizer.file_name}")
    if normalizes(model.tokenizer.model):
        raise ModelError(
            f"{model.path / Tokenizer.file_name}: this vocabulary normalizes text, which the page does not; use "
            "transduce serve instead"
        )


def _write_model(source: Path, model: ModelFolder, folder: Path, name: str) -> None:
    """Write the files of a model, the engines and the rules in pieces, and the manifest."""
    folder.mkdir()
    contents = {file: (source / file).read_bytes() for file in (CARD, WEIGHTS, Tokenizer.file_name)}
    contents["rules.json"] = json.dumps(_rules(model), ensure_ascii=False, sort_keys=True).encode()
    contents |= {engine: _static(engine) for engine in _ENGINES}
    codes = dict.fromkeys(code for pair in model.facts.get("directions", []) for code in pair)
    manifest = {
        "format": 1,
        "transduce": __version__,
        "name": name,
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


def _rules(model: ModelFolder) -> dict[str, Any]:
    """The rules of the model's languages: abbreviations, what tells languages apart, and what is protected."""
    sources = {source for source, _ in model.facts.get("directions", [])}
    tables = {base_language(source): rules_of(base_language(source)).get("sentences", {}) for source in sources}
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


def _write_page(work: Path, notes: str, name: str) -> None:
    """Write the page, its service worker, and what describes the site."""
    (work / "static").mkdir()
    for file in ("page.css", "page.js"):
        (work / "static" / file).write_bytes(static_file(file))
    for file in _STATIC:
        (work / "static" / file).write_bytes(_static(file))
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="transduce-model" content="./">\n<link rel="manifest" href="site.webmanifest">\n</head>'
    )
    page = static_file("index.html").decode().replace("</head>", head)
    (work / "index.html").write_text(page, encoding="utf-8")
    icon = {"src": "static/icon.svg", "sizes": "any", "type": "image/svg+xml"}
    described = {"name": name, "short_name": name[:12], "start_url": "./", "display": "standalone", "icons": [icon]}
    (work / "site.webmanifest").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    (work / "LICENSE").write_bytes(_static("LICENSE"))
    if notes:
        (work / NOTES).write_text(notes, encoding="utf-8")
    shell = ["./", "site.webmanifest", *(f"static/{path.name}" for path in sorted((work / "static").iterdir()))]
    shell.append(f"model/{MANIFEST}")
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
