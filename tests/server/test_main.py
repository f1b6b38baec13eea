"""The application as a whole: its description, its error answers, its health."""

import asyncio
import errno
import gc
import json
import logging
import sys
import threading
import time
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from server import health, queue
from server.config import get_settings
from server.main import COLLECTED_AFTER, SWITCHED_AFTER_S, create_app
from server.models.competition import CompetitionState
from tests.support.instance import GOOD_CODE, Instance


def test_openapi_declares_a_problem_for_every_error(server: Instance) -> None:
    document = server.client.get("/api/v1/openapi.json").json()
    for path, operations in document["paths"].items():
        if not path.startswith("/api/"):
            continue
        for operation in operations.values():
            assert operation.get("summary"), path
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert answer["content"] == {
                        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                    }, (path, status)
    assert "HTTPValidationError" not in json.dumps(document)


def test_openapi_references_lead_somewhere(server: Instance) -> None:
    text = server.client.get("/api/v1/openapi.json").text
    schemas = json.loads(text)["components"]["schemas"]
    referred = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert referred <= set(schemas)


def test_unknown_address_and_wrong_method_are_problems_and_a_page_for_people(server: Instance) -> None:
    for path in ("/api/v1/nothing", "/nothing"):
        answer = server.client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert answer.json()["type"] == "urn:lethe:problem:not-found"
    page = server.client.get("/nothing", headers={"Accept": "text/html,*/*"})
    assert (page.status_code, "<h1>Not found</h1>" in page.text) == (404, True)
    assert page.headers["content-type"].startswith("text/html")
    answer = server.client.delete("/api/v1/competitions")
    assert (answer.status_code, "allow" in answer.headers) == (405, True)


def test_request_id_is_kept_if_it_looks_like_one(server: Instance) -> None:
    for given, kept in (("abcdef-123456", True), ("short", False), ("bad\tid 12345", False)):
        answer = server.client.get("/healthz", headers={"X-Request-ID": given})
        assert (answer.headers["X-Request-ID"] == given) is kept


def test_body_beyond_the_limit_is_refused(server: Instance) -> None:
    """A megabyte of wrong values would hold the event loop up for a second, to be named one by one."""
    for content in (b"x" * (2 << 20), (b"x" * (1 << 16) for _ in range(32))):
        answer = server.client.post("/api/v1/accounts", content=content)
        assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
    many = json.dumps({f"a{number}": 0 for number in range(3000)}).encode()
    for path in ("/api/v1/accounts", "/api/v1/tokens"):
        assert server.client.post(path, content=many).status_code == 413
    form = {"content": b"&".join([b"a=1"] * 10_000), "headers": {"Content-Type": "application/x-www-form-urlencoded"}}
    for path in ("/login", "/register", "/submissions/x/cancel"):
        assert server.client.post(path, **form).status_code == 413


def test_broken_json_is_a_problem_and_secrets_are_not_repeated(server: Instance) -> None:
    answer = server.client.post("/api/v1/accounts", content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, bool(answer.json()["errors"])) == (422, True)
    answer = server.client.post("/api/v1/accounts", json={"name": "ada", "password": 123456789012})
    assert (answer.status_code, "123456789012" in answer.text) == (422, False)


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ud800", "\uffff", "\U0001f600", "x" * 100_000])
def test_strange_text_is_refused_or_taken_and_never_fails(both: Instance, text: str) -> None:
    both.competition()
    headers = both.participant()
    json_headers = {**headers, "Content-Type": "application/json"}
    posts = ("accounts", "tokens", "competitions/digits/teams", "competitions/digits/team/join")
    for path, wanted in zip(posts, ("name", "name", "name", "token"), strict=True):
        only = {wanted: text} | ({"password": text + "long enough"} if path in ("accounts", "tokens") else {})
        answer = both.client.post(f"/api/v1/{path}", content=json.dumps(only), headers=json_headers)
        assert answer.status_code < 500, (path, answer.text)
    quoted = quote(text.encode("utf-8", "surrogatepass"))[:2000]
    for path in ("submissions/{}", "competitions/{}", "competitions/digits/leaderboard?q={}"):
        answer = both.client.get(f"/api/v1/{path.format(quoted)}", headers=headers)
        assert answer.status_code < 500, (path, answer.text)
    sent = both.client.post(
        "/api/v1/competitions/digits/submissions",
        headers=headers,
        files={"file": ("a.py", GOOD_CODE)},
        data={"message": text.encode("utf-8", "replace")[:400]},
    )
    assert sent.status_code in (201, 422), sent.text
    assert both.client.get("/healthz").status_code == 200


def test_healthz_and_readyz_are_well(both: Instance) -> None:
    assert both.client.get("/healthz").json() == {"status": "ok"}
    answer = both.client.get("/readyz")
    assert answer.json() == {"ready": True, "database": "ok", "storage": "ok", "queue": "ok"}


