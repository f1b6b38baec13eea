"""The storage, on a local folder and on a real S3 API server."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from botocore.retries.standard import ExponentialBackoff

from lethe.errors import HostFault, NotFound
from server.storage import ATTEMPTS, Storage, content_key
from tests.support.black_hole import black_hole
from tests.support.s3 import S3Server, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(params=["file", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "file":
        return Storage(tmp_path.as_uri())
    server: S3Server = request.getfixturevalue("s3")
    return Storage(f"{server.url}/{tmp_path.name}")


@pytest.fixture(autouse=True)
def _tries_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.0)


def test_what_was_written_is_read_and_named_by_its_hash(storage: Storage, tmp_path: Path) -> None:
    data = b"weights" * 1000
    storage.write("a/b/c", b"long" * 10_000)
    sha256 = storage.write("a/b/c", data)
    assert sha256 == hashlib.sha256(data).hexdigest()
    assert storage.read("a/b/c") == storage.read_verified("a/b/c", sha256) == data
    with pytest.raises(HostFault, match="damaged a"):
        storage.read_verified("a/b/c", hashlib.sha256(b"whole").hexdigest())
    with pytest.raises(NotFound, match="no/such"):
        storage.read("no/such")
    assert not storage.exists("no/such")
    storage.remove("no/such")
    (tmp_path / "up").write_bytes(b"content")
    storage.upload(tmp_path / "up", "deep/file")
    storage.download("deep/file", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == b"content"


def test_listing_gives_every_file_below_a_prefix_with_its_size(storage: Storage) -> None:
    for key, data in (("x/1", b"1"), ("x/y/2", b"22"), ("z/3", b"333")):
        storage.write(key, data)
    assert {file.key: file.size for file in storage.listed("x")} == {"x/1": 1, "x/y/2": 2}
    assert sorted(storage.keys("x")) == ["x/1", "x/y/2"]
    assert list(storage.listed("nothing")) == []
    storage.remove("x/1")
    assert sorted(storage.keys("x")) == ["x/y/2"]


def test_key_that_could_leave_the_root_is_refused(storage: Storage) -> None:
    for key in ("", "/etc/passwd", "a/../b", "a//b", "./a"):
        with pytest.raises(ValueError, match="not a storage key"):
            storage.write(key, b"")


def test_content_is_spread_over_folders() -> None:
    assert content_key("ab" + "0" * 62) == f"submissions/ab/ab{'0' * 62}"


def test_signed_url_lets_anyone_read_one_file(s3: S3Server, tmp_path: Path) -> None:
    storage = Storage(s3.url)
    storage.write("signed", b"for a while")
    assert httpx.get(storage.signed_url("signed", expires_s=60) or "", trust_env=False).content == b"for a while"
    assert Storage(tmp_path.as_uri()).signed_url("a", expires_s=60) is None, "a local folder signs nothing"


def test_a_few_errors_of_s3_are_ridden_out_and_many_are_a_fault(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(s3.url)
    s3.faults.fail_next = 2
    storage.write("bumpy", b"arrives")
    s3.faults.fail_next = 2
    assert storage.read("bumpy") == b"arrives"
    s3.faults.fail_next = 10_000
    try:
        with pytest.raises(HostFault, match="did not take gone"):
            storage.write("gone", b"")
    finally:
        s3.faults.fail_next = 0
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(HostFault, match="did not give away"):
        Storage(f"{s3.url}/elsewhere").read("away")


def test_s3_that_is_silent_is_asked_a_few_times(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.storage.READ_S", 0.5)
    storage = Storage(s3.url)
    storage.exists("anything")  # which finds out where the bucket is
    s3.faults.held_from = first = s3.faults.requests + 1
    try:
        with pytest.raises(HostFault, match="did not take silent"):
            storage.write("silent", b"x")
        for question in (
            storage.read,
            storage.exists,
            storage.written_at,
            storage.remove,
            lambda p: list(storage.keys(p)),
        ):
            with pytest.raises(HostFault, match="Read timeout"):
                question("silent")
        assert s3.faults.requests - first + 1 == 6 * ATTEMPTS
    finally:
        s3.faults.held_from = None


def test_s3_that_never_lets_an_upload_begin_is_a_fault(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was open before takes the request's head, and nobody answers "continue"."""
    monkeypatch.setattr("server.storage.READ_S", 0.5)
    with black_hole(int(httpx.URL(s3.endpoint).port or 80)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        storage = Storage(s3.url)
        storage.write("before", b"x")
        with proxy.silent(), pytest.raises(HostFault, match="Read timeout"):
            storage.write("during", b"x")


def test_full_disk_is_a_fault_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(tmp_path.as_uri())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("server.storage.os.fsync", full)
    with pytest.raises(HostFault, match="No space left"):
        storage.write("a/b", b"1")
    assert list(storage.keys("a")) == []
