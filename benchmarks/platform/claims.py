"""Claims and closes per second on PostgreSQL, and how they change with the length of the queue.

    python -m benchmarks.platform.claims [--processes 8] [--seconds 5] [--teams 1000] [--lengths 1000 100000 1000000]

Each process claims a shard, reports one heartbeat and closes it, as a worker does that has nothing to compute. The
server is a real one with its durability switched off, so that what is measured is the work and not the disk.
"""

import argparse
import json
import multiprocessing
import time
from datetime import UTC, datetime, timedelta
from statistics import median

from benchmarks.platform.seeded import seed
from lethe.competition.file import CompetitionFile
from server.db import Database
from server.evaluations import leases
from server.migrate import upgrade
from tests.support.postgres import PostgresServer
from tests.support.processes import cpu_s


def competition_file() -> CompetitionFile:
    moment = datetime.now(UTC)
    return CompetitionFile.model_validate(
        {
            "slug": "big",
            "title": "Big",
            "opens_at": moment - timedelta(days=1),
            "closes_at": moment + timedelta(days=1),
            "dataset": {"name": "digits"},
            "network": {"name": "mlp"},
            "training": {"epochs": 1, "learning_rate": 0.1},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--teams", type=int, default=1000)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    options = parser.parse_args()
    server = PostgresServer()
    server.start()
    try:
        for length in options.lengths:
            url = server.url(server.create_database())
            upgrade(url)
            database = Database(url)
            seed(database, competition_file(), teams=min(options.teams, length // 8), shards=length)
            database.dispose()
            before = cpu_s(server.pid)
            found = measure(url, options.processes, options.seconds)
            found["server_cpu_ms_per_shard"] = round(1000 * (cpu_s(server.pid) - before) / found.pop("shards"), 2)
            print(json.dumps({"queued": length} | found), flush=True)
    finally:
        server.remove()


def measure(url: str, processes: int, seconds: float) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        found = pool.starmap(work, [(url, index, seconds) for index in range(processes)])
    claimed = [time_s for times, _, _ in found for time_s in times]
    closed = [time_s for _, times, _ in found for time_s in times]
    return {
        "shards": len(claimed),
        "claims_per_s": round(len(claimed) / seconds, 1),
        "claim_ms_median": round(1000 * median(claimed), 2),
        "claim_ms_p99": round(1000 * sorted(claimed)[int(len(claimed) * 0.99)], 2),
        "close_ms_median": round(1000 * median(closed), 2),
        "worker_cpu_ms_per_shard": round(1000 * sum(cpu_s for _, _, cpu_s in found) / len(claimed), 2),
    }


def work(url: str, index: int, seconds: float) -> tuple[list[float], list[float], float]:
    """Claim and close until time is up. Return how long each claim and each close took, and the processor time."""
    database = Database(url)
    claimed: list[float] = []
    closed: list[float] = []
    _step(database, index, [], [])  # connects, and warms the caches of both sides
    end, cpu = time.perf_counter() + seconds, time.process_time()
    while time.perf_counter() < end and _step(database, index, claimed, closed):
        pass
    cpu_s = time.process_time() - cpu
    database.dispose()
    return claimed, closed, cpu_s


def _step(database: Database, index: int, claimed: list[float], closed: list[float]) -> bool:
    started = time.perf_counter()
    shard = database.retrying(lambda session: leases.claim(session, worker=f"w{index}", lease_s=60))
    claimed.append(time.perf_counter() - started)
    if shard is None:
        return False
    database.retrying(lambda s: leases.heartbeat(s, shard, lease_s=60, runs_done=32, wall_time_s=1.0))
    started = time.perf_counter()
    database.retrying(
        lambda s: leases.close(s, shard, result_key="k", result_sha256="0" * 64, wall_time_s=1.0, verified_share=0.05)
    )
    closed.append(time.perf_counter() - started)
    return True


if __name__ == "__main__":
    main()
