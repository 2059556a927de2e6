"""Times of day in 12 hours."""

import pytest

from transduce.translation.times import in_24_hours


@pytest.mark.parametrize(
    ("text", "language", "written"),
    [
        ("5:30 pm", "de", "17:30"),
        ("5 p.m.", "fr-CA", "17:00"),
        ("12am", "de", "0:00"),
        ("12:15 PM", "de", "12:15"),
        ("9am – 5.30pm", "de", "9:00 – 17:30"),
        ("5:30 pm", "en", "5:30 pm"),
        ("5:30 pm", None, "5:30 pm"),
        ("9-5 pm", "de", "9-5 pm"),
        ("17:30 pm", "de", "17:30 pm"),
        ("5 km", "de", "5 km"),
    ],
)
def test_times_are_written_as_in_the_language(text: str, language: str | None, written: str) -> None:
    assert in_24_hours(text, language) == written
