"""Headers by which a request could hold the event loop up, or break what reads it."""

import asyncio
import time
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from server.middleware import PlainHeaders
from server.models.submission import Submission
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import GOOD_CODE, Instance

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


@pytest.mark.parametrize("name", [b"x", SESSION_COOKIE.encode()])
def test_quoted_cookies_cost_nothing(server: Instance, name: bytes) -> None:
    began = time.process_time()
    for path in ("/login", "/healthz", "/account"):
        answer = server.client.get(path, headers={"Cookie": (name + QUOTED[1:]).decode()}, follow_redirects=False)
        assert answer.status_code in (200, 303)
    assert time.process_time() - began < 5


# Encodings of Python's own: without an error that is expected, quadratic in time, or with characters that are no text.
ENCODINGS = ("undefined", "idna", "punycode", "unicode_escape", "utf-7", "zlib", "utf-16")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_forms_are_utf8_whatever_they_say(both: Instance, encoding: str) -> None:
    both.competition(limits={"submissions_per_day": 50})
    message = "\\ud800 +2AA- é"
    body = (
        f'--b\r\nContent-Disposition: form-data; name="message"\r\n\r\n{message}\r\n'
        '--b\r\nContent-Disposition: form-data; name="file"; filename="é.py"\r\n\r\n'
    ).encode() + GOOD_CODE
    kind = {"Content-Type": f"multipart/form-data; Charset = {encoding}; boundary=b"}
    path = "/api/v1/competitions/digits/submissions"
    sent = {"content": body + b"\r\n--b--\r\n", "headers": both.participant() | kind}
    answer = both.client.post(path, **sent)  # type: ignore[arg-type]
    assert answer.status_code == 201, answer.text
    with both.database.read() as session:
        stored = session.get_one(Submission, answer.json()["id"])
        assert (stored.message, stored.filename) == (message, "é.py")


@pytest.mark.parametrize("name", ["Referer", "Origin"])
@pytest.mark.parametrize("address", ["http://[", "http://[::1", "http://\u2100.org", "//[/"])
def test_malformed_address_of_the_page_before_breaks_nothing(server: Instance, name: str, address: str) -> None:
    headers = {b"Accept": b"text/html", name.encode(): address.encode()}
    for path in ("/nowhere", "/account", "/login", "/submissions/none"):
        assert server.client.get(path, headers=headers).status_code < 500
        assert server.client.post(path, headers=headers, data={"a": "b"}).status_code < 500
