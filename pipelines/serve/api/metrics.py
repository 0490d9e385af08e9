"""What Prometheus reads from `/metrics`: requests, latencies, batches, the queue, tokens."""

import os
from collections.abc import Callable
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (16, 64, 256, 1_024, 4_096, 16_384)


class Metrics:
    """The metrics of a process, or with `PROMETHEUS_MULTIPROC_DIR`, of the processes that share that folder."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options: dict[str, Any] = dict(namespace="kerasbert", registry=self.registry)
        self.requests = Counter("requests", "Requests", ["endpoint", "status"], **options)
        self.latency = Histogram("request_seconds", "Time of requests", ["endpoint"], buckets=SECONDS, **options)
        self.tokens = Counter("tokens", "Tokens that were read, without padding", ["model"], **options)
        self.batch_rows = Histogram("batch_rows", "Rows of batches", buckets=ROWS, **options)
        self.batch_tokens = Histogram("batch_tokens", "Tokens of batches, without padding", buckets=TOKENS, **options)
        self.batch_seconds = Histogram("batch_seconds", "Time of batches", buckets=SECONDS, **options)
        self.queue = Gauge("queue_tokens", "Tokens that wait", multiprocess_mode="livesum", **options)

    def watch_queue(self, waiting: Callable[[], int]) -> None:
        """Sets the function that returns the number of tokens that wait."""
        self.waiting = waiting

    def observe_request(self, endpoint: str, status: int, seconds: float) -> None:
        self.requests.labels(endpoint, str(status)).inc()
        self.latency.labels(endpoint).observe(seconds)
        self.queue.set(self.waiting())

    def observe_tokens(self, model: str, tokens: int) -> None:
        self.tokens.labels(model).inc(tokens)

    def observe_batch(self, rows: int, tokens: int, seconds: float) -> None:
        self.batch_rows.observe(rows)
        self.batch_tokens.observe(tokens)
        self.batch_seconds.observe(seconds)

    def text(self) -> tuple[bytes, str]:
        """The metrics, and their content type."""
        registry = self.registry
        self.queue.set(self.waiting())
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            from prometheus_client import multiprocess

            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        return prometheus_client.generate_latest(registry), prometheus_client.CONTENT_TYPE_LATEST
