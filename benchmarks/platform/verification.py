"""What it costs that runs of an organiser's own machine are made again by a trusted worker.

    python -m benchmarks.platform.verification [--runs 128] [--pause 0.2] [--share 0.05]

Real PostgreSQL, Redis, web server and two workers: one with a token makes all runs, one of the instance's own the
checks. Both times are of the same evaluation.
"""

import argparse
import json
import tempfile
from datetime import datetime
from pathlib import Path

from sqlalchemy import select, update

from lethe.client.api import LetheClient
from server.cli.seed_accounts import organiser_credentials
from server.models.evaluation import Evaluation, Shard, ShardAttempt, ShardKind
from server.models.worker import WorkerToken
from tests.end_to_end.conftest import competition_toml
from tests.faults.cluster import Cluster, code, running_cluster, wait_until

KNOWN = 1_000_000  # confirmed runs of a token whose share has reached the least


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=128)
    parser.add_argument("--pause", type=float, default=0.2)
    parser.add_argument("--share", type=float, default=0.05)
    options = parser.parse_args()
    toml = competition_toml(n=options.runs, shard=32)
    share = {"LETHE_VERIFIED_SHARE": str(options.share)}
    with (
        tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder,
        running_cluster(Path(folder), toml=toml, **share) as cluster,
    ):
        with LetheClient(cluster.url) as client:
            client.log_in(*organiser_credentials(cluster.settings))
            token = client.post("/competitions/tiny/worker-tokens", {"name": "bench"})
        with cluster.database.write() as session:
            session.execute(update(WorkerToken).values(confirmed_runs=KNOWN))
        remote = cluster.start_remote_worker(token)
        submission = cluster.submit("bench", code(pause=options.pause, note="verified"))
        wait_until(lambda: cluster.runs_done(submission) == options.runs, within_s=540)
        remote.kill()
        cluster.start_worker("own")
        cluster.wait_for_end("bench", submission, within_s=300)
        print(json.dumps({"runs": options.runs, "share": options.share} | cost(cluster, submission["id"])))


def cost(cluster: Cluster, submission_id: str) -> dict[str, float]:
    """Return the workers' time with runs and with checks, seconds, and the share of it that the checks are."""
    spent, number = {ShardKind.RUNS: 0.0, ShardKind.CHECK: 0.0}, 0
    with cluster.database.read() as session:
        of_it = Shard.evaluation_id == Evaluation.id, Evaluation.submission_id == submission_id
        rows = session.execute(
            select(Shard, ShardAttempt).join(ShardAttempt).where(*of_it, ShardAttempt.outcome == "done")
        )
        for shard, attempt in rows:
            kind = ShardKind(shard.kind)
            if kind is not ShardKind.SMOKE:
                spent[kind] += (known(attempt.ended_at) - attempt.started_at).total_seconds()
                number += kind is ShardKind.CHECK
    runs_s, checks_s = spent[ShardKind.RUNS], spent[ShardKind.CHECK]
    return {
        "checked_runs": number,
        "runs_s": round(runs_s, 2),
        "checks_s": round(checks_s, 2),
        "ratio": round((runs_s + checks_s) / runs_s, 3),
    }


def known(moment: datetime | None) -> datetime:
    if moment is None:
        raise RuntimeError("the attempt has no end")
    return moment


if __name__ == "__main__":
    main()
