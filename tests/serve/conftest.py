"""Fixtures of the HTTP interface: a model, and servers in a thread."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from serving import TIMEOUT, serve_in_thread

from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(trained: Any) -> Translator:
    return Translator.load(trained.run)


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[httpx.Client]:
    with serve_in_thread([("en-de", translator), ("toy", translator)]) as (address, _):
        yield from connected(address)


def connected(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=TIMEOUT) as client:
        yield client


@pytest.fixture(scope="module")
def guarded(translator: Translator) -> Iterator[httpx.Client]:
    """A server with API keys and low limits."""
    limits = {
        "characters": 100,
        "sentences": 5,
        "beam": 3,
        "nbest": 2,
        "max_extra": 10,
        "body_bytes": 2000,
        "output_tokens": 100,
    }
    with serve_in_thread([("en-de", translator)], keys=["open sesame", "friend"], **limits) as (address, _):
        yield from connected(address)
