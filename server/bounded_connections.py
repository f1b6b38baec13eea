"""Connections to PostgreSQL that wait a limited time for it, also where it is silent and its host still acknowledges.

`statement_timeout` ends a statement in a server that works; the limits here end the wait for one that does not.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from sqlalchemy import Engine, event

RV = TypeVar("RV")

CONNECT_WITHIN_S = 3
PING_WITHIN_S = 3.0  # of a connection from the pool, before it is used
SILENT_FOR_S = 2.0  # beyond the limit of a statement, after which its connection is dropped
BACKOFF_FACTOR = 2.0  # times as long as a connection was waited for in vain, none is asked for again
TCP = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}


class BoundedConnection(psycopg.Connection[Any]):
    """Closes itself where PostgreSQL does not answer within `answer_within_s`; None: waits for ever."""

    answer_within_s: float | None = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if timeout is not None or self.answer_within_s is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.answer_within_s)
        except errors._WaitTimeout as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"PostgreSQL was silent for {self.answer_within_s:.0f} s") from error

    @contextmanager
    def answering_within(self, seconds: float) -> Iterator[None]:
        """Wait at most `seconds` for each answer."""
        usual, self.answer_within_s = self.answer_within_s, seconds
        try:
            yield
        finally:
            self.answer_within_s = usual


class _Connector:
    """Makes an engine's connections. Fails fast for a cool-down after a connection timeout."""

    def __init__(self, statement_within_s: float | None) -> None:
        self._statement_within_s = statement_within_s
        self._cooldown_until = 0.0

    def __call__(self, _dialect: Any, _record: Any, cargs: tuple[Any, ...], cparams: dict[str, Any]) -> Any:
        began = time.monotonic()
        if began < self._cooldown_until:
            raise psycopg.OperationalError("PostgreSQL did not answer a moment ago; it is asked again shortly")
        limits: dict[str, Any] = {"connect_timeout": CONNECT_WITHIN_S, **TCP}
        if self._statement_within_s is not None:
            limits["options"] = f"-c statement_timeout={round(1000 * self._statement_within_s)}"
        try:
            connection = BoundedConnection.connect(*cargs, **{**limits, **cparams})
        except psycopg.OperationalError:
            failed = time.monotonic()
            self._cooldown_until = failed + BACKOFF_FACTOR * (failed - began)
            raise
        if self._statement_within_s is not None:
            connection.answer_within_s = self._statement_within_s + SILENT_FOR_S
        return connection


def bound(engine: Engine, *, statement_within_s: float | None) -> Engine:
    """Let `engine` make bounded connections and discard those of its pool that are silent; None: long statements."""
    event.listen(engine, "do_connect", _Connector(statement_within_s))
    usual = engine.dialect.do_ping

    def ping(connection: Any) -> bool:
        with connection.answering_within(PING_WITHIN_S):
            return usual(connection)

    engine.dialect.do_ping = ping  # type: ignore[method-assign, assignment]  # SQLAlchemy has no event for a ping of the pool's
    return engine
