"""One cluster for all tests of faults: each breaks something and fixes it.

A worker that is idle at a test's end serves the next test that asks for `worker`: a start, with the imports of its
sandboxes, takes more time than most faults. Any other test begins with no worker, so those that ask for one are run
first.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import competition_toml
from tests.faults.cluster import Cluster, Score, code, running_cluster
from tests.faults.forked import Process


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    own = [k for k, item in enumerate(items) if item.nodeid.startswith("tests/faults/")]
    in_turn = sorted((items[k] for k in own), key=lambda item: not asks_for_worker(item))
    for k, item in zip(own, in_turn, strict=True):
        items[k] = item


def asks_for_worker(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "worker" in item.fixturenames


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), toml=competition_toml(n=4, shard=2)) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if "worker" not in request.fixturenames:
        shared_cluster.end_workers()
    yield shared_cluster
    shared_cluster.end_workers(but=shared_cluster.idle_worker())


@pytest.fixture
def worker(cluster: Cluster) -> Process:
    """A worker of one process. Its sandboxes may be warm."""
    return cluster.idle_worker() or cluster.start_usual_worker()


@pytest.fixture(scope="session")
def undisturbed(shared_cluster: Cluster) -> Score:
    """The score of `code()` in a run in which nothing went wrong."""
    shared_cluster.start_usual_worker()
    submission = shared_cluster.submit("undisturbed", code())
    ended = shared_cluster.wait_for_end("undisturbed", submission)
    if ended["stage"] != "scored":
        raise RuntimeError(f"the undisturbed run ended in {ended}")
    return shared_cluster.exact_score(submission)


@pytest.fixture(autouse=True)
def _needs_linux() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("reads /proc")
