"""Whether this process lives, and whether what it needs does."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any

import redis
import structlog
from fastapi import APIRouter, Request, Response, status
from pydantic import BaseModel
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import text

from server.config import get_settings
from server.deps import get_database
from server.embedded.redis import client_url
from server.storage import get_storage

log = structlog.get_logger()
router = APIRouter(tags=["health"])

PROBE = "health/probe"
BROKER_TIMEOUT_S = 2
PROBE_KEPT_S = 60
PROBED = ("redis://", "rediss://", "unix://")  # the brokers that redis-py speaks to by their address alone
NOT_CHECKED = "not checked"
CHECKED_EVERY_S = 1.0
ANSWER_TIMEOUT_S = 2.5  # Kubernetes' probe waits 3 s


class Health(BaseModel):
    """The process answers."""

    status: str = "ok"


class Readiness(BaseModel):
    """Each part: "ok", what is wrong, or "not checked" of a queue that is not Redis. ready: the database answers."""

    ready: bool
    database: str
    storage: str
    queue: str

    def answers(self) -> dict[str, bool]:
        """Return whether each part answers, as far as it is looked at."""
        return {name: getattr(self, name) in ("ok", NOT_CHECKED) for name in PROBES}


@router.get("/healthz")
async def healthz() -> Health:
    """Liveness probe."""
    return Health()


class Checks:
    """Cached health checks: one thread per service, at most once a second, so that a hanging one delays no request."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}

    async def get(self) -> Readiness:
        """Return the parts' states. Ready is who reaches the database: all else is found again, or refused alone."""
        for name, probe in PROBES.items():
            look = self._looks.get(name)
            if look is None or (look.found.done() and look.began + CHECKED_EVERY_S < time.monotonic()):
                self._looks[name] = _Look(name, probe)
        looks = dict(self._looks)
        await asyncio.wait([asyncio.wrap_future(look.found) for look in looks.values()], timeout=ANSWER_TIMEOUT_S)
        states = {name: look.state for name, look in looks.items()}
        return Readiness(ready=states["database"] == "ok", **states)


class _Look:
    """One look at one part, in a thread that ends with the process: a silent part may hold it for long."""

    def __init__(self, name: str, probe: Callable[[], str]) -> None:
        self.began = time.monotonic()
        self.found: Future[str] = Future()
        self._name, self._probe = name, probe
        Thread(target=self._run, name=f"look-at-{name}", daemon=True).start()

    @property
    def state(self) -> str:
        if self.found.done():
            return self.found.result()
        return f"does not answer (silent for {time.monotonic() - self.began:.0f} s)"

    def _run(self) -> None:
        try:
            self.found.set_result(self._probe())
        except Exception as error:  # whatever it is, the part cannot be used; addresses and paths stay in the log
            log.warning("does not answer", part=self._name, error=str(error))
            self.found.set_result(f"does not answer ({type(error).__name__})")


@router.get("/readyz", responses={503: {"model": Readiness, "description": "The database is away"}})
async def readyz(request: Request, response: Response) -> Readiness:
    """Say whether this process can serve: whether the database answers it.

    Storage and queue are reported, and do not count: boards need neither, and without the queue nothing is lost.
    """
    readiness: Readiness = await request.app.state.readiness.get()
    if not readiness.ready:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    return readiness


def _database() -> str:
    with get_database().read() as session:
        session.execute(text("SELECT version_num FROM alembic_version"))
    return "ok"


def _storage() -> str:
    storage = get_storage()
    storage.write(PROBE, b"ok")
    storage.read(PROBE)
    return "ok"


def _queue() -> str:
    """Write to the broker: one that is full still lets itself be connected to, and one that is frozen as well."""
    url = client_url(get_settings().resolved_redis_url)
    if not url.startswith(PROBED):
        return NOT_CHECKED
    limits: dict[str, Any] = {"socket_timeout": BROKER_TIMEOUT_S, "socket_connect_timeout": BROKER_TIMEOUT_S}
    with redis.Redis.from_url(url, **limits, retry=Retry(NoBackoff(), 0)) as broker:
        broker.set(PROBE, b"", ex=PROBE_KEPT_S)
    return "ok"


PROBES = {"database": _database, "storage": _storage, "queue": _queue}
