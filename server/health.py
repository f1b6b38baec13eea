"""Whether this process lives, and whether what it needs does."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import redis
import structlog
from fastapi import APIRouter, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from lethe.errors import AppError
from server.config import get_settings
from server.deps import get_database
from server.embedded.redis import client_url
from server.queue import BROKER_FAILURES
from server.storage import get_storage

log = structlog.get_logger()
router = APIRouter(tags=["health"])

PROBE = "health/probe"
BROKER_TIMEOUT_S = 2
PROBE_KEPT_S = 60
PROBED = ("redis://", "rediss://", "unix://")  # the brokers that redis-py speaks to by their address alone
NOT_CHECKED = "not checked"
CHECKED_EVERY_S = 1.0


class Health(BaseModel):
    """The process answers."""

    status: str = "ok"


class Readiness(BaseModel):
    """Each thing that the server needs: "ok", what is wrong with it, or "not checked" of a queue that is no Redis."""

    ready: bool
    database: str
    storage: str
    queue: str


@router.get("/healthz")
async def healthz() -> Health:
    """Say that this process lives."""
    return Health()


class Checks:
    """The parts' last check. Any number may ask: one looks, at most every second, on its own connection."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._found: tuple[float, Readiness] | None = None

    async def get(self) -> Readiness:
        async with self._lock:
            if self._found is None or self._found[0] + CHECKED_EVERY_S < time.monotonic():
                found = await run_in_threadpool(_check_all)
                self._found = (time.monotonic(), found)  # from now on: who waited meanwhile does not look again
            return self._found[1]


@router.get("/readyz", responses={503: {"model": Readiness, "description": "Something that it needs is away"}})
async def readyz(request: Request, response: Response) -> Readiness:
    """Say whether the database, the storage and the queue answer.

    The queue may be away without a loss: what was accepted is found again. It is reported all the same.
    """
    readiness: Readiness = await request.app.state.readiness.get()
    if not readiness.ready:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    return readiness


def _check_all() -> Readiness:
    database = _check("database", _database, SQLAlchemyError)
    storage = _check("storage", _storage, (AppError, OSError))
    queue, url = NOT_CHECKED, client_url(get_settings().resolved_redis_url)
    if url.startswith(PROBED):
        queue = _check("queue", partial(_queue, url), (*BROKER_FAILURES, ValueError))
    ready = database == storage == "ok" and queue in ("ok", NOT_CHECKED)
    return Readiness(ready=ready, database=database, storage=storage, queue=queue)


def _check(name: str, probe: Callable[[], None], expected: type[Exception] | tuple[type[Exception], ...]) -> str:
    try:
        probe()
    except expected as error:
        log.warning("not ready", part=name, error=str(error))  # addresses and paths stay in the log
        return f"does not answer ({type(error).__name__})"
    return "ok"


def _database() -> None:
    with get_database().read() as session:
        session.execute(text("SELECT version_num FROM alembic_version"))


def _storage() -> None:
    storage = get_storage()
    storage.write(PROBE, b"ok")
    storage.read(PROBE)


def _queue(url: str) -> None:
    """Write to the broker: one that is full still lets itself be connected to, and one that is frozen as well."""
    limits: dict[str, Any] = {"socket_timeout": BROKER_TIMEOUT_S, "socket_connect_timeout": BROKER_TIMEOUT_S}
    with redis.Redis.from_url(url, **limits, retry=Retry(NoBackoff(), 0)) as broker:
        broker.set(PROBE, b"", ex=PROBE_KEPT_S)
