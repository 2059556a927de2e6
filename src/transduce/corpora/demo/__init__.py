"""The embedded English-German demo corpus, generated from a small grammar."""
