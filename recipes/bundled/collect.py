"""More text for the bundled model, out of public repositories: pairs, and sentences of one language.

    python recipes/bundled/collect.py REPOSITORIES OUT

REPOSITORIES has a clone OWNER+NAME (or OWNER+NAME/repo) of each repository in the table SOURCES; one
that is missing is skipped. Writes OUT/NAME.en-de.tsv, OUT/NAME.en-fr.tsv, OUT/NAME.en ... and prints their sizes.
Paragraphs are cut into sentences if both languages have the same number; the licences are in SOURCES.
"""

import csv
import gzip
import html
import io
import itertools
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from transduce.translation.sentences import split_sentences

Rows = Iterator[tuple[str, dict[str, str]]]
"""Name of the output, and the same text in each language that has it."""

_LANGUAGES = ("de", "fr")
_MOST_WORDS = 90


class Repository:
    """The files of a clone at a commit."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.folder, self.commit = folder, commit
        self.names = self._git("ls-tree", "-r", "-z", "--name-only", commit).decode().split("\0")

    def read(self, name: str) -> bytes:
        """The content of a file; empty if the clone does not have it."""
        done = subprocess.run(["git", "-C", self.folder, "show", f"{self.commit}:{name}"], capture_output=True)
        return done.stdout

    def text(self, name: str) -> str:
        return self.read(name).decode("utf-8", "replace")

    def find(self, pattern: str) -> list[re.Match[str]]:
        return [match for match in map(re.compile(pattern).fullmatch, self.names) if match]

    def _git(self, *words: str) -> bytes:
        return subprocess.run(["git", "-C", self.folder, *words], capture_output=True, check=True).stdout


_PO_STRING = re.compile(r'^(msgctxt|msgid|msgid_plural|msgstr(?:\[\d\])?)?\s*"(.*)"\s*$')
_ESCAPE = re.compile(r"\\(.)")


def po_pairs(text: str) -> Iterator[tuple[str, str]]:
    """The translated messages of a .po file, without fuzzy ones."""
    for entry in re.split(r"\n\s*\n", text):
        if re.search(r"^#,.*fuzzy", entry, re.M) or re.search(r"^#~", entry, re.M):
            continue
        parts: dict[str, str] = {}
        field = ""
        for line in entry.splitlines():
            if match := _PO_STRING.match(line):
                field = match[1] or field
                parts[field] = parts.get(field, "") + _ESCAPE.sub(
                    lambda m: {"n": "\n", "t": " "}.get(m[1], m[1]), match[2]
                )
        if parts.get("msgid") and (translation := parts.get("msgstr") or parts.get("msgstr[0]")):
            yield parts["msgid"], translation


def po(name: str, pattern: str) -> Callable[[Repository], Rows]:
    """Reads .po files whose path has the language as group 1."""

    def read(repository: Repository) -> Rows:
        for match in repository.find(pattern):
            for source, target in po_pairs(repository.text(match[0])):
                yield name, {"en": source, match[1]: target}

    return read


_FRONT, _FENCE = re.compile(r"\A---\n.*?\n---\n", re.S), re.compile(r"^(\s*)(```|~~~).*?^\s*\2\s*$", re.S | re.M)
_LINK, _TAGS = re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), re.compile(r"<[^>]+>|\{#[^}]*\}")
_MARKER = re.compile(r"^\s*(#+|[-*+>]|\d+[.)])\s+")


def markdown_blocks(text: str) -> list[tuple[str, str]]:
    """Kind and text of each paragraph, heading and list item."""
    text = _FENCE.sub("\n\n```\n\n", _FRONT.sub("", text))
    blocks: list[tuple[str, str]] = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+[.)])\s)|(?<=\n)(?=#)", text):
        block = block.strip("\n")
        marker = _MARKER.match(block)
        kind = marker[1][0] * len(marker[1]) if marker and marker[1][0] == "#" else "-" if marker else "p"
        plain = " ".join(_TAGS.sub(" ", _LINK.sub(r"\1", _MARKER.sub("", block))).replace("**", "").split())
        if plain:
            blocks.append((kind if plain != "```" else "`", plain))
    return blocks


def html_blocks(text: str) -> list[tuple[str, str]]:
    """Kind and text of each heading, paragraph, list item and table cell."""
    text = re.sub(r"<!--.*?-->|<(script|style|version|translator)\b.*?</\1>", " ", text, flags=re.S)
    found = re.findall(r"<(h\d|p|li|title|dt|dd|td)\b[^>]*>(.*?)</\1>", text, re.S)
    return [(kind, " ".join(html.unescape(_TAGS.sub(" ", inner)).split())) for kind, inner in found]


def documents(
    name: str, pattern: str, english: str, blocks: Callable[[str], list[tuple[str, str]]]
) -> Callable[[Repository], Rows]:
    """Reads documents whose path has the language as group 1; their paragraphs are aligned section by section."""

    def read(repository: Repository) -> Rows:
        known = set(repository.names)
        for match in repository.find(pattern):
            if (other := match.expand(english)) not in known:
                continue
            for source, target in aligned(blocks(repository.text(other)), blocks(repository.text(match[0]))):
                yield name, {"en": source, match[1]: target}

    return read


def aligned(source: list[tuple[str, str]], target: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Blocks of two documents that correspond: those of sections with the same sequence of kinds."""
    one, other = _sections(source), _sections(target)
    if [heads for heads, _ in one] != [heads for heads, _ in other]:
        return
    for (_, left), (_, right) in zip(one, other, strict=True):
        if [kind for kind, _ in left] == [kind for kind, _ in right]:
            yield from ((a, b) for (kind, a), (_, b) in zip(left, right, strict=True) if kind != "`")


