"""Splits from remote storage on this host's disk: verified, capped, and never taken from under a process."""

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lethe.errors import HostFault
from lethe.evaluation.model_outputs import OUTPUT_PATHS
from server.storage import Storage
from tests.support.leases import flip_a_byte
from tests.support.s3 import S3Server, s3_server
from worker.split_storage.local_splits import publish_files, publish_manifest
from worker.split_storage.split_cache import SplitCache, StoredSplit

COMPARED_WITH = [OUTPUT_PATHS["retrained"], OUTPUT_PATHS["oracle"]]
ORIGINALS = "hidden/originals/models-00000.safetensors"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def storage(s3: S3Server, tmp_path: Path) -> Storage:
    return Storage(f"{s3.url}/{tmp_path.name}")


def put(storage: Storage, tmp_path: Path, name: str, *, size: int = 1000) -> str:
    """Prepare and publish a split. Return its manifest's hash."""
    files = {
        "visible/forget": name.encode() * size,
        "hidden/retrained/models-00000.safetensors": b"checkpoints",
        "hidden/oracle/models-00000.safetensors": b"checkpoints",
        ORIGINALS: b"originals",
    } | dict.fromkeys(COMPARED_WITH, b"outputs")
    folder = tmp_path / f"prepared-{name}"
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    records = {
        path: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)} for path, content in files.items()
    }
    manifest = json.dumps({"files": records}).encode()
    (folder / "manifest.json").write_bytes(manifest)
    publish_files(storage, f"splits/{name}/public", folder, files)
    publish_manifest(storage, f"splits/{name}/public", folder)
    return hashlib.sha256(manifest).hexdigest()


CacheOf = Callable[..., SplitCache]


@pytest.fixture
def make_cache(storage: Storage, tmp_path: Path) -> Iterator[CacheOf]:
    """Make the cache of one more process of this host."""
    with ExitStack() as stack:

        def make(*, cap: int = 10**6) -> SplitCache:
            cache = SplitCache(tmp_path / "cache", cap_bytes=cap)
            stack.callback(cache.close)
            return cache

        yield make


def test_split_is_fetched_once_without_what_no_worker_needs(storage, s3, tmp_path, make_cache):
    sha256, source, cache = put(storage, tmp_path, "a"), StoredSplit(storage, "splits/a/public"), make_cache()
    folder = cache.get(source, sha256)
    assert (folder / "visible" / "forget").read_bytes() == b"a" * 1000
    hidden = [path.relative_to(folder).as_posix() for path in (folder / "hidden").rglob("*") if path.is_file()]
    assert sorted(hidden) == sorted(COMPARED_WITH)  # what a score is computed from, and no checkpoint
    assert cache.get_file(source, sha256, ORIGINALS) == folder / ORIGINALS
    assert (folder / ORIGINALS).read_bytes() == b"originals"
    before = s3.faults.requests
    assert cache.get(source, sha256) == folder
    assert cache.get_file(source, sha256, ORIGINALS) == folder / ORIGINALS
    assert s3.faults.requests == before


def test_damaged_files_are_refused_and_not_kept(storage: Storage, tmp_path: Path, make_cache: CacheOf) -> None:
    sha256, source, cache = put(storage, tmp_path, "a"), StoredSplit(storage, "splits/a/public"), make_cache()
    storage.write(f"splits/a/public/{ORIGINALS}", b"forgeries")
    with pytest.raises(HostFault, match=r"damaged splits/a/public/hidden/originals/models-00000"):
        cache.get_file(source, sha256, ORIGINALS)
    assert list((cache.get(source, sha256) / ORIGINALS).parent.iterdir()) == []
    other = put(storage, tmp_path, "b")
    storage.write("splits/b/public/visible/forget", b"c" * 1000)
    with pytest.raises(HostFault, match="damaged splits/b/public/visible/forget was fetched"):
        cache.get(StoredSplit(storage, "splits/b/public"), other)
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [sha256]


def test_another_split_and_a_file_outside_its_folder_are_refused(storage, tmp_path, make_cache):
    put(storage, tmp_path, "a")
    with pytest.raises(HostFault, match=r"manifest\.json"):
        make_cache().get(StoredSplit(storage, "splits/a/public"), "0" * 64)
    manifest = json.dumps({"files": {"../../outside": {"sha256": "0" * 64, "size": 1}}}).encode()
    sha256 = storage.write("splits/a/public/manifest.json", manifest)
    with pytest.raises(HostFault, match="lies outside the split"):
        make_cache().get(StoredSplit(storage, "splits/a/public"), sha256)


def test_cap_removes_the_least_recently_used(storage: Storage, tmp_path: Path, make_cache: CacheOf) -> None:
    hashes = {name: put(storage, tmp_path, name) for name in "abcdefg"}
    cache = make_cache(cap=3000)
    for name, sha256 in hashes.items():
        cache.get(StoredSplit(storage, f"splits/{name}/public"), sha256)
    left = {path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()}
    assert left == {hashes[name] for name in "defg"}  # a process keeps the four it used last


def test_entry_that_another_process_works_with_stays(storage: Storage, tmp_path: Path, make_cache: CacheOf) -> None:
    kept = put(storage, tmp_path, "kept")
    first = make_cache()
    first.get(StoredSplit(storage, "splits/kept/public"), kept)
    first.close()
    with (tmp_path / "cache" / f"{kept}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        other = make_cache(cap=1)
        other.get(StoredSplit(storage, "splits/a/public"), put(storage, tmp_path, "a"))
        assert (tmp_path / "cache" / kept).is_dir()
    other.get(StoredSplit(storage, "splits/b/public"), put(storage, tmp_path, "b"))
    assert not (tmp_path / "cache" / kept).exists()


def test_partial_files_of_killed_processes_are_removed(storage: Storage, tmp_path: Path, make_cache: CacheOf) -> None:
    folder = tmp_path / "cache"
    abandoned, removed, fetching = (folder / name for name in (".new-a-1", ".old-a-2", ".new-b-3"))
    for path in (abandoned, removed, fetching):
        path.mkdir(parents=True)
        (path / "half").write_bytes(b"half")
    held = os.open(fetching, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        split = put(storage, tmp_path, "c")
        make_cache().get(StoredSplit(storage, "splits/c/public"), split)
        assert {path.name for path in folder.iterdir() if path.is_dir()} == {split, fetching.name}
    finally:
        os.close(held)


@pytest.mark.parametrize("name", ["visible/forget", OUTPUT_PATHS["oracle"], "manifest.json", ORIGINALS])
def test_flipped_byte_is_found_and_fetched_again(storage, tmp_path, make_cache, name):
    sha256 = put(storage, tmp_path, "a")
    source = StoredSplit(storage, "splits/a/public")
    cache = make_cache()
    cache.get_file(source, sha256, ORIGINALS)
    path = tmp_path / "cache" / sha256 / name
    good = path.read_bytes()
    flip_a_byte(path, -3)
    assert cache.repair(source, sha256) == [name]
    assert path.read_bytes() == good
    path.unlink() if name == "visible/forget" else flip_a_byte(path, -3)
    make_cache().get(source, sha256)  # a process that begins looks by itself
    assert path.read_bytes() == good
    assert cache.repair(source, sha256) == []


def test_full_disk_is_named(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.write("a", b"content")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage._filesystem, "get_file", full)
    with pytest.raises(HostFault, match=r"the disk of .* on this host is full"):
        storage.download("a", tmp_path / "a")
