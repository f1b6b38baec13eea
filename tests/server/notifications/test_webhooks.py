"""Webhooks: stored with the act, signed, retried, and never sent into the server's own network."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from sqlalchemy import select

from server.config import get_settings
from server.db import now
from server.evaluations import evaluations
from server.jobs.leases import DELIVERIES
from server.models.account import Role
from server.models.evaluation import Evaluation
from server.models.notification import Delivery
from server.models.submission import Fault
from server.notifications import outbox, webhooks
from tests.support.instance import Instance

BASE = "/api/v1/competitions/digits"


class Receiver:
    """A real HTTP server that keeps what it is told."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        self.patience = threading.Event()  # set once nobody waits for the slow path any more
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.startswith("/slow"):
                    receiver.drip(self.wfile)
                    return
                receiver.received.append((dict(self.headers), body))
                self.send_response(receiver.status)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.slow_url = f"http://localhost:{self.server.server_address[1]}/slow"
        self.url = f"http://localhost:{self.server.server_address[1]}/hook?key=1"

    def drip(self, answer: Any) -> None:
        """Send a header that never ends, one byte at a time, each well before a connection would be given up."""
        with suppress(OSError):
            answer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self.patience.wait(0.05):
                answer.write(b"x")
                answer.flush()


@pytest.fixture(autouse=True)
def _closed_installation(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Receivers of these tests are on this machine."""
    monkeypatch.setenv("LETHE_WEBHOOKS_TO_PRIVATE", "true")
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.patience.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def opened(server: Instance) -> dict[str, str]:
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    return server.headers(organiser)


def create(server: Instance, olga: dict[str, str], url: str, *events: str) -> Any:
    body = {"url": url, "events": list(events or webhooks.EVENTS)}
    return server.client.post(f"{BASE}/webhooks", headers=olga, json=body)


def deliver(server: Instance, *, later: timedelta = timedelta(), allow_private: bool = True) -> int:
    return webhooks.deliver(server.database, get_settings(), at=now() + later, allow_private=allow_private)


def states(server: Instance) -> list[tuple[str, int]]:
    with server.database.read() as session:
        return [(row.state, row.attempts) for row in session.scalars(select(Delivery).order_by(Delivery.created_at))]


def test_events_arrive_signed_and_once(both: Instance, receiver: Receiver) -> None:
    olga = opened(both)
    secret = create(both, olga, receiver.url).json()["secret"]
    submission = both.submit(both.participant()).json()["id"]
    both.score(submission, 0.123456)
    both.client.post(f"{BASE}/announcements", headers=olga, json={"title": "Hello", "text": "all"})
    both.client.post(f"{BASE}/close", headers=olga)
    assert deliver(both) == 3
    assert deliver(both, later=timedelta(days=9)) == 0
    told = [json.loads(body) for _headers, body in receiver.received]
    assert sorted(message["event"] for message in told) == [
        "competition.announced",
        "competition.closed",
        "submission.scored",
    ]
    headers, body = receiver.received[0]
    timestamp = int(headers["Lethe-Signature"].split(",")[0].removeprefix("t="))
    assert headers["Lethe-Signature"] == webhooks.signature(secret, timestamp=timestamp, body=body)
    assert headers["Host"].startswith("localhost:")
    assert set(states(both)) == {("sent", 1)}


def test_what_was_undone_is_not_told(server: Instance, receiver: Receiver) -> None:
    create(server, opened(server), receiver.url)
    submission = server.submit(server.participant()).json()["id"]

    def fail_and_undo() -> None:
        with server.database.write() as session:
            evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission)).one()
            evaluations.fail(session, evaluation, fault=Fault.PARTICIPANT, error_class="exception", error={})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_and_undo()
    assert deliver(server) == 0


def test_only_the_events_asked_for_are_told(server: Instance, receiver: Receiver) -> None:
    create(server, opened(server), receiver.url, "submission.failed")
    headers = server.participant()
    scored, failed = server.submit(headers).json()["id"], server.submit(headers).json()["id"]
    server.score(scored, 0.5)
    server.fail(failed, Fault.PARTICIPANT)
    assert deliver(server) == 1
    assert json.loads(receiver.received[0][1])["data"] == {
        "submission": failed,
        "fault": "participant",
        "error_class": "exception",
    }


@pytest.mark.parametrize("status", [500, 404, 302])
def test_address_that_fails_is_tried_again_and_then_given_up(server: Instance, receiver: Receiver, status: int) -> None:
    olga = opened(server)
    hook = create(server, olga, receiver.url, "competition.closed").json()["id"]
    server.client.post(f"{BASE}/close", headers=olga)
    receiver.status = status
    later = timedelta()
    for attempt in range(1, 7):
        assert deliver(server, later=later) == 0
        assert deliver(server, later=later) == 0, "not before its time"
        assert len(receiver.received) == attempt
        later += outbox.RETRY_AFTER[min(attempt - 1, 5)] + timedelta(seconds=1)
    assert states(server) == [("failed", 6)]
    shown = server.client.get(f"{BASE}/webhooks/{hook}/deliveries", headers=olga).json()
    assert f"answered {status}" in shown[0]["error"]


def test_slow_receiver_is_in_nobody_elses_way(server, receiver, monkeypatch):
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 1.0)
    olga = opened(server)
    slow = [create(server, olga, receiver.slow_url, "competition.closed").json()["id"] for _ in range(4)]
    create(server, olga, receiver.url, "competition.closed")
    server.client.post(f"{BASE}/close", headers=olga)
    assert outbox.is_due(server.database, DELIVERIES, at=now())
    assert deliver(server) == 1, "the others took their second, all at once"
    assert len(receiver.received) == 1
    shown = server.client.get(f"{BASE}/webhooks/{slow[0]}/deliveries", headers=olga).json()
    assert "TimeoutError" in shown[0]["error"]
    assert not outbox.is_due(server.database, DELIVERIES, at=now())


def test_address_that_recovers_gets_its_message(server: Instance, receiver: Receiver) -> None:
    olga = opened(server)
    create(server, olga, receiver.url, "competition.closed")
    server.client.post(f"{BASE}/close", headers=olga)
    receiver.status = 503
    deliver(server)
    receiver.status = 204
    assert deliver(server, later=timedelta(minutes=2)) == 1


def test_the_servers_own_network_is_not_spoken_to(server: Instance, receiver: Receiver) -> None:
    olga = opened(server)
    create(server, olga, receiver.url, "competition.closed")
    server.client.post(f"{BASE}/close", headers=olga)
    assert deliver(server, allow_private=False) == 0
    assert receiver.received == []


@pytest.mark.parametrize(
    "host",
    [
        *("2130706433", "0x7f.1", "127.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::1", "::127.0.0.1"),
        *("fec0::1", "224.0.0.1", "ff0e::1", "fe80::1"),
    ],
)
def test_no_way_of_writing_an_address_leads_into_the_servers_own_network(host: str) -> None:
    with pytest.raises(webhooks.Refused):
        asyncio.run(webhooks._public_address(host, 80, allow_private=False))


@pytest.mark.parametrize("host", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e"])
def test_public_addresses_are_spoken_to(host: str) -> None:
    assert asyncio.run(webhooks._public_address(host, 80, allow_private=False)) == host


def test_removed_webhook_is_told_nothing(server: Instance, receiver: Receiver) -> None:
    olga = opened(server)
    hook = create(server, olga, receiver.url).json()["id"]
    server.client.post(f"{BASE}/close", headers=olga)
    assert server.client.delete(f"{BASE}/webhooks/{hook}", headers=olga).status_code == 204
    assert deliver(server) == 0
    assert server.client.get(f"{BASE}/webhooks", headers=olga).json() == []


WRONG_ADDRESSES = (
    *("ftp://example.org", "https://", "https://user:secret@example.org", "javascript:x", "http://[", "https://[::1"),
    *("https://host:99999/", "https://host:x/", "https://a\x00b/", "https://" + "a" * 70 + ".org/"),
    *("https://\u2100.org/", "https://a b/", "https://ho\rst/"),
)


def test_wrong_address_and_unknown_event_are_refused(both: Instance) -> None:
    olga = opened(both)
    for url in WRONG_ADDRESSES:
        assert create(both, olga, url).status_code == 422, url
    assert create(both, olga, "https://example.org", "scores.private").status_code == 422


OWN_ADDRESSES = (
    *("127.0.0.1", "10.1.2.3:8080", "192.168.0.9", "[::1]", "[fd00::1]", "169.254.169.254", "localhost", "redis"),
    "a.local",
)


def test_address_that_is_never_delivered_to_is_refused_when_it_is_added(server, monkeypatch):
    olga = opened(server)
    for host in OWN_ADDRESSES:
        for allowed, status in (("false", 422), ("true", 201)):
            monkeypatch.setenv("LETHE_WEBHOOKS_TO_PRIVATE", allowed)
            get_settings.cache_clear()
            answer = create(server, olga, f"http://{host}/hook")
            assert (answer.status_code, "must be one of the public internet" in answer.text) == (status, status == 422)
            hooks = server.client.get(f"{BASE}/webhooks", headers=olga).json()
            for hook in hooks:
                server.client.delete(f"{BASE}/webhooks/{hook['id']}", headers=olga)
    monkeypatch.setenv("LETHE_WEBHOOKS_TO_PRIVATE", "false")
    get_settings.cache_clear()
    assert create(server, olga, "https://hooks.example.org/x").status_code == 201
