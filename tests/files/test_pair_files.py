"""TMX, XLIFF and PO as training data."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from transduce.errors import DataError
from transduce.files.pair_formats import FUZZY, OTHER_THAN_TWO, UNTRANSLATED, writer_of
from transduce.files.pairs import Pair, ReadReport, pair_writer, read_pairs
from transduce.files.po import BAD_PO


def read(path: Path, content: str | bytes) -> tuple[list[Pair], ReadReport]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    report = ReadReport()
    return list(read_pairs([(str(path),)], report)), report


TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="EN-us"/><body>
<tu><tuv xml:lang="en"><seg>a <bpt i="1">&lt;b&gt;</bpt>good<ept i="1">&lt;/b&gt;</ept>
 d&#228;y &amp; night</seg></tuv><tuv xml:lang="de"><seg>ein guter T\u00e4g</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>rot</seg></tuv><tuv xml:lang="en-GB"><seg>r<hi>e</hi>d</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>one</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>two</seg></tuv><tuv xml:lang="de"><seg> </seg></tuv></tu>
</body></tmx>
"""


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "ISO-8859-1"])
def test_translation_memory(tmp_path: Path, encoding: str) -> None:
    pairs, report = read(tmp_path / "a.tmx", TMX.format(encoding=encoding).encode(encoding))
    assert pairs == [("a good däy & night", "ein guter Täg"), ("red", "rot")]
    assert report.left_out == {OTHER_THAN_TWO: 1, "with an empty side": 1}
    assert report.first[OTHER_THAN_TWO].endswith("line 7")


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_compressed_translation_memory(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    compressed = compress(TMX.format(encoding="UTF-8").encode())
    pairs, _ = read(tmp_path / f"a.tmx{suffix}", compressed)
    assert len(pairs) == 2
    with pytest.raises(DataError, match="damaged or cut short after line"):
        read(tmp_path / f"a.tmx{suffix}", compressed[:-9])


def test_xliff(tmp_path: Path) -> None:
    pairs, report = read(
        tmp_path / "a.xlf",
        """<xliff version="1.2"><file><body>
<trans-unit id="1"><source>a <g id="1">red</g><x id="2"/> house</source><target>ein rotes Haus</target>
<alt-trans><source>x</source><target>y</target></alt-trans></trans-unit>
<trans-unit id="2"><source>new</source></trans-unit></body></file></xliff>""",
    )
    assert pairs == [("a red house", "ein rotes Haus")]
    assert report.left_out == {UNTRANSLATED: 1}
    pairs, _ = read(
        tmp_path / "b.xliff",
        '<xliff version="2.0"><file><unit id="1"><segment><source>one</source><target>eins</target></segment>'
        "<ignorable><source> </source></ignorable><segment><source>two</source><target>zwei</target></segment>"
        "</unit></file></xliff>",
    )
    assert pairs == [("one", "eins"), ("two", "zwei")]


def test_message_catalogue(tmp_path: Path) -> None:
    pairs, report = read(
        tmp_path / "a.po",
        'msgid ""\nmsgstr "header"\n\n# note\nmsgctxt "menu"\nmsgid "open \\"it\\"\\n"\n"now"\nmsgstr "auf"\n\n'
        '#, fuzzy\nmsgid "old"\nmsgstr "alt"\n\nmsgid "new"\nmsgstr ""\n\nmsgid "%d day"\nmsgid_plural "%d days"\n'
        'msgstr[0] "%d Tag"\nmsgstr[1] "%d Tage"\n\nmsgid "broken"\nnonsense\nmsgstr "kaputt"\n\n#~ msgid "x"\n'
        'msgid "last"\nmsgstr "letzte"\n',
    )
    assert [source for source, _ in pairs] == ['open "it" now', "last"]
    assert report.left_out == {FUZZY: 1, UNTRANSLATED: 2, BAD_PO: 1}


def test_entities_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><tmx><header/><body><tu>&b;</tu></body></tmx>'
    with pytest.raises(DataError, match="declares entities is not read"):
        read(tmp_path / "a.tmx", bomb)


def test_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.tmx, line 2: not well-formed XML: mismatched tag"):
        read(tmp_path / "a.tmx", "<tmx>\n<body></tmx>")


@pytest.mark.parametrize("name", ["a.tmx", "a.xliff", "a.po"])
def test_pairs_are_not_written_in_these_formats(name: str) -> None:
    message = rf"{name}: pairs are not written in this format; end its name in \.tsv, \.jsonl"
    with pytest.raises(DataError, match=message + r" or \.ndjson$"):
        writer_of(Path(name))
    with pytest.raises(DataError, match=message + r", \.ndjson, \.parquet or \.arrow$"), pair_writer(Path(name)):
        pass
