"""Bodies that come slowly, or many at once, hold memory and temporary disk from others."""

import asyncio
import json
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.types import Message

from server import request_bodies
from server.problem_details import add_handlers
from server.request_bodies import BodyLimit, count_body_for
from server.shares import Shares

KIB = 1024


@pytest.fixture(autouse=True)
def _short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "WINDOW_S", 0.2)


class Sender:
    """An ASGI client that says itself when each piece of its body comes."""

    def __init__(self, app: FastAPI, client: str = "192.0.2.1", *, owner: str = "") -> None:
        headers = [(b"host", b"x"), (b"content-type", b"application/octet-stream"), (b"x-owner", owner.encode())]
        self.scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/send", "raw_path": b"/send", "query_string": b"", "root_path": "", "headers": headers,
            "client": (client, 1), "server": ("x", 80), "state": {},
        }  # fmt: skip
        self.pieces: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.answer = asyncio.create_task(app(self.scope, self.pieces.get, self._send))

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def send(self, size: int, *, more: bool = True) -> None:
        self.pieces.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": more})
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self) -> int:
        if not self.answer.done():
            await self.send(0, more=False)
        await self.answer
        return self.status

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def problem(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.sent[1]["body"])
        return found

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


def make_app(*, least_rate: float = 0.0, within_s: float = 0.0, per_owner: int = 0, in_all: int = 0) -> FastAPI:
    app = FastAPI()
    add_handlers(app)
    app.state.shares = Shares(per_owner=per_owner, in_all=in_all, what="files under way")
    limits = {"least_rate": least_rate, "within_s": within_s, "shares": app.state.shares}
    app.add_middleware(BodyLimit, limits=(), others=1 << 20, **limits)

    @app.post("/send")
    async def send(request: Request) -> int:
        if owner := request.headers.get("x-owner"):
            count_body_for(request, owner)
        return len(await request.body())

    return app


def run(step: Any) -> None:
    asyncio.run(asyncio.wait_for(step(), 30))


def test_body_below_the_least_rate_is_refused() -> None:
    async def step() -> None:
        sender = Sender(make_app(least_rate=100 * KIB))
        await sender.send(500 * KIB)  # what came before does not pay for what does not come now
        for _ in range(8):
            await asyncio.sleep(0.1)
            await sender.send(1)
        assert sender.answer.done()
        assert (sender.status, sender.problem["type"]) == (408, "urn:lethe:problem:too-slow")
        assert "at least 100 KiB/s" in sender.problem["detail"]
        assert sender.headers[b"connection"] == b"close"

    run(step)


def test_body_at_the_least_rate_is_taken() -> None:
    async def step() -> None:
        sender = Sender(make_app(least_rate=10 * KIB))
        for _ in range(8):
            await asyncio.sleep(0.1)
            await sender.send(4 * KIB)
        assert await sender.end() == 200

    run(step)


def test_body_beyond_its_deadline_is_refused() -> None:
    async def step() -> None:
        sender = Sender(make_app(within_s=0.5))
        for _ in range(8):
            await asyncio.sleep(0.1)
            await sender.send(KIB)
        assert (sender.status, sender.problem["type"]) == (408, "urn:lethe:problem:too-slow")
        assert "within 0.5 s" in sender.problem["detail"]

    run(step)


@pytest.mark.parametrize("owners", [("", ""), ("ada", "ada")])
def test_one_sender_holds_its_share_only(owners: tuple[str, str]) -> None:
    async def step() -> None:
        app = make_app(per_owner=100 * KIB)
        first, second = (Sender(app, owner=owner) for owner in owners)
        await first.send(90 * KIB)
        await second.send(20 * KIB)
        assert (second.status, second.problem["type"]) == (429, "urn:lethe:problem:rate-limited")
        assert second.headers[b"retry-after"]
        other = Sender(app, client="192.0.2.2", owner="bob" if owners[0] else "")
        await other.send(90 * KIB)
        assert (await first.end(), await other.end()) == (200, 200)
        assert app.state.shares.total == 0
        again = Sender(app, owner=owners[0])
        await again.send(90 * KIB)
        assert await again.end() == 200

    run(step)


def test_single_body_larger_than_the_share_is_taken() -> None:
    async def step() -> None:
        sender = Sender(make_app(per_owner=100 * KIB))
        await sender.send(300 * KIB)
        assert await sender.end() == 200

    run(step)


def test_all_bodies_hold_so_much_together() -> None:
    async def step() -> None:
        app = make_app(in_all=100 * KIB)
        first, second = Sender(app, owner="ada"), Sender(app, owner="bob")
        await first.send(90 * KIB)
        await second.send(20 * KIB)
        assert (second.status, second.problem["type"]) == (503, "urn:lethe:problem:overloaded")
        assert await first.end() == 200

    run(step)


def test_body_that_is_not_whole_gives_its_share_back() -> None:
    async def step() -> None:
        app = make_app(per_owner=100 * KIB)
        sender = Sender(app)
        await sender.send(50 * KIB)
        sender.pieces.put_nowait({"type": "http.disconnect"})
        await sender.answer
        assert app.state.shares.total == 0

    run(step)
