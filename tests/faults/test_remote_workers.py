"""Workers elsewhere: with an address and a token alone, or with a storage that is a real S3 API server and fails."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lethe.client.api import JsonObject, LetheClient
from server.cli.serve import organiser_credentials
from server.models.evaluation import Evaluation, Shard, ShardAttempt, ShardKind
from server.models.submission import Submission
from server.models.worker import WorkerToken
from server.storage import Storage, content_key
from tests.faults.cluster import Cluster, code, wait_until
from tests.faults.forked import Process
from tests.support.cluster_records import outcomes, scored_like
from tests.support.s3 import s3_server

pytestmark = pytest.mark.slow

TOKENS = "/competitions/tiny/worker-tokens"
N_RUNS = 4  # of the cluster's competition


@pytest.fixture
def organiser(cluster: Cluster) -> Iterator[LetheClient]:
    with LetheClient(cluster.url) as client:
        client.log_in(*organiser_credentials(cluster.settings))
        yield client


@pytest.fixture
def scorer(cluster: Cluster) -> Process:
    """The instance's own worker, which scores and runs nobody's shards."""
    return cluster.start_worker("scorer", LETHE_WORKER_COMPETITIONS="none-of-these")


def attempts(cluster: Cluster, submission: JsonObject) -> list[tuple[str, str]]:
    """Return (worker, outcome) of every attempt at the submission's smoke run and runs."""
    with cluster.database.read() as session:
        rows = (
            session.query(ShardAttempt)
            .join(Shard, Shard.id == ShardAttempt.shard_id)
            .join(Evaluation, Evaluation.id == Shard.evaluation_id)
            .filter(Evaluation.submission_id == submission["id"], Shard.kind != ShardKind.CHECK.value)
            .order_by(ShardAttempt.id)
        )
        return [(row.worker, row.outcome) for row in rows]


def runs_reported_with(cluster: Cluster, token: JsonObject) -> int:
    """Return how many runs on hidden data workers with the token have reported of the shards that they hold."""
    with cluster.database.read() as session:
        held = session.query(Shard).filter_by(state="leased", kind="runs").all()
    return sum(shard.runs_done for shard in held if shard.worker and shard.worker.startswith(token["id"]))


def test_remote_workers_drained_and_revoked_change_no_bit(cluster, scorer, organiser, undisturbed):
    """One is asked to stop in a run, one is revoked in a run; another ends it, with the first one's token."""
    token, revoked = (organiser.post(TOKENS, {"name": name}) for name in ("afar", "revoked"))
    worker = cluster.start_remote_worker(token)
    submission = cluster.submit("far-away", code(pause=0.6, note="afar"))
    wait_until(lambda: runs_reported_with(cluster, token) >= 1)
    worker.signal(signal.SIGTERM)
    assert worker.wait(150)
    assert worker.exit_status == 0, worker.log.read_text()
    assert attempts(cluster, submission)[-1][1] == "given-back"
    found = organiser.get("/competitions/tiny/workers")
    assert [worker["state"] for worker in found if worker["token_id"] == token["id"]] == ["stopped"]
    worker = cluster.start_remote_worker(revoked)
    wait_until(lambda: runs_reported_with(cluster, revoked) >= 1)
    organiser.delete(f"{TOKENS}/{revoked['id']}")
    assert worker.wait(150)
    assert worker.exit_status == 1, worker.log.read_text()
    worker = cluster.start_remote_worker(token)
    wait_until(lambda: cluster.runs_done(submission) == N_RUNS, within_s=240)
    assert cluster.stage(submission) == "running", "nobody has checked its runs"
    scorer.signal(signal.SIGTERM)
    cluster.start_worker("checker")
    ended = cluster.wait_for_end("far-away", submission)
    assert ended["stage"] == "scored", worker.log.read_text()
    assert cluster.exact_score(submission) == undisturbed
    by_token = [(name.split("/")[0], outcome) for name, outcome in attempts(cluster, submission)]
    assert {name for name, _ in by_token} == {token["id"], revoked["id"]}
    assert (revoked["id"], "given-back") in by_token
    assert not any(outcome == "lost" for _, outcome in by_token)
    assert by_token[-1] == (token["id"], "done")
    cached = {path.name for path in (worker.log.parent / "scratch" / "splits").rglob("*") if path.is_file()}
    assert "forget.safetensors" in cached
    assert "outputs.safetensors" not in cached  # of the retrained models: only scoring compares with them
    assert token["token"] not in worker.log.read_text()
    with cluster.database.read() as session:
        known = session.query(WorkerToken).filter(WorkerToken.id.in_([token["id"], revoked["id"]])).all()
        assert sum(row.confirmed_runs for row in known) == N_RUNS, "all runs of new tokens, made again to the same bits"


def test_unfit_worker_ends_with_the_reason(cluster: Cluster, organiser: LetheClient) -> None:
    token = organiser.post(TOKENS, {"name": "small"})
    worker = cluster.start_remote_worker(token, LETHE_WORKER_MEMORY_MIB="64")
    assert worker.wait(150)
    assert worker.exit_status == 1
    assert "allows a run 512 MiB of memory, this worker has 64 MiB for one" in worker.log.read_text()


WHOLE_SPLIT = "splits/tiny/public"


def test_s3_that_fails_and_a_worker_killed_while_fetching_lose_nothing(cluster, undisturbed, tmp_path):
    """The heir runs on the same host, with the same cache; to it S3 answers 500, then slowly, then 500 twice."""
    submission = cluster.submit("far", code(pause=0.1, note="far"))
    with cluster.database.read() as session:
        content = content_key(session.get_one(Submission, submission["id"]).content_sha256)
    with s3_server() as s3:
        copy_to(s3.environment, cluster, [content, *cluster.storage.keys(WHOLE_SPLIT)])
        environment = s3.environment | {"LETHE_HOME": str(tmp_path / "home"), "LETHE_MAX_ATTEMPTS": "20"}
        cache = tmp_path / "home" / "scratch" / "splits"
        s3.faults.held_from = s3.faults.requests + 8  # it begins, and does not come to an end
        worker = cluster.start_worker("fetching", **environment)
        wait_until(lambda: outcomes(cluster, submission) == ["running"] and bool(names_in(cache, ".new-*")))
        worker.kill()
        assert names_in(cache, ".new-*")
        assert not entries(cache)
        s3.faults.held_from, s3.faults.fail_next = None, 1_000_000
        cluster.start_worker("heir", **environment)
        wait_until(lambda: "given-back" in outcomes(cluster, submission))
        s3.faults.fail_next = 0
        s3.faults.delay_s = 0.2
        wait_until(lambda: cluster.runs_done(submission) >= 1)
        asked = s3.faults.requests
        s3.faults.fail_next = 2  # while the results are stored: the worker tries again by itself
        scored_like(cluster, "far", submission, undisturbed)
        assert s3.faults.requests > asked + 2
    ends = outcomes(cluster, submission)
    assert ends[0] == "lost"
    assert ends.count("done") == 3
    assert len(entries(cache)) == 1
    assert not names_in(cache, ".new-*")


def entries(cache: Path) -> list[str]:
    """Return the names of whole splits."""
    return [name for name in names_in(cache, "*") if len(name) == 64]


def names_in(cache: Path, pattern: str) -> list[str]:
    return [path.name for path in cache.glob(pattern)]


def copy_to(environment: dict[str, str], cluster: Cluster, keys: list[str]) -> None:
    """Put these files of the cluster's own storage into the other one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        target = Storage(environment["LETHE_STORAGE_URL"])
        for key in keys:
            target.write(key, cluster.storage.read(key))
