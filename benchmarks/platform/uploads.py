"""Uploads per second over HTTP, and how long each is answered, while no worker runs and while workers are busy.

    python -m benchmarks.platform.uploads [--uploads 60] [--clients 4] [--workers 2]

One web server with real PostgreSQL, Redis and storage, on loopback. Each client is a team of its own and sends one
file after another. Busy means that as many workers as `--workers` run a submission that takes all the processor it
gets, and that what is uploaded is validated and queued behind it.
"""

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from benchmarks.platform.scaling import BUSY
from lethe.client.api import LetheClient
from tests.end_to_end.conftest import competition_toml
from tests.faults.cluster import Cluster, code, running_cluster, wait_until


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uploads", type=int, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    toml = competition_toml(n=64, shard=4, floor=60.0)
    with (
        tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder,
        running_cluster(Path(folder), toml=toml, LETHE_UPLOADS_PER_10_MIN="0") as cluster,
    ):
        measure(cluster, "warming", uploads=options.clients, clients=options.clients)
        print(json.dumps(measure(cluster, "idle", uploads=options.uploads, clients=options.clients)), flush=True)
        worker = cluster.start_worker(concurrency=options.workers)
        for number in range(options.workers):
            occupy(cluster, f"long-{number}")
        print(json.dumps(measure(cluster, "busy", uploads=options.uploads, clients=options.clients)), flush=True)
        worker.kill()


def occupy(cluster: Cluster, person: str) -> None:
    """Return as soon as a submission runs that takes minutes."""
    submission = cluster.submit(person, BUSY.format(seconds=10.0, note=person))
    wait_until(lambda: cluster.person(person).submission(submission["id"])["stage"] == "running")


def measure(cluster: Cluster, name: str, *, uploads: int, clients: int) -> dict[str, object]:
    """Send `uploads` files, each client an equal share. Return their rate and the times of their answers."""
    people = [cluster.person(f"{name}-{number}") for number in range(clients)]
    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        sent = [pool.submit(send, cluster.folder, person, name, uploads // clients) for person in people]
        times_s = sorted(time_s for each in sent for time_s in each.result())
    return {
        "workers": name,
        "uploads": len(times_s),
        "uploads_per_s": round(len(times_s) / (time.perf_counter() - started), 1),
        "answer_ms_median": round(1000 * median(times_s), 1),
        "answer_ms_p99": round(1000 * times_s[min(len(times_s) - 1, int(len(times_s) * 0.99))], 1),
        "load": round(os.getloadavg()[0], 1),
    }


def send(folder: Path, person: LetheClient, name: str, uploads: int) -> list[float]:
    """Upload one file after another. Return how long the answer to each took, seconds."""
    who = str(person.me()["name"])
    path = folder / f"{who}.py"
    times_s = []
    for number in range(uploads):
        path.write_text(code(note=f"{name} {who} {number}"))
        started = time.perf_counter()
        person.submit("tiny", path)
        times_s.append(time.perf_counter() - started)
    return times_s


if __name__ == "__main__":
    main()
