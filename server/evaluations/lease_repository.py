"""SQL of the steps of a lease that every shard takes: claimed, held by heartbeats, closed.

Their statements are put together once per process and name tables instead of classes. At a few rows each, SQLAlchemy's
own work is most of what a step costs, and a shard of short runs takes many.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, cast

from sqlalchemy import (
    ColumnElement,
    Float,
    Insert,
    Integer,
    ScalarSelect,
    Select,
    String,
    Table,
    Update,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.sql.dml import ReturningUpdate

from server.db import UtcDateTime, database_time, now
from server.evaluations.claimed_shard import ClaimedShard
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardAttempt, ShardKind, ShardState
from server.models.submission import Stage, Submission
from server.queue import ROUNDS, Turn

T = TypeVar("T")

SHARDS = cast(Table, Shard.__table__)
ATTEMPTS = cast(Table, ShardAttempt.__table__)
EVALUATIONS = cast(Table, Evaluation.__table__)
SUBMISSIONS = cast(Table, Submission.__table__)
OTHERS = SHARDS.alias("others")


@dataclass(frozen=True)
class EvaluationRuns:
    """How far an evaluation's runs are. wall_time_s: participants' clock. unfinished_shards: checks among them."""

    wall_time_s: float
    unfinished_shards: int


def context(session: Session, evaluation_id: str) -> tuple[Evaluation, Submission, Split, Competition]:
    """Return what a shard of the evaluation belongs to."""
    return session.execute(_context(), {"evaluation": evaluation_id}).one()


def begin(session: Session, shard: Shard, evaluation: Evaluation, submission: Submission) -> None:
    """Record the attempt that `shard` is in, and that its evaluation and submission have begun."""
    made = {"shard_id": shard.id, "attempt": shard.attempt, "worker": shard.worker}
    session.execute(_made(), made)
    if evaluation.state == EvaluationState.QUEUED.value:
        started: dict[str, object] = {"state": EvaluationState.RUNNING.value, "started_at": now()}
        _set(session, EVALUATIONS, evaluation, started)
    if submission.stage == Stage.QUEUED:
        stage = Stage.SMOKE if shard.kind == ShardKind.SMOKE.value else Stage.RUNNING
        _set(session, SUBMISSIONS, submission, {"stage": stage.value})
    if shard.turn == Turn.BEGUN.first:
        session.execute(_begun(), {"evaluation": evaluation.id})


def hold(
    session: Session, shard: ClaimedShard, *, lease_s: float, runs_done: int, wall_time_s: float
) -> EvaluationRuns | None:
    """Extend a lease. Return None if the attempt is no longer the current one."""
    return _runs(session, _held(lease_s), shard, done=runs_done, spent=wall_time_s)


def close(
    session: Session, shard: ClaimedShard, *, wall_time_s: float, result_key: str | None, result_sha256: str | None
) -> EvaluationRuns | None:
    """Move a leased shard to done, and end its attempt. Return None if the attempt is no longer the current one.

    Holds the evaluation until the transaction ends: closing shards one after the other is what makes the last one
    know that it is the last.
    """
    session.execute(_lock(), {"evaluation": shard.evaluation_id})
    result = {"key": result_key, "sha256": result_sha256}
    runs = _runs(session, _closed(), shard, done=shard.n_runs, spent=wall_time_s, **result)
    if runs is not None:
        end_attempt(session, shard.shard_id, attempt=shard.attempt, outcome="done", runs_done=shard.n_runs)
    return runs


def end_attempt(
    session: Session, shard_id: int, *, attempt: int, outcome: str, runs_done: int = 0, detail: str = ""
) -> None:
    """Record how an attempt ended, once."""
    ended = {"how": outcome, "at": now(), "done": runs_done, "why": detail}
    session.execute(_ended(), {"shard": shard_id, "made": attempt} | ended)


def _set(session: Session, table: Table, row: Evaluation | Submission, values: dict[str, object]) -> None:
    """Change a row as a flush would, at a fraction of its cost."""
    session.execute(_changed(table, tuple(values)), {"row": row.id} | {f"new_{k}": v for k, v in values.items()})
    for name, value in values.items():
        set_committed_value(row, name, value)


def _runs(
    session: Session, statement: ReturningUpdate[float, int], shard: ClaimedShard, **values: object
) -> EvaluationRuns | None:
    of = {"evaluation": shard.evaluation_id, "shard": shard.shard_id, "current": shard.attempt}
    row = session.execute(statement, of | values).one_or_none()
    return None if row is None else EvaluationRuns(wall_time_s=row[0], unfinished_shards=row[1])


@lru_cache(maxsize=1)
def _context() -> Select[Evaluation, Submission, Split, Competition]:
    return (
        select(Evaluation, Submission, Split, Competition)
        .join(Submission, Submission.id == Evaluation.submission_id)
        .join(Split, Split.id == Evaluation.split_id)
        .join(Competition, Competition.id == Split.competition_id)
        .where(Evaluation.id == bindparam("evaluation", type_=String()))
    )


@lru_cache(maxsize=1)
def _made() -> Insert:
    return insert(ATTEMPTS).inline()


@lru_cache(maxsize=1)
def _begun() -> Update:
    """Give the evaluation's other shards priority over new ones; locked rows are moved by their own claim."""
    open_runs = (
        select(SHARDS.c.id)
        .where(
            SHARDS.c.evaluation_id == bindparam("evaluation", type_=String()),
            SHARDS.c.kind == ShardKind.RUNS.value,
            SHARDS.c.state == ShardState.QUEUED.value,
            SHARDS.c.turn >= Turn.NEW.first,
            SHARDS.c.turn < Turn.NEW.first + ROUNDS,
        )
        .with_for_update(skip_locked=True, key_share=True)
    )
    return update(SHARDS).where(SHARDS.c.id.in_(open_runs)).values(turn=Turn.BEGUN.first)


