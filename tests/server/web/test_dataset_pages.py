"""The page of datasets: uploading, what is wrong, deleting; only for organisers, only from an own form."""

from server.models.account import Role
from tests.support.instance import Instance, make_zip
from tests.support.web import Visitor, plain_text

ARCHIVE = make_zip({"images.npy": b"1", "labels.npy": b"2"})


def upload(visitor: Visitor, name: str = "faces", data: bytes = ARCHIVE, **fields: str) -> object:
    return visitor.post("/datasets", {"name": name, **fields}, files={"file": ("a.zip", data)})


def test_dataset_is_uploaded_shown_and_deleted(server: Instance, visitor: Visitor) -> None:
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    assert "No datasets" in plain_text(visitor.get("/datasets").text)
    sent = upload(visitor)
    assert (sent.status_code, sent.headers["location"]) == (303, "/datasets")  # type: ignore[attr-defined]
    shown = plain_text(visitor.get("/datasets").text)
    assert 'Competition files use it as root = "upload:faces"' in shown
    assert "faces 2" in shown
    assert visitor.post("/datasets/faces/delete", page="/datasets").status_code == 303
    assert "No datasets" in plain_text(visitor.get("/datasets").text)


def test_refused_archive_is_explained_on_the_page(server: Instance, visitor: Visitor) -> None:
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    refused = upload(visitor, data=b"no zip")
    assert refused.status_code == 422  # type: ignore[attr-defined]
    assert "is not a zip archive" in plain_text(refused.text)  # type: ignore[attr-defined]
    page = plain_text(upload(visitor, "A b").text)  # type: ignore[attr-defined]
    assert page.count("must be 1 to 64") == 1


def test_form_of_another_page_uploads_nothing(server: Instance, visitor: Visitor) -> None:
    server.account("olga", Role.ORGANISER)
    visitor.log_in("olga")
    assert upload(visitor, csrf_token="0" * 80).status_code == 403  # type: ignore[attr-defined]
    assert visitor.post("/datasets/faces/delete", {"csrf_token": "0" * 80}, page="/datasets").status_code == 403
    assert list(server.storage.keys("datasets")) == []


def test_dataset_of_another_organiser_is_neither_shown_nor_deleted(server: Instance, visitor: Visitor) -> None:
    for name in ("olga", "oskar"):
        server.account(name, Role.ORGANISER)
    visitor.log_in("olga")
    upload(visitor)
    visitor.client.cookies.clear()
    visitor.log_in("oskar")
    assert "faces" not in plain_text(visitor.get("/datasets").text)
    assert visitor.post("/datasets/faces/delete", page="/datasets").status_code == 404