def test_readyz_says_what_is_away(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_REDIS_URL", "redis://127.0.0.1:1/0")
    get_settings.cache_clear()
    queue.client.cache_clear()
    with server.database.write() as session:
        session.execute(text("DROP TABLE alembic_version"))
    answer = server.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["storage"] == "ok"
    assert answer.json()["database"].startswith("does not answer")
    assert answer.json()["queue"].startswith("does not answer")
    assert "127.0.0.1" not in answer.text


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("rediss://127.0.0.1:1/0?ssl_cert_reqs=CERT_REQUIRED", "does not answer (ConnectionError)"),
        ("redis://127.0.0.1:1/0?socket_timeout=soon", "does not answer (ValueError)"),
        ("sentinel://127.0.0.1:1;sentinel://127.0.0.2:1", "not checked"),
    ],
)
def test_readyz_takes_brokers_addresses_as_celery_writes_them(server, url, found, monkeypatch):
    monkeypatch.setenv("LETHE_REDIS_URL", url)
    get_settings.cache_clear()
    answer = server.client.get("/readyz")
    assert answer.json()["queue"] == found
    assert answer.status_code == 200


def test_readyz_looks_once_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def look_slowly() -> str:
        looks.append(time.sleep(0.6))
        return "ok"

    async def ask() -> None:
        checks = health.Checks()
        await asyncio.gather(*(checks.get() for _ in range(5)))

    monkeypatch.setattr(health, "CHECKED_EVERY_S", 0.5)
    monkeypatch.setattr(health, "PROBES", dict.fromkeys(health.PROBES, look_slowly))
    asyncio.run(ask())
    assert len(looks) == len(health.PROBES)


def test_readyz_waits_briefly_for_silent_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, looks = threading.Event(), []

    def silent() -> str:
        looks.append(answers.wait(60))
        return "ok"

    async def ask(checks: health.Checks) -> health.Readiness:
        return await checks.get()

    monkeypatch.setattr(health, "CHECKED_EVERY_S", 600.0)  # only a look that has ended is followed by another
    monkeypatch.setattr(health, "ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(health, "PROBES", {"database": lambda: "ok", "storage": silent, "queue": lambda: "ok"})
    checks = health.Checks()
    found = [asyncio.run(ask(checks)) for _ in range(2)]
    assert all(readiness.ready and readiness.storage.startswith("does not answer (silent") for readiness in found)
    answers.set()
    assert asyncio.run(ask(checks)).storage == "ok"
    assert len(looks) == 1


def test_submission_is_accepted_while_the_queue_is_away(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition()
    monkeypatch.setenv("LETHE_REDIS_URL", "redis://127.0.0.1:1/0")
    get_settings.cache_clear()
    queue.client.cache_clear()
    queue.client().shorten_request_timeouts()
    slept: list[float] = []
    monkeypatch.setattr("kombu.utils.functional.sleep", slept.append)
    assert server.submit(server.participant()).status_code == 201
    assert 0 < sum(slept) < 1


def test_database_away_is_the_hosts_fault(server: Instance) -> None:
    server.competition(state=CompetitionState.OPEN)
    with server.database.write() as session:
        session.execute(text("ALTER TABLE competitions RENAME TO gone"))
    answer = server.client.get("/api/v1/competitions")
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:lethe:problem:host-fault"
    assert "competitions" not in answer.json()["detail"]


@pytest.mark.parametrize("error", [RuntimeError("the secret cause"), OSError(errno.EIO, "the secret cause")])
def test_unexpected_error_tells_nothing_but_its_id(server, error, monkeypatch, caplog):
    def explode(*_args: object, **_values: object) -> None:
        raise error

    monkeypatch.setattr("server.competitions.competitions.list_visible", explode)
    with caplog.at_level(logging.ERROR):
        answer = server.client.get("/api/v1/competitions")
        # What answers last raises it again, for the traceback of whatever runs the application.
        with pytest.raises(type(error)), TestClient(server.client.app) as raising:
            raising.get("/api/v1/competitions")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["request_id"]
    assert "the secret cause" in caplog.text


def test_server_process_switches_often_and_collects_rarely() -> None:
    app = create_app()
    usual = sys.getswitchinterval(), gc.get_threshold()

    async def serve() -> tuple[float, int, int]:
        async with app.router.lifespan_context(app):
            return sys.getswitchinterval(), gc.get_threshold()[0], gc.get_freeze_count()

    interval, threshold, frozen = asyncio.run(serve())
    assert interval == pytest.approx(SWITCHED_AFTER_S)
    assert threshold == COLLECTED_AFTER[0]
    assert frozen > 100_000
    assert (sys.getswitchinterval(), gc.get_threshold()) == usual
