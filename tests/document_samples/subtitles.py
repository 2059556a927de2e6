"""SRT and WebVTT files."""

from document_samples.registry import sample


@sample
def plain_srt() -> str:
    return "1\n00:00:01,000 --> 00:00:02,000\nHello there.\n\n2\n00:00:03,000 --> 00:00:04,500\nTwo lines\nof text.\n"


@sample
def marked_srt() -> str:
    return "\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>slanted</i> {\\an8}words\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n- Who?\r\n- Me & you.\r\n"


@sample
def numbers_srt() -> str:
    return "1\n00:00:01,000 --> 00:00:02,000 X1:0 X2:9\n1984\n\n2\n00:00:03,000 --> 00:00:04,000\n[music]"


@sample
def plain_vtt() -> str:
    return "WEBVTT - title\n\nNOTE a remark\n\nSTYLE\n::cue { color: red }\n\nintro\n00:01.000 --> 00:02.000 align:start\nHello &amp; welcome\n"


@sample
def voices_vtt() -> str:
    return "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n<v Fred>Hi, <b>all</b> of you\nand <c.yellow>others</c>\n"
