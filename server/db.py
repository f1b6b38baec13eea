"""Engine, limits of its connections, sessions and column types. The opener of a session commits."""

import itertools
import random
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self, TypeVar

import psycopg
import structlog
from psycopg import errors
from psycopg.abc import PQGen
from sqlalchemy import (
    JSON,
    DateTime,
    Delete,
    Dialect,
    Engine,
    Float,
    MetaData,
    String,
    TypeDecorator,
    Update,
    create_engine,
    event,
    literal,
    select,
)
from sqlalchemy.engine import Connection, CursorResult
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Session, sessionmaker
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

RV = TypeVar("RV")

CONNECT_TIMEOUT_S = 3
PING_TIMEOUT_S = 3.0  # of a connection from the pool, before it is used
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
        limits: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S, **TCP}
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
    """Set timeouts on the connections of `engine`, and discard dead ones of its pool; None: long statements."""
    event.listen(engine, "do_connect", _Connector(statement_within_s))
    usual = engine.dialect.do_ping

    def ping(connection: Any) -> bool:
        with connection.answering_within(PING_TIMEOUT_S):
            return usual(connection)

    engine.dialect.do_ping = ping  # type: ignore[method-assign, assignment]  # SQLAlchemy has no event for a ping of the pool's
    return engine


def changes_one_row(session: Session, statement: Update) -> bool:
    """Run an update whose conditions name one row and its expected state. Return False if that is no longer so."""
    return changed_rows(session, statement) == 1


def changed_rows(session: Session, statement: Update | Delete) -> int:
    """Run an update or a deletion. Return how many rows it changed."""
    result = session.execute(statement)
    return result.rowcount if isinstance(result, CursorResult) else 0


log = structlog.get_logger()
DAY = timedelta(days=1)
T = TypeVar("T")

POOL = {"pool_size": 10, "max_overflow": 10}
STATEMENT_TIMEOUT_S = 30.0  # what PostgreSQL may take for one statement of a server or a worker
CONNECTIONS = sum(POOL.values())  # that one process has at most

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """A time. Aware on both sides; stored as UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time needs a time zone, {value!r} has none")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class EnumText(TypeDecorator[StrEnum]):
    """A member of a StrEnum, stored as its value."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[StrEnum], length: int) -> None:
        super().__init__(length)
        self.kind = kind

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:
        return None if value is None else self.kind(value)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {datetime: UtcDateTime, dict[str, Any]: JSON, list[Any]: JSON, str: String}  # noqa: RUF012 (SQLAlchemy's own convention)


def start_of_day(at: datetime) -> datetime:
    """Return midnight UTC of that day: when quotas and budgets begin."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class database_time(FunctionElement[datetime]):  # noqa: N801 (an SQL function, written as SQL writes them)
    """The database's own clock, `seconds` from now, in SQL: leases and queues go by it alone."""

    inherit_cache = True
    type = UtcDateTime()
    name = "database_time"

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(literal(seconds, Float()))


@compiles(database_time, "postgresql")
def _database_time_on_postgresql(element: database_time, compiler: SQLCompiler, **options: Any) -> str:
    return f"(clock_timestamp() + make_interval(secs => {compiler.process(element.clauses, **options)}))"


@compiles(database_time, "sqlite")
def _database_time_on_sqlite(element: database_time, compiler: SQLCompiler, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    return f"(strftime('%Y-%m-%d %H:%M:%f', 'now', {seconds} || ' seconds') || '000')"


def clock(session: Session) -> datetime:
    """Return the current time by the database's clock."""
    return session.scalars(select(database_time())).one()


def clock_difference(session: Session) -> timedelta:
    """Return how far the database's clock is ahead of this machine's; zero below a second, which asking may take."""
    ahead = clock(session) - now()
    return ahead if abs(ahead) >= timedelta(seconds=1) else timedelta(0)


def new_id() -> str:
    """Return a fresh identifier that tells nothing about how many came before it."""
    return secrets.token_hex(8)


def make_engine(url: str, *, statement_within_s: float | None = STATEMENT_TIMEOUT_S) -> Engine:
    """Return an engine for `url`; SQLite gets WAL, foreign keys and real transactions."""
    if url.startswith("sqlite"):
        engine = create_engine(url, connect_args={"timeout": 30, "check_same_thread": False}, **POOL)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), pool_pre_ping=True, **POOL)
    return bound(engine, statement_within_s=statement_within_s)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not open transactions of its own; _begin_sqlite does
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", "synchronous=NORMAL", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that first reads and then writes cannot wait for the write lock in WAL mode: writers
    # take it at once, which is also what makes a quota's count and insert one step.
    writes = connection.get_execution_options().get("lethe_write", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class Database:
    """Sessions on one engine: `write()` commits at its end, `read()` never does."""

    def __init__(self, url: str) -> None:
        self.engine = make_engine(url)
        self._write = sessionmaker(self.engine, expire_on_commit=False)
        self._read = sessionmaker(self.engine.execution_options(lethe_write=False), expire_on_commit=False)

    @contextmanager
    def write(self) -> Iterator[Session]:
        with self._write() as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        with self._read() as session:
            yield session

    def retrying(self, step: Callable[[Session], T], *, within_s: float = 60.0) -> T:
        """Run `step` in its own transaction, retried on transient errors. Return its result.

        A deadlock's loser, a database that restarts and a connection that broke are tried again until `within_s` is
        over. `step` must be safe to run twice: a commit may have succeeded although its answer was lost.
        """
        deadline = time.monotonic() + within_s
        for attempt in itertools.count():
            try:
                with self.write() as session:
                    return step(session)
            except DBAPIError as error:
                if not _is_transient(error) or time.monotonic() > deadline:
                    raise
                log.warning("transaction tried again", attempt=attempt + 1, error=type(error.orig).__name__)
            time.sleep(min(0.05 * 2**attempt, 2.0) * random.uniform(0.5, 1.0))  # noqa: S311 (spreads retries)
        raise AssertionError("the count of attempts has no end")

    def dispose(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()


def database_message(error: Exception) -> str:
    """Return the database's own words, in one line, without statement and parameters."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


# deadlock, serialization failure, lock not available, server shutting down or starting up, too many connections
TRANSIENT_STATES = frozenset({"40P01", "40001", "55P03", "57P01", "57P02", "57P03", "53300"})


def _is_transient(error: DBAPIError) -> bool:
    """Return whether the same transaction may succeed a moment later."""
    if error.connection_invalidated or getattr(error.orig, "sqlstate", None) in TRANSIENT_STATES:
        return True
    cause = error.orig
    if isinstance(cause, sqlite3.OperationalError):
        return cause.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return isinstance(cause, psycopg.OperationalError) and cause.sqlstate is None  # no answer at all: it is away
