"""Prometheus metrics of a server."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ServerMetrics:
    """Counters, gauges and histograms of one server; no label contains a text or an API key."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("transduce_requests", "Requests answered.", ["path", "status"], registry=registry)
        self._seconds = Histogram(
            "transduce_request_seconds",
            "Seconds from the first byte of a request to the last byte of its response.",
            ["path"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._waiting = Gauge("transduce_waiting_requests", "Requests with sentences in the queue.", registry=registry)
        self._running = Gauge("transduce_running_sentences", "Sentences on the device.", registry=registry)
        self.steps = Counter("transduce_steps", "Search steps.", registry=registry)
        self._sentences = Counter("transduce_sentences", "Sentences translated.", registry=registry)
        self._source_tokens = Counter(
            "transduce_source_tokens", "Source tokens of the sentences translated.", registry=registry
        )
        self._output_tokens = Counter(
            "transduce_output_tokens", "Tokens of the best output of each sentence.", registry=registry
        )
        self.dropped = Counter(
            "transduce_dropped_sentences",
            "Sentences dropped because the client disconnected or the time limit was exceeded.",
            registry=registry,
        )

    def set_gauges(self, waiting: Callable[[], float], running: Callable[[], float]) -> None:
        """Set the functions that return the number of waiting requests and of running sentences."""
        self._waiting.set_function(waiting)
        self._running.set_function(running)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_translations(self, sentences: int, source_tokens: int, output_tokens: int) -> None:
        self._sentences.inc(sentences)
        self._source_tokens.inc(source_tokens)
        self._output_tokens.inc(output_tokens)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self._registry)
