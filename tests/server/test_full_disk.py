"""A full disk of the web server's is told as such, whatever writes to it; nothing is half taken."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from server.models.account import Role
from server.models.submission import Submission
from tests.support.instance import GOOD_CODE, Instance, make_zip
from tests.support.web import Visitor

FULL = Path("/dev/full")  # takes no byte


@pytest.fixture(autouse=True)
def _full_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_full(**_options: object) -> Any:
        return FULL.open("w+b", buffering=0)

    monkeypatch.setattr("starlette.formparsers.SpooledTemporaryFile", open_full)
    monkeypatch.setattr("server.downloads.TemporaryFile", open_full)


def test_full_temporary_folder_is_told(server: Instance) -> None:
    root = server.account("root-of-all", Role.ADMINISTRATOR)
    server.competition(organiser=root)
    headers = server.headers(root)
    visitor = Visitor(server)
    visitor.log_in("root-of-all")
    archive = {"file": ("a.zip", make_zip({"submission.py": GOOD_CODE}))}
    post, api = server.client.post, "/api/v1/competitions/digits"
    for ask in (
        partial(server.submit, headers),
        partial(post, "/api/v1/datasets", headers=headers, files=archive, data={"name": "d"}),
        partial(visitor.post, "/competitions/digits/submit", files=archive),
        partial(server.client.get, f"{api}/exports/audit", headers=headers),
    ):
        answer = ask()
        assert (answer.status_code, "disk of the server is full" in answer.text) == (503, True), ask
    with server.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Submission)) == 0
