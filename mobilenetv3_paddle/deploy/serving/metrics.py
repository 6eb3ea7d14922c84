"""What /metrics shows."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        ProcessCollector(registry=r)
        self.requests = Counter("mobilenetv3_requests", "Answers by status code", ["status"], registry=r)
        self.seconds = Histogram("mobilenetv3_request_seconds", "From a request's head to its answer", buckets=SECONDS, registry=r)
        self.batch = Histogram("mobilenetv3_batch_size", "Pictures in a run", buckets=(1, 2, 4, 8, 16, 32, 64), registry=r)
        self.engine = Counter("mobilenetv3_engine_seconds", "Time in the engine", registry=r)
        self.killed = Counter("mobilenetv3_decoders_killed", "Decoders that died or took too long", registry=r)
        self.decoding = Gauge("mobilenetv3_waiting_to_decode", "Pictures that wait for a decoder", registry=r)
        self.waiting = Gauge("mobilenetv3_waiting", "Pictures that wait for the engine", registry=r)
        self.active = Gauge("mobilenetv3_active_requests", "Requests with pictures or tensors under way", registry=r)

    def on_batch(self, size: int, seconds: float) -> None:
        """Note a run of the engine."""
        self.batch.observe(size)
        self.engine.inc(seconds)

    def on_answer(self, status: int, seconds: float) -> None:
        """Note an answer to a request with a picture or tensors."""
        self.requests.labels(str(status)).inc()
        self.seconds.observe(seconds)
