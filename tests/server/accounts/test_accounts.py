"""Registering, logging in, tokens, and what one client can cost the server."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy import select
from starlette.requests import Request

from server.accounts import rate_limit, sessions, tokens
from server.accounts.look_alikes import get_shape, look_alike_key
from server.accounts.passwords import new_token
from server.config import get_settings
from server.main import create_app
from server.middleware import get_client_address
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


def test_register_wrong_value_is_named(server: Instance) -> None:
    names = (
        "ab",
        "a" * 41,
        "ad a",
        "аda",
        "System",
        "adm1n",
        "r00t",
        "1ethe",
        "systern",
    )  # a Cyrillic letter; reserved
    wrong: list[tuple[str, str]] = [("name", name) for name in names]
    wrong += [("password", "short"), ("password", "x" * 201), ("email", "nobody"), ("role", "administrator")]
    for field, value in wrong:
        answer = register(server, **{field: value})
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), value
        problem = answer.json()
        assert [error["field"] for error in problem["errors"]] == [field]
        assert field != "password" or value not in answer.text
        assert problem["request_id"] == answer.headers["X-Request-ID"]


def test_no_answer_tells_whether_an_address_has_an_account(both: Instance) -> None:
    register(both, email="ada@example.org")
    known, unknown = (register(both, name=name, email=f"{name}@EXAMPLE.org") for name in ("ada2", "bob"))
    assert known.status_code == unknown.status_code == 201
    again = register(both, name="eve", email="ada@example.org")
    assert again.status_code == 201
    assert again.json()["email"] == "ada@example.org"


def test_log_in_after_ten_failures_has_to_wait(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    register(server)
    monkeypatch.setattr(rate_limit.per_client, "limit", 12)
    assert {log_in(server).status_code for _ in range(15)} == {201}, "right passwords do not count"
    wrong = [log_in(server, password="not the password") for _ in range(rate_limit.per_name.limit)]
    for answer in (*wrong, log_in(server, name="nobody")):
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert answer.json()["detail"] == "No account has this name and password"
    answer = log_in(server)
    assert answer.status_code == 429
    assert 0 < int(answer.headers["Retry-After"]) <= 901
    register(server, name="bob")
    assert log_in(server, name="bob").status_code == 201, "another account is not held up"


def test_revoked_token_is_refused_at_once(both: Instance) -> None:
    ada, bob = both.participant("ada"), both.participant("bob")
    listed = both.client.get("/api/v1/tokens", headers=ada).json()
    assert [row["label"] for row in listed] == ["test"]
    assert "token" not in listed[0]
    assert both.client.get("/api/v1/tokens", headers=ada).json()[0]["last_used_at"] is not None
    path = f"/api/v1/tokens/{listed[0]['id']}"
    assert both.client.delete(path, headers=bob).status_code == 404, "it is another person's"
    assert both.client.delete(path, headers=ada).status_code == 204
    assert both.client.get("/api/v1/me", headers=ada).status_code == 401


def test_without_a_valid_token_log_in_first(server: Instance) -> None:
    account = server.account("ada")
    with server.database.write() as session:
        ended = tokens.issue(session, account, label="old", expires_in=timedelta(microseconds=1)).token
    for header in (None, "Bearer nonsense", "Basic YWRhOmFkYQ==", f"Bearer {ended}"):
        answer = server.client.get("/api/v1/me", headers={"Authorization": header} if header else {})
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:lethe:problem:not-authenticated")


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


def test_closed_registration_is_refused(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_OPEN_REGISTRATION", "false")
    get_settings.cache_clear()
    assert register(server).status_code == 403


def test_wrong_passwords_are_counted_before_they_are_checked(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    server.account("ada")
    tried, all_in = [], threading.Barrier(20)

    def slow_verify(password: str, *, password_hash: str | None) -> bool:
        tried.append(password)
        with suppress(threading.BrokenBarrierError):
            all_in.wait(timeout=1)
        return False

    monkeypatch.setattr("server.accounts.accounts.verify_password", slow_verify)

    def guess(number: int) -> int:
        return server.client.post("/api/v1/tokens", json={"name": "ada", "password": f"guess {number}"}).status_code

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(guess, range(20)))
    assert len(tried) == rate_limit.per_name.limit
    assert answers.count(429) == 20 - rate_limit.per_name.limit


def test_one_address_registers_only_so_many_accounts(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_REGISTRATIONS_PER_HOUR", "3")
    get_settings.cache_clear()
    answers = [
        server.client.post("/api/v1/accounts", json={"name": f"ada{number}", "password": PASSWORD})
        for number in range(5)
    ]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 3000


def test_client_with_ipv6_is_its_network() -> None:
    def client(address: str) -> str:
        return get_client_address(Request({"type": "http", "client": (address, 1), "headers": []}))

    assert client("2001:db8:1:2:3::4") == client("2001:db8:1:2::5") != client("2001:db8:1:3::4")
    assert client("::ffff:192.0.2.1") == client("192.0.2.1") == "192.0.2.1"


@pytest.mark.parametrize(
    ("proxies", "forwarded", "answers"),
    [
        ("", ("203.0.113.0", "203.0.113.1"), [201, 429]),
        ("10.0.0.0/8, 192.0.2.7", ("203.0.113.0", "203.0.113.1"), [201, 429]),
        ("testclient", ("203.0.113.0", "203.0.113.1"), [201, 201]),
        (
            "testclient, 172.16.0.0/12",  # what a client adds before its proxy is not believed
            tuple(f"{said}, 203.0.113.5, 172.16.0.1" for said in ("198.51.100.1", "198.51.100.2", "172.16.0.9", "no")),
            [201, 429, 429, 429],
        ),
    ],
)
def test_forwarded_address_is_trusted_from_proxies_only(server, monkeypatch, proxies, forwarded, answers):
    monkeypatch.setenv("LETHE_PROXIES", proxies)
    monkeypatch.setenv("LETHE_REGISTRATIONS_PER_HOUR", "1")
    get_settings.cache_clear()
    server.client.app = create_app()
    server.client._transport.app = server.client.app  # type: ignore[attr-defined]
    found = []
    for number, address in enumerate(forwarded):
        body, headers = {"name": f"ada{number}", "password": PASSWORD}, {"X-Forwarded-For": address}
        found.append(server.client.post("/api/v1/accounts", json=body, headers=headers).status_code)
    assert found == answers


@pytest.mark.parametrize(
    ("one", "other", "is_same", "has_same_shape"),
    [
        *(
            (name, "ada", True, True)
            for name in (
                "ADA",
                "аdа",
                "αdα",
                "𝐚𝐝𝐚",
                "𝒶𝒹𝒶",
                "ＡＤＡ",
                "ⓐⓓⓐ",
                "АDА",
                "a\u200bda",
                "a\u00adda",
                "𝔸𝔻𝔸",
                "ᵃᵈᵃ",
            )
        ),
        *((mixed, name, True, True) for mixed, name in (("ΝΑЅА", "nasa"), ("СОРУ", "copy"), ("Ноst", "host"))),
        *((name.lower(), name.title(), True, True) for name in ("Команда Дом", "Ευρώπη", "Straße")),
        *((one, other, False, True) for one, other in (("modern", "rnodern"), ("ROBOT-1", "robot-l"), ("O0o", "000"))),
        *((one, other, False, True) for one, other in (("ILLIA", "lllla"), ("w0rk", "vvork"), ("а1", "аI"))),
        *((one, other, False, False) for one, other in (("jose", "josé"), ("team 1", "team 2"), ("किताब", "कताब"))),
        *((one, other, False, False) for one, other in (("дом", "дым"), ("ada-10", "ada-11"), ("clan", "dan"))),
    ],
)
def test_names_that_look_alike_have_one_key_or_one_shape(one, other, is_same, has_same_shape):
    assert (look_alike_key(one) == look_alike_key(other)) is is_same
    assert (get_shape(look_alike_key(one)) == get_shape(look_alike_key(other))) is has_same_shape


def test_account_cannot_look_like_another(both: Instance) -> None:
    for name in ("boris", "Rnodern-1"):
        both.account(name)
    for name in ("b0ris", "BORlS", "boris", "BORIS", "modem-l"):
        assert register(both, name=name).status_code == 409, name
    assert log_in(both, "b0ris").status_code == 401, "it is no other way to log in"
    assert register(both, name="modern-2").status_code == 201


def test_a_secret_is_never_taken_for_an_option() -> None:
    assert all(new_token().isalnum() for _ in range(50))
    assert new_token("lethe_").startswith("lethe_")
