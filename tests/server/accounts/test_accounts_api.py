"""Registering, logging in, tokens: over HTTP."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import select

from server.accounts import accounts, rate_limit, sessions, tokens
from server.config import get_settings
from server.models.account import Account, ApiToken
from tests.support.instance import PASSWORD, Instance


def register(server: Instance, **values: object) -> object:
    body = {"name": "ada", "password": PASSWORD, **values}
    return server.client.post("/api/v1/accounts", json=body)


def log_in(server: Instance, name: str = "ada", password: str = PASSWORD, **values: object) -> object:
    return server.client.post("/api/v1/tokens", json={"name": name, "password": password, **values})


def test_register_then_log_in_gives_a_token_that_works(both: Instance) -> None:
    assert register(both, email="Ada@Example.org").status_code == 201
    answer = log_in(both, label="laptop", expires_in_days=3)
    assert answer.status_code == 201
    token = answer.json()["token"]
    assert re.fullmatch(r"lethe_[0-9a-f]{64}", token)
    me = both.client.get("/api/v1/me", headers={"Authorization": f"Bearer {token}"})
    assert me.json()["name"] == "ada"
    assert me.json()["email"] == "ada@example.org"
    assert me.json()["role"] == "participant"


def test_secrets_are_stored_only_as_hashes(server: Instance) -> None:
    register(server)
    token = log_in(server).json()["token"]
    with server.database.read() as session:
        account = session.scalars(select(Account)).one()
        row = session.scalars(select(ApiToken)).one()
    assert account.password_hash.startswith("$argon2id$")
    assert token not in vars(row).values()
    assert len(row.token_hash) == 64


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": "ab"}, "name"),
        ({"name": "a" * 41}, "name"),
        ({"name": "ad a"}, "name"),
        ({"name": "аda"}, "name"),  # a Cyrillic letter
        ({"name": "System"}, "name"),
        ({"password": "short"}, "password"),
        ({"password": "x" * 201}, "password"),
        ({"email": "nobody"}, "email"),
        ({"role": "administrator"}, "role"),
    ],
)
def test_register_wrong_value_is_named(server: Instance, values: dict[str, str], field: str) -> None:
    answer = register(server, **values)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert [error["field"] for error in problem["errors"]] == [field]
    assert values.get("password", "no password given") not in answer.text
    assert problem["request_id"] == answer.headers["X-Request-ID"]


def test_register_taken_name_is_a_conflict(both: Instance) -> None:
    register(both)
    assert register(both, name="ADA").status_code == 409


def test_no_answer_tells_whether_an_address_has_an_account(both: Instance) -> None:
    register(both, email="ada@example.org")
    known, unknown = (register(both, name=name, email=f"{name}@EXAMPLE.org") for name in ("ada2", "bob"))
    assert known.status_code == unknown.status_code == 201
    again = register(both, name="eve", email="ada@example.org")
    assert again.status_code == 201
    assert again.json()["email"] == "ada@example.org"


def test_wrong_password_and_unknown_name_get_the_same_answer(server: Instance) -> None:
    register(server)
    wrong, unknown = log_in(server, password="not the password"), log_in(server, name="nobody")
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.headers["WWW-Authenticate"] == "Bearer"
    for answer in (wrong, unknown):
        assert answer.json()["detail"] == "No account has this name and password"


def test_log_in_after_ten_failures_has_to_wait(server: Instance) -> None:
    register(server)
    for _ in range(rate_limit.per_name.limit):
        assert log_in(server, password="not the password").status_code == 401
    answer = log_in(server)
    assert answer.status_code == 429
    assert 0 < int(answer.headers["Retry-After"]) <= 901
    register(server, name="bob")
    assert log_in(server, name="bob").status_code == 201, "another account is not held up"


def test_log_in_disabled_account_is_refused(server: Instance) -> None:
    register(server)
    token = log_in(server).json()["token"]
    with server.database.write() as session:
        accounts.disable(session, accounts.find(session, "ada"), actor=None, reason="spam")
    assert log_in(server).status_code == 401
    assert server.client.get("/api/v1/me", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_revoked_token_is_refused_at_once(both: Instance) -> None:
    headers = both.participant()
    listed = both.client.get("/api/v1/tokens", headers=headers).json()
    assert [row["label"] for row in listed] == ["test"]
    assert "token" not in listed[0]
    assert both.client.delete(f"/api/v1/tokens/{listed[0]['id']}", headers=headers).status_code == 204
    assert both.client.get("/api/v1/me", headers=headers).status_code == 401


def test_revoking_another_persons_token_is_not_found(server: Instance) -> None:
    ada, bob = server.participant("ada"), server.participant("bob")
    token_id = server.client.get("/api/v1/tokens", headers=bob).json()[0]["id"]
    assert server.client.delete(f"/api/v1/tokens/{token_id}", headers=ada).status_code == 404
    assert server.client.get("/api/v1/me", headers=bob).status_code == 200


def test_expired_token_is_refused(server: Instance) -> None:
    account = server.account("ada")
    with server.database.write() as session:
        token = tokens.issue(session, account, label="old", expires_in=timedelta(microseconds=1)).token
    assert server.client.get("/api/v1/me", headers={"Authorization": f"Bearer {token}"}).status_code == 401


@pytest.mark.parametrize("header", [None, "Bearer nonsense", "Basic YWRhOmFkYQ=="])
def test_without_a_valid_token_log_in_first(server: Instance, header: str | None) -> None:
    answer = server.client.get("/api/v1/me", headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer.json()["type"] == "urn:lethe:problem:not-authenticated"


def test_a_browsers_cookie_is_nobody_to_the_api(server: Instance) -> None:
    account = server.account("ada")
    with server.database.write() as session:
        cookie = sessions.create(session, account, user_agent="test", lifetime=timedelta(days=1))
        assert sessions.find(session, cookie).id == account.id
    server.client.cookies.set("lethe_session", cookie)
    assert server.client.get("/api/v1/me").status_code == 401


def test_changed_password_ends_browser_sessions(server: Instance) -> None:
    account = server.account("ada")
    with server.database.write() as session:
        cookie = sessions.create(session, account, user_agent="test", lifetime=timedelta(days=1))
    headers = server.headers(account)
    new = "another long password"
    wrong = server.client.put("/api/v1/me/password", headers=headers, json={"old": "no", "new": new})
    assert wrong.status_code == 422
    right = server.client.put("/api/v1/me/password", headers=headers, json={"old": PASSWORD, "new": new})
    assert right.status_code == 204
    with server.database.read() as session:
        assert sessions.find(session, cookie) is None
    assert log_in(server).status_code == 401
    assert log_in(server, password=new).status_code == 201


def test_use_of_a_token_is_noted(server: Instance) -> None:
    headers = server.participant()
    server.client.get("/api/v1/me", headers=headers)
    assert server.client.get("/api/v1/tokens", headers=headers).json()[0]["last_used_at"] is not None


def test_closed_registration_is_refused(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_OPEN_REGISTRATION", "false")
    get_settings.cache_clear()
    assert register(server).status_code == 403
