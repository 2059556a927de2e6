"""The embedded English-German demo corpus, generated from a small grammar."""

from transduce.corpora.demo.corpus import DemoCorpus, demo_corpus, write_demo_corpus

__all__ = ["DemoCorpus", "demo_corpus", "write_demo_corpus"]
