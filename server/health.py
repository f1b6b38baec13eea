"""Whether this process lives, and whether what it needs does."""

from collections.abc import Callable

import structlog
from fastapi import APIRouter, Response, status
from kombu.exceptions import OperationalError as BrokerError
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from server.deps import get_database
from server.errors import AppError
from server.queue import client
from server.storage import get_storage

log = structlog.get_logger()
router = APIRouter(tags=["health"])

PROBE = "health/probe"
BROKER_TIMEOUT_S = 2


class Health(BaseModel):
    """The process answers."""

    status: str = "ok"


class Readiness(BaseModel):
    """Each thing that the server needs: "ok", or what is wrong with it."""

    ready: bool
    database: str
    storage: str
    queue: str


@router.get("/healthz")
def healthz() -> Health:
    """Say that this process lives."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "Something that it needs is away"}})
def readyz(response: Response) -> Readiness:
    """Say whether the database, the storage and the queue answer.

    The queue may be away without a loss: what was accepted is found again. It is reported all the same.
    """
    database = _check("database", _database, SQLAlchemyError)
    storage = _check("storage", _storage, (AppError, OSError))
    queue = _check("queue", _queue, (BrokerError, OSError))
    ready = database == storage == queue == "ok"
    if not ready:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
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


def _queue() -> None:
    with client().connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=BROKER_TIMEOUT_S)
