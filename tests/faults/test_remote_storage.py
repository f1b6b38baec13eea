"""A worker whose storage is a real S3 API server: it answers 500 or slowly, and a worker dies while it fetches."""

from pathlib import Path

import pytest

from server.models.submission import Submission
from server.storage import Storage, content_key
from tests.faults.cluster import Cluster, Score, code, wait_until
from tests.support.cluster_records import counted, outcomes
from tests.support.s3 import s3_server

WHOLE_SPLIT = "splits/tiny/public"


def test_s3_that_answers_500_and_slowly_loses_nothing(cluster: Cluster, undisturbed: Score, tmp_path: Path) -> None:
    submission = cluster.submit("far", code(pause=0.1, note="far"))
    with cluster.database.read() as session:
        content = content_key(session.get_one(Submission, submission["id"]).content_sha256)
    with s3_server() as s3:
        copy_to(s3.environment, cluster, [content, *cluster.storage.keys(WHOLE_SPLIT)])
        s3.faults.fail_next = 1_000_000
        cluster.start_worker("far", LETHE_MAX_ATTEMPTS="20", LETHE_HOME=str(tmp_path / "home"), **s3.environment)
        wait_until(lambda: "given-back" in outcomes(cluster, submission))
        s3.faults.fail_next = 0
        s3.faults.delay_s = 0.2
        wait_until(lambda: cluster.runs_done(submission) >= 1)
        asked = s3.faults.requests
        s3.faults.fail_next = 2  # while the results are stored: the worker tries again by itself
        ended = cluster.wait_for_end("far", submission)
        assert s3.faults.requests > asked + 2
    assert ended["stage"] == "scored", ended
    assert cluster.exact_score(submission) == undisturbed
    assert counted(cluster, "far") == 1
    assert outcomes(cluster, submission).count("done") == 4


def test_worker_killed_while_fetching_leaves_no_partial_file(
    cluster: Cluster, undisturbed: Score, tmp_path: Path
) -> None:
    """The heir runs on the same host, with the same cache."""
    submission = cluster.submit("fetching", code(note="fetching"))
    with cluster.database.read() as session:
        content = content_key(session.get_one(Submission, submission["id"]).content_sha256)
    with s3_server() as s3:
        copy_to(s3.environment, cluster, [content, *cluster.storage.keys(WHOLE_SPLIT)])
        environment = s3.environment | {"LETHE_HOME": str(tmp_path / "home")}
        cache = tmp_path / "home" / "scratch" / "splits"
        s3.faults.held_from = s3.faults.requests + 4  # it begins, and does not come to an end
        worker = cluster.start_worker("fetching", **environment)
        wait_until(lambda: outcomes(cluster, submission) == ["running"] and bool(names_in(cache, ".new-*")))
        worker.kill()
        assert names_in(cache, ".new-*")
        assert not entries(cache)
        s3.faults.held_from = None
        cluster.start_worker("heir", **environment)
        ended = cluster.wait_for_end("fetching", submission)
    assert ended["stage"] == "scored", ended
    assert cluster.exact_score(submission) == undisturbed
    assert outcomes(cluster, submission)[0] == "lost"
    assert counted(cluster, "fetching") == 1
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
