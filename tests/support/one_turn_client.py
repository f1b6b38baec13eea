"""Starlette's test client, but a request takes one turn of the application's thread where its own takes seven.

Tests of the server ask tens of thousands of requests: each turn wakes another thread and waits for it.
"""

from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import anyio
import httpx2
from fastapi.testclient import TestClient
from starlette.types import Message


class OneTurnClient(TestClient):
    """Asks the application as a browser on this machine would. An exception of the application is an answer of 500."""

    def __init__(self, app: Any, *, base_url: str) -> None:
        super().__init__(app, base_url=base_url, raise_server_exceptions=False)
        self._transport = _Transport(self)


class _Transport(httpx2.BaseTransport):
    def __init__(self, client: TestClient) -> None:
        self.client = client

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(url.path),
            "raw_path": url.raw_path.split(b"?", 1)[0],
            "root_path": "",
            "scheme": url.scheme,
            "query_string": url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("testclient", 50000),
            "server": (url.host, url.port or {"http": 80, "https": 443}[url.scheme]),
            "state": self.client.app_state.copy(),
        }
        assert self.client.portal, "a request before the application was started"
        status, headers, content = self.client.portal.call(self._answer, scope, request.read())
        body = httpx2.ByteStream(b"" if request.method == "HEAD" else content)
        return httpx2.Response(status, headers=headers, stream=body, request=request)

    async def _answer(self, scope: dict[str, Any], body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        status, headers, content, ended = 500, [], bytearray(), anyio.Event()
        asked: list[Message] = [{"type": "http.request", "body": body}]

        async def receive() -> Message:
            if not asked:
                await ended.wait()
                return {"type": "http.disconnect"}
            return asked.pop()

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message.get("headers", []))
            elif message["type"] == "http.response.body":
                content.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    ended.set()

        with suppress(Exception):
            await self.client.app(scope, receive, send)
        return status, headers, bytes(content)
