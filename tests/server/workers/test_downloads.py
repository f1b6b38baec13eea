"""Files of a shard from S3-compatible storage: through the server, or by an address that is good for a while."""

from collections.abc import Iterator

import httpx
import pytest

from server.config import get_settings
from server.storage import get_storage
from tests.server.workers.conftest import RemoteWorker, store_splits, submit, to_runs
from tests.support.instance import GOOD_CODE
from tests.support.s3 import S3Server, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["server", "storage"])
def worker(request, hosted, s3, monkeypatch):
    """A worker that holds a shard of runs of an instance on S3."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LETHE_STORAGE_URL", f"{s3.url}/{request.param}")
    monkeypatch.setenv("LETHE_WORKER_DOWNLOADS", request.param)
    get_settings.cache_clear()
    get_storage.cache_clear()
    hosted.server.storage = get_storage()
    store_splits(hosted.server, hosted.competition)
    submit(hosted)
    worker = hosted.worker()
    to_runs(worker)
    return worker


def test_file_comes_whole_from_where_the_setting_says(worker: RemoteWorker, request: pytest.FixtureRequest) -> None:
    answer = worker.file(worker.held["content_sha256"])
    if get_settings().worker_downloads == "server":
        assert (answer.status_code, answer.content) == (200, GOOD_CODE)
        return
    assert answer.status_code == 307
    link = answer.headers["Location"]
    assert "Signature" in link or "signature" in link
    assert httpx.get(link, trust_env=False).content == GOOD_CODE
    assert worker.finish().json() == {"held": True}
