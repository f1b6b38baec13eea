"""What an evaluation costs over a bare loop of the same unlearning and inference, and how soon its score follows.

    python -m benchmarks.platform.overhead [--runs 32] [--pause 1.0]

Real PostgreSQL, Redis, web server, worker and sandbox. Each run sleeps for `--pause` seconds and takes one step, so
that what is compared is the platform and not the share of the cores that a busy machine leaves.
"""

import argparse
import json
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.splits.digits_entries import run_entry
from server.models.evaluation import Evaluation, PublicScore, Shard, ShardAttempt, ShardKind
from tests.end_to_end.conftest import competition_toml
from tests.faults.cluster import Cluster, code, running_cluster


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--pause", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    toml = competition_toml(n=options.runs, shard=options.runs)
    with (
        tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder,
        running_cluster(Path(folder), toml=toml) as cluster,
    ):
        evaluation_s, to_score_s = evaluate(cluster, pause=options.pause)
        loop_s = bare_loop(cluster, runs=options.runs, pause=options.pause)
    print(
        json.dumps(
            {
                "runs": options.runs,
                "evaluation_s": round(evaluation_s, 2),
                "bare_loop_s": round(loop_s, 2),
                "ratio": round(evaluation_s / loop_s, 3),
                "last_shard_to_score_s": round(to_score_s, 3),
            }
        )
    )


def evaluate(cluster: Cluster, *, pause: float) -> tuple[float, float]:
    """Return the time from the claim of the runs to their end, with warm sandboxes, and from there to the score."""
    cluster.start_worker()
    for note in ("warms the sandbox", "is measured"):
        submission = cluster.submit("bench", code(pause=pause, note=note))
        cluster.wait_for_end("bench", submission, within_s=600)
    with cluster.database.read() as session:
        evaluation = session.query(Evaluation).filter_by(submission_id=submission["id"]).one()
        shard = session.query(Shard).filter_by(evaluation_id=evaluation.id, kind=ShardKind.RUNS.value).one()
        attempt = session.query(ShardAttempt).filter_by(shard_id=shard.id).one()
        score = session.query(PublicScore).filter_by(submission_id=submission["id"]).one()
        ended = _known(attempt.ended_at)
        return (ended - attempt.started_at).total_seconds(), (score.computed_at - ended).total_seconds()


def bare_loop(cluster: Cluster, *, runs: int, pause: float) -> float:
    """Return the time of the same runs and the same inference in one process."""
    module: dict[str, Any] = {}
    exec(code(pause=pause), module)
    started = time.perf_counter()
    run_entry(cluster.folder / "storage" / "splits" / "tiny" / "public", module["unlearning"], runs=runs)
    return time.perf_counter() - started


def _known(moment: datetime | None) -> datetime:
    if moment is None:
        raise RuntimeError("the attempt has not ended")
    return moment


if __name__ == "__main__":
    main()
