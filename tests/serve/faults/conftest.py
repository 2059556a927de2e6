"""A server that the tests of faults share.

`make faults` (FAULTS=full) runs these tests at full length; the normal test suite runs a short version.
"""

from collections.abc import Iterator

import pytest
from serving import serve_in_thread

from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def address(translator: Translator) -> Iterator[str]:
    """The address of a server with low limits, in a thread."""
    limits = {"body_bytes": 100_000, "characters": 2000}
    with serve_in_thread([("en-de", translator), ("toy", translator)], **limits) as (address, _):
        yield address
