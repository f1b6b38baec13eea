"""What an evaluation costs over a bare loop of the same unlearning and inference, and how soon its score follows.

    python -m benchmarks.platform.overhead [--runs 32] [--pause 1.0]

Real PostgreSQL, Redis, web server, worker and sandbox. Each run sleeps for `--pause` seconds and takes one step, so
that what is compared is the platform and not the share of the cores that a busy machine leaves.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.shared import options
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.networks.builders import build
from lethe.runtime.data_loaders import load_data, make_loaders
from server.models.evaluation import Evaluation, PublicScore, Shard, ShardAttempt, ShardKind
from tests.end_to_end.conftest import competition_toml
from tests.faults.cluster import Cluster, code, running_cluster


def main() -> None:
    given = options(__doc__, runs=32, pause=1.0)
    toml = competition_toml(n=given.runs, shard=given.runs)
    with (
        tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder,
        running_cluster(Path(folder), toml=toml) as cluster,
    ):
        evaluation_s, to_score_s = evaluate(cluster, pause=given.pause)
        loop_s = bare_loop(cluster, runs=given.runs, pause=given.pause)
    found = {"evaluation_s": evaluation_s, "bare_loop_s": loop_s, "ratio": evaluation_s / loop_s}
    found |= {"last_shard_to_score_s": to_score_s}
    print(json.dumps({"runs": given.runs} | {name: round(value, 3) for name, value in found.items()}))


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
        ended = attempt.ended_at
        if ended is None:
            raise RuntimeError("the attempt has not ended")
        return (ended - attempt.started_at).total_seconds(), (score.computed_at - ended).total_seconds()


def bare_loop(cluster: Cluster, *, runs: int, pause: float) -> float:
    """Return the time of the same runs and the same inference in one process."""
    torch.set_num_threads(1)
    module: dict[str, Any] = {}
    exec(code(pause=pause), module)
    split = cluster.folder / "storage" / "splits" / "tiny" / "public"
    started = time.perf_counter()
    evaluator, data = SplitEvaluator.load(split), load_data(split / "visible")
    for seed in range(runs):
        net = build(data.network)
        net.load_state_dict(data.original_state)
        torch.manual_seed(seed)
        loaders = make_loaders(data)
        module["unlearning"](net, loaders.retain, loaders.forget, loaders.validation)
        evaluator.evaluate_state(net.state_dict())
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
