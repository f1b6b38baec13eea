"""What only the owner of an account may do: its second factor, and its deletion."""

import time

import pyotp
import pytest
from sqlalchemy import func, select
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from server.accounts import accounts, password_reset, rate_limit, second_factor
from server.admin import account_deletion as deletion
from server.errors import Conflict, RateLimited
from server.models.account import Account, ApiToken, Role, WebSession
from server.models.competition import Membership, Team
from server.models.submission import Submission
from server.teams import joining, teams
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor, plain_text


class Owner:
    """An organiser with an authenticator."""

    def __init__(self, server: Instance, name: str = "olga") -> None:
        self.server, self.made_at = server, time.time()  # a step may begin within a test
        self.account = server.account(name, Role.ORGANISER)
        self.headers = server.headers(self.account)
        with server.database.write() as session:
            row = session.get_one(Account, self.account.id)
            self.totp = pyotp.TOTP(second_factor.begin(row).secret)
            self.recovery_codes = second_factor.switch_on(session, row, self.code(-1))

    def code(self, steps: int = 0) -> str:
        """Return the code of the test's beginning, or of some steps later."""
        return self.totp.at(self.made_at + 30 * steps)

    def log_in(self, **given: str) -> int:
        body = {"name": "olga", "password": PASSWORD, **given}
        return int(self.server.client.post("/api/v1/tokens", json=body).status_code)

    def require(self, code: str) -> None:
        with self.server.database.write() as session:
            second_factor.require(session, session.get_one(Account, self.account.id), code)


@pytest.fixture
def owner(server: Instance) -> Owner:
    return Owner(server)


def test_log_in_of_the_api_needs_the_code(owner: Owner) -> None:
    body = {"name": "olga", "password": PASSWORD}
    answer = owner.server.client.post("/api/v1/tokens", json=body)
    assert (answer.status_code, answer.json()["errors"]) == (401, [{"field": "code", "message": "is missing"}])
    assert owner.log_in(code="000000") == 422
    assert owner.log_in(code=owner.code(1)) == 201
    assert owner.log_in(code=owner.code(1)) == 422, "a code works once"
    assert owner.log_in(code=owner.code()) == 422, "and none before it"
    wrong = owner.server.client.post("/api/v1/tokens", json=body | {"password": "wrong password"})
    assert wrong.json()["errors"] == [], "who has not the password learns nothing of a second factor"


def test_codes_are_not_guessed(owner: Owner) -> None:
    for _ in range(rate_limit.per_code.limit):
        with pytest.raises(InvalidInput):
            owner.require("000000")
    with pytest.raises(RateLimited):
        owner.require(owner.code())


def test_log_in_page_asks_for_the_code(owner: Owner) -> None:
    visitor = Visitor(owner.server)
    asked = visitor.log_in("olga")
    assert asked.status_code == 422
    assert 'name="code"' in asked.text
    assert 'name="code"' not in visitor.get("/login").text
    sent = {"name": "olga", "password": PASSWORD, "code": owner.code()}
    assert visitor.post("/login", sent).status_code == 303
    assert visitor.get("/account").status_code == 200


def test_sensitive_acts_need_the_code(owner: Owner) -> None:
    visitor = Visitor(owner.server)
    visitor.post("/login", {"name": "olga", "password": PASSWORD, "code": owner.recovery_codes[0]})
    acts = {
        "/account/password": {"old": PASSWORD, "new": "another long password"},
        "/account/mail": {"email": "olga@example.org", "password": PASSWORD},
        "/account/delete": {"password": PASSWORD},
        "/account/tokens": {"label": "mine", "scope": "full", "days": "90"},
        "/account/second-factor/off": {"password": PASSWORD},
    }
    for path, fields in acts.items():
        page = visitor.post(path, fields, page="/account")
        assert page.status_code == 401, path
        assert "second factor" in page.text.lower()
        assert "is missing" in page.text
    api = owner.server.client.put(
        "/api/v1/me/password", headers=owner.headers, json={"old": PASSWORD, "new": "another long password"}
    )
    assert api.status_code == 401
    api = owner.server.client.post("/api/v1/me/deletion", headers=owner.headers, json={"password": PASSWORD})
    assert api.status_code == 401
    off = {"password": PASSWORD, "code": owner.recovery_codes[1]}
    assert visitor.post("/account/second-factor/off", off, page="/account").status_code == 303
    assert owner.log_in() == 201


