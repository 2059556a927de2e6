"""Write the SBOM of a wheel (CycloneDX 1.6) and put it into the wheel, at .dist-info/sboms (PEP 770).

`python .ci/sbom.py dist/transduce-*.whl`: the SBOM lists what the wheel contains, and every package that it needs, with
the version and the hashes of requirements.lock.
"""

import base64
import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def sbom(wheel: Path) -> dict[str, Any]:
    """The SBOM of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        folder = _dist_info(archive)
        metadata = HeaderParser().parsestr(archive.read(f"{folder}/METADATA").decode())
        files = sorted(name for name in archive.namelist() if not name.startswith(f"{folder}/"))
        contents = [_file(name, archive.read(name)) for name in files]
    name, version = metadata["Name"], metadata["Version"]
    needed = sorted(set(_closure(metadata.get_all("Requires-Dist") or [])))
    purl = f"pkg:pypi/{name}@{version}"
    packages = [_package(one) for one in needed]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                "licenses": [{"license": {"id": metadata["License-Expression"]}}],
                "components": contents,
            }
        },
        "components": packages,
        "dependencies": [{"ref": purl, "dependsOn": [package["bom-ref"] for package in packages]}],
    }


def embed(wheel: Path, content: bytes) -> None:
    """Add the SBOM to a wheel, and to the wheel's record."""
    with zipfile.ZipFile(wheel) as archive:
        folder = _dist_info(archive)
        entries = [(info, archive.read(info)) for info in archive.infolist() if "/sboms/" not in info.filename]
    path = f"{folder}/sboms/transduce.cdx.json"
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    work = wheel.with_suffix(".tmp")
    with zipfile.ZipFile(work, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in entries:
            if info.filename == f"{folder}/RECORD":
                lines = [line for line in data.decode().splitlines() if "/sboms/" not in line]
                data = "\n".join([*lines, f"{path},sha256={digest},{len(content)}", ""]).encode()
                archive.writestr(path, content)
            archive.writestr(info, data)
    work.replace(wheel)


def _dist_info(archive: zipfile.ZipFile) -> str:
    return next(name.partition("/")[0] for name in archive.namelist() if name.endswith(".dist-info/METADATA"))


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "name": name, "hashes": [_sha256(hashlib.sha256(content).hexdigest())]}


def _sha256(value: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": value}


def _closure(requirements: list[str]) -> Iterator[str]:
    """The names of required packages and of those that they require, without extras; as installed here."""
    waiting, seen = list(requirements), set[str]()
    while waiting:
        requirement = waiting.pop()
        if "extra ==" in requirement:
            continue
        name = re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            waiting += distribution(name).requires or []
        except PackageNotFoundError:  # for other systems
            continue
        yield name


def _package(name: str) -> dict[str, Any]:
    version = distribution(name).version
    purl = f"pkg:pypi/{name}@{version.partition('+')[0]}"
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    block = re.search(rf"^{re.escape(name)}=={re.escape(version)}[ ;\\].*?(?=^[^ ]|\Z)", lock, re.DOTALL | re.MULTILINE)
    hashes = re.findall(r"--hash=sha256:(\w+)", block[0]) if block else []
    component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    # Each file of a release has a hash of its own; an installer accepts any of them.
    references = [
        {"type": "distribution", "url": f"https://pypi.org/project/{name}/", "hashes": [_sha256(one)]} for one in hashes
    ]
    return component | ({"externalReferences": references} if references else {})


if __name__ == "__main__":
    (wheel,) = map(Path, sys.argv[1:])
    content = json.dumps(sbom(wheel), indent=1).encode()
    embed(wheel, content)
    wheel.with_suffix(".cdx.json").write_bytes(content)
    print(f"wrote {wheel.with_suffix('.cdx.json')}, also into the wheel")
