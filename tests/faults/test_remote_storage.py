"""A worker whose storage is a real S3 API server: it answers 500 or slowly, and a worker dies while it fetches."""

from pathlib import Path

import pytest

from server.models.submission import Submission
from server.storage import Storage, content_key
from tests.faults.cluster import Cluster, code, wait_until
from tests.support.cluster_records import outcomes, scored_like
from tests.support.s3 import s3_server

pytestmark = pytest.mark.slow

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
