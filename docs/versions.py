"""Put the built documentation into a web space with several versions: `python docs/versions.py build/docs SITE`.

It becomes the folder of its version, e.g. SITE/0.1.0. SITE/versions.json lists the folders, newest first, for the
choice of versions that every page has, and SITE/index.html leads to the newest version.
"""

import json
import re
import shutil
import sys
from pathlib import Path

FIRST_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>transduce</title>
<meta http-equiv="refresh" content="0; url={0}/index.html">
<a href="{0}/index.html">transduce {0}</a></html>
"""


def publish(built: Path, site: Path) -> list[str]:
    """Copy a built version into the site, replacing the same version; returns the names of all versions."""
    inventory = (built / "objects.inv").read_bytes()
    found = re.search(rb"^# Version: (.+)$", inventory, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{built}/objects.inv has no version: build the documentation with make docs")
    folder = site / found[1].decode()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built, folder)
    versions = sorted((path.parent.name for path in site.glob("*/objects.inv")), key=_order, reverse=True)
    (site / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    (site / "index.html").write_text(FIRST_PAGE.format(versions[0]), encoding="utf-8")
    return versions


def _order(version: str) -> list[tuple[int, str]]:
    """Numbers are compared as numbers; 1.0rc1 comes before 1.0."""
    parts = re.findall(r"\d+|[a-z]+", version)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts] + [(0, "")]


if __name__ == "__main__":
    print("versions:", ", ".join(publish(Path(sys.argv[1]), Path(sys.argv[2]))))
