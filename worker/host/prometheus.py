"""What workers count. The processes of a pool keep their counts in shared files; the worker's main process shows them.

prometheus_client opens its files when this module is imported: `metrics_folder.share` comes before.
"""

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector

CLAIMS = Counter("lethe_claims", "Times that a process asked for a shard", ["outcome"])
SHARDS = Counter("lethe_shards", "Shards that were left, by how", ["end"])
SHARD_SECONDS = Histogram(
    "lethe_shard_seconds", "From claim to end of a shard", buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
)
RUN_SECONDS = Histogram(
    "lethe_run_seconds", "One run by the sandbox's clock", buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1800)
)
SANDBOX_START_SECONDS = Histogram(
    "lethe_sandbox_start_seconds", "From nothing to a warm sandbox", buckets=(0.5, 1, 2, 4, 8, 15, 30, 60)
)
LEASES_LOST = Counter("lethe_leases_lost", "Shards whose worker fell silent")
SCORES = Counter("lethe_scores", "Scores computed", ["recorded"])
SCORE_SECONDS = Histogram("lethe_score_seconds", "Time to score", buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60))


def serve(port: int, folder: Path) -> None:
    """Show the counts of all processes on a port of every address of this host."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    start_http_server(port, registry=registry)
