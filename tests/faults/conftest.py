"""One cluster for all tests of faults: each breaks something, fixes it, and leaves no worker behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cluster import Cluster, Score, code, running_cluster
from tests.faults.forked import Process


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    yield shared_cluster
    for process in shared_cluster.started[1:]:
        if process.is_alive and process.name != "web":
            process.kill()


@pytest.fixture
def worker(cluster: Cluster) -> Process:
    return cluster.start_worker()


@pytest.fixture(scope="session")
def undisturbed(shared_cluster: Cluster) -> Score:
    """The score of `code()` in a run in which nothing went wrong."""
    worker = shared_cluster.start_worker("undisturbed")
    submission = shared_cluster.submit("undisturbed", code())
    ended = shared_cluster.wait_for_end("undisturbed", submission)
    if ended["stage"] != "scored":
        raise RuntimeError(f"the undisturbed run ended in {ended}")
    worker.stop()
    return shared_cluster.exact_score(submission)


@pytest.fixture(autouse=True)
def _needs_linux() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("reads /proc")
