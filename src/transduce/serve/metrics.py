"""Prometheus metrics of a server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ServerMetrics:
    """Counters, gauges and histograms of one server; no label contains a text or an API key."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()

        def counter(name: str, description: str, *labels: str) -> Counter:
            return Counter(f"transduce_{name}", description, labels, registry=registry)

        self._requests = counter("requests", "Requests answered.", "path", "status")
        self._seconds = Histogram(
            "transduce_request_seconds",
            "Seconds from the first byte of a request to the last byte of its response.",
            ["path"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.waiting = Gauge("transduce_waiting_requests", "Requests with sentences in the queue.", registry=registry)
        self.running = Gauge("transduce_running_sentences", "Sentences on the device.", registry=registry)
        self.steps = counter("steps", "Search steps.")
        self.sentences = counter("sentences", "Sentences translated.")
        self.source_tokens = counter("source_tokens", "Source tokens of the sentences translated.")
        self.output_tokens = counter("output_tokens", "Tokens of the best output of each sentence.")
        self.dropped = counter(
            "dropped_sentences", "Sentences dropped because the client disconnected or the time limit was exceeded."
        )

    def count_request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self._registry)
