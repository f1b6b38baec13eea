"""A request's head is limited, in however many pieces it comes; what the parser below would keep is never much."""

import asyncio
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from server.serve import MOST_HEAD_BYTES, ImpatientHttp

PIECE = 1000
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.is_over = b"", False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def app(_scope: Any, receive: Any, send: Any) -> None:
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
    await send({"type": "http.response.body", "body": b"%8d" % size})


def served(data: bytes, *, piece: int = PIECE) -> tuple[bytes, int]:
    """Return the answer to what comes in pieces, and how many bytes were read before the end of the connection."""

    async def serve() -> tuple[bytes, int]:
        config = Config(app, http=ImpatientHttp, log_config=None, lifespan="off", reset_contextvars=False)
        wire, one = Wire(), ImpatientHttp(config, ServerState(), {})
        one.connection_made(wire)
        read = 0
        while read < len(data) and not wire.is_over:
            one.data_received(data[read : read + piece])
            read += piece
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        sent = wire.sent
        one.connection_lost(None)
        return sent, read

    return asyncio.run(serve())


ENDLESS = {
    "a header": b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 20),
    "an address": b"GET /" + b"a" * (1 << 20),
    "headers": b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 100_000,
    "what follows the body": CHUNKED + b"1\r\na\r\n0\r\nX: " + b"a" * (1 << 20),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_head_without_end_is_refused(what: str) -> None:
    sent, read = served(ENDLESS[what])
    assert sent.startswith(b"HTTP/1.1 400 ")
    assert read <= MOST_HEAD_BYTES + 2 * PIECE


@pytest.mark.parametrize("header", [b"X: " + b"a" * MOST_HEAD_BYTES, b"X: aaaa\r\n" * (MOST_HEAD_BYTES // 5)])
def test_whole_head_that_is_too_long_is_refused(header: bytes) -> None:
    sent, _ = served(b"GET / HTTP/1.1\r\n" + header + b"\r\n\r\n", piece=1 << 20)
    assert sent.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("piece", [PIECE, 1 << 20])
def test_long_bodies_and_usual_heads_are_read(piece: int) -> None:
    whole = b"POST / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\nContent-Length: 100000\r\n\r\n" + b"a" * 100_000
    assert served(whole, piece=piece)[0].endswith(b"  100000")
    assert served(CHUNKED + b"1\r\na\r\n" * 20_000 + b"0\r\n\r\n", piece=piece)[0].endswith(b"   20000")
