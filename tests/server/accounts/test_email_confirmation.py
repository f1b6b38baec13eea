"""An address counts once its reader has followed a link that was sent there; of several accounts one can have it."""

import re

import pytest
from sqlalchemy import select

from server.accounts import accounts
from server.config import get_settings
from server.models.account import Account, Role
from server.models.notification import QueuedEmail
from server.notifications import notification_repository
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor

LINK = re.compile(r"/confirm\?token=([0-9a-f.]+)")
ADDRESS = "ada@example.org"


@pytest.fixture(autouse=True)
def _mail(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("LETHE_MAIL_FROM", "lethe@example.org")
    get_settings.cache_clear()


def register(server: Instance, name: str, email: str = ADDRESS) -> dict[str, str]:
    body = {"name": name, "password": PASSWORD, "email": email}
    assert server.client.post("/api/v1/accounts", json=body).status_code == 201
    token = server.client.post("/api/v1/tokens", json={"name": name, "password": PASSWORD}).json()["token"]
    return {"Authorization": f"Bearer {token}"}


def letters(server: Instance) -> list[str]:
    """Return the tokens of the links that were sent, by the order of their sending."""
    with server.database.read() as session:
        mails = session.scalars(select(QueuedEmail).order_by(QueuedEmail.created_at)).all()
        return [found[1] for mail in mails if (found := LINK.search(mail.body))]


def confirmed(server: Instance, headers: dict[str, str]) -> bool:
    found: bool = server.client.get("/api/v1/me", headers=headers).json()["email_confirmed"]
    return found


def test_link_confirms_the_address(server: Instance) -> None:
    ada = register(server, "ada")
    (token,) = letters(server)
    visitor = Visitor(server)
    assert ADDRESS in visitor.get(f"/confirm?token={token}").text
    assert not confirmed(server, ada), "who only looks at a link confirms nothing"
    assert visitor.post("/confirm", {"token": token}, page=f"/confirm?token={token}").status_code == 200
    assert confirmed(server, ada)


def test_of_four_accounts_one_has_the_address(server: Instance) -> None:
    people = [register(server, f"person{number}") for number in range(3)]
    first, *others = letters(server)
    with server.database.write() as session:
        accounts.confirm_address(session, first)
    visitor = Visitor(server)
    for token in others:
        answer = visitor.post("/confirm", {"token": token}, page=f"/confirm?token={token}")
        assert answer.status_code == 409
        assert "Another account has confirmed this address" in answer.text
    assert [confirmed(server, one) for one in people] == [True, False, False]
    register(server, "person4")
    assert len(letters(server)) == 3, "an address gets three letters an hour, whoever names it"


def test_link_of_an_earlier_address_does_not_work(server: Instance) -> None:
    register(server, "ada")
    (token,) = letters(server)
    visitor = Visitor(server)
    visitor.log_in("ada")
    visitor.post("/account/mail", {"email": "new@example.org", "password": PASSWORD}, page="/account")
    assert visitor.post("/confirm", {"token": token}, page="/account").status_code == 404
    assert len(letters(server)) == 2


def test_new_address_is_not_confirmed(server: Instance) -> None:
    ada = register(server, "ada")
    with server.database.write() as session:
        accounts.confirm_address(session, letters(server)[0])
    visitor = Visitor(server)
    visitor.log_in("ada")
    for email, stays in ((ADDRESS, True), ("new@example.org", False)):
        visitor.post("/account/mail", {"email": email, "password": PASSWORD}, page="/account")
        assert confirmed(server, ada) is stays


def test_forged_or_ended_link_does_not_work(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = register(server, "ada")
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
    ada = register(server, "ada")
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
