"""What one client can cost the server."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from starlette.requests import Request

from server.accounts import passwords, rate_limit
from server.config import get_settings
from server.main import create_app
from server.middleware import get_client_address
from tests.support.instance import PASSWORD, Instance


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


def test_right_passwords_do_not_count(server: Instance) -> None:
    server.account("ada")
    for _ in range(rate_limit.per_client.limit + 5):
        rate_limit.per_client.take("testclient")
        rate_limit.per_client.give_back("testclient")
    body = {"name": "ada", "password": PASSWORD}
    assert {server.client.post("/api/v1/tokens", json=body).status_code for _ in range(15)} == {201}
    assert passwords.verify_password(PASSWORD, password_hash=None) is False


def test_one_address_registers_only_so_many_accounts(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_REGISTRATIONS_PER_HOUR", "3")
    get_settings.cache_clear()
    answers = [
        server.client.post("/api/v1/accounts", json={"name": f"ada{number}", "password": PASSWORD})
        for number in range(5)
    ]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 3000


def request_from(address: str) -> Request:
    return Request({"type": "http", "client": (address, 1), "headers": []})


def test_client_with_ipv6_is_its_network() -> None:
    assert get_client_address(request_from("2001:db8:1:2:3::4")) == get_client_address(request_from("2001:db8:1:2::5"))
    assert get_client_address(request_from("2001:db8:1:3::4")) != get_client_address(request_from("2001:db8:1:2::4"))
    assert (
        get_client_address(request_from("::ffff:192.0.2.1"))
        == get_client_address(request_from("192.0.2.1"))
        == "192.0.2.1"
    )


@pytest.mark.parametrize(("proxies", "believed"), [("", False), ("10.0.0.0/8, 192.0.2.7", False), ("testclient", True)])
def test_forwarded_address_is_trusted_from_proxies_only(server, monkeypatch, proxies, believed):
    monkeypatch.setenv("LETHE_PROXIES", proxies)
    monkeypatch.setenv("LETHE_REGISTRATIONS_PER_HOUR", "1")
    get_settings.cache_clear()
    server.client.app = create_app()
    server.client._transport.app = server.client.app  # type: ignore[attr-defined]
    answers = [
        server.client.post(
            "/api/v1/accounts",
            json={"name": f"ada{number}", "password": PASSWORD},
            headers={"X-Forwarded-For": f"203.0.113.{number}"},
        ).status_code
        for number in range(2)
    ]
    assert answers == [201, 201 if believed else 429]


def test_what_a_client_adds_before_its_proxy_is_not_believed(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_PROXIES", "testclient, 172.16.0.0/12")
    monkeypatch.setenv("LETHE_REGISTRATIONS_PER_HOUR", "1")
    get_settings.cache_clear()
    server.client.app = create_app()
    server.client._transport.app = server.client.app  # type: ignore[attr-defined]
    answers = []
    for number, said in enumerate(("198.51.100.1", "198.51.100.2", "172.16.0.9", "nonsense")):
        body = {"name": f"ada{number}", "password": PASSWORD}
        headers = {"X-Forwarded-For": f"{said}, 203.0.113.5, 172.16.0.1"}
        answers.append(server.client.post("/api/v1/accounts", json=body, headers=headers).status_code)
    assert answers == [201, 429, 429, 429]
