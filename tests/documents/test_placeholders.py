"""Placeholders of messages, whose order a translation may change."""

import re
from typing import Any

import pytest
from translated_documents import read

from transduce.documents.document import AlignedTranslation
from transduce.documents.placeholders import number_placeholders


@pytest.mark.parametrize(
    ("flag", "message", "translation", "written"),
    [
        ("c-format", "%d files in %s", "%1$s Dateien in %2$s", "%d Dateien in %s"),
        ("c-format", "%d files in %s", "In %2$s: %1$s Dateien", "In %2$s: %1$d Dateien"),
        ("c-format", "copy %s to %s", "nach %2$s %1$s", "nach %2$s %1$s"),
        ("c-format", "%d%% of %s (%m)", "%2$s: %1$s%% (%m)", "%2$s: %1$d%% (%m)"),
        ("c-format", "%*d of %-8.*f to %s", "%3$s %2$s %1$s", "%5$s %4$-8.*3$f %2$*1$d"),
        ("c-format", "%ld or %<PRIu64>", "%2$s %1$s", "%2$<PRIu64> %1$ld"),
        ("c-format", "%d and %d", "%1$s und", None),
        ("c-format", "%d and %d", "%1$s %1$s %2$s", None),
        ("c-format", "%2$d and %1$d", "%1$d und %2$d", "%1$d und %2$d"),
        ("c-format", "all of %s, 50% done", "50% von %s", "50% von %s"),
        ("php-format", "%d files in %s", "%2$s: %1$s", "%2$s: %1$d"),
        ("object-pascal-format", "%d files in %s", "%2$s: %1$s", "%1:s: %0:d"),
        ("python-brace-format", "{} of {:*>5} {{}}", "{2} {1} {{}}", "{1:*>5} {0} {{}}"),
        ("python-format", "%d files in %s", "%1$s Dateien in %2$s", "%d Dateien in %s"),
        ("python-format", "%d files in %s", "%2$s: %1$s", None),
        ("python-format", "%(n)d files in %(d)s", "%(d)s: %(n)d", "%(d)s: %(n)d"),
        ("no-c-format", "%d files in %s", "%s: %d", "%s: %d"),
    ],
)
def test_placeholders_get_numbers_if_their_order_changes(
    flag: str, message: str, translation: str, written: str | None
) -> None:
    assert number_placeholders(message, {"fuzzy", flag}).restore(translation) == written


def test_messages_of_a_po_file_have_placeholders_in_the_order_of_their_arguments() -> None:
    catalogue = (
        '#, c-format\nmsgid "a file in %s (%s)"\nmsgid_plural "%d files in %s"\nmsgstr[0] ""\nmsgstr[1] ""\n\n'
        '#~ msgid "x"\n\n#: a.py:1\n#, python-format\n#| msgid "y"\nmsgid "<b>%d</b> of %s"\nmsgstr ""\n\n'
        'msgid "%d by %s"\nmsgstr ""\n'
    )
    document = read("a.po", catalogue.encode())
    assert [text.text for text in document.texts] == [
        "a file in %1$s (%2$s)", "%1$s files in %2$s", "%1$s of %2$s", "7 by %s", "%d by %s",
    ]  # fmt: skip
    outputs = ["eine in %1$s (%2$s)", "In %2$s: %1$s", "Von %2$s %1$s", "von %s 7", "von %s %d"]
    written = document.write([AlignedTranslation(text) for text in outputs]).decode()
    assert written == catalogue.replace('[0] ""', '[0] "eine in %s (%s)"').replace(
        '[1] ""', '[1] "In %2$s: %1$d"'
    ).replace('by %s"\nmsgstr ""', 'by %s"\nmsgstr "von %s %d"')
    warning = (
        "a.po: 1 message stays untranslated (first: line 13): the translation lacks or repeats a placeholder, or has "
        "them in an order that the format cannot express"
    )
    assert document.warning == warning
    for translation in ("von %1$s", "%1$s von %2$s und %2$s"):
        outputs[2] = translation
        document.write([AlignedTranslation(text) for text in outputs])
        assert document.warning == warning
    outputs[2] = "%1$s von %2$s"
    document.write([AlignedTranslation(text) for text in outputs])
    assert not document.warning


@pytest.mark.parametrize(
    ("outputs", "written"),
    [
        (["1 Datei", "-", "(7 Dateien)", "-", "7 weg.", "-"], ["%d Datei", "(%d Dateien)", "%(n)d weg."]),
        (["eine Datei", "%d Datei", "7 von 7", "%d alle", "17 weg", "%(n)d"], ["%d Datei", "%d alle", "%(n)d"]),
    ],
)
def test_a_number_stands_for_the_placeholder_of_a_count(outputs: list[str], written: list[str]) -> None:
    catalogue = (
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n\n'
        'msgid "%(n)d items are gone."\nmsgstr ""\n\nmsgid "%d-bit"\nmsgstr "%d-bit"\n'
    )
    document = read("a.po", catalogue.encode())
    texts = ["1 file", "%d file", "7 files", "%d files", "7 items are gone.", "%(n)d items are gone."]
    assert [text.text for text in document.texts] == texts
    result = document.write([AlignedTranslation(text) for text in outputs]).decode()
    assert re.findall('^msgstr.* "(.*)"', result, re.MULTILINE) == [*written, "%d-bit"]


def test_the_command_warns_of_messages_that_stay(transduce: Any, trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.documents.placeholders.FormatText.restore", lambda *_: None)
    catalogue = '#, python-format\nmsgid "babo %s gigo %s"\nmsgstr ""\n'
    outcome = transduce("translate", "-m", trained.run, "--format", "po", stdin=catalogue, cwd=trained.folder)
    assert outcome.out == catalogue
    assert "warning: -: 1 message stays untranslated (first: line 3)" in outcome.err