def _sections(blocks: list[tuple[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    sections: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    for kind, text in blocks:
        if kind.startswith(("#", "h")):
            sections.append((kind, []))
        sections[-1][1].append((kind, text))
    return sections


def tldr(repository: Repository) -> Rows:
    """Descriptions of commands, matched by the command that follows each."""

    def entries(text: str) -> dict[str, str]:
        found = re.findall(r"^- (.+?):?\n\n`(.+)`", text, re.M)
        return {re.sub(r"\{\{.*?\}\}", "", command): description for description, command in found}

    known = set(repository.names)
    for match in repository.find(r"pages\.(de|fr)/(.*)"):
        if (english := f"pages/{match[2]}") in known:
            source, target = entries(repository.text(english)), entries(repository.text(match[0]))
            yield from (("tldr", {"en": source[key], match[1]: target[key]}) for key in source.keys() & target.keys())


def json_tree(name: str, pattern: str, leaf: re.Pattern[str]) -> Callable[[Repository], Rows]:
    """Reads JSON files whose path has the language as group 1: strings at the same place, whose keys `leaf` allows."""

    def strings(node: object, path: str) -> Iterator[tuple[str, str]]:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            yield from strings(value, f"{path}/{key}")
        if isinstance(node, str) and leaf.search(path):
            yield path, node

    def read(repository: Repository) -> Rows:
        texts: dict[str, dict[str, str]] = {}
        for match in repository.find(pattern):
            content = json.loads(repository.text(match[0]))
            for path, text in strings(content, re.sub(rf"\b{match[1]}\b", "", match[0])):
                texts.setdefault(re.sub(rf"/{match[1]}/", "//", path), {})[match[1]] = text
        yield from ((name, row) for row in texts.values() if "en" in row)

    return read


def taxonomy(repository: Repository) -> Rows:
    """Names of foods: the first name of each language in an entry."""
    for name in ("food/ingredients", "food/categories", "labels", "allergens", "origins", "packaging_materials"):
        for entry in re.split(r"\n\s*\n", repository.text(f"taxonomies/{name}.txt")):
            rows = dict(re.findall(r"^(en|de|fr): *([^,\n]+)", entry, re.M))
            if "en" in rows:
                yield "food-names", rows


def fluent(repository: Repository) -> Rows:
    """Messages of .ftl files of one line."""

    def messages(text: str) -> dict[str, str]:
        return dict(re.findall(r"^([a-zA-Z][\w-]*) = (.+)$", text, re.M))

    known = set(repository.names)
    for match in repository.find(r"(de|fr)/(.*\.ftl)"):
        if (english := f"en/{match[2]}") in known:
            source, target = messages(repository.text(english)), messages(repository.text(match[0]))
            yield from (
                ("mozilla-www", {"en": source[key], match[1]: target[key]}) for key in source.keys() & target.keys()
            )


def detokenized(text: str) -> str:
    """English or German text whose punctuation is separated by spaces, without those."""
    text = re.sub(r"(\w) - (?=\w)", r"\1-", text)
    text = re.sub(r" ''|'' |''|``|&quot;", '"', text)
    text = re.sub(r'(^| )" ([^"]*?) "(?= |$|[.,])', r'\1"\2"', text)
    return re.sub(r" ([.,;:!?%)\]])|([(\[]) ", r"\1\2", text).replace(" 's", "'s").replace(" n't", "n't")


def post_edits(repository: Repository) -> Rows:
    """Sentences of Wikipedia and their corrected translations; of other languages, the English sources only."""
    for match in repository.find(r"data/(?:post-editing|direct-assessments)/\w+/en-(de|zh)-\w+\.tar\.gz"):
        with tarfile.open(fileobj=io.BytesIO(repository.read(match[0]))) as archive:
            files = {name.rsplit(".", 1)[-1]: archive.extractfile(name) for name in archive.getnames()}
            src, pe = files.get("src"), files.get("pe")
            if src is None:
                continue
            sources = src.read().decode().splitlines()
            targets = pe.read().decode().splitlines() if pe and match[1] == "de" else [""] * len(sources)
            for source, target in zip(sources, targets, strict=True):
                yield "wikipedia-edits", {"en": detokenized(source)} | ({"de": detokenized(target)} if target else {})


def tatoeba(repository: Repository) -> Rows:
    """Everyday sentences in German and French."""
    data = gzip.decompress(repository.read("data/release/dev/v2023-09-26/tatoeba-dev-v2023-09-26.deu-fra.txt.gz"))
    for line in data.decode().splitlines():
        fields = line.split("\t")
        if len(fields) == 4:
            yield "tatoeba-de-fr", {"de": fields[2], "fr": fields[3]}


_CODES = {"deu": "de", "eng": "en", "fra": "fr"}
_FEWEST_BRIDGES, _MOST_TRANSLATIONS = 2, 3
_NUMBERS = re.compile(r"\d+")


def more_tatoeba(repository: Repository) -> Rows:
    """Everyday sentences beside English: translations of each other, and those that share sentences of other languages.

    A pair that only shares one sentence must be longer, and the languages must have the same numbers. German and French
    without English are sentences of one language.
    """
    bridges: dict[str, list[str]] = {}
    for match in repository.find(
        r"data/(?:devtest|dev|test|release/(?:dev|test)/[\w-]+)/.*?([a-z]{3})-([a-z]{3})[/.].*"
    ):
        for code, other in (match.groups(), match.groups()[::-1]):
            if code in _CODES:
                bridges.setdefault(other, []).append(match[0])
    direct: dict[tuple[str, str, str], None] = {}
    shared: dict[tuple[str, str, str], int] = {}
    monolingual: dict[str, dict[str, None]] = {"de": {}, "fr": {}}
    for bridge, names in bridges.items():
        texts: dict[str, dict[str, dict[str, None]]] = {}
        for code, text, other, translation in _rows_of_tatoeba(repository, names):
            if other == bridge and (language := _CODES.get(code)):
                texts.setdefault(translation, {}).setdefault(language, {})[text] = None
                if language != "en":
                    monolingual[language][text] = None
        for translation, found in texts.items():
            if bridge == "eng":
                targets = found.keys() - {"en"}
                direct |= {(translation, language, text): None for language in targets for text in found[language]}
            elif "en" in found:
                for language in found.keys() - {"en"}:
                    for key in itertools.product(list(found["en"])[:2], [language], list(found[language])[:2]):
                        shared[key] = shared.get(key, 0) + 1
    chosen: dict[tuple[str, str], list[str]] = {}
    for english, language, text in [*direct, *sorted(shared, key=lambda key: -shared[key])]:
        others = chosen.setdefault((english, language), [])
        certain = (english, language, text) in direct or _is_likely(english, text, shared[english, language, text])
        if certain and text not in others and len(others) < _MOST_TRANSLATIONS:
            others.append(text)
    for (english, language), others in chosen.items():
        for text in others:
            monolingual[language].pop(text, None)
            yield "tatoeba-more", {"en": english, language: text}
    for language, found_texts in monolingual.items():
        yield from (("tatoeba-more", {language: text}) for text in found_texts)


def _rows_of_tatoeba(repository: Repository, names: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Code and text of both languages, in both orders."""
    for name in names:
        content = repository.read(name)
        text = (gzip.decompress(content) if name.endswith(".gz") else content).decode("utf-8", "replace")
        for fields in (line.split("\t") for line in text.splitlines()):
            if len(fields) == 4:
                one, other, *texts = fields
                left, right = (" ".join(side.split()) for side in texts)
                yield one[:3], left, other[:3], right
                yield other[:3], right, one[:3], left


def _is_likely(english: str, text: str, bridges: int) -> bool:
    words = min(len(english.split()), len(text.split()))
    alike = 0.6 <= (len(text) + 8) / (len(english) + 8) <= 1.7 and english[-1:] == text[-1:]
    numbers = sorted(_NUMBERS.findall(english)) == sorted(_NUMBERS.findall(text))
    return alike and numbers and words >= (3 if bridges >= _FEWEST_BRIDGES else 5)


def lines(name: str, pattern: str) -> Callable[[Repository], Rows]:
    """Reads files of one sentence a line; the language is group 1 of the path."""

    def read(repository: Repository) -> Rows:
        for match in repository.find(pattern):
            yield from ((name, {match[1]: line}) for line in repository.text(match[0]).splitlines())

    return read


def textbook(repository: Repository) -> Rows:
    """Paragraphs of cnxml modules."""
    for match in repository.find(r"modules/\w+/index\.cnxml"):
        content = re.sub(
            r"<(m:math|equation|code|table|glossary)\b.*?</\1>", " ", repository.text(match[0]), flags=re.S
        )
        for paragraph in re.findall(r"<(?:para|item)\b[^>]*>(.*?)</(?:para|item)>", content, re.S):
            text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", paragraph)).split())
            yield "textbooks", {"en": text}


def news(repository: Repository) -> Rows:
    for match in repository.find(r"data/.*\.csv"):
        for row in csv.DictReader(io.StringIO(repository.text(match[0]))):
            yield "wikinews", {"en": row["title"]}
            yield from (("wikinews", {"en": paragraph}) for paragraph in row["text"].split("\n"))


def split_pairs(repository: Repository) -> Rows:
    for match in repository.find(r"(?:test|tune|validation)\.tsv"):
        for line in repository.text(match[0]).splitlines():
            yield "wikipedia-split", {"en": detokenized(line.split("\t")[0])}


def cooking(repository: Repository) -> Rows:
    for match in repository.find(r"content/.*\.md"):
        yield from (("cooking", {"en": text}) for _, text in markdown_blocks(repository.text(match[0])))


def debates(repository: Repository) -> Rows:
    for match in repository.find(r"parser/data_19/\d+-data\.xml"):
        for paragraph in re.findall(r'<p klasse="(?:J|O|J_1)">([^<]*)</p>', repository.text(match[0])):
            yield "bundestag", {"de": html.unescape(paragraph)}


def treebank(repository: Repository) -> Rows:
    """Sentences of news and Wikipedia in a treebank; parallel ones are joined afterwards by their number."""
    for match in repository.find(r"(en|de|fr)_pud-ud-test\.conllu"):
        for text in re.findall(r"^# text = (.*)$", repository.text(match[0]), re.M):
            yield "pud", {match[1]: text}


class Source(NamedTuple):
    """A repository, what reads it, its licence, and the commit to read."""

    repository: str
    read: Callable[[Repository], Rows]
    licence: str
    commit: str = "HEAD"


_BOOKS = {  # the last commit under CC BY 4.0; later ones are CC BY-NC-SA
    "american-government": "37ee81a~1", "anatomy-physiology": "fdfa6e2~1", "astronomy": "4aedbad~1",
    "biology-bundle": "4ea6132~1", "business-ethics": "658a300~1", "chemistry-bundle": "0243cd5~1",
    "entrepreneurship": "f54bbd3~1", "introduction-anthropology": "HEAD", "introduction-business": "HEAD",
    "introduction-political-science": "da3ba0d~1", "introduction-sociology": "cb424bc~1",
    "principles-economics-bundle": "HEAD", "psychology": "e91efc4~1", "us-history": "ec99b9a~1",
    "world-history": "b2ddac6~1", "writing-guide": "59c6457~1",
}  # fmt: skip

SOURCES = [
    Source(
        "GNOME/gnome-user-docs", po("gnome-help", r"(?:gnome-help|system-admin-guide)/(de|fr)/.*\.po"), "CC BY-SA 3.0"
    ),
    Source("GNOME/gimp-help", po("gimp-help", r"po/(de|fr)/.*\.po"), "GFDL 1.2+"),
    Source("python/python-docs-fr", lambda r: po_python(r), "CC0 (translations)", "3.13"),
    Source(
        "openstreetmap/id-tagging-schema",
        json_tree(
            "map-features",
            r"dist/translations/(en|de|fr)\.json",
            re.compile(r"/(name|label|title|description)$|/options/"),
        ),
        "ISC",
    ),
    Source(
        "unicode-org/cldr-json",
        json_tree(
            "cldr-names",
            r"cldr-json/cldr-(?:localenames-full/main|annotations-full/annotations)/(en|de|fr)/(?:languages|territories|annotations)\.json",
            re.compile(r"/(languages|territories)/[^/]+$|/tts/0$"),
        ),
        "Unicode License v3",
    ),
    Source("openfoodfacts/openfoodfacts-server", taxonomy, "ODbL 1.0"),
    Source("tldr-pages/tldr", tldr, "CC BY 4.0"),
    Source(
        "ethereum/ethereum-org-website",
        documents("ethereum", r"public/content/translations/(de|fr)/(.*\.md)", r"public/content/\2", markdown_blocks),
        "MIT",
    ),
    Source(
        "kubernetes/website",
        documents("kubernetes", r"content/(de|fr)/(.*\.md)", r"content/en/\2", markdown_blocks),
        "CC BY 4.0",
    ),
    Source(
        "github/opensource.guide",
        documents("opensource-guide", r"_articles/(de|fr)/(.*\.md)", r"_articles/\2", markdown_blocks),
        "CC BY 4.0",
    ),
    Source(
        "fsfe/fsfe-website",
        documents("fsfe", r"(?=.*\.(de|fr)\.xhtml)(.*)\.\w\w\.xhtml", r"\2.en.xhtml", html_blocks),
        "CC BY-SA 4.0",
    ),
    Source("mozilla-l10n/www-l10n", fluent, "MPL 2.0"),
    Source("sheffieldnlp/mlqe-pe", post_edits, "CC0"),
    Source("Helsinki-NLP/Tatoeba-Challenge", tatoeba, "CC BY 2.0 FR"),
    Source("Helsinki-NLP/Tatoeba-Challenge", more_tatoeba, "CC BY 2.0 FR"),
    Source("common-voice/common-voice", lines("common-voice", r"server/data/(en|de|fr)/.*"), "CC0"),
    Source("vanatteveldt/wikinews", news, "CC BY 2.5"),
    Source(
        "Softcatala/parallel-catalan-corpus", lines("global-voices", r"eng-cat/globalvoices\.en-ca\.(en)"), "CC BY 3.0"
    ),
    Source("google-research-datasets/wiki-split", split_pairs, "CC BY-SA 4.0"),
    Source("LukeSmithxyz/based.cooking", cooking, "public domain"),
    Source("sevenbanisch/bundestagsreden", debates, "official work (Bundestag)"),
    *(
        Source(f"UniversalDependencies/UD_{name}-PUD", treebank, "CC BY-SA 3.0")
        for name in ("English", "German", "French")
    ),
    *(Source(f"openstax/osbooks-{name}", textbook, "CC BY 4.0", commit) for name, commit in _BOOKS.items()),
]


def po_python(repository: Repository) -> Rows:
    for match in repository.find(r".*\.po"):
        for source, target in po_pairs(repository.text(match[0])):
            yield "python-docs", {"en": source, "fr": target}


_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>")
_ROLE = re.compile(r":[a-z:]+:`~?\.?([^`<]*?)(?:\s*<[^`]*>)?`|``([^`]*)``|`([^`<]+) <[^`]*>`__?")


def tidy(text: str) -> str:
    """A text without markup and with single spaces."""
    text = _ROLE.sub(lambda match: match[1] or match[2] or match[3] or "", text)
    return " ".join(html.unescape(_MARKUP.sub("", text)).replace("**", "").split())


def sentences(rows: dict[str, str]) -> Iterator[dict[str, str]]:
    """The sentences of a text, if all languages have the same number of them; otherwise a short text as a whole."""
    split = {
        language: [sentence.text.strip() for sentence in split_sentences(text, language)]
        for language, text in rows.items()
    }
    if len({len(parts) for parts in split.values()}) == 1:
        for texts in zip(*split.values(), strict=True):
            yield dict(zip(split, texts, strict=True))
    elif all(len(text.split()) <= _MOST_WORDS // 2 for text in rows.values()):
        yield rows


def is_good(rows: dict[str, str]) -> bool:
    """Whether texts look like sentences, names or phrases, and the languages like translations of each other."""
    for text in rows.values():
        if (
            not text
            or len(text.split()) > _MOST_WORDS
            or len(text) > 600
            or sum(map(str.isalpha, text)) < 0.5 * len(text)
        ):
            return False
    if len(rows) == 1:
        text = next(iter(rows.values()))
        return 4 <= len(text.split()) <= 60 and text[0].isalnum() and text[-1] in '.!?"”'
    sizes = [len(text) for text in rows.values()]
    first, *others = rows.values()
    return max(sizes) <= 2.5 * min(sizes) + 12 and (all(first != other for other in others) or max(sizes) < 12)


def collect(sources: Iterable[Source], folder: Path) -> dict[str, dict[tuple[str, ...], dict[str, None]]]:
    """Lines of each output name and its languages."""
    found: dict[str, dict[tuple[str, ...], dict[str, None]]] = {}
    for source in sources:
        place = folder / source.repository.replace("/", "+")
        place = next((path for path in (place / "repo" / ".git", place / "repo", place) if path.exists()), place)
        if not place.exists():
            print(f"missing: {source.repository}", file=sys.stderr)
            continue
        for name, rows in source.read(Repository(place, source.commit)):
            others = [language for language in _LANGUAGES if language in rows and "en" in rows]
            for part in [{"en": rows["en"], other: rows[other]} for other in others] or [rows]:
                for clean in sentences({language: tidy(text) for language, text in part.items()}):
                    if is_good(clean) or (name == "pud" and clean):
                        found.setdefault(name, {}).setdefault(tuple(clean), {})["\t".join(clean.values())] = None
    return found


def main() -> None:
    """Write the files."""
    folder, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for name, languages in collect(SOURCES, folder).items():
        for key, texts in languages.items():
            path = out / f"{name}.{'-'.join(key)}{'.tsv' if len(key) > 1 else ''}"
            path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
            print(f"{path}: {len(texts)}")


if __name__ == "__main__":
    main()
