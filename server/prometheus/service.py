"""The figures of the complete instance, as Prometheus reads them."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy.orm import Session

from server.prometheus import repository
from server.prometheus.repository import Figures

SEEN_WITHIN_S = 60.0


def exposition(session: Session) -> bytes:
    """Return this process's counters and the instance's figures in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Instance(repository.figures(session, workers_seen_within_s=SEEN_WITHIN_S)))
    return generate_latest(REGISTRY) + generate_latest(registry)


class _Instance:
    """The database's figures at one time."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found = self._figures
        yield _gauge("lethe_queue_age_seconds", "How long the oldest queued shard has waited", found.queue_age_s)
        yield _gauge("lethe_shards_queued", "Shards that wait, counted to 10,000", found.queued)
        yield _gauge("lethe_shards_leased", "Shards that workers hold", found.leased)
        yield _gauge("lethe_evaluations_unscored", "Evaluations whose runs are done, without a score", found.unscored)
        yield _gauge("lethe_worker_refusals", "Splits that refuse a living worker", found.refused_splits)
        waiting = GaugeMetricFamily("lethe_shards_waiting", "Shards that wait, by device", labels=["device"])
        for device, count in found.waiting_by_device.items():
            waiting.add_metric([device], count)
        yield waiting
        workers = GaugeMetricFamily("lethe_workers", "Worker processes heard of lately", labels=["device", "state"])
        for labels, count in found.workers.items():
            workers.add_metric(list(labels), count)
        yield workers


def _gauge(name: str, text: str, value: float) -> Any:
    return GaugeMetricFamily(name, text, value=value)
