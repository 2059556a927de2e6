"""Print what the package and the named extras depend on, each with the version of the lock files.

With `pip install --require-hashes --constraint requirements.lock --constraint torch.lock`, pip installs these and
everything that they depend on by hash.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("requirements.lock", "torch.lock"))


def requirements(extra: str | None) -> Iterator[str]:
    """The requirements of the package, or of an extra with those that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in project["dependencies"] if extra is None else project["optional-dependencies"][extra]:
        if own := re.match(rf"{project['name']}\[(.+)\]", requirement):
            for name in own[1].split(","):
                yield from requirements(name)
        else:
            yield requirement


def pinned(requirement: str) -> str:
    """The requirement with the version of the lock files."""
    name = re.split(r"[^\w.\[\]-]", requirement)[0]
    version = re.search(rf"^{re.escape(name.partition('[')[0])}==([^ \\]+)", LOCKS, re.MULTILINE)
    if version is None:
        sys.exit(f"{name} is not in the lock files; run .ci/lock")
    return f"{name}=={version[1]}"


if __name__ == "__main__":
    needed = [*requirements(None), *(line for extra in sys.argv[1:] for line in requirements(extra)), "setuptools"]
    print("\n".join(sorted(set(map(pinned, needed)))))
