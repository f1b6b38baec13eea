"""The figures of the complete instance, as Prometheus reads them."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy import QueuePool

from server.config import Settings
from server.dashboard.health_warnings import measure_host
from server.db import CONNECTIONS, Database
from server.prometheus import figures_repository
from server.prometheus.figures_repository import Figures

SEEN_WITHIN_S = 60.0
KEPT_FOR_S = 300.0  # LetheServiceSilent fires before


class LastFigures:
    """The last figures that were read: a gauge that vanishes for one scrape begins an alert's `for` again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: tuple[float, Figures] | None = None

    def put(self, figures: Figures) -> None:
        self._kept = self._clock(), figures

    def get(self) -> Figures | None:
        """Return them for a while, then None."""
        return self._kept[1] if self._kept and self._clock() - self._kept[0] < KEPT_FOR_S else None


def figures(database: Database) -> Figures:
    """Return what the instance does now."""
    with database.read() as session:
        return figures_repository.figures(session, workers_seen_within_s=SEEN_WITHIN_S)


def exposition(figures: Figures | None, database: Database, settings: Settings, answers: Mapping[str, bool]) -> bytes:
    """Return counters and figures in Prometheus' text format. answers: whether each service does."""
    registry = CollectorRegistry()
    if figures is not None:
        registry.register(_Instance(figures))
    registry.register(_Process(_pool_share(database), _disk_shares(settings), answers))
    return generate_latest(REGISTRY) + generate_latest(registry)


class _Instance:
    """The database's figures at one time."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[GaugeMetricFamily]:
        known = self._figures
        yield _gauge("lethe_queue_age_seconds", "How long the oldest queued shard has waited", known.queue_age_s)
        yield _gauge("lethe_shards_queued", "Shards that wait, counted to 10,000", known.queued)
        yield _gauge("lethe_shards_leased", "Shards that workers hold", known.leased)
        yield _gauge("lethe_evaluations_unscored", "Evaluations whose runs are done, without a score", known.unscored)
        yield _gauge("lethe_worker_refusals", "Splits that refuse a living worker", known.refused_splits)
        yield _gauge("lethe_shards_unserved", "Shards that wait and that no worker can do", known.unserved)
        yield _gauge("lethe_shards_given_back", "Shards that workers gave back in 15 minutes", known.given_back)
        yield _gauge("lethe_preparations_failed", "Splits whose preparation failed", known.failed_preparations)
        yield _labelled("lethe_messages_waiting_seconds", "Age of the oldest message to send", "kind", known.overdue_s)
        yield _labelled("lethe_upkeep_age_seconds", "Since upkeep was last done", "what", known.upkeep_age_s)
        yield _labelled("lethe_shards_waiting", "Shards that wait, by device", "device", known.waiting_by_device)
        workers = GaugeMetricFamily("lethe_workers", "Worker processes heard of lately", labels=["device", "state"])
        for labels, count in known.workers.items():
            workers.add_metric(list(labels), count)
        yield workers


class _Process:
    """What this process uses of what it has."""

    def __init__(self, pool: float, disks: dict[str, float], answers: Mapping[str, bool]) -> None:
        self._pool, self._disks, self._answers = pool, disks, answers

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield _gauge("lethe_database_pool_used_ratio", "Share of the process's connections in use", self._pool)
        yield _labelled("lethe_disk_free_ratio", "Share of the disk that is free", "folder", self._disks)
        yield _labelled("lethe_service_answers", "Whether a service answers this process", "service", self._answers)


def _pool_share(database: Database) -> float:
    """Return which share of this process's connections is in use."""
    pool = database.engine.pool
    return pool.checkedout() / CONNECTIONS if isinstance(pool, QueuePool) else 0.0


def _disk_shares(settings: Settings) -> dict[str, float]:
    """Return the free share of the file systems of the home folder, and of the storage where it is a folder here."""
    folders = {"home": settings.home}
    if settings.resolved_storage_url.startswith("file://"):
        folders["storage"] = Path(unquote(urlsplit(settings.resolved_storage_url).path))
    hosts = {name: measure_host(folder) for name, folder in folders.items()}
    return {name: host.disk_free / host.disk_total for name, host in hosts.items()}


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _gauge(name: str, text: str, value: float) -> Any:
    return GaugeMetricFamily(name, text, value=value)
