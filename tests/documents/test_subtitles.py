"""Subtitles: cues, speakers and line breaks."""

import re

from translated_documents import read, translated

from transduce.documents.document import AlignedTranslation


def test_speakers_with_several_lines_are_separate() -> None:
    cue = "1\n00:00:01,000 --> 00:00:02,000\n"
    document = read("a.srt", f"{cue}Both of you!\n- Yes,\nof course.\n<i>- No.</i>\n".encode())
    assert [text.text for text in document.texts] == ["Both of you!", "Yes, of course.", "No."]
    written = cue + "BOTH OF YOU!\n- YES, OF\nCOURSE.\n<i>- NO.</i>\n"
    assert translated(document, str.upper).decode() == written
    document = read("a.srt", f"{cue}He has gone\n- to bed.\n".encode())
    assert [text.text for text in document.texts] == ["He has gone - to bed."]


def test_a_dash_after_the_end_of_a_sentence_is_that_of_a_speaker() -> None:
    cue = "1\n00:00:01,000 --> 00:00:02,000\n"
    for lines in ("Yes.\nNo.\nReally?\n- One\n", "- One of\nus.\n", "<i>Who?</i>\n- Tom: me.\n"):
        document = read("a.srt", f"{cue}{lines}".encode())
        assert not [text.text for text in document.texts if "-" in text.text]
        assert translated(document, str.upper).decode() == cue + re.sub("(?<!<)[a-zA-Z](?!>)", upper, lines)


def upper(letter: re.Match[str]) -> str:
    return letter[0].upper()


def test_no_line_begins_after_a_dash_that_stands_by_itself() -> None:
    cue = "1\n00:00:01,000 --> 00:00:02,000\n"
    document = read("a.srt", f"{cue}He has gone\n- to bed.\n".encode())
    assert document.write([AlignedTranslation("Er ging - zu Bett.")]).decode() == f"{cue}Er ging\n- zu Bett.\n"
    document = read("a.srt", f"{cue}One\ntwo\n- three\n".encode())
    assert document.write([AlignedTranslation("A - b")]).decode() == f"{cue}A\n- b\n"


def test_text_after_an_empty_line_belongs_to_the_cue_in_srt_only() -> None:
    times = "00:00:01,000 --> 00:00:02,000"
    source = f"1\n{times}\nfirst line\n\ntwo more\nlines\n\n\n2\n{times}\n\nthe end\n"
    document = read("a.srt", source.encode())
    assert [text.text for text in document.texts] == ["first line", "two more lines", "the end"]
    assert translated(document, str.upper).decode() == source.upper()
    document = read("a.vtt", f"WEBVTT\n\n{times}\nfirst line\n\nNOTE a remark\n\n{times}\nthe end\n".encode())
    assert [text.text for text in document.texts] == ["first line", "the end"]


def test_cues_without_an_empty_line_between_them_are_separate() -> None:
    times = "00:00:01,000 --> 00:00:02,000"
    source = f"1\n{times}\na cat\n2\n{times}\n10\nmore\n{times}\na dog\n"
    document = read("a.srt", source.encode())
    assert [text.text for text in document.texts] == ["a cat", "10 more", "a dog"]
    assert translated(document, str.upper).decode() == f"1\n{times}\nA CAT\n2\n{times}\n10\nMORE\n{times}\nA DOG\n"


def test_subtitles_keep_their_number_of_lines() -> None:
    document = read("plain.srt")
    written = document.write(
        [AlignedTranslation("Guten Tag."), AlignedTranslation("Das sind zwei Zeilen mit Text.")]
    ).decode()
    assert "Guten Tag.\n\n2\n" in written
    assert "Das sind zwei\nZeilen mit Text.\n" in written


def test_the_header_of_webvtt_gets_the_language() -> None:
    cue = "00:01.000 --> 00:02.000\n{}\n\nNOTE\nLanguage: en\n"
    document = read("a.vtt", f"WEBVTT\nKind: captions\nLanguage: en-US\n\n{cue.format('the end')}".encode())
    expected = f"WEBVTT\nKind: captions\nLanguage: de\n\n{cue.format('THE END')}"
    assert translated(document, str.upper).decode() == expected
    document = read("a.vtt", f"WEBVTT\n\n{cue.format('the end')}".encode())  # without a header
    assert translated(document, str.upper).decode() == f"WEBVTT\n\n{cue.format('THE END')}"
