"""A small HTTP client on a bare socket: it costs so little that what is measured is the server."""

import asyncio
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    status: int
    n_bytes: int
    seconds: float
    retry_after: str = ""


class Connection:
    """One kept-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, cookie: str, token: str) -> None:
        self._reader, self._writer = reader, writer
        self._cookie, self._token = cookie, token

    @classmethod
    async def open(cls, port: int, *, cookie: str = "", token: str = "") -> "Connection":
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return cls(reader, writer, cookie=cookie, token=token)

    async def get(self, path: str) -> Answer:
        """Return the answer after all of it came; of a stream of events, which does not end, after the first."""
        started = time.perf_counter()
        self._ask(path)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = await self._body(head)
        seconds = time.perf_counter() - started
        return Answer(int(head[9:12]), length, seconds, retry_after=_header(head, b"retry-after").decode())

    async def first_event(self, path: str) -> bytes:
        """Return the first event of a stream, which stays open."""
        self._ask(path)
        await self._reader.readuntil(b"\r\n\r\n")
        return await self._reader.readuntil(b"\n\n")

    async def _body(self, head: bytes) -> int:
        """Read the body and return its bytes."""
        if length := _header(head, b"content-length"):
            return len(await self._reader.readexactly(int(length)))
        if _header(head, b"content-type").startswith(b"text/event-stream"):
            return len(await self._reader.readuntil(b"\n\n"))
        total = 0
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            total += len(await self._reader.readexactly(size + 2)) - 2
        await self._reader.readexactly(2)
        return total

    def _ask(self, path: str) -> None:
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Accept-Encoding: gzip"]
        if self._cookie:
            lines.append(f"Cookie: {self._cookie}")
        if self._token:
            lines.append(f"Authorization: Bearer {self._token}")
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    def close(self) -> None:
        self._writer.close()


def _header(head: bytes, name: bytes) -> bytes:
    """Return the value of a header of an answer, empty if it has none."""
    lines = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    return next((value.strip() for found, _, value in lines if found == name), b"")
