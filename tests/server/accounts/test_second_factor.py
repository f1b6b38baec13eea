"""A second factor: asked for at each way in and at what only the owner may do; each code works once."""

import time

import pyotp
import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from server.accounts import rate_limit, second_factor
from server.errors import RateLimited
from server.models.account import Account, Role
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor


class Owner:
    """An organiser with an authenticator."""

    def __init__(self, server: Instance) -> None:
        self.server, self.made_at = server, time.time()  # a step may begin within a test
        self.account = server.account("olga", Role.ORGANISER)
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
    assert owner.log_in(code=owner.code()) == 201
    wrong = owner.server.client.post("/api/v1/tokens", json=body | {"password": "wrong password"})
    assert wrong.json()["errors"] == [], "who has not the password learns nothing of a second factor"


def test_code_works_once_and_none_before_it(owner: Owner) -> None:
    assert owner.log_in(code=owner.code(1)) == 201
    assert owner.log_in(code=owner.code(1)) == 422
    assert owner.log_in(code=owner.code()) == 422


def test_recovery_code_works_once(owner: Owner) -> None:
    code = owner.recovery_codes[0]
    assert owner.log_in(code=code.upper()) == 201
    assert owner.log_in(code=code) == 422
    assert owner.log_in(code=owner.recovery_codes[1]) == 201
    with owner.server.database.read() as session:
        assert second_factor.count_recovery_codes(session, owner.account) == second_factor.N_RECOVERY_CODES - 2


def test_codes_are_not_guessed(owner: Owner) -> None:
    for _ in range(rate_limit.per_code.limit):
        with pytest.raises(InvalidInput):
            owner.require("000000")
    with pytest.raises(RateLimited):
        owner.require(owner.code())


def test_recovery_code_of_somebody_else_does_not_work(owner: Owner) -> None:
    with owner.server.database.write() as session:
        row = session.get_one(Account, owner.server.account("oskar", Role.ORGANISER).id)
        totp = pyotp.TOTP(second_factor.begin(row).secret)
        others = second_factor.switch_on(session, row, totp.now())
    with pytest.raises(InvalidInput):
        owner.require(others[0])


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
    visitor = Visitor(server)
    visitor.log_in("olga")
    path = "/account/second-factor"
    assert visitor.post(f"{path}/begin", {"password": "wrong password"}, page=path).status_code == 422
    assert visitor.post(f"{path}/begin", {"password": PASSWORD}, page=path).status_code == 303
    page = visitor.get(path)
    secret = page.text.partition('authenticator"><code>')[2].partition("<")[0]
    assert page.headers["cache-control"] == "no-store"
    assert visitor.post(f"{path}/on", {"code": "000000"}, page=path).status_code == 422
    assert Visitor(server).log_in("olga").status_code == 303, "it counts from its first code on"
    visitor = Visitor(server)
    visitor.log_in("olga")
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
