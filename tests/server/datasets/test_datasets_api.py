"""Organisers upload datasets within limits; competition files use them by name; nothing of another's can be used."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from lethe.errors import HostFault
from server.competitions import participants
from server.config import get_settings
from server.datasets import datasets
from server.datasets.datasets import CheckedUpload
from server.db import now
from server.errors import TooLarge
from server.maintenance import retention
from server.models.account import Account, Role
from server.models.competition import Competition, Dataset
from server.storage import dataset_key
from tests.support.instance import Instance, competition_toml, make_zip

ARCHIVE = make_zip({"images.npy": b"1", "labels.npy": b"2"})


def upload(server: Instance, headers: dict[str, str], name: str = "faces", data: bytes = ARCHIVE) -> Any:
    return server.client.post("/api/v1/datasets", headers=headers, files={"file": ("a.zip", data)}, data={"name": name})


def file_with(root: str, slug: str = "digits", dataset: str = "numpy") -> str:
    wanted = f'[dataset]\nname = "{dataset}"\n[dataset.options]\nroot = "{root}"\n'
    return competition_toml(slug).replace('[dataset]\nname = "digits"\n', wanted)


def create(server: Instance, headers: dict[str, str], text: str) -> Any:
    return server.client.post("/api/v1/competitions", headers=headers, content=text)


def test_dataset_is_stored_by_content_and_listed(both: Instance) -> None:
    olga = both.organiser()
    made = upload(both, olga)
    assert made.status_code == 201, made.text
    assert both.storage.read(dataset_key(made.json()["sha256"])) == ARCHIVE
    listed = both.client.get("/api/v1/datasets", headers=olga).json()
    assert [(d["name"], d["files"], d["unpacked_bytes"]) for d in listed] == [("faces", 2, 2)]
    assert both.client.get("/api/v1/datasets", headers=both.organiser("oskar")).json() == []


def test_refused_archives_leave_nothing(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise HostFault("no room")

    olga = server.organiser()
    for name in ("", "A", "../x", "a/b", "deleted-1", "a" * 65, "-a", "a\x1b"):
        assert upload(server, olga, name).status_code == 422, name
    assert upload(server, olga, data=b"no zip").status_code == 422
    with monkeypatch.context() as patched:
        patched.setattr(type(server.storage), "write_file", broken)
        assert upload(server, olga).status_code == 503
    assert upload(server, olga).status_code == 201, "storage that fails leaves no row"
    other = make_zip({"images.npy": b"3"})
    for headers in (olga, server.organiser("oskar")):
        assert upload(server, headers, data=other).status_code == 409, "the name is taken"
    assert len(list(server.storage.keys("datasets"))) == 1


def test_quota_holds_for_parallel_processes(both: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_DATASETS_MIB_PER_ACCOUNT", "3")
    get_settings.cache_clear()
    olga = both.account("olga", Role.ORGANISER)
    together = threading.Barrier(6)

    def reserve(number: int) -> bool:
        archive = CheckedUpload(f"{number:064}", (1 << 20) + 1, 1, 1)
        together.wait()
        try:
            with both.database.write() as session:
                datasets.reserve(session, get_settings(), olga, name=f"d{number}", archive=archive)
        except TooLarge:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(reserve, range(6))) == 2


def test_one_account_sends_one_dataset_at_a_time(both: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_DATASETS_MIB_PER_ACCOUNT", "3")
    monkeypatch.setenv("LETHE_UPLOADS_PER_10_MIN", "0")
    get_settings.cache_clear()
    olga = both.organiser()
    archives = [make_zip({"a": bytes([n]) + _noise(1 << 20)}) for n in range(6)]
    answers: list[int] = []

    def send(number: int) -> None:
        answers.append(upload(both, olga, f"d{number}", archives[number]).status_code)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        send(number)
    assert answers.count(201) == 2
    assert set(answers) <= {201, 409, 413, 429}
    with both.database.read() as session:
        assert session.query(Dataset).count() == 2
    assert len(list(both.storage.keys("datasets"))) == 2


def test_file_beyond_the_limit_is_refused_while_it_comes(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_DATASET_UPLOAD_MIB", "1")
    get_settings.cache_clear()
    olga = server.organiser()
    assert upload(server, olga, data=make_zip({"a": _noise(2 << 20)})).status_code == 413
    monkeypatch.setenv("LETHE_DATASET_UPLOAD_MIB", "0")
    get_settings.cache_clear()
    assert upload(server, olga).status_code == 403


def test_competition_uses_an_own_dataset_only(server: Instance) -> None:
    olga, oskar = server.organiser(), server.organiser("oskar")
    assert upload(server, olga).status_code == 201
    for text in (file_with("upload:faces"), file_with("upload:none"), file_with("upload:../faces")):
        answer = create(server, oskar, text)
        assert (answer.status_code, "that you have uploaded" in answer.json()["detail"]) == (422, True)
    assert create(server, olga, file_with("upload:faces", dataset="svhn")).status_code == 422
    assert create(server, olga, file_with("upload:faces")).status_code == 201
    administrator = server.headers(server.account("root", Role.ADMINISTRATOR))
    assert create(server, administrator, file_with("upload:faces", "other")).status_code == 201


def test_dataset_in_use_stays_and_an_unused_one_is_collected(both: Instance) -> None:
    olga, oskar = both.organiser(), both.organiser("oskar")
    key = dataset_key(upload(both, olga).json()["sha256"])
    assert upload(both, oskar, "same").status_code == 201
    assert create(both, olga, file_with("upload:faces")).status_code == 201
    url = "/api/v1/datasets/faces"
    for state in ("draft", "provisional"):
        with both.database.write() as session:
            session.query(Competition).one().state = state
        assert both.client.delete(url, headers=olga).status_code == 409
    with both.database.write() as session:
        session.query(Competition).one().state = "final"
    assert both.client.delete(url, headers=oskar).status_code == 404
    assert both.client.delete(url, headers=olga).status_code == 204, "its competition is over"
    assert both.client.get("/api/v1/datasets", headers=olga).json() == []
    retention.collect(both.database, both.storage, keep_hours=0, delete=True)
    assert both.storage.exists(key), "another dataset has this content"
    assert both.client.delete("/api/v1/datasets/same", headers=oskar).status_code == 204
    assert both.storage.exists(key)
    retention.collect(both.database, both.storage, keep_hours=0, delete=True)
    assert not both.storage.exists(key)
    assert upload(both, oskar).status_code == 201, "the name is free again"


def test_deleted_datasets_count_until_they_are_collected(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_DATASETS_MIB_PER_ACCOUNT", "1")
    get_settings.cache_clear()
    olga = server.organiser()
    data = make_zip({"a": _noise(700 << 10)})
    assert upload(server, olga, data=data).status_code == 201
    assert server.client.delete("/api/v1/datasets/faces", headers=olga).status_code == 204
    assert upload(server, olga, data=data).status_code == 413
    with server.database.write() as session:
        retention.expire(session, get_settings(), at=now() + timedelta(hours=25))
    assert upload(server, olga, data=data).status_code == 201


def test_dataset_that_nobody_uses_is_deleted_after_a_month(server: Instance) -> None:
    olga = server.organiser()
    assert upload(server, olga, "used").status_code == 201
    assert create(server, olga, file_with("upload:used")).status_code == 201
    assert upload(server, olga, "unused", make_zip({"b": b"1"})).status_code == 201
    for days, left in ((29, ["unused", "used"]), (31, ["used"])):
        with server.database.write() as session:
            retention.expire(session, get_settings(), at=now() + timedelta(days=days))
        assert [d["name"] for d in server.client.get("/api/v1/datasets", headers=olga).json()] == left


def _noise(length: int) -> bytes:
    """Return bytes that do not get shorter in a zip."""
    return random.Random(length).randbytes(length)


def test_dataset_is_prepared_for_whoever_organises_with_its_owner(server: Instance) -> None:
    olga, oskar = server.organiser(), server.organiser("oskar")
    assert upload(server, olga).status_code == 201
    assert create(server, olga, file_with("upload:faces")).status_code == 201
    assert create(server, olga, file_with("upload:faces", "other")).status_code == 201
    with server.database.write() as session:
        competition = session.query(Competition).filter_by(slug="digits").one()
        owner = session.get_one(Account, competition.created_by)
        participants.add_organiser(session, competition, "oskar", actor=owner, reason="helps")
    assert server.client.post("/api/v1/competitions/digits/prepare", headers=oskar).status_code == 202
    with server.database.write() as session:  # deleted between the check and the draft, and taken by another
        row = session.query(Dataset).one()
        row.name, row.deleted_at = "deleted-x", now()
    assert upload(server, oskar).status_code == 201
    assert server.client.post("/api/v1/competitions/other/prepare", headers=olga).status_code == 422
