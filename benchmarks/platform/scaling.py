"""How much sooner two workers end the shards of one evaluation than one does.

    python -m benchmarks.platform.scaling [--shards 8] [--runs 4] [--seconds 1.0] [--waiting]

Real PostgreSQL, Redis, web server, workers and sandboxes, warm before they are measured. Each run keeps one core busy
for `--seconds` of processor time, so two workers need two cores to themselves: `..._cores_left_by_others`
says how many other programs left to this one, on average. With `--waiting` the runs sleep instead, so that what is
compared is the platform and not the share of the cores that a busy machine leaves.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import select

from server.config import Settings
from server.models.evaluation import Evaluation, Shard, ShardAttempt, ShardKind
from tests.end_to_end.conftest import competition_toml
from tests.faults.cluster import Cluster, running_cluster
from tests.support.processes import cpu_s

LOOK_EVERY_S = 2.0  # more often, and the looking itself takes a share of the cores
BUSY = """
import time, torch

def unlearning(net, retain_loader, forget_loader, val_loader):
    until = time.process_time() + {seconds}
    while time.process_time() < until:
        sum(range(10_000))
    with torch.no_grad():
        next(net.parameters()).add_(1e-3)
# {note}
"""
WAITING = """
import time, torch

def unlearning(net, retain_loader, forget_loader, val_loader):
    time.sleep({seconds})
    with torch.no_grad():
        next(net.parameters()).add_(1e-3)
# {note}
"""


@dataclass(frozen=True)
class Attempts:
    """When the shards of one evaluation were claimed and ended, and by whom."""

    started: datetime
    ended: datetime
    workers: set[str]

    @property
    def time_s(self) -> float:
        return (self.ended - self.started).total_seconds()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--runs", type=int, default=4, help="of each shard")
    parser.add_argument("--seconds", type=float, default=1.0, help="of processor time, of each run")
    parser.add_argument("--waiting", action="store_true")
    options = parser.parse_args()
    code = WAITING if options.waiting else BUSY
    toml = competition_toml(n=options.shards * options.runs, shard=options.runs)
    found: dict[str, object] = {"shards": options.shards, "runs_per_shard": options.runs}
    times = []
    with (
        tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder,
        running_cluster(Path(folder), toml=toml, **usual_times()) as cluster,
    ):
        for workers, name in ((1, "one_worker"), (2, "two_workers")):
            started = [cluster.start_worker(f"{name}-{number}", concurrency=1) for number in range(workers)]
            warm(cluster, name, code, workers=workers)
            others = Others()
            made = evaluate(cluster, name, code.format(seconds=options.seconds, note=f"{name} measured"))
            found |= {f"{name}_s": round(made.time_s, 2), f"{name}_cores_left_by_others": others.cores_left()}
            if len(made.workers) != workers:
                raise RuntimeError(f"{len(made.workers)} of {workers} workers took part")
            times.append(made.time_s)
            for process in started:
                process.stop()
    print(json.dumps(found | {"ratio": round(times[0] / times[1], 2)}))


def usual_times() -> dict[str, str]:
    """Return the times that workers keep outside tests, as environment: those of the tests cost more."""
    names = ("lease_s", "heartbeat_s", "sweep_interval_s")
    return {f"LETHE_{name.upper()}": str(Settings.model_fields[name].default) for name in names}


def warm(cluster: Cluster, person: str, code: str, *, workers: int) -> None:
    """Let every worker have run shards, so that its sandbox is started and its split is read."""
    used: set[str] = set()
    for turn in range(10):
        used |= evaluate(cluster, person, code.format(seconds=0.1, note=f"{person} warms {turn}")).workers
        if len(used) == workers:
            return
    raise RuntimeError(f"only {used} took part")


def evaluate(cluster: Cluster, person: str, code: str) -> Attempts:
    """Submit code and wait for its score. Return when its shards of runs were claimed and ended, and by whom."""
    submission = cluster.submit(person, code)
    ended = cluster.wait_for_end(person, submission, within_s=600, every_s=LOOK_EVERY_S)
    if ended["stage"] != "scored":
        raise RuntimeError(f"the submission ended in {ended}")
    statement = (
        select(ShardAttempt)
        .join(Shard, Shard.id == ShardAttempt.shard_id)
        .join(Evaluation, Evaluation.id == Shard.evaluation_id)
        .where(Evaluation.submission_id == submission["id"], Shard.kind == ShardKind.RUNS.value)
    )
    with cluster.database.read() as session:
        rows = session.scalars(statement).all()
    return Attempts(
        started=min(row.started_at for row in rows),
        ended=max(row.ended_at for row in rows if row.ended_at),
        workers={row.worker for row in rows},
    )


class Others:
    """What else the machine does from now on."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._used_s = self._now_used_s()

    def cores_left(self) -> float:
        """Return how many of the machine's cores other programs have left to this one, on average."""
        used_s = self._now_used_s() - self._used_s
        return round((os.cpu_count() or 1) - used_s / (time.monotonic() - self._since), 2)

    def _now_used_s(self) -> float:
        """Return the processor time of all but this program and what it started, seconds since the start."""
        user, nice, system, _idle, _iowait, irq, softirq = map(
            int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
        )
        return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK") - cpu_s(os.getpid())


if __name__ == "__main__":
    main()
