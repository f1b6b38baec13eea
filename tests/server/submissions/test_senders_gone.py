"""Who may no longer send when the file has come, sends nothing."""

from typing import Any

import pytest
from sqlalchemy import func, select

from server.accounts import accounts
from server.admin import account_deletion as deletion
from server.models.competition import Team
from server.models.submission import Submission
from server.submissions.upload_check import check_for
from tests.support.instance import GOOD_CODE, PASSWORD
from tests.support.web import Visitor

PLACES = ("server.api.submissions.router", "server.web.submit_pages")


@pytest.mark.parametrize("act", ["banned", "deleted"])
@pytest.mark.parametrize("place", PLACES)
def test_file_of_an_account_that_went_meanwhile_is_not_taken(server, monkeypatch, act, place):
    async def check_slowly(*arguments: Any, **options: Any) -> Any:
        with server.database.write() as session:
            account = accounts.find(session, "ada")
            if act == "banned":
                accounts.disable(session, account, actor=None, reason="cheated")
            else:
                deletion.delete(session, account, password=PASSWORD)
        return await check_for(*arguments, **options)

    server.competition()
    monkeypatch.setattr(f"{place}.check_for", check_slowly)
    if place == PLACES[0]:
        assert server.submit(server.participant("ada")).status_code == 401
    else:
        server.account("ada")
        visitor = Visitor(server)
        visitor.log_in("ada")
        answer = visitor.post("/competitions/digits/submit", files={"file": ("mine.py", GOOD_CODE)})
        assert answer.headers["location"].startswith("/login")
    with server.database.read() as session:
        for table in (Submission, Team):
            assert session.scalar(select(func.count()).select_from(table)) == 0
