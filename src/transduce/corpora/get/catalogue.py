"""The catalogue of public corpora: for each, the URLs, sizes and sha256 of its archives, and which files are used.

A corpus is described by a TOML file in `transduce/corpora`, or by one that the user has written.
"""

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from transduce.config import build, read_toml, require, suggestion
from transduce.errors import ConfigError

Members = tuple[tuple[str, ...], ...]
"""Pairs of parallel files in an archive: source and target."""


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A compressed tar file at a URL, and which of its files are used."""

    url: str = ""
    size: int = 0
    """Size in bytes."""
    sha256: str = ""
    train: Members = ()
    valid: Members = ()
    test: Members = ()

    def __post_init__(self) -> None:
        require(is_http_url(self.url), "url must begin with http:// or https://")
        require(bool(self.name), "url must end in the name of a file")
        require(self.size > 0, f"{self.name}: size must be above 0")
        require(bool(re.fullmatch("[0-9a-f]{64}", self.sha256)), f"{self.name}: sha256 must be 64 hexadecimal digits")
        for pair in (*self.train, *self.valid, *self.test):
            require(len(pair) == 2, f"{self.name}: {', '.join(pair)}: name two files, source and target")
            for member in map(PurePosixPath, pair):
                inside = not member.is_absolute() and ".." not in member.parts
                require(inside, f"{self.name}: {member} must be a path inside the archive")

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.url).path).name


@dataclass(frozen=True, kw_only=True)
class PublicCorpus:
    """A public corpus: its languages, terms of use and archives."""

    languages: str = ""
    """Source and target language, e.g. "en-de"; part of the names of the files that are written."""
    about: str = ""
    """URL of a page with the terms of use."""
    disk: int = 0
    """Approximate disk space, in bytes, that archives and text need together."""
    archives: tuple[Archive, ...] = ()

    def __post_init__(self) -> None:
        require(bool(re.fullmatch(r"[a-z]+-[a-z]+", self.languages)), 'languages must be two, e.g. "en-de"')
        require(is_http_url(self.about), "about must be the URL of a page with the terms of use")
        names = [archive.name for archive in self.archives]
        require(len(set(names)) == len(names), "two archives have the same name")
        for split in ("train", "valid", "test"):
            require(bool(self.members(split)), f"no archive has {split} files")

    @property
    def file_names(self) -> dict[str, str]:
        """The file that is written for each split."""
        return {
            "train": f"train.{self.languages}.tsv.gz",
            "valid": f"valid.{self.languages}.tsv",
            "test": f"test.{self.languages}.tsv",
        }

    def members(self, split: str) -> list[tuple[Archive, tuple[str, ...]]]:
        """The pairs of files of a split (train, valid or test), in order, each with its archive."""
        return [(archive, pair) for archive in self.archives for pair in getattr(archive, split)]


def is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        complete = bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number
        return False
    return complete and parts.scheme in ("http", "https") and url.isascii() and url.isprintable() and " " not in url


def corpus_names() -> list[str]:
    folder = resources.files("transduce") / "corpora"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def how_to_get(file: Path) -> str:
    """The end of a message about missing text: the command that gets it, if its folder is named after a corpus."""
    corpus = file.parent.name
    return f"; to get it: transduce data get {corpus}" if corpus in corpus_names() else ""


def read_corpus(name: str) -> PublicCorpus:
    """Read the description of a corpus: one of the package, by its name, or a .toml file."""
    if name.endswith(".toml"):
        return build(PublicCorpus, read_toml(Path(name)), name)
    if name not in (names := corpus_names()):
        raise ConfigError(
            f"no corpus {name}{suggestion(name, [*names, 'demo'])}; the corpora are {', '.join(names)} and demo; for "
            "another one, give a .toml file that describes it"
        )
    with resources.as_file(resources.files("transduce") / "corpora" / f"{name}.toml") as path:
        return build(PublicCorpus, read_toml(path), name)