@lru_cache(maxsize=8)
def _changed(table: Table, names: tuple[str, ...]) -> Update:
    new = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in names}
    # A claim of another shard of the same evaluation may hold the row: it does the same, and nobody waits for it.
    chosen = select(table.c.id).where(table.c.id == bindparam("row", type_=String()))
    free = chosen.with_for_update(skip_locked=True, key_share=True)
    return update(table).where(table.c.id.in_(free)).values(new)


@lru_cache(maxsize=1)
def _lock() -> Select[str]:
    chosen = EVALUATIONS.c.id == bindparam("evaluation", type_=String())
    return select(EVALUATIONS.c.id).where(chosen).with_for_update()


@lru_cache(maxsize=8)
def _held(lease_s: float) -> ReturningUpdate[float, int]:
    return (
        update(SHARDS)
        .where(_is_current())
        .values(
            lease_expires_at=database_time(lease_s),
            runs_done=bindparam("done", type_=Integer()),
            wall_time_s=bindparam("spent", type_=Float()),
        )
        .returning(*_totals(is_done=False))
    )


@lru_cache(maxsize=1)
def _closed() -> ReturningUpdate[float, int]:
    return (
        update(SHARDS)
        .where(_is_current())
        .values(
            state=ShardState.DONE.value,
            lease_expires_at=None,
            runs_done=bindparam("done", type_=Integer()),
            wall_time_s=bindparam("spent", type_=Float()),
            result_key=bindparam("key", type_=String()),
            result_sha256=bindparam("sha256", type_=String()),
        )
        .returning(*_totals(is_done=True))
    )


@lru_cache(maxsize=1)
def _ended() -> Update:
    return (
        update(ATTEMPTS)
        .where(
            ATTEMPTS.c.shard_id == bindparam("shard", type_=Integer()),
            ATTEMPTS.c.attempt == bindparam("made", type_=Integer()),
            ATTEMPTS.c.ended_at.is_(None),
        )
        .values(
            outcome=bindparam("how", type_=String()),
            ended_at=bindparam("at", type_=UtcDateTime()),
            runs_done=bindparam("done", type_=Integer()),
            detail=bindparam("why", type_=String()),
        )
    )


def _is_current() -> ColumnElement[bool]:
    # The state as the partial indexes have it: a bound parameter would keep a prepared statement from using them.
    return (
        (SHARDS.c.id == bindparam("shard", type_=Integer()))
        & (SHARDS.c.attempt == bindparam("current", type_=Integer()))
        & (SHARDS.c.state == literal_column(f"'{ShardState.LEASED.value}'"))
    )


def _totals(*, is_done: bool) -> tuple[ColumnElement[float], ColumnElement[int]]:
    """Return the two figures of `EvaluationRuns`.

    A statement does not see what it changes itself, on PostgreSQL surely and on SQLite perhaps: of the shard that is
    changed its new values are counted, and of the table the other shards.
    """
    of_runs = OTHERS.c.kind == literal_column(f"'{ShardKind.RUNS.value}'")
    spent = _of_others(func.coalesce(func.sum(OTHERS.c.wall_time_s).filter(of_runs), literal_column("0.0")))
    unfinished = _of_others(func.count().filter(OTHERS.c.state != literal_column(f"'{ShardState.DONE.value}'")))
    own = literal_column("0" if is_done else "1", Integer())
    return spent + SHARDS.c.wall_time_s, unfinished + own


def _of_others(figure: ColumnElement[T]) -> ScalarSelect[T]:
    return (
        select(figure)
        .where(
            OTHERS.c.evaluation_id == bindparam("evaluation", type_=String()),
            OTHERS.c.kind != literal_column(f"'{ShardKind.SMOKE.value}'"),
            OTHERS.c.id != bindparam("shard", type_=Integer()),
        )
        .scalar_subquery()
    )
