"""What a server counts, in the form Prometheus reads."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters of one server; none of them knows a text or a key."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "transduce_requests", "Requests answered.", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "transduce_request_seconds",
            "From a request's first byte to its answer's last.",
            ["path"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._waiting = Gauge(
            "transduce_waiting_requests", "Requests with sentences in the queue.", registry=self._registry
        )
        self._running = Gauge("transduce_running_sentences", "Sentences on the device.", registry=self._registry)
        self.steps = Counter("transduce_steps", "Steps of search.", registry=self._registry)
        self._sentences = Counter("transduce_sentences", "Sentences translated.", registry=self._registry)
        self._source_tokens = Counter("transduce_source_tokens", "Their source tokens.", registry=self._registry)
        self._output_tokens = Counter(
            "transduce_output_tokens", "Tokens of their best outputs.", registry=self._registry
        )
        self.dropped = Counter(
            "transduce_dropped_sentences",
            "Sentences given up: the client left, or time was over.",
            registry=self._registry,
        )

    def watch(self, waiting: Callable[[], float], running: Callable[[], float]) -> None:
        """Where to look for what is in the queue and on the device."""
        self._waiting.set_function(waiting)
        self._running.set_function(running)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def translated(self, sentences: int, source_tokens: int, output_tokens: int) -> None:
        """Count work done."""
        self._sentences.inc(sentences)
        self._source_tokens.inc(source_tokens)
        self._output_tokens.inc(output_tokens)

    def text(self) -> bytes:
        """Everything counted so far."""
        return generate_latest(self._registry)
