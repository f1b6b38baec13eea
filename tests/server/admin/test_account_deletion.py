"""Deleting one's account: what names the person goes, what a ranking rests on stays."""

import pytest
from sqlalchemy import func, select

from lethe.errors import InvalidInput
from server.accounts import accounts, password_reset
from server.admin import account_deletion as deletion
from server.errors import Conflict
from server.models.account import Account, ApiToken, Role, WebSession
from server.models.competition import Membership, Team
from server.models.submission import Submission
from server.teams import joining, teams
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor, plain_text


def delete(server: Instance, account: Account) -> Account:
    with server.database.write() as session:
        mine = session.get_one(Account, account.id)
        deletion.delete(session, mine, password=PASSWORD)
        return mine


def get_team(server: Instance, account_id: str) -> Team:
    with server.database.read() as session:
        membership = session.scalars(select(Membership).where(Membership.account_id == account_id)).one()
        return session.get_one(Team, membership.team_id)


def test_the_entry_stays_and_the_person_goes(server: Instance) -> None:
    server.competition()
    ada = server.account("ada")
    submission = server.submit(server.headers(ada), message="my secret note").json()["id"]
    server.score(submission, 0.25)
    gone = delete(server, ada)
    assert gone.name == f"deleted-{ada.id}"
    (row,) = server.client.get("/api/v1/competitions/digits/leaderboard").json()["rows"]
    assert row["rank"] == 1
    assert row["score"] == 0.25
    assert row["team"].startswith("deleted account ")
    with server.database.read() as session:
        assert session.get_one(Submission, submission).message == ""
        assert session.scalar(select(func.count()).select_from(ApiToken)) == 0
        assert session.scalar(select(func.count()).select_from(WebSession)) == 0


def test_a_deleted_account_has_no_way_back(server: Instance) -> None:
    gone = delete(server, server.account("ada"))
    body = {"name": gone.name, "password": PASSWORD}
    assert server.client.post("/api/v1/tokens", json=body).status_code == 401
    with server.database.write() as session, pytest.raises(Conflict, match="deleted"):
        password_reset.issue(session, gone, actor=None, lifetime=password_reset.BY_MAIL)
    with server.database.write() as session, pytest.raises(Conflict, match="deleted"):
        accounts.enable(session, gone, actor=None, reason="a mistake")


def test_nobody_takes_the_name_of_a_deleted_account(server: Instance) -> None:
    with server.database.write() as session, pytest.raises(InvalidInput, match="reserved"):
        accounts.register(session, name="Deleted-0123", password=PASSWORD)


def test_a_team_goes_on_with_another_leader(server: Instance) -> None:
    competition = server.competition()
    ada, bob = server.account("ada"), server.account("bob")
    with server.database.write() as session:
        team = teams.create(session, competition, ada, name="Amnesia")
        token = joining.invite(session, team, actor=ada, name=None).token
        joining.accept_link(session, competition, str(token), account=bob)
    server.submit(server.headers(ada))
    delete(server, ada)
    left = get_team(server, bob.id)
    assert (left.name, left.leader_id) == ("Amnesia", bob.id)
    assert get_team(server, ada.id).id == left.id, "who has used the quota stays in the team, without a name"
    delete(server, bob)
    assert get_team(server, bob.id).name.startswith("deleted account ")


def test_who_has_not_submitted_leaves_the_team(server: Instance) -> None:
    competition = server.competition()
    ada, bob = server.account("ada"), server.account("bob")
    with server.database.write() as session:
        team = teams.create(session, competition, ada, name="Amnesia")
        token = joining.invite(session, team, actor=ada, name=None).token
        joining.accept_link(session, competition, str(token), account=bob)
    delete(server, bob)
    with server.database.read() as session:
        assert [member.id for member in teams.members(session, team)] == [ada.id]


def test_who_is_still_needed_may_not_go(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    server.competition(organiser=olga)
    with pytest.raises(Conflict, match="digits"):
        delete(server, olga)
    adam = server.account("adam", Role.ADMINISTRATOR)
    with pytest.raises(Conflict, match="only administrator"):
        delete(server, adam)
    server.account("eve", Role.ADMINISTRATOR)
    delete(server, adam)


def test_the_api_and_the_page_ask_for_the_password(server: Instance) -> None:
    headers = server.participant("ada")
    wrong = server.client.post("/api/v1/me/deletion", headers=headers, json={"password": "not this one"})
    assert wrong.status_code == 422
    assert server.client.post("/api/v1/me/deletion", headers=headers, json={"password": PASSWORD}).status_code == 204
    assert server.client.get("/api/v1/me", headers=headers).status_code == 401
    server.account("bob")
    visitor = Visitor(server)
    visitor.log_in("bob")
    refused = visitor.post("/account/delete", {"password": "not this one"}, page="/account")
    assert refused.status_code == 422
    assert "is wrong" in plain_text(refused.text)
    assert visitor.post("/account/delete", {"password": PASSWORD}, page="/account").status_code == 303
    assert "Your account is deleted." in plain_text(visitor.get("/").text)
    assert visitor.get("/account").status_code == 303
