"""Forgotten passwords: links that work once, and the ways to one."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from lethe.errors import NotFound
from server.accounts import password_reset, rate_limit
from server.config import get_settings
from server.db import now
from server.errors import Conflict
from server.models.account import Account, PasswordReset, Role
from server.models.notification import QueuedEmail
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor, plain_text

NEW = "another long password"
LINK = re.compile(r"http://\S+/reset\?token=([\w-]{20,})")


@pytest.fixture
def _mail(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("LETHE_MAIL_FROM", "lethe@example.org")
    get_settings.cache_clear()


def person(server: Instance, name: str = "ada", email: str | None = "ada@example.org") -> Account:
    account = server.account(name)
    with server.database.write() as session:
        values = {"email": email, "email_confirmed_at": now() if email else None}
        session.execute(update(Account).where(Account.id == account.id).values(values))
    return account


def mails(server: Instance) -> list[QueuedEmail]:
    with server.database.read() as session:
        return list(session.scalars(select(QueuedEmail)))


def issue(server: Instance, account: Account) -> str:
    with server.database.write() as session:
        return password_reset.issue(session, account, actor=None, lifetime=timedelta(hours=1)).token


def may_log_in(visitor: Visitor, password: str) -> bool:
    visitor.client.cookies.clear()
    return visitor.log_in("ada", password).status_code == 303


@pytest.mark.usefixtures("_mail")
@pytest.mark.parametrize("who", ["ada", "ADA", " Ada@Example.org "])
def test_a_link_comes_by_mail_and_sets_a_password(server: Instance, visitor: Visitor, who: str) -> None:
    person(server)
    assert visitor.post("/forgot", {"who": who}).status_code == 200
    (email,) = mails(server)
    assert email.address == "ada@example.org"
    token = LINK.search(email.body)[1]  # type: ignore[index]
    assert "ada" in plain_text(visitor.get("/reset", params={"token": token}).text)
    page = f"/reset?token={token}"
    assert visitor.post("/reset", {"token": token, "new": "short"}, page=page).status_code == 422
    assert visitor.post("/reset", {"token": token, "new": NEW}, page=page).status_code == 303
    assert may_log_in(visitor, NEW)
    assert not may_log_in(visitor, PASSWORD)


@pytest.mark.usefixtures("_mail")
@pytest.mark.parametrize("who", ["eve", "ada@example.org"])
def test_an_unconfirmed_address_gets_no_link(server: Instance, visitor: Visitor, who: str) -> None:
    eve = server.account("eve")
    with server.database.write() as session:
        session.get_one(Account, eve.id).email = "ada@example.org"
    visitor.post("/forgot", {"who": who})
    assert mails(server) == []


@pytest.mark.usefixtures("_mail")
def test_nobody_learns_which_accounts_there_are(server: Instance, visitor: Visitor) -> None:
    person(server)
    person(server, "no-address", None)
    salted = re.compile(r'name="csrf_token" value="[0-9a-f]+"')
    answers = {salted.sub("", visitor.post("/forgot", {"who": who}).text) for who in ("ada", "nobody", "no-address")}
    assert len(answers) == 1
    assert len(mails(server)) == 1


@pytest.mark.usefixtures("_mail")
def test_a_flood_of_requests_sends_three_links_and_is_then_refused(server: Instance, visitor: Visitor) -> None:
    person(server)
    token = visitor.token("/forgot")
    answers = [
        visitor.client.post("/forgot", data={"who": "ada", "csrf_token": token})
        for _ in range(rate_limit.reset_requests.limit + 1)
    ]
    assert [answer.status_code for answer in answers] == [200] * rate_limit.reset_requests.limit + [429]
    assert len(mails(server)) == rate_limit.reset_links.limit


def test_without_mail_the_page_names_another_way(server: Instance, visitor: Visitor) -> None:
    person(server)
    assert "administrator" in plain_text(visitor.get("/forgot").text)


def test_a_link_works_once_and_ends_every_log_in(server: Instance, visitor: Visitor) -> None:
    account = person(server)
    headers = server.headers(account)
    visitor.log_in("ada")
    token = issue(server, account)
    with server.database.write() as session:
        password_reset.use(session, token, password=NEW)
    assert visitor.get("/account").status_code == 303
    assert server.client.get("/api/v1/me", headers=headers).status_code == 401
    with server.database.write() as session, pytest.raises(NotFound):
        password_reset.use(session, token, password=NEW)
    page = visitor.get("/reset", params={"token": token})
    assert page.status_code == 404
    assert "was used" in page.text


def test_a_newer_link_ends_the_older_and_time_ends_both(server: Instance) -> None:
    account = person(server)
    older, newer = issue(server, account), issue(server, account)
    with server.database.read() as session:
        assert password_reset.get_account(session, newer).id == account.id
        with pytest.raises(NotFound):
            password_reset.get_account(session, older)
    with server.database.write() as session:
        session.execute(update(PasswordReset).values(expires_at=now() - timedelta(seconds=1)))
    with server.database.read() as session, pytest.raises(NotFound):
        password_reset.get_account(session, newer)


def test_the_database_holds_no_link_that_works(server: Instance) -> None:
    token = issue(server, person(server))
    with server.database.read() as session:
        row = session.scalars(select(PasswordReset)).one()
    assert token not in str(vars(row))


def test_who_is_banned_gets_no_link(server: Instance) -> None:
    account = person(server)
    account.disabled_at = now()
    with server.database.write() as session, pytest.raises(Conflict, match="banned"):
        password_reset.issue(session, account, actor=None, lifetime=timedelta(hours=1))


def test_an_administrator_makes_a_link_in_the_api_and_on_a_page(server: Instance, visitor: Visitor) -> None:
    person(server)
    admin = server.account("adam", Role.ADMINISTRATOR)
    answer = server.client.post("/api/v1/admin/accounts/ada/reset-link", headers=server.headers(admin))
    assert answer.status_code == 201
    assert LINK.fullmatch(answer.json()["link"])
    visitor.log_in("adam")
    page = visitor.post("/people/ada/reset-link", page="/account")
    token = LINK.search(page.text)[1]  # type: ignore[index]
    assert page.headers["cache-control"] == "no-store"
    assert visitor.get("/reset", params={"token": token}).status_code == 200
    visitor.log_in("ada")
