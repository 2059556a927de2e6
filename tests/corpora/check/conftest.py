"""A corpus to plant errors into."""

import pytest

from transduce.corpora.demo.corpus import DemoCorpus, demo_corpus


@pytest.fixture(scope="session")
def demo() -> DemoCorpus:
    """A part of the demo corpus, which has no errors."""
    return demo_corpus(train=4_000, valid=100, test=100)
