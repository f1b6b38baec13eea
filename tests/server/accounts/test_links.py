"""Links that are sent by mail or printed: for an address, a forgotten password, the first administrator."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import select, update
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import NotFound
from server.accounts import accounts, password_reset, rate_limit
from server.config import get_settings
from server.db import now
from server.errors import Conflict
from server.models.account import Account, PasswordReset, Role
from server.models.notification import QueuedEmail
from server.notifications import notification_repository
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor, plain_text

pytestmark = pytest.mark.usefixtures("mail")
CONFIRMATION = re.compile(r"/confirm\?token=([0-9a-f.]+)")
ADDRESS = "ada@example.org"


def registered(server: Instance, name: str, email: str = ADDRESS) -> dict[str, str]:
    body = {"name": name, "password": PASSWORD, "email": email}
    assert server.client.post("/api/v1/accounts", json=body).status_code == 201
    token = server.client.post("/api/v1/tokens", json={"name": name, "password": PASSWORD}).json()["token"]
    return {"Authorization": f"Bearer {token}"}


def letters(server: Instance) -> list[str]:
    """Return the tokens of the links that were sent, by the order of their sending."""
    return [found[1] for mail in mailed(server) if (found := CONFIRMATION.search(mail.body))]


def confirmed(server: Instance, headers: dict[str, str]) -> bool:
    found: bool = server.client.get("/api/v1/me", headers=headers).json()["email_confirmed"]
    return found


def test_link_confirms_the_address(server: Instance) -> None:
    ada = registered(server, "ada")
    (token,) = letters(server)
    visitor = Visitor(server)
    assert ADDRESS in visitor.get(f"/confirm?token={token}").text
    assert not confirmed(server, ada), "who only looks at a link confirms nothing"
    assert visitor.post("/confirm", {"token": token}, page=f"/confirm?token={token}").status_code == 200
    assert confirmed(server, ada)


def test_of_four_accounts_one_has_the_address(server: Instance) -> None:
    people = [registered(server, f"person{number}") for number in range(3)]
    first, *others = letters(server)
    with server.database.write() as session:
        accounts.confirm_address(session, first)
    visitor = Visitor(server)
    for token in others:
        answer = visitor.post("/confirm", {"token": token}, page=f"/confirm?token={token}")
        assert answer.status_code == 409
        assert "Another account has confirmed this address" in answer.text
    assert [confirmed(server, one) for one in people] == [True, False, False]
    registered(server, "person4")
    assert len(letters(server)) == 3, "an address gets three letters an hour, whoever names it"


def test_link_of_an_earlier_address_does_not_work(server: Instance) -> None:
    ada = registered(server, "ada")
    (token,) = letters(server)
    with server.database.write() as session:
        accounts.confirm_address(session, token)
    visitor = Visitor(server, "ada")
    for email, stays in ((ADDRESS, True), ("new@example.org", False)):
        visitor.post("/account/mail", {"email": email, "password": PASSWORD}, page="/account")
        assert confirmed(server, ada) is stays
    assert visitor.post("/confirm", {"token": token}, page="/account").status_code == 404
    assert len(letters(server)) == 2


def test_forged_or_ended_link_does_not_work(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = registered(server, "ada")
    (token,) = letters(server)
    account, ends_at, signature = token.split(".")
    forged = (f"{account}.{ends_at}.{signature[::-1]}", f"{account}.9{ends_at}.{signature}", f"{account}.", "x", "")
    for one in forged:
        assert Visitor(server).post("/confirm", {"token": one}, page="/login").status_code == 404, one
    monkeypatch.setattr(accounts.time, "time", lambda: 9e9)
    assert Visitor(server).post("/confirm", {"token": token}, page="/login").status_code == 404
    monkeypatch.undo()
    assert not confirmed(server, ada)


def test_letter_can_be_asked_for_again(server: Instance) -> None:
    ada = registered(server, "ada")
    assert server.client.post("/api/v1/me/mail/confirmation", headers=ada).status_code == 202
    assert len(letters(server)) == 2
    with server.database.write() as session:
        accounts.confirm_address(session, letters(server)[0])
    assert server.client.post("/api/v1/me/mail/confirmation", headers=ada).status_code == 409


def test_unconfirmed_addresses_get_no_news(server: Instance) -> None:
    ada = server.account("ada", Role.ORGANISER)
    competition = server.competition(organiser=ada)
    with server.database.write() as session:
        session.get_one(Account, ada.id).email = ADDRESS
    with server.database.read() as session:
        assert notification_repository.addresses_of_competition(session, competition.id) == []
        assert notification_repository.addresses_of_organisers(session, competition.id) == []


NEW = "another long password"
LINK = re.compile(r"http://\S+/reset\?token=([\w-]{20,})")


def person(server: Instance, name: str = "ada", email: str | None = "ada@example.org") -> Account:
    account = server.account(name)
    with server.database.write() as session:
        values = {"email": email, "email_confirmed_at": now() if email else None}
        session.execute(update(Account).where(Account.id == account.id).values(values))
    return account


def mailed(server: Instance) -> list[QueuedEmail]:
    with server.database.read() as session:
        return list(session.scalars(select(QueuedEmail).order_by(QueuedEmail.created_at)))


def issue(server: Instance, account: Account) -> str:
    with server.database.write() as session:
        return password_reset.issue(session, account, actor=None, lifetime=timedelta(hours=1)).token


def may_log_in(visitor: Visitor, password: str) -> bool:
    visitor.client.cookies.clear()
    return visitor.log_in("ada", password).status_code == 303


def test_a_link_comes_by_mail_and_sets_a_password(server: Instance, visitor: Visitor) -> None:
    person(server)
    for number, who in enumerate(("ada", "ADA", " Ada@Example.org "), start=1):
        assert visitor.post("/forgot", {"who": who}).status_code == 200
        found = mailed(server)
        assert [one.address for one in found] == ["ada@example.org"] * number
    token = LINK.search(found[-1].body)[1]  # type: ignore[index]
    assert "ada" in plain_text(visitor.get("/reset", params={"token": token}).text)
    page = f"/reset?token={token}"
    assert visitor.post("/reset", {"token": token, "new": "short"}, page=page).status_code == 422
    assert visitor.post("/reset", {"token": token, "new": NEW}, page=page).status_code == 303
    assert may_log_in(visitor, NEW)
    assert not may_log_in(visitor, PASSWORD)


def test_nobody_learns_which_accounts_there_are(server: Instance, visitor: Visitor) -> None:
    eve = server.account("eve")
    with server.database.write() as session:
        session.get_one(Account, eve.id).email = "eve@example.org"  # not confirmed
    person(server)
    person(server, "no-address", None)
    salted = re.compile(r'name="csrf_token" value="[0-9a-f]+"')
    asked = ("ada", "nobody", "no-address", "eve", "eve@example.org")
    assert len({salted.sub("", visitor.post("/forgot", {"who": who}).text) for who in asked}) == 1
    assert [one.address for one in mailed(server)] == ["ada@example.org"]


def test_a_flood_of_requests_sends_three_links_and_is_then_refused(server: Instance, visitor: Visitor) -> None:
    person(server)
    token = visitor.token("/forgot")
    answers = [
        visitor.client.post("/forgot", data={"who": "ada", "csrf_token": token})
        for _ in range(rate_limit.reset_requests.limit + 1)
    ]
    assert [answer.status_code for answer in answers] == [200] * rate_limit.reset_requests.limit + [429]
    assert len(mailed(server)) == rate_limit.reset_links.limit


def test_without_mail_the_page_names_another_way(server, visitor, monkeypatch):
    monkeypatch.delenv("LETHE_SMTP_HOST")
    get_settings.cache_clear()
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
        assert newer not in str([vars(row) for row in session.scalars(select(PasswordReset))])
        with pytest.raises(NotFound):
            password_reset.get_account(session, older)
    with server.database.write() as session:
        session.execute(update(PasswordReset).values(expires_at=now() - timedelta(seconds=1)))
    with server.database.read() as session, pytest.raises(NotFound):
        password_reset.get_account(session, newer)
    account.disabled_at = now()
    with pytest.raises(Conflict, match="banned"):
        issue(server, account)


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


ADMIN_LINK = re.compile(r"https://lethe\.example\.org/reset\?token=([\w-]{20,})")


def create_admin(*arguments: str, given: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(build_app(), ["create-admin", *arguments], input=given)
    return done.exit_code, done.output + str(done.exception or "")


def test_existing_account_is_promoted_and_keeps_its_password(server: Instance) -> None:
    server.account("ada")
    wrong = (["ada", "--email", "other@example.org"], ["ada", "--password-stdin"], ["a b"])
    for arguments, words in zip(wrong, ["keeps its password and address"] * 2 + ["needs 3 to 40"], strict=True):
        status, said = create_admin(*arguments, given="another long password\n")
        assert (status != 0, words in said) == (True, True), said
    with server.database.read() as session:
        assert accounts.find(session, "ada").role == Role.PARTICIPANT
    status, said = create_admin("ada")
    assert (status, "reset?token" in said) == (0, False)
    with server.database.read() as session:
        assert accounts.find(session, "ada").role == Role.ADMINISTRATOR
    assert Visitor(server).log_in("ada").status_code == 303


def test_first_administrator_sets_the_password_by_a_link(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_PUBLIC_URL", "https://lethe.example.org")
    get_settings.cache_clear()
    status, said = create_admin("ada", "--email", "ada@example.org")
    assert status == 0, said
    token = ADMIN_LINK.search(said)
    assert token is not None
    visitor = Visitor(server)
    page = f"/reset?token={token[1]}"
    assert visitor.post("/reset", {"token": token[1], "new": PASSWORD}, page=page).status_code == 303
    visitor.log_in("ada")
    assert visitor.get("/people").status_code == 200
    status, said = create_admin("bob", "--password-stdin", given=f"{PASSWORD}\n")
    assert (status, "reset?token" in said) == (0, False)
    assert Visitor(server).log_in("bob").status_code == 303