def test_pages_switch_it_on(server: Instance) -> None:
    server.account("olga", Role.ORGANISER)
    visitor = Visitor(server, "olga")
    path = "/account/second-factor"
    assert visitor.post(f"{path}/begin", {"password": "wrong password"}, page=path).status_code == 422
    assert visitor.post(f"{path}/begin", {"password": PASSWORD}, page=path).status_code == 303
    page = visitor.get(path)
    secret = page.text.partition('authenticator"><code>')[2].partition("<")[0]
    assert page.headers["cache-control"] == "no-store"
    assert visitor.post(f"{path}/on", {"code": "000000"}, page=path).status_code == 422
    assert Visitor(server).log_in("olga").status_code == 303, "it counts from its first code on"
    visitor = Visitor(server, "olga")
    done = visitor.post(f"{path}/on", {"code": pyotp.TOTP(secret).now()}, page=path)
    assert done.status_code == 200
    assert "recovery codes" in done.text
    assert visitor.get("/account").status_code == 200, "this browser stays logged in"
    assert secret not in visitor.get(path).text


def test_database_alone_gives_no_code(owner: Owner) -> None:
    with owner.server.database.read() as session:
        row = session.get_one(Account, owner.account.id)
        stored = str({column.name: getattr(row, column.name) for column in Account.__table__.columns})
    assert owner.totp.secret not in stored
    assert not any(code in stored for code in owner.recovery_codes)


def test_operator_resets_it(owner: Owner) -> None:
    runner = CliRunner()
    assert runner.invoke(build_app(), ["reset-second-factor", "olga"]).exit_code == 0
    assert owner.log_in() == 201


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
    with server.database.write() as session:
        with pytest.raises(Conflict, match="deleted"):
            password_reset.issue(session, gone, actor=None, lifetime=password_reset.BY_MAIL)
        with pytest.raises(Conflict, match="deleted"):
            accounts.enable(session, gone, actor=None, reason="a mistake")
        with pytest.raises(InvalidInput, match="reserved"):
            accounts.register(session, name="Deleted-0123", password=PASSWORD)


def test_a_team_goes_on_with_another_leader(server: Instance) -> None:
    competition = server.competition()
    ada, bob, eve = server.account("ada"), server.account("bob"), server.account("eve")
    with server.database.write() as session:
        team = teams.create(session, competition, ada, name="Amnesia")
        for account in (bob, eve):
            token = joining.invite(session, team, actor=ada, name=None).token
            joining.accept_link(session, competition, str(token), account=account)
    delete(server, eve)
    with server.database.read() as session:
        members = [member.id for member in teams.members(session, team)]
    assert members == [ada.id, bob.id], "who has not submitted leaves the team"
    server.submit(server.headers(ada))
    delete(server, ada)
    left = get_team(server, bob.id)
    assert (left.name, left.leader_id) == ("Amnesia", bob.id)
    assert get_team(server, ada.id).id == left.id, "who has used the quota stays in the team, without a name"
    delete(server, bob)
    assert get_team(server, bob.id).name.startswith("deleted account ")


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
    visitor = Visitor(server, "bob")
    refused = visitor.post("/account/delete", {"password": "not this one"}, page="/account")
    assert refused.status_code == 422
    assert "is wrong" in plain_text(refused.text)
    assert visitor.post("/account/delete", {"password": PASSWORD}, page="/account").status_code == 303
    assert "Your account is deleted." in plain_text(visitor.get("/").text)
    assert visitor.get("/account").status_code == 303


def test_recovery_code_works_once_and_for_its_owner(owner: Owner) -> None:
    code = owner.recovery_codes[0]
    assert owner.log_in(code=code.upper()) == 201
    assert owner.log_in(code=code) == 422
    assert owner.log_in(code=owner.recovery_codes[1]) == 201
    with owner.server.database.read() as session:
        assert second_factor.count_recovery_codes(session, owner.account) == second_factor.N_RECOVERY_CODES - 2
    others = Owner(owner.server, "oskar").recovery_codes
    with pytest.raises(InvalidInput):
        owner.require(others[0])
