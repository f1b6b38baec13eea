"""Requests that could hold the server up or break it: bodies, headers, values at the ends of what can be written."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

from fastapi import FastAPI, Request
from starlette.types import Receive, Scope, Send

from server.middleware import BodyLimit, PlainHeaders
from server.models.account import Role
from server.models.submission import Submission
from server.problem_details import add_handlers
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import GOOD_CODE, Instance, competition_toml

KIB = 1024


def answer(pieces: AsyncIterator[bytes], *, within_s: float = 0.0, announced: int | None = None) -> tuple[int, Any]:
    """Return status and body of what a route answers that reads the whole body, which comes in these pieces."""
    app = FastAPI()
    add_handlers(app)
    app.add_middleware(BodyLimit, limits=(), others=64 * KIB, within_s=within_s)

    @app.post("/send")
    async def send(request: Request) -> int:
        return len(await request.body())

    headers = [(b"host", b"x"), *([(b"content-length", b"%d" % announced)] if announced else [])]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/send", "raw_path": b"/send", "query_string": b"", "root_path": "", "headers": headers,
        "client": ("192.0.2.1", 1), "server": ("x", 80), "state": {},
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        piece = await anext(pieces, b"")
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    async def keep(message: Any) -> None:
        sent.append(message)

    asyncio.run(asyncio.wait_for(app(scope, receive, keep), 60))
    return sent[0]["status"], json.loads(sent[1]["body"])


async def pieces(count: int, *, every_s: float = 0.0) -> AsyncIterator[bytes]:
    for _ in range(count):
        await asyncio.sleep(every_s)
        yield b"x" * KIB


def test_body_beyond_its_deadline_is_refused() -> None:
    status, problem = answer(pieces(100, every_s=0.05), within_s=0.3)
    assert (status, problem["type"]) == (408, "urn:lethe:problem:too-slow")
    assert "within 0.3 s" in problem["detail"]


def test_body_beyond_its_size_is_refused() -> None:
    assert answer(pieces(64)) == (200, 64 * KIB)
    assert answer(pieces(65))[0] == 413
    assert answer(pieces(0), announced=65 * KIB)[0] == 413


QUOTED = b'x="' + b'\\"' * 60_000 + b'"'  # half a minute for Python 3.11


def headers_behind(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    seen: list[tuple[bytes, bytes]] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.extend(scope["headers"])

    unused: Any = None
    asyncio.run(PlainHeaders(app)({"type": "http", "headers": headers}, unused, unused))
    return seen


def test_only_our_own_cookies_are_read() -> None:
    given = b'lethe_a=1; other=2;lethe_b="3"; lethe_c="\\"" ;x'
    assert headers_behind([(b"cookie", given), (b"x", b'\\";')]) == [
        (b"cookie", b'lethe_a=1; lethe_b="3"'),
        (b"x", b'\\";'),
    ]


def test_quoted_cookies_cost_nothing(server: Instance) -> None:
    began = time.process_time()
    for name, path in product((b"x", SESSION_COOKIE.encode()), ("/login", "/healthz", "/account")):
        answer = server.client.get(path, headers={"Cookie": (name + QUOTED[1:]).decode()}, follow_redirects=False)
        assert answer.status_code in (200, 303)
    assert time.process_time() - began < 5


# Encodings of Python's own: without an error that is expected, quadratic in time, or with characters that are no text.
ENCODINGS = ("undefined", "idna", "punycode", "unicode_escape", "utf-7", "zlib", "utf-16")


def test_forms_are_utf8_whatever_they_say(both: Instance) -> None:
    both.competition(limits={"submissions_per_day": 50})
    message = "\\ud800 +2AA- é"
    body = (
        f'--b\r\nContent-Disposition: form-data; name="message"\r\n\r\n{message}\r\n'
        '--b\r\nContent-Disposition: form-data; name="file"; filename="é.py"\r\n\r\n'
    ).encode() + GOOD_CODE
    path, headers = "/api/v1/competitions/digits/submissions", both.participant()
    for encoding in ENCODINGS:
        kind = {"Content-Type": f"multipart/form-data; Charset = {encoding}; boundary=b"}
        answer = both.client.post(path, content=body + b"\r\n--b--\r\n", headers=headers | kind)
        assert answer.status_code == 201, answer.text
        with both.database.read() as session:
            stored = session.get_one(Submission, answer.json()["id"])
            assert (stored.message, stored.filename) == (message, "é.py")


def test_malformed_address_of_the_page_before_breaks_nothing(server: Instance) -> None:
    for name, address in product((b"Referer", b"Origin"), ("http://[", "http://[::1", "http://\u2100.org", "//[/")):
        headers = {b"Accept": b"text/html", name: address.encode()}
        for path in ("/nowhere", "/account", "/login", "/submissions/none"):
            assert server.client.get(path, headers=headers).status_code < 500
            assert server.client.post(path, headers=headers, data={"a": "b"}).status_code < 500


ENDS = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")


def test_values_that_no_calendar_and_no_json_has_are_refused(both: Instance) -> None:
    root = both.account("root-of-all", Role.ADMINISTRATOR)
    both.competition(organiser=root)
    headers = both.headers(root)

    def status(method: str, path: str, **sent: Any) -> int:
        return both.client.request(method, f"/api/v1{path}", headers=headers, **sent).status_code

    for moment in ENDS:
        for name in ("since", "until"):
            assert status("GET", "/competitions/digits/audit", params={name: moment}) == 422
            assert status("GET", "/admin/audit", params={name: moment}) == 422
        assert status("PATCH", "/competitions/digits", json={"closes_at": moment, "reason": "late"}) == 422
        for name in ("opens_at", "closes_at", "merge_deadline"):
            text = competition_toml("other", extra=f"merge_deadline = {moment}\n" if name == "merge_deadline" else "")
            lines = [f"{name} = {moment}" if line.startswith(f"{name} =") else line for line in text.splitlines()]
            assert status("POST", "/competitions", content="\n".join(lines)) == 422
    text = competition_toml("other", limits={"wall_time_s": "inf"})
    assert status("POST", "/competitions", content=text) == 422
